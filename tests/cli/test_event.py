"""`redflow event`: a run of every workflow that subscribes, and waiting for all of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.command import Ended
from tests.cli.conftest import Run
from tests.cli.test_run import RUN
from tests.conftest import StartWorker
from tests.eventually import eventually


@workflow(name="invoice", queue="events", events=["paid"])
async def invoice(ctx: Context, order: object) -> object:
    return order


@workflow(name="parcel", queue="events", events=["paid", "resend"])
async def parcel(ctx: Context, order: object) -> str:
    return "packed"


@workflow(name="refuse", queue="events", events=["broken"])
async def refuse(ctx: Context, order: object) -> None:
    raise ValueError("no such order")


@workflow(name="accept", queue="events", events=["broken", "slow"])
async def accept(ctx: Context, order: object) -> None:
    return None


@workflow(name="stay", queue="events", events=["slow"])
async def stay(ctx: Context, order: object) -> None:
    await asyncio.sleep(60)


@pytest_asyncio.fixture
async def worker(start_worker: StartWorker) -> Worker:
    return await start_worker(invoice, parcel, refuse, accept, stay)


def ids(ended: Ended) -> list[str]:
    """The ids that an emit shows."""
    header, *lines = ended.out.splitlines()
    assert (ended.code, header) == (ExitCode.OK, "ID"), ended
    return lines


@pytest.mark.usefixtures("worker")
async def test_emit_prints_the_runs_that_it_has_started(here: Run, client: Client) -> None:
    ended = await here("event", "emit", "paid", "--payload", '{"id": "A-17"}')
    runs = [await client.get_run(run_id) for run_id in ids(ended)]
    assert sorted(run.workflow for run in runs) == ["invoice", "parcel"]
    assert [run.input for run in runs] == [{"id": "A-17"}] * 2
    assert ended.err == ""

    document = (await here("event", "emit", "resend", "-o", "json")).json
    assert document == {"event": "resend", "run_ids": document["run_ids"]}
    (run_id,) = document["run_ids"]
    again = await client.get_run(run_id)
    assert (again.workflow, again.input) == ("parcel", None)


@pytest.mark.usefixtures("worker")
async def test_emit_takes_its_payload_as_argument_from_a_file_and_from_stdin(at_gateway: Run, tmp_path: Path) -> None:
    document = tmp_path / "payload.json"
    document.write_text('{"n": 12345678901234567890}')
    for source, given, expected in (
        (("--payload", '["Zoë", 1.5]'), b"", ["Zoë", 1.5]),
        (("--payload-file", str(document)), b"", {"n": 12345678901234567890}),
        (("-",), b'"from stdin"', "from stdin"),
    ):
        ended = await at_gateway("event", "emit", "paid", *source, "--wait", "-o", "json", stdin=given)
        assert ended.code == ExitCode.OK, ended
        assert [run["input"] for run in ended.json["runs"]] == [expected] * 2


@pytest.mark.usefixtures("worker")
async def test_emits_with_one_idempotency_key_are_one(here: Run, client: Client) -> None:
    first = ids(await here("event", "emit", "paid", "--idempotency-key", "A-17", "--idempotency-ttl", "60"))
    assert ids(await here("event", "emit", "paid", "--idempotency-key", "A-17", "--payload", "2")) == first
    assert not set(ids(await here("event", "emit", "paid", "--idempotency-key", "A-18"))) & set(first)
    assert len(await client.list_runs(workflow="invoice").page()) == 2


async def test_a_run_that_waits_for_the_event_hears_of_those_with_its_key_alone(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="listen", queue="events")
    async def listen(ctx: Context, key: str | None) -> list[object]:
        first = await ctx.step.wait_for_event("first", "heard", key=key, timeout=60)
        second = await ctx.step.wait_for_event("second", "heard", key=key, timeout=60)
        return [event and event.payload for event in (first, second)]

    await start_worker(listen)
    of_key, without = await client.start(listen, "A-17"), await client.start(listen, None)
    for payload, key in ((1, "A-17"), (2, None), (3, "A-18"), (4, "A-17"), (5, None)):
        ended = await here("event", "emit", "heard", "--payload", str(payload), *(("--key", key) if key else ()))
        assert (ended.code, ended.out) == (ExitCode.OK, "ID\n")
    assert await of_key.result(timeout=10) == [1, 4]
    assert await without.result(timeout=10) == [2, 5]


@pytest.mark.usefixtures("worker")
async def test_the_runs_of_an_emit_for_later_are_there_at_once_and_start_then(here: Run, client: Client) -> None:
    (at,) = ids(await here("event", "emit", "resend", "--at", "2100-01-31T09:00:00+01:00"))
    run = await client.get_run(at)
    assert (run.status, run.available_at) == ("scheduled", datetime(2100, 1, 31, 8, tzinfo=UTC))

    before = datetime.now(UTC)
    (delayed,) = ids(await here("event", "emit", "resend", "--delay", "3600"))
    available_at = (await client.get_run(delayed)).available_at
    assert available_at is not None
    assert before <= available_at - timedelta(hours=1) <= datetime.now(UTC) + timedelta(seconds=1)


NOBODY = "redflow: no workflow subscribes to nobody's: no run was started; those that wait for it go on\n"


async def test_an_event_to_which_no_workflow_subscribes_starts_nothing_and_says_so(here: Run) -> None:
    for wait in ((), ("--wait",)):
        ended = await here("event", "emit", "nobody's", *wait)
        assert (ended.code, ended.err) == (ExitCode.OK, NOBODY)
        assert len(ended.out.splitlines()) == 1


@pytest.mark.usefixtures("worker")
async def test_wait_shows_what_became_of_every_run(here: Run) -> None:
    ended = await here("event", "emit", "paid", "--payload", '{"id": "A-17"}', "--wait")
    assert ended.code == ExitCode.OK, ended
    header, *lines = [line.split(maxsplit=3) for line in ended.out.splitlines()]
    assert header == ["ID", "WORKFLOW", "STATUS", "OUTCOME"]
    assert sorted(line[1:] for line in lines) == [
        ["invoice", "succeeded", '{"id": "A-17"}'],
        ["parcel", "succeeded", '"packed"'],
    ]
    assert ended.err == f"redflow: waiting for 2 runs: {', '.join(line[0] for line in lines)}\n"


@pytest.mark.usefixtures("worker")
async def test_wait_fails_when_one_of_the_runs_has_failed_and_shows_all_of_them(here: Run) -> None:
    ended = await here("event", "emit", "broken", "--wait", "-o", "json")
    assert ended.code == ExitCode.RUN_FAILED
    assert all(set(run) == RUN for run in ended.json["runs"])
    ends = {run["workflow"]: run for run in ended.json["runs"]}
    assert (ends["accept"]["status"], ends["refuse"]["status"]) == ("succeeded", "failed")
    assert ends["refuse"]["failure"]["message"] == "no such order"
    assert ended.json["run_ids"] == [run["id"] for run in ended.json["runs"]]
    assert ended.err.splitlines()[-1] == f"redflow: 1 of 2 runs has failed: {ends['refuse']['id']}"


@pytest.mark.usefixtures("worker")
async def test_wait_for_no_longer_than_told_says_which_runs_go_on(here: Run) -> None:
    ended = await here("event", "emit", "slow", "--wait", "--timeout", "0.5", "-o", "json")
    assert ended.code == ExitCode.TIMED_OUT
    ends = {run["workflow"]: run for run in ended.json["runs"]}
    assert (ends["accept"]["status"], ends["stay"]["status"]) == ("succeeded", "running")
    assert ended.err.splitlines()[-1] == f"redflow: 1 of 2 runs has not ended within 0.5 s: {ends['stay']['id']}"


@pytest.mark.usefixtures("worker")
async def test_wait_tells_of_a_run_that_was_canceled(here: Run, client: Client) -> None:
    waiting = asyncio.ensure_future(here("event", "emit", "slow", "--wait"))

    async def is_running() -> bool:
        return bool(await client.list_runs(workflow="stay", status="running").page())

    await eventually(is_running, within=10)
    (run,) = await client.list_runs(workflow="stay").page()
    await client.cancel_run(run.id)
    ended = await waiting
    assert ended.code == ExitCode.RUN_CANCELED
    assert ended.err.splitlines()[-1] == f"redflow: 1 of 2 runs has ended as canceled: {run.id}"


async def test_wait_waits_for_runs_that_have_their_ids_before_they_are_there(
    here: Run, start_worker: StartWorker
) -> None:
    subscribers = [workflow(name=f"w{number:03}", events=["all"])(nothing) for number in range(250)]
    await start_worker(*subscribers)
    ended = await here("event", "emit", "all", "--wait", "-o", "json")
    assert ended.code == ExitCode.OK, ended
    assert sorted(run["workflow"] for run in ended.json["runs"]) == [one.name for one in subscribers]
    assert {run["status"] for run in ended.json["runs"]} == {"succeeded"}


async def nothing(ctx: Context) -> None:
    return None
