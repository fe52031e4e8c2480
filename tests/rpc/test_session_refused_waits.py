"""Waits and starts that make no sense: each is answered by itself with what is wrong with it, and begins nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.config import Config
from redflow_server.domain.names import MAX_WAITS, Limits
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import a_payload, a_result, a_step
from tests.rpc.scripted_worker import Item
from tests.rpc.wait_items import (
    a_child_wait,
    a_command,
    a_parking,
    a_run_wait,
    a_sleep,
    a_start,
    a_suspension,
    a_token_wait,
    a_wait,
    an_event_wait,
    some_waits,
)

LIMIT: Final = 50_000
INVALID: Final = pb.ITEM_STATUS_INVALID
LONG: Final = "x" * 257
AGO: Final = Duration(seconds=-1)
ENDLESS: Final = Duration(seconds=2**40)
NO_TIME: Final = Timestamp(seconds=2**50)


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, limits=Limits(max_payload_bytes=LIMIT))


def a_timer(**fields: Any) -> pb.Wait:  # Any: fields of the message
    return a_wait("step", timer=pb.TimerWait(**fields))


WAITS: dict[str, tuple[pb.Wait, str, str]] = {
    "no name": (a_sleep(""), "step_name", "''"),
    "a name of 257 bytes": (a_sleep(LONG), "step_name", "257"),
    "a name with a NUL": (a_sleep("a\x00b"), "step_name", "\\x00"),
    "a negative place": (a_sleep(step_seq=-1), "step_seq", "-1"),
    "a group of 257 bytes": (a_sleep(group=LONG), "group", "257"),
    "a group with an escape": (a_sleep(group="\x1b"), "group", "\\x1b"),
    "nothing to wait for": (a_wait("step"), "wait must be one of timer, event, child, token", "None"),
    "a sleep of no length": (a_timer(), "timer", "None"),
    "a sleep of a length and a time": (
        a_timer(delay=Duration(seconds=1), until_time=Timestamp(seconds=1)),
        "timer",
        "1000 ms",
    ),
    "a sleep of less than nothing": (a_timer(delay=AGO), "timer.delay", "-1 s"),
    "an endless sleep": (a_timer(delay=ENDLESS), "timer.delay", str(2**40)),
    "a sleep to no year": (a_timer(until_time=NO_TIME), "timer.until_time", str(2**50)),
    "no event": (an_event_wait(event=""), "event.event_name", "''"),
    "an event of 257 bytes": (an_event_wait(event=LONG), "event.event_name", "257"),
    "a key of 257 bytes": (an_event_wait(key=LONG), "event.key", "257"),
    "a key with a line end": (an_event_wait(key="a\nb"), "event.key", "\\n"),
    "a negative time-out of an event": (an_event_wait(timeout=AGO), "event.timeout", "-1 s"),
    "an endless time-out of an event": (an_event_wait(timeout=ENDLESS), "event.timeout", str(2**40)),
    "a negative time-out of a child": (a_child_wait(timeout=AGO), "child.timeout", "-1 s"),
    "a negative time-out of a token": (a_token_wait(timeout=AGO), "token.timeout", "-1 s"),
    "an endless time-out of a token": (a_token_wait(timeout=ENDLESS), "token.timeout", str(2**40)),
    "a run that is none": (a_run_wait("not a run"), "child.run_id", "'not a run'"),
    "no run at all": (a_run_wait(""), "child.run_id", "''"),
    "a child of no workflow": (a_child_wait(workflow=""), "workflow", "''"),
    "neither a child nor a run": (a_wait("step", child=pb.ChildWait()), "workflow", "''"),
    "a workflow of 257 bytes": (a_child_wait(workflow=LONG), "workflow", "257"),
    "a queue of 257 bytes": (a_child_wait(queue=LONG), "queue", "257"),
    "a key of a child of 257 bytes": (a_child_wait(idempotency_key=LONG), "idempotency_key", "257"),
    "a negative time to live": (a_child_wait(idempotency_ttl=AGO), "idempotency_ttl", "-1 s"),
    "no time to live": (a_child_wait(idempotency_ttl=Duration()), "idempotency_ttl", "0 ms"),
    "a priority over 1000": (a_child_wait(priority=1001), "priority", "1001"),
    "attempts below one": (a_child_wait(max_attempts=-1), "max_attempts", "-1"),
    "attempts over a million": (a_child_wait(max_attempts=1_000_001), "max_attempts", "1000001"),
    "metadata over 8 KiB": (a_child_wait(input=a_payload(metadata={"k": "x" * 9000})), "input.metadata", "90"),
}
HOW: dict[str, Callable[..., Item]] = {"suspended": a_suspension, "parked": a_parking, "begun": some_waits}


async def assert_refused(calls: Calls, open_worker: OpenWorker, item: Item, *, field: str, came: str) -> None:
    """Asserts that an item is refused in words, begins nothing, and spoils nothing."""
    worker, run = await started(calls, open_worker)
    item.lease_token = run.lease_token

    answer = await worker.do(item)

    assert (answer.status, answer.reason) == (INVALID, "INVALID_INPUT")
    assert answer.message.startswith(field), answer.message
    assert "must" in answer.message
    assert came in answer.message
    assert answer.message.isprintable() and len(answer.message) < 500
    assert await calls.steps(run.run_id) == []
    assert (await worker.do(a_result(run))).status == pb.ITEM_STATUS_OK


@pytest.mark.parametrize("kind", WAITS)
async def test_a_wait_that_makes_no_sense_is_answered_with_field_rule_and_what_came(
    calls: Calls, open_worker: OpenWorker, kind: str
) -> None:
    wait, field, came = WAITS[kind]
    await assert_refused(calls, open_worker, some_waits("", wait), field=field, came=came)


@pytest.mark.parametrize("how", HOW)
async def test_one_wait_that_makes_no_sense_keeps_all_of_its_item_from_beginning(
    calls: Calls, open_worker: OpenWorker, how: str
) -> None:
    item = HOW[how]("", a_sleep("good"), a_sleep("", 1), an_event_wait("good too"))
    await assert_refused(calls, open_worker, item, field="step_name", came="''")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("count", [0, MAX_WAITS + 1])
async def test_an_item_has_one_wait_to_a_hundred(calls: Calls, open_worker: OpenWorker, how: str, count: int) -> None:
    item = HOW[how]("", *(a_sleep(f"s{number}") for number in range(count)))
    if isinstance(item, pb.Suspension):
        item.park = count > 0  # to park without waits asks to go on
    await assert_refused(calls, open_worker, item, field=f"waits must be 1 to {MAX_WAITS}", came=str(count))


@pytest.mark.parametrize("how", HOW)
async def test_a_hundred_waits_in_one_item_are_taken(calls: Calls, open_worker: OpenWorker, how: str) -> None:
    worker, run = await started(calls, open_worker)
    item = HOW[how](run, *(a_sleep(f"s{number}") for number in range(MAX_WAITS)))

    answer = await worker.do(item)

    assert answer.status in (pb.ITEM_STATUS_SUSPENDED, pb.ITEM_STATUS_PARKED, pb.ITEM_STATUS_OK)
    assert len(await calls.steps(run.run_id)) == MAX_WAITS


@pytest.mark.parametrize("how", HOW)
async def test_two_waits_of_one_item_are_not_of_the_same_step(calls: Calls, open_worker: OpenWorker, how: str) -> None:
    item = HOW[how]("", a_sleep("once"), a_sleep("twice"), an_event_wait("twice"))
    await assert_refused(calls, open_worker, item, field="waits must be of different steps", came="twice")


@pytest.mark.parametrize("how", [*HOW, "started"])
async def test_the_input_of_a_child_has_a_limit(calls: Calls, open_worker: OpenWorker, how: str) -> None:
    worker, run = await started(calls, open_worker)

    def asking(size: int) -> Item:
        data = a_payload(b"x" * size)
        return a_start(run, input=data) if how == "started" else HOW[how](run, a_child_wait(input=data))

    answer = await worker.do(asking(LIMIT + 1))
    assert (answer.status, answer.reason) == (pb.ITEM_STATUS_TOO_LARGE, "PAYLOAD_TOO_LARGE")
    assert f"input must be at most {LIMIT} bytes; got {LIMIT + 1} bytes" in answer.message
    assert await calls.steps(run.run_id) == []

    assert (await worker.do(asking(LIMIT))).status not in (pb.ITEM_STATUS_TOO_LARGE, INVALID)
    assert len(await calls.steps(run.run_id)) == 1


STARTS: dict[str, tuple[Item, str, str]] = {
    "no name": (a_start("", ""), "step_name", "''"),
    "a negative place": (a_command("", "a", step_seq=-1, start_child=pb.ChildStart(workflow="w")), "step_seq", "-1"),
    "no workflow": (a_start("", workflow=""), "workflow", "''"),
    "a queue with a NUL": (a_start("", queue="\x00"), "queue", "\\x00"),
    "a negative time to live": (a_start("", idempotency_ttl=AGO), "idempotency_ttl", "-1 s"),
    "a priority below -1000": (a_start("", priority=-1001), "priority", "-1001"),
    "an event without a name": (a_command("", "a", emit_event=pb.EmitCommand()), "event_name", "''"),
    "an event with a long key": (
        a_command("", "a", emit_event=pb.EmitCommand(event_name="e", key=LONG)),
        "key",
        "257",
    ),
}


@pytest.mark.parametrize("kind", STARTS)
async def test_a_start_or_event_that_makes_no_sense_is_answered_with_field_rule_and_what_came(
    calls: Calls, open_worker: OpenWorker, kind: str
) -> None:
    item, field, came = STARTS[kind]
    await assert_refused(calls, open_worker, item, field=field, came=came)


@pytest.mark.parametrize(
    ("rivals", "field", "came"),
    [([""], "rivals", "''"), ([LONG], "rivals", "257"), (["a"] * (MAX_WAITS + 1), "rivals", str(MAX_WAITS + 1))],
    ids=["no name", "a long name", "too many"],
)
async def test_the_rivals_of_a_step_are_names_of_at_most_a_hundred_steps(
    calls: Calls, open_worker: OpenWorker, rivals: list[str], field: str, came: str
) -> None:
    await assert_refused(calls, open_worker, a_step("", rivals=rivals), field=field, came=came)


async def test_a_command_of_a_later_revision_is_not_served_and_says_so(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)

    answer = await worker.do(a_command(run, "a"))

    assert (answer.status, answer.reason) == (INVALID, "UNIMPLEMENTED")
    assert "command" in answer.message
    assert (await worker.do(a_result(run))).status == pb.ITEM_STATUS_OK
