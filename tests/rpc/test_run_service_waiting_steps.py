"""What GetRun says of the waits of a run: what for, since when, until when, and what becomes of a run it waits for."""

from __future__ import annotations

import time
from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import a_failure, a_result
from tests.rpc.scripted_worker import a_definition
from tests.rpc.wait_items import (
    CHILD,
    a_child_wait,
    a_parking,
    a_run_wait,
    a_sleep,
    a_suspension,
    a_token_wait,
    a_wait,
    an_event_wait,
    ms,
    some_waits,
)

HOUR_MS: Final = 3_600_000
AT: Final = Timestamp(seconds=4_000_000_000)

WAITS: dict[str, tuple[pb.Wait, str, str, int | None]] = {
    "sleep": (a_sleep("step", HOUR_MS), "timer", "sleeps", HOUR_MS),
    "event": (an_event_wait("step"), "event", "event 'paid' without a key", None),
    "event with a key": (
        an_event_wait("step", key="A-17", timeout=ms(HOUR_MS)),
        "event",
        "event 'paid' with the key 'A-17'",
        HOUR_MS,
    ),
    "event with an empty key": (an_event_wait("step", key=""), "event", "event 'paid' with the key ''", None),
    "event of an odd name": (
        an_event_wait("step", "3:a: |'💥'", key="5:b"),
        "event",
        "event \"3:a: |'💥'\" with the key '5:b'",
        None,
    ),
    "token": (a_token_wait("step", ms(HOUR_MS)), "token", "somebody to complete its token", HOUR_MS),
    "child": (a_child_wait("step", ms(HOUR_MS)), "child", "", HOUR_MS),
}


def kind_of(what: run_pb2.WaitingFor) -> str:
    """What kind of wait it is, in a word."""
    return run_pb2.WaitingKind.Name(what.kind).removeprefix("WAITING_KIND_").lower()


async def waits_of(calls: Calls, run_id: str) -> dict[str, run_pb2.WaitingFor]:
    """What a run waits for, by step."""
    return {what.step_name: what for what in (await calls.run(run_id)).waiting_for}


@pytest.mark.parametrize("how", ["suspended", "parked", "begun"])
@pytest.mark.parametrize("kind", WAITS)
async def test_a_wait_says_what_for_since_when_and_until_when(
    calls: Calls, open_worker: OpenWorker, kind: str, how: str
) -> None:
    wait, expected, detail, length_ms = WAITS[kind]
    worker, run = await started(calls, open_worker)
    before_ms = time.time() * 1000
    await worker.do({"suspended": a_suspension, "parked": a_parking, "begun": some_waits}[how](run, wait))

    shown = await calls.run(run.run_id)

    [what] = shown.waiting_for
    assert (kind_of(what), what.step_name, shown.open_waits) == (expected, "step", 1)
    assert what.detail == detail if detail else what.detail.startswith("run run_")
    since_ms = what.since_time.ToMilliseconds()
    assert abs(since_ms - before_ms) < 5000
    assert what.HasField("until_time") == (length_ms is not None)
    if length_ms is not None:
        assert what.until_time.ToMilliseconds() - since_ms == length_ms
    assert shown.status == (run_pb2.RUN_STATUS_WAITING if how == "suspended" else run_pb2.RUN_STATUS_RUNNING)


async def test_a_sleep_until_a_time_says_that_time(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(a_suspension(run, a_wait("step", timer=pb.TimerWait(until_time=AT))))

    assert (await waits_of(calls, run.run_id))["step"].until_time == AT


async def test_only_what_is_still_open_is_waited_for_and_nothing_when_the_run_has_ended(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, an_event_wait("a", "a"), an_event_wait("b", "b"), a_sleep("c")))
    assert (await waits_of(calls, run.run_id)).keys() == {"a", "b", "c"}

    await calls.emit("b")
    assert (await waits_of(calls, run.run_id)).keys() == {"a", "c"}

    await worker.do(a_result(run, steps_recorded=1))
    assert await waits_of(calls, run.run_id) == {}


async def test_of_thousands_of_waits_the_hundred_that_began_first_are_shown_and_all_are_counted(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    long = "é" * 120
    for first in range(0, 3000, 100):
        waits = [an_event_wait(f"{number:04} {long}", long, key=long) for number in range(first, first + 100)]
        assert (await worker.do(some_waits(run, *waits))).status == pb.ITEM_STATUS_OK

    shown = await calls.run(run.run_id)
    waited = (await calls.runs.WaitRun(run_service_pb2.WaitRunRequest(run_id=run.run_id, timeout=Duration()))).run

    for one in (shown, waited):
        assert one.open_waits == 3000
        assert [what.step_name[:4] for what in one.waiting_for] == [f"{number:04}" for number in range(100)]


# ---- runs that are waited for ----


async def test_a_run_that_nobody_serves_is_why_its_parent_waits(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    await worker.suspend(a_suspension(run, a_child_wait("step")))
    [step] = await calls.steps(run.run_id)

    what = (await waits_of(calls, run.run_id))["step"]
    assert what.detail == (f"run {step.child_run_id}: 'c' is queued, no worker serves 'c' on queue 'children'")

    await open_worker(a_definition(CHILD, "children"), owner="owner-2", slot_limit=0)
    what = (await waits_of(calls, run.run_id))["step"]
    assert what.detail == (f"run {step.child_run_id}: 'c' is queued, 1 worker serves it, and none has a free slot")


async def test_what_a_run_that_is_waited_for_does_is_why_its_parent_waits(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    children = await open_worker(a_definition(CHILD, "children", max_attempts=2), owner="owner-2")
    await worker.suspend(a_suspension(run, a_child_wait("step")))
    child = await children.take()

    async def is_said(words: str) -> bool:
        return (await waits_of(calls, run.run_id))["step"].detail == f"run {child.run_id}: {words}"

    assert await is_said("'c' is running")
    await children.do(some_waits(child, an_event_wait("a"), an_event_wait("b", key="k")))
    assert await is_said("'c' is running, event 'paid' without a key; event 'paid' with the key 'k'")
    await children.suspend(a_suspension(child, an_event_wait("a")))
    assert await is_said("'c' is waiting, event 'paid' without a key; event 'paid' with the key 'k'")
    await calls.emit("paid")
    again = await children.take()
    failure = a_failure(next_retry_delay={"seconds": 60})
    await children.do(a_result(again, steps_recorded=1, failure=failure))
    assert await is_said("'c' is scheduled")


async def test_of_many_runs_that_are_waited_for_all_are_named_and_ten_are_looked_at(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    await worker.do(some_waits(run, *(a_child_wait(f"step {number}") for number in range(13))))

    details = [what.detail for what in (await waits_of(calls, run.run_id)).values()]

    assert [detail.startswith("run run_") for detail in details] == [True] * 13
    assert sum("'c' is queued" in detail for detail in details) == 10


async def test_one_run_that_several_wait_for_is_why_each_of_them_waits(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w", slot_limit=2)
    child_id = await calls.start(CHILD, "children")
    await calls.start_many(2)
    runs = [await worker.take() for _ in range(2)]
    for run in runs:
        await worker.do(some_waits(run, a_run_wait(child_id, "step")))

    for run in runs:
        assert (await waits_of(calls, run.run_id))["step"].detail.startswith(f"run {child_id}: 'c' is queued")
