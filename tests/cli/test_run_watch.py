"""`redflow run watch`: every change of a run and its steps, a line for each, until the run ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from redflow_sdk import Client, Context, RedflowError, RetryPolicy, Run, Step, workflow
from redflow_sdk.records import WaitingFor
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.run_watch import Change, Changes
from redflow_server.gateway import Gateway
from tests.cli.conftest import Run as RunCommand
from tests.cli.conftest import Start
from tests.cli.test_run import ISO, LISTED, NASTY, STEP
from tests.conftest import StartGateway, StartWorker

AT = datetime(2030, 1, 31, tzinfo=UTC)


@workflow(name="order", queue="cli", retry=RetryPolicy(max_attempts=2, initial=1.2, jitter=0))
async def order(ctx: Context, fails: int) -> str:
    await ctx.step.run("charge", lambda: 12900)
    await asyncio.sleep(0.8)  # longer than from one look to the next
    if ctx.run.attempt <= fails:
        raise RedflowError("closed")
    await ctx.step.run("ship", lambda: "parcel")
    return "receipt"


@workflow(name="nasty", queue="cli")
async def nasty(ctx: Context) -> None:
    await ctx.step.run("say " + "x" * 200, lambda: NASTY)
    raise RedflowError(NASTY)


# ---- live ----


async def test_each_change_is_a_line_as_it_happens_and_the_end_is_the_last(
    target: str, client: Client, start: Start, start_worker: StartWorker
) -> None:
    handle = await client.start(order, 1)
    command = await start("run", "watch", handle.id, "--target", target)
    first = await command.line()
    assert ISO.fullmatch(first.split()[0])
    assert first.split(maxsplit=1)[1].startswith("run   queued     no_worker (no worker serves 'order'")

    await start_worker(order, name="shop-1")
    ended = await command.end()
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    shown = [line.split(maxsplit=1)[1] for line in ended.out.splitlines()]
    [back_off] = [line for line in shown if line.startswith("run   scheduled")]
    assert re.fullmatch(
        r"run   scheduled  attempt 1 of 2, backing_off until \S+Z, after RedflowError: closed", back_off
    )
    shown.remove(back_off)
    assert [line for line in shown if not line.startswith("run   queued")] == [
        "run   running    attempt 1 of 2 on shop-1",
        "step  succeeded  charge: 12900",
        "run   running    attempt 2 of 2 on shop-1",
        'step  succeeded  ship: "parcel"',
        'run   succeeded  "receipt"',
    ]


async def test_for_programs_each_change_is_a_json_object_on_a_line(
    target: str, client: Client, start: Start, start_worker: StartWorker
) -> None:
    handle = await client.start(order, 0)
    command = await start("run", "watch", handle.id, "-o", "json", "--target", target)
    documents = [json.loads(await command.line())]
    await start_worker(order)
    ended = await command.end()
    documents += map(json.loads, ended.out.splitlines())

    assert ended.code == ExitCode.OK
    for document in documents:
        assert ISO.fullmatch(document["at"])
        of_kind = {"run": LISTED | {"input", "output", "failure"}, "step": STEP}[document["change"]]
        assert of_kind | {"change", "at"} <= set(document)
    steps = [document["name"] for document in documents if document["change"] == "step"]
    runs = [document["status"] for document in documents if document["change"] == "run"]
    assert steps == ["charge", "ship"]
    assert (runs[0], runs[-2:]) == ("queued", ["running", "succeeded"])
    assert (documents[-1]["id"], documents[-1]["output"]) == (handle.id, "receipt")


async def test_a_run_that_has_ended_is_told_in_the_order_of_its_life(
    here: RunCommand, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(order)
    handle = await client.start(order, 0)
    await handle.result(timeout=10)
    run, steps = await handle.get(), await client.get_run_steps(handle.id)

    ended = await here("run", "watch", handle.id, "-o", "json")
    documents: list[dict[str, Any]] = [json.loads(line) for line in ended.out.splitlines()]
    assert [(one["change"], one["status"]) for one in documents] == [
        *(("step", "succeeded"), ("step", "succeeded"), ("run", "succeeded")),
    ]
    times = [step.finished_at for step in steps] + [run.finished_at]
    assert [datetime.fromisoformat(one["at"]) for one in documents] == [
        at.replace(microsecond=at.microsecond // 1000 * 1000) for at in times if at
    ]


# ---- ends ----


async def test_a_failed_run_ends_it_as_it_ends_result_and_nothing_raw_reaches_the_terminal(
    here: RunCommand, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(nasty)
    handle = await client.start(nasty)
    ended = await here("run", "watch", handle.id, "--timeout", "10")
    assert ended.code == ExitCode.RUN_FAILED
    assert ended.err == (await here("run", "result", handle.id)).err
    assert (ended.out + ended.err).replace("\n", "").isprintable()
    told = [line.split()[1:3] for line in ended.out.splitlines()]
    assert ["step", "succeeded"] in told
    assert told[-1] == ["run", "failed"]


async def test_a_canceled_run_ends_it_with_its_reason(here: RunCommand, client: Client) -> None:
    handle = await client.start("w", queue="q")
    await handle.cancel("customer left")
    ended = await here("run", "watch", handle.id)
    assert (ended.code, ended.err) == (ExitCode.RUN_CANCELED, "redflow: run canceled: customer left\n")
    [line] = ended.out.splitlines()
    assert line.endswith("  run   canceled   customer left")


async def test_a_run_that_does_not_end_in_time_is_timed_out(here: RunCommand, client: Client) -> None:
    handle = await client.start("w", queue="q")
    ended = await here("run", "watch", handle.id, "--timeout", "0.7")
    assert ended.code == ExitCode.TIMED_OUT
    assert ended.err == f"redflow: run {handle.id} has not ended within 0.7 s\n"
    assert len(ended.out.splitlines()) == 1, "what stays as it is is said once"


async def test_an_unknown_run_is_not_found(here: RunCommand) -> None:
    ended = await here("run", "watch", "run_nowhere")
    assert (ended.code, ended.error) == (ExitCode.NOT_FOUND, "there is no run run_nowhere")


async def test_ctrl_c_ends_it_without_a_traceback(target: str, client: Client, start: Start) -> None:
    handle = await client.start("w", queue="q")
    command = await start("run", "watch", handle.id, "--target", target)
    assert await command.line()
    command.send(signal.SIGINT)
    ended = await command.end()
    assert (ended.code, ended.out, ended.err) == (ExitCode.INTERRUPTED, "", "")


async def test_it_says_that_its_gateway_is_away_and_watches_on_when_it_is_back(
    gateway: Gateway,
    target: str,
    client: Client,
    start: Start,
    start_gateway: StartGateway,
    start_worker: StartWorker,
) -> None:
    handle = await client.start(order, 0)
    command = await start("run", "watch", handle.id, "--target", target)
    assert await command.line()
    await gateway.stop()
    assert (await command.error_line("watching on")).startswith("redflow: the gateway does not answer: ")
    await start_gateway(port=gateway.port)
    await start_worker(order)
    ended = await command.end()
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert ended.out.splitlines()[-1].endswith('run   succeeded  "receipt"')


# ---- the order of changes ----


def a_run(status: Any, attempt: int = 1, **fields: Any) -> Run:
    return Run("run_1", "w", "q", status, attempt, 3, AT, **fields)


def a_step(name: str, attempt: int = 1, status: Any = "succeeded") -> Step:
    return Step(name, 1, "function", status, attempt)


def told(changes: Changes, run: Run, *steps: Step) -> list[str]:
    def name(change: Change) -> str:
        return change.name if isinstance(change, Step) else change.status

    return [name(change) for change in changes.of(run, steps)]


def test_what_has_not_changed_is_not_told_again() -> None:
    changes = Changes()
    assert told(changes, a_run("running"), a_step("a")) == ["a", "running"]
    assert told(changes, a_run("running"), a_step("a")) == []
    assert told(changes, a_run("running"), a_step("a"), a_step("b")) == ["b"]


def test_steps_stand_after_the_start_of_their_attempt_and_before_what_ends_it() -> None:
    changes = Changes()
    assert told(changes, a_run("queued", 0)) == ["queued"]
    assert told(changes, a_run("running"), a_step("a")) == ["running", "a"]
    failed = a_step("b", status="failed")
    assert told(changes, a_run("running", 2), a_step("a"), failed, a_step("c", 2)) == ["b", "running", "c"]
    assert told(changes, a_run("succeeded", 2), a_step("a"), a_step("b", 2), a_step("c", 2)) == ["b", "succeeded"]


def test_a_step_of_an_attempt_that_was_not_seen_to_begin_waits_for_it() -> None:
    changes = Changes()
    assert told(changes, a_run("queued", 0), a_step("a")) == ["queued"]
    assert told(changes, a_run("running", 1), a_step("a")) == ["running", "a"]


@pytest.mark.parametrize(
    "fields", [{"worker_name": "other"}, {"cancel_requested_at": AT}], ids=lambda fields: next(iter(fields))
)
def test_a_new_worker_and_a_cancellation_are_changes(fields: dict[str, Any]) -> None:
    changes = Changes()
    assert told(changes, a_run("running")) == ["running"]
    assert told(changes, a_run("running", **fields)) == ["running"]


def waiting_for(*details: str, kind: str = "child") -> Run:
    return a_run("waiting", waiting_for=tuple(WaitingFor(kind, None, detail, "s") for detail in details))


def test_how_an_awaited_run_stands_is_a_change_and_how_busy_workers_are_is_none() -> None:
    changes = Changes()
    assert told(changes, waiting_for("queued")) == ["waiting"]
    assert told(changes, waiting_for("queued")) == []
    assert told(changes, waiting_for("running")) == ["waiting"]
    assert told(changes, waiting_for("1 worker serves it", kind="no_slot")) == ["waiting"]
    assert told(changes, waiting_for("2 workers serve it", kind="no_slot")) == []
