"""`redflow run` against a gateway, with workers of the SDK."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from redflow_sdk import Client, Context, RedflowError, workflow
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.embedded import EmbeddedStore
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.cli.command import Ended, redflow
from tests.cli.conftest import Run, Start
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand

LISTED = {
    *("id", "workflow", "queue", "status", "attempt", "max_attempts", "priority", "created_at", "available_at"),
    *("started_at", "finished_at", "cancel_requested_at", "cancel_reason", "idempotency_key", "parent_run_id"),
    *("delivery_count", "losses", "worker_name", "open_waits", "waiting_for", "deadline_at"),
}
RUN = LISTED | {"input", "output", "failure", "failure_handler", "failure_handler_failure", "lease_expires_at"}
STEP = {
    *("name", "seq", "kind", "status", "attempt", "started_at", "finished_at", "output", "failure", "child_run_id"),
    *("tries", "event_id", "is_retrying"),
}
FAILURE = {"type", "message", "kind", "language", "traceback", "details", "cause", "no_retry", "retry_after"}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egreen"


@workflow(name="echo", queue="cli")
async def echo(ctx: Context, value: object) -> object:
    return await ctx.step.run("say", lambda: value)


@workflow(name="boom", queue="cli")
async def boom(ctx: Context) -> None:
    await ctx.step.run("before", lambda: NASTY)
    raise RedflowError(NASTY)


@pytest.fixture
def own_store() -> Iterator[EmbeddedStore]:
    """A store that the test may stop."""
    with EmbeddedStore() as store:
        yield store


@pytest_asyncio.fixture
async def worker(start_worker: StartWorker) -> None:
    await start_worker(echo, boom)


def nothing_is_raw(ended: Ended) -> None:
    assert (ended.out + ended.err).replace("\n", "").isprintable(), ended


# ---- start ----


@pytest.mark.usefixtures("worker")
async def test_start_takes_its_input_as_argument_from_a_file_and_from_stdin(at_gateway: Run, tmp_path: Path) -> None:
    document = tmp_path / "input.json"
    document.write_text('{"n": 12345678901234567890}')
    for source, given, expected in (
        (("--input", '["Zoë", 1.5]'), b"", ["Zoë", 1.5]),
        (("--input-file", str(document)), b"", {"n": 12345678901234567890}),
        (("-",), b'"from stdin"', "from stdin"),
        ((), b"unread", None),
    ):
        ended = await at_gateway("run", "start", "echo", "--wait", "--timeout", "10", *source, stdin=given)
        assert ended.code == ExitCode.OK, ended
        assert ended.json == expected


@pytest.mark.parametrize(("given", "says"), [(b"{", "stdin must be JSON"), (b"\xff", "stdin must be UTF-8")])
async def test_start_refuses_input_that_is_no_json(given: bytes, says: str, at_gateway: Run) -> None:
    ended = await at_gateway("run", "start", "echo", "-", stdin=given)
    assert ended.code == ExitCode.USAGE
    assert ended.error.startswith(says)


async def test_start_passes_on_what_it_is_told_about_the_run(here: Run, client: Client) -> None:
    of_key = ("--idempotency-key", "order-1", "--idempotency-ttl", "60")
    told = ("--queue", "q 1", "--priority", "-7", "--max-attempts", "3", *of_key)
    at = ("--at", "2100-01-31T09:00:00+01:00")
    started = (await here("run", "start", "w", *told, *at, "--input", "1", "-o", "json")).json
    assert started == {"id": started["id"], "workflow": "w", "created": True, "input_differs": False}

    run = await client.get_run(started["id"])
    assert (run.queue, run.priority, run.max_attempts, run.input) == ("q 1", -7, 3, 1)
    assert (run.status, run.idempotency_key) == ("scheduled", "order-1")
    assert run.available_at == datetime(2100, 1, 31, 8, tzinfo=UTC)

    again = (await here("run", "start", "w", *told, "--input", "2", "-o", "json")).json
    assert again == {"id": run.id, "workflow": "w", "created": False, "input_differs": True}


async def test_who_holds_a_key_is_shown_and_a_start_with_a_short_window_sets_it_free(here: Run) -> None:
    of_key = ("run", "start", "w", "--queue", "q", "--idempotency-key", "order-2", "-o", "json")
    holder = (await here(*of_key)).json["id"]
    await here("run", "cancel", holder)
    [listed] = (await here("run", "list", "--workflow", "w", "-o", "json")).json["runs"]
    assert (listed["id"], listed["idempotency_key"], listed["status"]) == (holder, "order-2", "canceled")
    again = (await here(*of_key, "--idempotency-ttl", "0.001")).json
    assert (again["id"], again["created"]) == (holder, False)
    new = await eventually(lambda: started_anew(here, of_key))
    assert new != holder


async def started_anew(here: Run, arguments: tuple[str, ...]) -> str | None:
    """The id of a run, unless an earlier one has answered."""
    started = (await here(*arguments, "--idempotency-ttl", "0.001")).json
    return started["id"] if started["created"] else None


async def test_start_with_a_delay_schedules_the_run_from_now(here: Run, client: Client) -> None:
    before = datetime.now(UTC)
    started = (await here("run", "start", "w", "--queue", "q", "--delay", "3600", "-o", "json")).json
    run = await client.get_run(started["id"])
    assert run.available_at is not None
    assert before <= run.available_at - timedelta(hours=1) <= datetime.now(UTC) + timedelta(seconds=1)


async def test_start_of_an_unknown_workflow_is_not_found(here: Run) -> None:
    ended = await here("run", "start", "nobody's")
    assert ended.code == ExitCode.NOT_FOUND
    assert "nobody's" in ended.error


async def test_start_of_what_the_gateway_refuses_names_the_field(here: Run) -> None:
    ended = await here("run", "start", "a\x1bb", "--queue", "q")
    assert ended.code == ExitCode.REFUSED
    assert "workflow" in ended.error
    assert ended.error.isprintable()


# ---- get, steps, list ----


@pytest.mark.usefixtures("worker")
async def test_a_failed_run_is_shown_with_its_failure_and_nothing_raw_reaches_the_terminal(
    at_gateway: Run, here: Run, client: Client
) -> None:
    handle = await client.start(boom)
    ended = await at_gateway("run", "result", handle.id, "--timeout", "10")
    assert ended.code == ExitCode.RUN_FAILED
    assert handle.id in ended.error and "[2J" in ended.error and ended.error.isprintable()
    assert ended.error.startswith("run failed: RedflowError: ")

    shown = await here("run", "get", handle.id)
    nothing_is_raw(shown)
    fields = dict(line.split(maxsplit=1) for line in shown.out.partition("\n\n")[0].splitlines())
    assert (fields["id"], fields["status"], fields["attempt"]) == (handle.id, "failed", "1 of 1")
    assert fields["failure"].startswith("RedflowError: \\x1b]0;owned\\x07")
    assert "raise RedflowError(NASTY)" in shown.out

    document = await here("run", "get", handle.id, "-o", "json")
    nothing_is_raw(document)
    assert set(document.json) == RUN
    assert set(document.json["failure"]) == FAILURE
    assert document.json["failure"]["message"] == NASTY
    assert ISO.fullmatch(document.json["finished_at"])


@pytest.mark.usefixtures("worker")
async def test_steps_are_listed_in_order_with_their_outcome(here: Run, client: Client) -> None:
    handle = await client.start(boom)
    await here("run", "result", handle.id, "--timeout", "10")
    shown = await here("run", "steps", handle.id)
    nothing_is_raw(shown)
    header, line = shown.out.splitlines()
    assert header.split() == ["SEQ", "NAME", "KIND", "STATUS", "ATTEMPT", "STARTED", "FINISHED", "OUTCOME"]
    assert line.split()[1:5] == ["before", "function", "succeeded", "1"]

    [step] = (await here("run", "steps", handle.id, "-o", "json")).json["steps"]
    assert set(step) == STEP
    assert (step["name"], step["output"], step["failure"]) == ("before", NASTY, None)


async def test_list_filters_and_pages_newest_first(here: Run, client: Client) -> None:
    started = [(await client.start(name, queue="q")).id for name in ("a", "b", "a", "a")]
    canceled = started[2]
    await client.cancel_run(canceled)

    async def listed(*arguments: str) -> list[str]:
        return [run["id"] for run in (await here("run", "list", "-o", "json", *arguments)).json["runs"]]

    assert await listed() == started[::-1]
    assert await listed("--workflow", "a", "--status", "canceled") == [canceled]
    assert await listed("--limit", "2", "--offset", "1") == [started[2], started[1]]


async def test_a_listing_is_a_table_whose_columns_stand_below_each_other(here: Run, client: Client) -> None:
    for name in ("short", "名前の長い", "x" * 40):
        await client.start(name, queue="q")
    ended = await here("run", "list")
    header, *lines = ended.out.splitlines()
    assert header.split() == ["ID", "WORKFLOW", "QUEUE", "STATUS", "ATTEMPT", "CREATED", "FINISHED"]
    # A wide character takes two columns of a terminal.
    columns = {header.index("QUEUE"), *(line.index(" q ") + 1 + 5 * ("名" in line) for line in lines)}
    assert len(columns) == 1
    [run] = (await here("run", "list", "--workflow", "short", "-o", "json")).json["runs"]
    assert set(run) == LISTED


async def test_an_empty_listing_is_a_header_or_an_empty_list(here: Run) -> None:
    assert (await here("run", "list")).out.split()[0] == "ID"
    assert (await here("run", "list", "-o", "json")).json == {"runs": []}


# ---- result, cancel ----


async def test_a_run_that_does_not_end_in_time_is_timed_out(at_gateway: Run, client: Client) -> None:
    handle = await client.start("w", queue="q")
    ended = await at_gateway("run", "result", handle.id, "--timeout", "0.2")
    assert ended.code == ExitCode.TIMED_OUT
    assert ended.error == f"run {handle.id} has not ended within 0.2 s"


@pytest.mark.usefixtures("worker")
async def test_a_run_that_was_waited_for_and_failed_is_json_for_those_who_asked_for_it(here: Run) -> None:
    waited = await here("run", "start", "boom", "--wait", "--timeout", "10", "-o", "json")
    assert waited.code == ExitCode.RUN_FAILED
    nothing_is_raw(waited)
    assert (waited.json["status"], waited.json["failure"]["message"]) == ("failed", NASTY)
    assert waited.err.splitlines()[-1].startswith("redflow: run failed: RedflowError: ")

    result = await here("run", "result", waited.json["id"], "-o", "json")
    assert (result.code, result.json) == (ExitCode.RUN_FAILED, waited.json)
    assert result.json == (await here("run", "get", waited.json["id"], "-o", "json")).json


async def test_a_canceled_run_is_json_for_those_who_asked_for_it(here: Run, client: Client) -> None:
    handle = await client.start("w", queue="q")
    await handle.cancel("customer left")
    result = await here("run", "result", handle.id, "-o", "json")
    assert (result.code, result.err) == (ExitCode.RUN_CANCELED, "redflow: run canceled: customer left\n")
    assert (result.json["status"], result.json["cancel_reason"]) == ("canceled", "customer left")


async def test_cancel_ends_a_queued_run_and_its_result_is_canceled(here: Run, client: Client) -> None:
    handle = await client.start("w", queue="q")
    canceled = await here("run", "cancel", handle.id, "--reason", "customer left", "-o", "json")
    assert (canceled.code, canceled.json["id"], canceled.json["status"]) == (ExitCode.OK, handle.id, "canceled")
    assert (await handle.get()).cancel_reason == "customer left"

    ended = await here("run", "result", handle.id)
    assert ended.code == ExitCode.RUN_CANCELED
    assert ended.error == "run canceled: customer left"

    again = await here("run", "cancel", handle.id)
    assert again.code == ExitCode.REFUSED
    assert "has ended before: it is canceled" in again.error


@pytest.mark.parametrize("verb", ["get", "steps", "result", "cancel"])
async def test_an_unknown_run_is_not_found(verb: str, here: Run) -> None:
    ended = await here("run", verb, "run_nowhere")
    assert ended.code == ExitCode.NOT_FOUND
    assert "run_nowhere" in ended.error


# ---- faults ----


@pytest.mark.parametrize("arguments", [("start", "w", "--queue", "q"), ("result", "run_x")])
async def test_without_a_gateway_a_command_says_so_in_its_time(arguments: tuple[str, ...], free_port: int) -> None:
    where = f"127.0.0.1:{free_port}"
    ended = await redflow("run", *arguments, "--target", where, "--call-timeout", "0.3")
    assert ended.code == ExitCode.UNAVAILABLE
    assert ended.error.startswith(f"no answer from the gateway at {where} within 0.3 s: ")
    assert "Connection refused" in ended.error


async def test_a_target_without_an_address_is_named_as_such() -> None:
    ended = await redflow("run", "list", "--target", "nowhere.invalid:7379", "--call-timeout", "0.3")
    assert ended.code == ExitCode.UNAVAILABLE
    assert "nowhere.invalid" in ended.error
    assert "resolving" in ended.error or "resolution" in ended.error


async def test_a_gateway_whose_redis_is_away_is_told_apart_from_one_that_is(
    own_store: EmbeddedStore, start: Start
) -> None:
    gateway = await start("server", "--redis", own_store.url, "--port", "0", "-o", "json")
    target = json.loads(await gateway.line())["gateway"]
    own_store.stop()
    ended = await redflow("run", "list", "--target", target, "--call-timeout", "3")
    assert ended.code == ExitCode.UNAVAILABLE
    assert ended.error == f"no answer from the gateway at {target} within 3 s: Redis does not answer"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
async def test_a_listing_that_cannot_be_written_is_an_error(target: str, start: Start) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    command = await start("run", "list", "--target", target, stdout=full)
    os.close(full)
    ended = await command.end()
    assert (ended.code, ended.error) == (ExitCode.REFUSED, "the output cannot be written: No space left on device")


async def test_ctrl_c_ends_a_waiting_command_without_a_traceback(target: str, start: Start) -> None:
    arguments = ("run", "start", "w", "--queue", "q", "--wait", "--target", target)
    command = await start(*arguments)
    assert await command.error_line("started run")
    command.send(signal.SIGINT)
    ended = await command.end()
    assert (ended.code, ended.out, ended.err) == (ExitCode.INTERRUPTED, "", "")


async def test_a_reader_that_went_away_ends_a_listing_quietly(target: str, start: Start) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = await start("run", "list", "--target", target, stdout=writer)
    os.close(writer)
    ended = await command.end()
    assert (ended.code, ended.err) == (ExitCode.BROKEN_PIPE, "")


async def test_a_waiting_command_outlasts_a_restart_of_its_gateway(
    gateway: Gateway,
    target: str,
    client: Client,
    redis: RedisCommand,
    keys: Keys,
    start: Start,
    start_gateway: StartGateway,
    start_worker: StartWorker,
) -> None:
    handle = await client.start("echo", 5, queue="cli")
    command = await start("run", "result", handle.id, "--target", target)

    async def is_waited_for() -> bool:
        return gateway.gateway_id in await redis("HVALS", keys.run(handle.id))

    await eventually(is_waited_for, within=10)
    await gateway.stop()
    await start_gateway(port=gateway.port)
    await start_worker(echo)
    ended = await command.end()
    assert (ended.code, ended.out, ended.err) == (ExitCode.OK, "5\n", "")


async def test_no_wait_is_refused_because_it_arrives_while_its_gateway_stops(
    gateway: Gateway, client: Client, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    """What `run result` waits with; as many waits as it takes for some to arrive at each moment of the stop."""
    handle = await client.start("echo", 5, queue="cli")

    async def wait(delay_s: float) -> object:
        await asyncio.sleep(delay_s)
        return await handle.result(timeout=10)

    waits = asyncio.gather(*(wait(n / 5000) for n in range(200)), return_exceptions=True)
    await asyncio.sleep(0.015)
    await gateway.stop()
    await start_gateway(port=gateway.port)
    await start_worker(echo)
    assert {repr(output) for output in await waits} == {"5"}
