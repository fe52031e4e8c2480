"""The Python and the commands of the guides do what stands beside them, on a real gateway."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
from datetime import datetime
from pathlib import Path
from types import CodeType, ModuleType

import pytest

import redflow_sdk
from redflow_sdk import Client, Context, RunFailedError, Workflow, workflow
from redflow_sdk.workflow import AnyWorkflow
from redflow_server.cli import main
from redflow_server.domain.cron import CronRule
from tests.conftest import StartWorker
from tests.tidy.test_docs import DOCS, blocks, rows, section, ticked

WORKERS, WAITING, CLIENTS = DOCS / "workers.md", DOCS / "waiting.md", DOCS / "clients.md"
GUIDES = (WORKERS, WAITING, DOCS / "semantics.md")
CLAIM = re.compile(r"`await client\.execute\((\w+), (.+?)\)` is `(.+?)`[.;]")
BLOCKS = [block for guide in GUIDES for block in blocks(guide, "python")]
DEFINING = [block for block in BLOCKS if "@workflow" in block]
OF_A_READER = {"Workflow", "main", "in_a_test"}


def module_of(block: str) -> ModuleType:
    """A module with the code of a block."""
    module = ModuleType("snippet")
    exec(compile(block, "snippet", "exec", dont_inherit=True), vars(module))  # of our own documents
    return module


def workflows_of(module: ModuleType) -> list[AnyWorkflow]:
    """The workflows that a module defines."""
    return [value for value in vars(module).values() if isinstance(value, Workflow)]


async def run_in_place(block: str, names: dict[str, object]) -> None:
    """Runs a block that awaits, as in the body of a program's main function."""
    code = compile(block, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert isinstance(code, CodeType)
    running = eval(code, names)  # of our own documents
    if inspect.isawaitable(running):
        await running


def headings(path: Path) -> list[str]:
    return re.findall(r"^## .*$", path.read_text(), re.M)


CLAIMS = [
    (heading, *claim)
    for guide in GUIDES
    for heading in headings(guide)
    for claim in CLAIM.findall(section(guide, heading))
]


# ---- workers ----


@pytest.mark.parametrize("block", DEFINING, ids=lambda block: workflows_of(module_of(block))[0].name)
async def test_the_workflows_of_the_guide_are_in_force_as_they_stand(
    block: str, client: Client, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    defined = workflows_of(module_of(block))
    await start_worker(*defined)
    assert {one.name for one in defined} == {one.name for one in await client.list_workflows()}
    assert "is not in force" not in caplog.text


@pytest.mark.parametrize(("heading", "name", "given", "expected"), CLAIMS, ids=lambda value: str(value)[:20])
async def test_what_the_guide_says_of_its_workflows_comes_of_them(
    heading: str, name: str, given: str, expected: str, client: Client, start_worker: StartWorker
) -> None:
    (block,) = [one for one in BLOCKS if f"def {name}(" in one]
    module = module_of(block)
    await start_worker(*workflows_of(module))
    output = await client.execute(getattr(module, name), ast.literal_eval(given), timeout=10)
    assert output == ast.literal_eval(expected)


def test_the_guides_make_claims_of_waits_events_and_schedules() -> None:
    waits = {"## A time", "## An event", "## Somebody", "## Another run", "## Several at once", "## In `def` handlers"}
    assert {heading for heading, *_ in CLAIMS} >= {*waits, "## Events", "## Cron schedules"}


async def test_an_event_in_time_ends_the_wait_of_the_guide(client: Client, start_worker: StartWorker) -> None:
    (block,) = [one for one in BLOCKS if "async def await_payment(" in one]
    module = module_of(block)
    await start_worker(*workflows_of(module))
    emit, expected = re.findall(
        r"`client\.(emit_event\(.+?\))` in time it is `(.+?)`", section(WAITING, "## An event"), re.S
    )[0]
    handle = await client.start(module.await_payment, "A-18")
    await run_in_place(f"await client.{emit}", {"client": client})
    assert await handle.result(timeout=10) == ast.literal_eval(expected)


async def test_the_schedules_of_the_guide_are_in_force(client: Client, start_worker: StartWorker) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", section(WORKERS, "## Cron schedules"), re.M | re.S)
    (report,) = workflows_of(module_of(block))
    await start_worker(report)
    schedules = await client.list_schedules(workflow="report")
    assert {schedule.cron.expression for schedule in schedules} == {"0 9 * * 1-5", "@monthly"}
    assert all(schedule.next_at and not schedule.problem for schedule in schedules)


def test_the_expressions_of_the_guide_are_such() -> None:
    expressions = [one for row in rows(section(WORKERS, "## Cron schedules")) for one in ticked(row[0])]
    assert len(expressions) > 10
    for expression in expressions:
        CronRule.parse(expression, "")


async def test_the_failure_handler_of_the_guide_prints_what_it_says(
    client: Client, start_worker: StartWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    about = section(WORKERS, "## Failure handlers")
    (block,) = re.findall(r"^```python\n(.*?)^```", about, re.M | re.S)
    (printed,) = re.findall(r"Here it prints:\n\n```\n(.*?)^```", about, re.M | re.S)
    (pay,) = workflows_of(module_of(block))
    await start_worker(pay)
    with pytest.raises(RunFailedError):
        await client.execute(pay, "A-17", timeout=10)
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", [WORKERS, CLIENTS], ids=lambda page: page.name)
def test_occurrences_are_shown_as_in_the_guides(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.findall(r"^\$ redflow (schedule next .*)\n((?:.+\n)*?)(?=\n|```)", page.read_text(), re.M)
    assert shown
    for command, output in shown:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == output


# ---- clients ----


@workflow(name="order", queue="shop", events=["order.paid"])
async def order(ctx: Context, order: dict[str, str]) -> str:
    return await ctx.step.run("charge", lambda: f"receipt-{order['id']}-12900")


async def test_the_client_of_the_guide_does_what_it_says(
    target: str, client: Client, start_worker: StartWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    await start_worker(order)
    about = section(CLIENTS, "## Python")
    whole, *rest = re.findall(r"^```python\n(.*?)^```", about, re.M | re.S)
    later = "timedelta(minutes=5)"
    assert '"gateway:7379"' in whole and later in whole
    names: dict[str, object] = {}
    program = whole.replace("gateway:7379", target).replace(later, "timedelta(0)")
    await run_in_place(f"{program}\n\nawait main()\n", names)
    assert "receipt-A-17-12900\nsucceeded 1 ()\ncharge succeeded receipt-A-17-12900\n" in capsys.readouterr().out
    for block in rest:
        names |= {name: getattr(redflow_sdk, name) for name in redflow_sdk.__all__}
        await run_in_place(block.replace("Client()", f"Client({target!r})"), names)
    shown = capsys.readouterr().out
    assert "shop 1 None None () ('order.paid',)" in shown
    assert "receipt-A-18-12900" in shown
    scheduled = [run async for run in client.list_runs(workflow="order", status="scheduled")]
    assert [
        run.available_at is not None and run.available_at > datetime.now(run.available_at.tzinfo) for run in scheduled
    ]


async def test_the_client_without_asyncio_of_the_guide_does_what_it_says(
    target: str, start_worker: StartWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    await start_worker(order)
    (block,) = re.findall(r"^```python\n(.*?)^```", section(CLIENTS, "## Python without asyncio"), re.M | re.S)
    await asyncio.to_thread(module_of, block.replace("SyncClient()", f"SyncClient({target!r})"))
    first, second, *listed = capsys.readouterr().out.splitlines()
    assert [first, second] == ["receipt-A-17-12900", "receipt-A-18-12900"]
    assert [line.split()[1] for line in listed] == ["succeeded"] * 2


async def test_a_run_that_has_failed_says_so_in_the_words_of_the_guide(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="order")
    async def fails(ctx: Context) -> None:
        raise LookupError("no address")

    (shown,) = re.findall(r"^(Run failed: .*?)^```", section(CLIENTS, "## Python without asyncio"), re.M | re.S)
    await start_worker(fails)
    with pytest.raises(RunFailedError) as failed:
        await client.execute(fails, timeout=10)
    assert f"{failed.value}\n" == re.sub(r"run_\w+", failed.value.run_id, shown)
