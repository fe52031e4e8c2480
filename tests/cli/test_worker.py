"""`redflow worker run`: whose workflows it runs, how it ends, and what it says when there is nothing to run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redflow_sdk import Client
from redflow_server.cli import main
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.workflow_import import load_workflows
from tests.cli.command import Ended, redflow
from tests.cli.conftest import Start
from tests.cli.test_program import BASE_INSTALL, FULL_INSTALL
from tests.eventually import eventually

SHOP = """
import asyncio, threading, time
from redflow_sdk import BlockingContext, Context, Worker, workflow

@workflow(name="first", queue="cli")
async def first(ctx: Context) -> str:
    return "one"

@workflow(name="second", queue="cli")
async def second(ctx: Context) -> str:
    return "two"

@workflow(name="first", queue="cli")
async def namesake(ctx: Context) -> str:
    return "three"

@workflow(name="loop", queue="cli")
async def loop(ctx: Context) -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]

@workflow(name="stuck", queue="cli")
def stuck(ctx: BlockingContext) -> None:
    ctx.step.run("begun", str)
    time.sleep(600)

@workflow(name="stuck-elsewhere", queue="cli")
async def stuck_elsewhere(ctx: Context) -> None:
    await ctx.step.run("begun", str)
    await asyncio.to_thread(time.sleep, 600)

@workflow(name="resting", queue="cli")
async def resting(ctx: Context) -> None:
    await ctx.step.sleep("nap", 600)

both = [first, second]
mixed = (first, 5)
nothing = []
number = 5
worker = Worker(workflows=[first])
class Registry:
    workflows = [second]
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with modules of a user."""
    (tmp_path / "shop.py").write_text(SHOP)
    package = tmp_path / "company"
    package.mkdir()
    (package / "__init__.py").write_text("from company import flows\n")
    (package / "flows.py").write_text(SHOP.partition('@workflow(name="first", queue="cli")\nasync def namesake')[0])
    (tmp_path / "raising.py").write_text("def begin():\n    raise ValueError('no \\x1b[31mred')\n\nbegin()\n")
    (tmp_path / "importing.py").write_text("import missing_dependency\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "wrong.py").write_text("def (:\n")
    return tmp_path


@pytest.fixture
def run_here(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], Ended]]:
    """Runs a worker that cannot start in this process, which is quicker; what it imports is forgotten again."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield lambda place: Ended(main(["worker", "run", place]), *capsys.readouterr())
    for name in sys.modules.keys() - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("shop:first", ["first"]),
        ("shop:both", ["first", "second"]),
        ("shop:Registry.workflows", ["second"]),
        ("company.flows", ["first", "second"]),
        ("company:flows", ["first", "second"]),
    ],
)
@pytest.mark.usefixtures("run_here")
def test_workflows_are_named_one_by_one_in_lists_and_by_their_module(place: str, names: list[str]) -> None:
    assert [workflow.name for workflow in load_workflows(place)] == names


async def test_it_serves_the_workflows_that_are_named_and_ends_well_after_a_drain(
    shop: Path, target: str, client: Client, start: Start
) -> None:
    command = await start("worker", "run", "shop:both", cwd=shop, env={"REDFLOW_TARGET": target})
    for name, output in (("first", "one"), ("second", "two")):
        assert await (await client.start(name, queue="cli")).result(timeout=10) == output
    unserved = await client.start("stuck", queue="cli")
    command.send(signal.SIGTERM)
    ended = await command.end()
    assert (ended.code, ended.out) == (ExitCode.OK, "")
    assert "Traceback" not in ended.err
    assert (await unserved.get()).status == "queued"


@pytest.mark.parametrize(("program", "module"), [(FULL_INSTALL, "uvloop"), (BASE_INSTALL, "asyncio")])
async def test_handlers_run_on_uvloop_where_it_is_installed(
    program: tuple[str, ...], module: str, shop: Path, target: str, client: Client, start: Start
) -> None:
    await start("worker", "run", "shop:loop", cwd=shop, env={"REDFLOW_TARGET": target}, program=program)
    assert await (await client.start("loop", queue="cli")).result(timeout=10) == module


async def test_it_tells_the_gateway_what_it_was_told(shop: Path, target: str, client: Client, start: Start) -> None:
    told = ("--queue", "q1", "--queue", "q2", "--concurrency", "3", "--owner", "billing", "--build-id", "b7")
    await start("worker", "run", "shop:both", *told, cwd=shop, env={"REDFLOW_TARGET": target})
    first = await client.start("first", queue="q1")
    second = await client.start("second", queue="q2")
    assert [await first.result(timeout=10), await second.result(timeout=10)] == ["one", "two"]
    unserved = await client.start("first", queue="cli")
    assert (await unserved.get()).status == "queued"


