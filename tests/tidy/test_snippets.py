"""The Python and the commands of the how-to pages do what stands beside them, on a real gateway."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from redflow_sdk import Client, Context, RunFailedError, workflow
from redflow_server.cli import main
from redflow_server.cli.exit_codes import MEANING
from redflow_server.cli.program import NOUNS
from redflow_server.domain.cron import CronRule
from tests.conftest import StartWorker
from tests.tidy.how_to import (
    CLAIM,
    HOW_TO,
    PAGES,
    PRINTED,
    calling,
    defining,
    module_of,
    run_in_place,
    workflows_of,
)
from tests.tidy.test_docs import blocks, rows, section, ticked

RUN_ELSEWHERE: Final[Mapping[str, str]] = {
    "test-workflows": "tests/testing/test_guide.py",
    "test-retries": "tests/testing/test_guide.py",
    "test-with-a-gateway": "tests/testing/test_guide.py",
    "web-views": "tests/tidy/test_web_views.py",
    "other-languages": "tests/tidy/test_docs.py",
}
WITHOUT_PYTHON: Final[Mapping[str, str]] = {"command-line": "it has commands only"}

RUN_HERE: Final = [page for page in PAGES if page.stem not in RUN_ELSEWHERE]
DEFINING: Final = [block for page in RUN_HERE for block in defining(page)]
CALLING: Final = [page for page in RUN_HERE if calling(page)]
CLAIMS: Final = [(page, *claim) for page in RUN_HERE for claim in CLAIM.findall(page.read_text())]


def test_every_page_has_python_that_is_run() -> None:
    """What defines workflows and what calls them is run below."""
    assert {page.stem for page in PAGES if not blocks(page, "python")} == WITHOUT_PYTHON.keys()
    assert RUN_ELSEWHERE.keys() <= {page.stem for page in PAGES}


def test_every_page_says_what_comes_of_its_workflows() -> None:
    """A failure handler shows it by what it prints."""
    silent = [
        page.stem for page in RUN_HERE if defining(page) and not calling(page) and not CLAIM.search(page.read_text())
    ]
    assert silent == ["failure-handlers"]


def test_every_page_is_of_a_length_to_be_read_and_ends_with_where_to_go_on() -> None:
    assert [page.stem for page in PAGES if not 15 <= len(page.read_text().splitlines()) <= 150] == []
    links = {page.stem: section(page, "## See also").count("- [") for page in PAGES}
    assert {stem: count for stem, count in links.items() if not 1 <= count <= 3} == {}


# ---- workflows ----


def test_every_option_of_a_workflow_is_in_its_table() -> None:
    table = [ticked(row[0])[0] for row in rows(section(HOW_TO / "define-workflows.md", "## Options"))]
    assert sorted(table) == sorted(name for name in inspect.signature(workflow).parameters if name != "function")


def test_every_option_of_a_start_is_in_its_table() -> None:
    table = [one for row in rows(section(HOW_TO / "start-runs.md", "## Options of a start")) for one in ticked(row[0])]
    given = [name for name in inspect.signature(Client.start).parameters if name not in ("self", "workflow", "input")]
    assert sorted(table) == sorted(given)


@pytest.mark.parametrize("block", DEFINING, ids=lambda block: workflows_of(module_of(block))[0].name)
async def test_workflows_are_in_force_as_they_stand(
    block: str, client: Client, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    defined = workflows_of(module_of(block))
    await start_worker(*defined)
    assert {one.name for one in defined} == {one.name for one in await client.list_workflows()}
    assert "is not in force" not in caplog.text


@pytest.mark.parametrize(("page", "name", "given", "expected"), CLAIMS, ids=lambda value: getattr(value, "stem", ""))
async def test_workflows_return_what_the_page_says(
    page: Path, name: str, given: str, expected: str, client: Client, start_worker: StartWorker
) -> None:
    (block,) = [one for one in defining(page) if f"def {name}(" in one]
    module = module_of(block)
    await start_worker(*workflows_of(module))
    value = eval(given, vars(module))  # of our own documents
    output = await client.execute(getattr(module, name), value, timeout=10)
    assert output == ast.literal_eval(expected)


async def test_an_event_in_time_ends_the_wait(client: Client, start_worker: StartWorker) -> None:
    page = HOW_TO / "wait-for-events.md"
    module = module_of(*defining(page))
    await start_worker(*workflows_of(module))
    emit, expected = re.findall(r"`client\.(emit_event\(.+?\))` in time it is `(.+?)`", page.read_text(), re.S)[0]
    handle = await client.start(module.await_payment, "A-18")
    await run_in_place(f"await client.{emit}", {"client": client})
    assert await handle.result(timeout=10) == ast.literal_eval(expected)


async def test_the_schedules_are_in_force(client: Client, start_worker: StartWorker) -> None:
    (report,) = workflows_of(module_of(*defining(HOW_TO / "cron.md")))
    await start_worker(report)
    schedules = await client.list_schedules(workflow="report")
    assert {schedule.cron.expression for schedule in schedules} == {"0 9 * * 1-5", "@monthly"}
    assert all(schedule.next_at and not schedule.problem for schedule in schedules)


def test_the_expressions_of_schedules_are_such() -> None:
    expressions = [one for row in rows(section(HOW_TO / "cron.md", "## Expressions")) for one in ticked(row[0])]
    assert len(expressions) > 10
    for expression in expressions:
        CronRule.parse(expression, "")


async def test_the_failure_handler_prints_what_the_page_says(
    client: Client, start_worker: StartWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    page = HOW_TO / "failure-handlers.md"
    (printed,) = re.findall(r"its worker prints:\n\n```\n(.*?)^```", page.read_text(), re.M | re.S)
    (pay,) = workflows_of(module_of(*defining(page)))
    await start_worker(pay)
    with pytest.raises(RunFailedError):
        await client.execute(pay, "A-17", timeout=10)
    assert capsys.readouterr().out == printed


# ---- callers ----


@workflow(name="order", queue="shop")
async def order(ctx: Context, order_id: str) -> str:
    return await ctx.step.run("charge", lambda: f"receipt-{order_id}-12900")


@pytest.mark.parametrize("page", CALLING, ids=lambda page: page.stem)
async def test_callers_print_what_stands_behind_their_lines(
    page: Path,
    client: Client,
    target: str,
    start_worker: StartWorker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page without workflows of its own has those of a shop, with one order that is done."""
    module = module_of(*defining(page))
    if not any("Worker(" in block for block in calling(page)):
        await start_worker(*(workflows_of(module) or [order]))
    if not workflows_of(module):
        await client.execute(order, "A-17", timeout=10)
    monkeypatch.setenv("REDFLOW_TARGET", target)
    monkeypatch.setitem(sys.modules, "shop", module)
    for block in calling(page):
        capsys.readouterr()
        if "asyncio.run(" in block or "SyncClient" in block:
            await asyncio.to_thread(module_of, block)
        else:
            await run_in_place(block, {})
        shown = capsys.readouterr().out.splitlines()
        missing = [line for line in PRINTED.findall(block) if line not in shown]
        assert missing == [], shown


