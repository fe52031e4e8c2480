"""`redflow worker run --reload`: what it restarts for, what becomes of the runs, and that it ends as a whole."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redflow_sdk import Client
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.source_watch import SourceWatch
from tests.cli.command import Command, redflow
from tests.cli.conftest import Start
from tests.eventually import eventually

FLOWS = """
import asyncio
from redflow_sdk import Context, workflow
from {package}.prices import price

@workflow(name="ask", queue="cli")
async def ask(ctx: Context) -> int:
    import {package}.late
    return price + {package}.late.extra

@workflow(name="wait", queue="cli")
async def wait(ctx: Context) -> int:
    await ctx.step.run("begun", str)
    if price < 5:
        await asyncio.Event().wait()
    return price

@workflow(name="deaf", queue="cli")
async def deaf(ctx: Context) -> None:
    await ctx.step.run("begun", str)
    while True:
        try:
            await asyncio.sleep(600)
        except BaseException:
            pass
"""
STARTS_WITHIN_S = 20.0

StartReloading = Callable[..., Awaitable[Command]]


def write(file: Path, text: str) -> None:
    """As editors do: it is there at once, or not at all."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A package of a user, and a module beside it that nobody imports."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "flows.py").write_text(FLOWS.format(package="shop"))
    (package / "prices.py").write_text("from offers import price\n")
    (package / "late.py").write_text("extra = 100\n")
    (tmp_path / "offers.py").write_text("price = 1\n")
    (tmp_path / "unrelated.py").write_text("price = 1\n")
    return tmp_path


@pytest.fixture
def reloading(app: Path, target: str, start: Start) -> StartReloading:
    """Starts it, and returns when its worker is connected."""

    async def begin(*arguments: str) -> Command:
        command = await start("worker", "run", "shop.flows", "--reload", "--target", target, *arguments, cwd=app)
        assert await command.error_line("connected to")
        return command

    return begin


def child_of(command: Command) -> int:
    """The process that it has started."""
    [child] = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
    return int(child)


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def outcome(client: Client, workflow: str) -> object:
    return await (await client.start(workflow, queue="cli")).result(timeout=STARTS_WITHIN_S)


async def test_a_change_restarts_the_worker_and_costs_its_runs_nothing(
    app: Path, client: Client, reloading: StartReloading
) -> None:
    command = await reloading()
    assert await outcome(client, "ask") == 101
    waiting = await client.start("wait", queue="cli")
    await eventually(lambda: client.get_run_steps(waiting.id), within=10)

    write(app / "offers.py", "price = 7\n")
    assert await command.error_line("has changed") == "redflow: offers.py has changed: restarting the worker"
    assert await waiting.result(timeout=STARTS_WITHIN_S) == 7
    run = await waiting.get()
    assert (run.attempt, run.losses) == (1, 0)
    assert run.delivery_count >= 2, "it was handed back"
    assert await outcome(client, "ask") == 107


@pytest.mark.parametrize("changed", ["shop/prices.py", "shop/late.py", "shop/new.py"])
async def test_it_watches_the_package_and_what_handlers_import_but_nothing_else(
    changed: str, app: Path, client: Client, reloading: StartReloading
) -> None:
    command = await reloading()
    assert await outcome(client, "ask") == 101
    write(app / "unrelated.py", "price = 2\n")
    write(app / changed, "price = extra = 3\n")
    assert await command.error_line("has changed") == f"redflow: {changed} has changed: restarting the worker"
    assert await command.error_line("connected to")
    command.send(signal.SIGTERM)
    ended = await command.end()
    assert ended.code == ExitCode.OK
    assert "has changed" not in ended.err


def test_a_module_that_comes_back_or_comes_from_elsewhere_with_its_old_time_has_changed(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(app)
    prices, away, older = app / "shop" / "prices.py", app / "prices.away", app / "prices.older"
    older.touch()
    os.utime(older, (1e9, 1e9))
    watch = SourceWatch("shop", app)
    watch.begin()
    prices.rename(away)
    assert watch.change() is None, "what is gone for good is missed by an import"
    watch.begin()
    away.rename(prices)
    assert watch.change() == "shop/prices.py"
    assert watch.change() is None
    began_ns = time.time_ns()
    while older.stat().st_ctime_ns <= began_ns:  # the clock of files is behind by some milliseconds
        os.utime(older, (1e9, 1e9))
    older.rename(app / "shop" / "new.py")
    assert watch.change() == "shop/new.py"


async def test_it_survives_an_error_in_the_code_and_goes_on_when_that_is_mended(
    app: Path, client: Client, reloading: StartReloading
) -> None:
    command = await reloading()
    write(app / "shop" / "prices.py", "price = = 1\n")
    said = await command.error_line("redflow: shop.flows")
    assert said == "redflow: shop.flows cannot be imported: SyntaxError: invalid syntax (prices.py, line 1)"
    assert await command.error_line() == "redflow: the worker has ended: waiting for a change"
    write(app / "shop" / "prices.py", "from bargains import price\n")
    assert "No module named 'bargains'" in await command.error_line("redflow: shop.flows")
    assert await command.error_line() == "redflow: the worker has ended: waiting for a change"
    write(app / "bargains.py", "price = 20\n")
    assert await command.error_line("has changed") == "redflow: bargains.py has changed: restarting the worker"
    assert await outcome(client, "ask") == 120


async def test_code_that_is_wrong_from_the_start_is_waited_for_too(app: Path, target: str, start: Start) -> None:
    good = (app / "shop" / "flows.py").read_text()
    (app / "shop" / "flows.py").write_text("def (:\n")
    command = await start("worker", "run", "shop.flows", "--reload", "--target", target, cwd=app)
    assert await command.error_line("waiting for a change")
    write(app / "shop" / "flows.py", good)
    assert await command.error_line("connected to")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_both(number: signal.Signals, reloading: StartReloading) -> None:
    command = await reloading()
    child = child_of(command)
    command.send(number)
    ended = await command.end()
    assert ended.code == ExitCode.OK
    assert "Traceback" not in ended.err
    assert is_gone(child)


async def test_ctrl_c_which_both_hear_ends_both_with_one_farewell(reloading: StartReloading) -> None:
    command = await reloading()
    child = child_of(command)
    os.kill(child, signal.SIGINT)
    command.send(signal.SIGINT)
    ended = await command.end()
    assert ended.code == ExitCode.OK
    assert "second signal" not in ended.err
    assert is_gone(child)


async def test_a_signal_ends_it_while_it_waits_for_a_change(app: Path, reloading: StartReloading) -> None:
    command = await reloading()
    write(app / "shop" / "prices.py", "price = = 1\n")
    assert await command.error_line("waiting for a change")
    command.send(signal.SIGINT)
    assert (await command.end()).code == ExitCode.OK


async def test_no_worker_outlives_its_parent_whatever_its_handlers_do(
    client: Client, reloading: StartReloading
) -> None:
    command = await reloading()
    child = child_of(command)
    handle = await client.start("deaf", queue="cli")
    await eventually(lambda: client.get_run_steps(handle.id), within=10)
    command.send(signal.SIGKILL)
    await eventually(lambda: is_gone(child), within=10)


async def test_a_command_line_that_is_wrong_ends_it() -> None:
    ended = await redflow("worker", "run", "./shop.py", "--reload")
    assert (ended.code, ended.error) == (ExitCode.USAGE, "./shop.py: must be MODULE or MODULE:ATTR, as in shop")
