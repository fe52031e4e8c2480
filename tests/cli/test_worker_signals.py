"""How `redflow worker run` ends, and with which exit code: by signals, and when a gateway will not have it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redflow_sdk import Client
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.command import PROGRAM
from tests.cli.conftest import Start
from tests.eventually import eventually
from tests.sdk.messages import session_error
from tests.sdk.scripted_gateway import ScriptedGateway, Times

FLOWS = """
import asyncio, logging.handlers, time
from redflow_sdk import Context, workflow

kept = logging.handlers.MemoryHandler(1000, target=logging.FileHandler("kept.log"))
logging.getLogger("shop").addHandler(kept)
left = []

async def be_deaf() -> None:
    while True:
        try:
            await asyncio.sleep(600)
        except BaseException:
            pass

async def numbers():
    try:
        while True:
            yield 1
    finally:
        await be_deaf()

async def block_when_canceled() -> None:
    try:
        await asyncio.sleep(600)
    finally:
        time.sleep(600)

@workflow(name="deaf", queue="cli")
async def deaf(ctx: Context) -> None:
    print("unflushed")
    logging.getLogger("shop").warning("unwritten")
    await ctx.step.run("begun", str)
    await be_deaf()

@workflow(name="leaves", queue="cli")
async def leaves(ctx: Context, what: str) -> None:
    print("unflushed")
    logging.getLogger("shop").warning("unwritten")
    if what == "generator":
        left.append(numbers())
        await anext(left[0])
    else:
        left.append(asyncio.create_task(globals()[what]()))

@workflow(name="quick", queue="cli")
async def quick(ctx: Context) -> str:
    return "done"
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(FLOWS)
    return tmp_path


@pytest.fixture
def scripted() -> Iterator[ScriptedGateway]:
    """A gateway that does what a test says."""
    gateway = ScriptedGateway(Times(), max_payload_bytes=1024)
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_each_signal_that_asks_for_the_end_drains(
    number: signal.Signals, app: Path, target: str, start: Start
) -> None:
    command = await start("worker", "run", "shop", "--target", target, cwd=app)
    assert await command.error_line("connected to")
    command.send(number)
    assert await command.error_line("disconnected from")
    assert (await command.end()).code == ExitCode.OK


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT] * 5])
async def test_a_handler_that_swallows_its_cancellation_keeps_the_process_no_longer_than_a_moment(
    signals: list[signal.Signals], app: Path, target: str, client: Client, start: Start
) -> None:
    grace = "0.1" if len(signals) == 1 else "60"
    command = await start("worker", "run", "shop", "--target", target, "--drain-grace", grace, cwd=app)
    handle = await client.start("deaf", queue="cli")
    await eventually(lambda: client.get_run_steps(handle.id), within=10)

    told_at = time.monotonic()
    for number in signals:
        command.send(number)
        await asyncio.sleep(0.3)  # as a person types: the later ones arrive while it ends
    ended = await command.end()
    assert time.monotonic() - told_at < 4, "one second for handlers, one for tasks, and some for a busy machine"
    assert (ended.code, ended.out) == (ExitCode.OK, "unflushed\n")
    assert (app / "kept.log").read_text() == "unwritten\n"
    assert ended.err.splitlines()[-1] == "redflow: leaving 1 task that has not ended"
    run = await handle.get()
    assert (run.status, run.losses) == ("queued", 0)


@pytest.mark.parametrize("what", ["be_deaf", "block_when_canceled", "generator"])
async def test_what_a_handler_has_left_behind_does_not_keep_the_process(
    what: str, app: Path, target: str, client: Client, start: Start
) -> None:
    command = await start("worker", "run", "shop", "--target", target, cwd=app)
    await (await client.start("leaves", what, queue="cli")).result(timeout=10)
    told_at = time.monotonic()
    command.send(signal.SIGTERM)
    ended = await command.end()
    assert time.monotonic() - told_at < 3
    assert (ended.code, ended.out) == (ExitCode.OK, "unflushed\n")
    assert (app / "kept.log").read_text() == "unwritten\n"
    assert ended.err.splitlines()[-1].startswith("redflow: leaving ")


async def test_under_nohup_a_worker_outlives_its_terminal(app: Path, target: str, client: Client, start: Start) -> None:
    command = await start("worker", "run", "shop", "--target", target, cwd=app, program=("nohup", *PROGRAM))
    assert await command.error_line("connected to")
    command.send(signal.SIGHUP)
    assert await (await client.start("quick", queue="cli")).result(timeout=10) == "done"
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK


async def test_a_worker_that_was_started_without_standard_streams_works_and_ends_well(
    app: Path, target: str, client: Client, start: Start
) -> None:
    program = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *PROGRAM)
    command = await start("worker", "run", "shop", "--target", target, cwd=app, program=program)
    assert await (await client.start("quick", queue="cli")).result(timeout=10) == "done"
    assert [os.readlink(f"/proc/{command.pid}/fd/{number}") for number in range(3)] == [os.devnull] * 3
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK


async def test_a_second_signal_does_not_wait_for_a_gateway_that_is_silent(
    app: Path, scripted: ScriptedGateway, start: Start
) -> None:
    scripted.script.drain = lambda: None
    command = await start("worker", "run", "shop", "--target", scripted.target, cwd=app)
    assert await command.error_line("connected to")
    command.send(signal.SIGTERM)
    await eventually(scripted.log.drains, within=10)
    told_at = time.monotonic()
    command.send(signal.SIGTERM)
    ended = await command.end()
    assert ended.code == ExitCode.OK
    assert time.monotonic() - told_at < 4, "it would have waited for 5 s"


@pytest.mark.parametrize("reason", ["REVISION_UNSUPPORTED", "SESSION_SUPERSEDED", "INVALID_INPUT"])
async def test_a_worker_that_is_refused_for_good_says_why_and_ends_with_1(
    reason: str, app: Path, scripted: ScriptedGateway, start: Start
) -> None:
    scripted.script.open = lambda opening: session_error(reason, permanent=True)
    command = await start("worker", "run", "shop", "--target", scripted.target, cwd=app)
    ended = await command.end()
    assert ended.code == ExitCode.REFUSED
    assert ended.err.splitlines()[-1].startswith(f"redflow: the gateway at {scripted.target} refuses the worker: ")
    assert "Traceback" not in ended.err