async def test_a_run_that_has_failed_says_so_in_the_words_of_the_page(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="order")
    async def fails(ctx: Context) -> None:
        raise LookupError("no address")

    (shown,) = re.findall(r"^(Run failed: .*?)^```", (HOW_TO / "start-runs.md").read_text(), re.M | re.S)
    await start_worker(fails)
    with pytest.raises(RunFailedError) as failed:
        await client.execute(fails, timeout=10)
    assert f"{failed.value}\n" == re.sub(r"run_\w+", failed.value.run_id, shown)


def test_exit_codes_are_those_of_the_command_line() -> None:
    table = {row[0]: row[1] for row in rows(section(HOW_TO / "command-line.md", "## Exit codes"))}
    assert table == {str(int(code)): meaning for code, meaning in MEANING.items()}


def test_every_command_is_in_the_table_of_commands() -> None:
    text = (HOW_TO / "command-line.md").read_text().partition("## Exit codes")[0]
    table = [one.removeprefix("redflow ") for row in rows(text) for one in ticked(row[0])]
    assert sorted(table) == sorted(NOUNS)


def test_occurrences_are_shown_as_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    text = (HOW_TO / "cron.md").read_text()
    shown = re.findall(r"^\$ redflow (schedule next .*)\n((?:.+\n)*?)(?=\n|```)", text, re.M)
    assert len(shown) == 2
    for command, output in shown:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == output