@pytest.mark.parametrize(
    ("told", "status"),
    [((), "running"), (("--park-window", "0"), "waiting"), (("--max-parked", "0"), "waiting")],
    ids=["default", "no window", "none at once"],
)
async def test_a_handler_that_waits_stays_in_memory_unless_told_otherwise(
    told: tuple[str, ...], status: str, shop: Path, target: str, client: Client, start: Start
) -> None:
    await start("worker", "run", "shop:resting", *told, cwd=shop, env={"REDFLOW_TARGET": target})
    handle = await client.start("resting", queue="cli")

    async def waits() -> str:
        run = await handle.get()
        return run.status if run.open_waits and run.status != "queued" else ""

    async def is_as_told() -> bool:
        # An instant before it is set aside it is running, too.
        return [await waits(), await waits()] == [status, status]

    await eventually(is_as_told, within=10)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("stuck", "left behind, because they have not ended: handlers of 1 run"),
        ("stuck_elsewhere", "leaving 1 thread that has not ended"),
    ],
)
async def test_a_handler_that_does_not_end_keeps_neither_the_worker_nor_its_run(
    name: str, says: str, shop: Path, target: str, client: Client, start: Start
) -> None:
    arguments = ("worker", "run", f"shop:{name}", "--target", target, "--drain-grace", "0.1")
    command = await start(*arguments, cwd=shop)
    handle = await client.start(name.replace("_", "-"), queue="cli")

    async def has_begun() -> bool:
        return await client.get_run_steps(handle.id) != []

    await eventually(has_begun, within=10)
    command.send(signal.SIGTERM)
    ended = await command.end()
    assert ended.code == ExitCode.OK
    assert says in ended.err
    assert (await handle.get()).status == "queued"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("shop:third", "shop:third: there is no third in module shop"),
        ("shop:number", "shop:number: must be a workflow or a list of workflows; is an int"),
        ("shop:mixed", "shop:mixed[1]: must be a workflow; is an int"),
        ("shop:nothing", "shop:nothing: there are no workflows in a list"),
        ("shop:worker", "shop:worker: is a Worker"),
        ("shop", "shop: workflows must have names of their own; got "),
        ("company:__name__", "must be a workflow or a list of workflows; is a str"),
        ("nowhere:app", "there is no module nowhere in "),
        ("nowhere.py", " or on the Python path\n"),
        ("company.nowhere:app", "there is no module company.nowhere in "),
        ("shop.py", "there is no module shop.py in "),
        ("shop.py", "; the module in a file shop.py is shop"),
        ("shop.py:both", "; the module in a file shop.py is shop"),
    ],
)
def test_it_names_what_is_not_there(place: str, says: str, run_here: Callable[[str], Ended]) -> None:
    ended = run_here(place)
    assert says in f"{ended.error}\n"
    assert ended.code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("place", "example"),
    [
        ("./shop.py", "shop"),
        ("company/flows.py:both", "company.flows:both"),
        ("shop:", "shop.workflows:send_receipt"),
        ("a b", "shop.workflows:send_receipt"),
    ],
)
def test_it_refuses_what_names_no_module(place: str, example: str, run_here: Callable[[str], Ended]) -> None:
    ended = run_here(place)
    assert ended.error.endswith(f": must be MODULE or MODULE:ATTR, as in {example}")
    assert ended.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("module", "shows", "says"),
    [
        ("raising", "in begin", "raising cannot be imported: ValueError: no \\x1b[31mred"),
        ("importing", "import missing_dependency", "importing cannot be imported: ModuleNotFoundError: "),
        ("leaving", "sys.exit(0)", "leaving cannot be imported: SystemExit: 0"),
        ("wrong", "def (:", "wrong cannot be imported: SyntaxError: "),
    ],
)
def test_an_error_of_the_users_module_is_shown_from_its_first_line_on(
    module: str, shows: str, says: str, run_here: Callable[[str], Ended]
) -> None:
    ended = run_here(module)
    assert ended.code == ExitCode.REFUSED
    *trace, last = ended.err.splitlines()
    assert last.startswith(f"redflow: {says}")
    assert any(shows in line for line in trace)
    assert not any("redflow_server" in line or "importlib" in line for line in trace), ended.err
    assert ended.err.replace("\n", "").isprintable()


async def test_a_worker_that_the_gateway_refuses_ends_with_the_reason(shop: Path, target: str) -> None:
    queues = [f"--queue=q{number}" for number in range(1001)]
    ended = await redflow("worker", "run", "shop:both", *queues, "--target", target, cwd=shop)
    assert ended.code == ExitCode.REFUSED
    last = ended.err.splitlines()[-1]
    assert last.startswith(f"redflow: the gateway at {target} refuses the worker: ")
    assert "open.queues must be at most 1000" in last
    assert "Traceback" not in ended.err
