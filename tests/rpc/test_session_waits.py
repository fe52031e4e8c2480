"""Waits of a run, by the messages of its worker: each kind sets a run aside and brings it back with an outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import a_failure, a_raised, a_result, a_step
from tests.rpc.scripted_worker import Item, ScriptedWorker, a_definition
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
    token_of,
)

OK = pb.ITEM_STATUS_OK
RESOLVED = pb.ITEM_STATUS_RESOLVED
SUSPENDED = pb.ITEM_STATUS_SUSPENDED
SUCCEEDED = run_pb2.STEP_STATUS_SUCCEEDED
WAITING = run_pb2.STEP_STATUS_WAITING

WAITS: Final = {
    "timer": a_sleep("step", 100),
    "event": an_event_wait("step"),
    "child": a_child_wait("step"),
    "token": a_token_wait("step"),
}
VALUES: Final = {"timer": None, "event": b'"event"', "child": b'"child"', "token": b'"token"'}
KINDS: Final = {
    "timer": run_pb2.STEP_KIND_TIMER,
    "event": run_pb2.STEP_KIND_EVENT,
    "child": run_pb2.STEP_KIND_CHILD,
    "token": run_pb2.STEP_KIND_TOKEN,
}


class Scene:
    """A run that waits, and what it waits for."""

    def __init__(self, calls: Calls, worker: ScriptedWorker, children: ScriptedWorker, run: pb.Assignment) -> None:
        self.calls = calls
        self.worker = worker
        self.children = children
        self.run = run
        self.token = ""

    async def prepare(self, kind: str) -> None:
        """A token is known before its run is set aside: else nobody could be given it."""
        if kind == "token":
            self.token = await token_of(self.worker, self.run, "step")

    async def end(self, kind: str) -> None:
        """What the wait is for happens; a sleep is over by itself."""
        match kind:
            case "event":
                await self.calls.emit("paid", b'"event"')
            case "child":
                await self.children.do(a_result(await self.children.take(), b'"child"'))
            case "token":
                await self.calls.complete_token(self.token, b'"token"')

    def is_outcome(self, kind: str, step: pb.StepSnapshot) -> bool:
        """Whether the wait has ended with what has happened."""
        found = (step.step_name, step.step_kind, step.status, step.resolved_seq)
        assert found == ("step", KINDS[kind], SUCCEEDED, 1), step
        value = step.output.data if step.HasField("output") else None
        assert (value, bool(step.event_id), bool(step.child_run_id), step.token) == (
            *(VALUES[kind], kind == "event", kind == "child"),
            self.token,
        ), step
        return True


@pytest.fixture
async def scene(calls: Calls, open_worker: OpenWorker) -> Scene:
    worker, run = await started(calls, open_worker)
    children = await open_worker(a_definition(CHILD, "children"), owner="owner-2")
    return Scene(calls, worker, children, run)


# ---- each kind ----


@pytest.mark.parametrize("kind", WAITS)
async def test_a_run_that_was_set_aside_comes_again_with_what_it_has_waited_for(scene: Scene, kind: str) -> None:
    await scene.prepare(kind)

    assert (await scene.worker.suspend(a_suspension(scene.run, WAITS[kind]))).status == SUSPENDED
    if kind != "timer":
        assert await scene.calls.status(scene.run.run_id) == "waiting"
    await scene.end(kind)

    again = await scene.worker.take()
    assert (again.run_id, again.attempt, again.delivery_count) == (scene.run.run_id, 1, 2)
    assert again.lease_token != scene.run.lease_token
    [step] = again.steps
    assert scene.is_outcome(kind, step)
    assert (await scene.worker.do(a_result(again, steps_recorded=1))).status == OK


@pytest.mark.parametrize("kind", WAITS)
async def test_a_parked_handler_goes_on_under_its_lease(scene: Scene, kind: str) -> None:
    await scene.prepare(kind)

    assert (await scene.worker.suspend(a_parking(scene.run, WAITS[kind]))).status == pb.ITEM_STATUS_PARKED
    await scene.end(kind)

    resolution = await scene.worker.resolution()
    assert resolution.lease_token == scene.run.lease_token
    assert scene.is_outcome(kind, resolution.step)
    assert (await scene.worker.do(a_result(scene.run, steps_recorded=1))).status == OK
    assert (await scene.calls.run(scene.run.run_id)).delivery_count == 1


@pytest.mark.parametrize("kind", WAITS)
async def test_a_wait_that_begins_beside_steps_is_told_of_while_they_run(scene: Scene, kind: str) -> None:
    await scene.prepare(kind)

    answer = await scene.worker.do(some_waits(scene.run, WAITS[kind]))
    assert answer.status == (RESOLVED if kind == "token" else OK)
    assert (await scene.worker.do(a_step(scene.run, "beside"))).status == OK
    await scene.end(kind)

    resolution = await scene.worker.resolution()
    assert scene.is_outcome(kind, resolution.step)
    assert await scene.calls.status(scene.run.run_id) == "running"
    assert (await scene.worker.do(a_result(scene.run, steps_recorded=2))).status == OK


@pytest.mark.parametrize("how", ["suspended", "parked", "begun"])
@pytest.mark.parametrize("kind", WAITS)
async def test_a_wait_that_is_over_before_it_is_asked_for_is_answered_at_once(
    scene: Scene, kind: str, how: str
) -> None:
    wait = WAITS[kind]
    if kind == "timer":
        wait = a_wait("step", timer=pb.TimerWait(until_time=Timestamp(seconds=int(time.time()) - 10)))
    if kind == "child":
        child = await scene.calls.start(CHILD, "children")
        wait = a_run_wait(child, "step")
    await scene.prepare(kind)
    await scene.end(kind)
    if kind == "child":
        await scene.calls.run_in(child, "succeeded")

    item = {"suspended": a_suspension, "parked": a_parking, "begun": some_waits}[how](scene.run, wait)
    answer = await scene.worker.do(item)

    assert answer.status == RESOLVED
    [step] = answer.resolutions
    assert scene.is_outcome(kind, step)
    assert await scene.calls.status(scene.run.run_id) == "running"


async def test_the_token_of_a_wait_is_told_when_it_begins_and_stays_the_same(scene: Scene) -> None:
    first = await scene.worker.do(some_waits(scene.run, a_token_wait("one"), a_token_wait("two"), a_sleep()))
    again = await scene.worker.do(some_waits(scene.run, a_token_wait("one"), a_token_wait("two")))
    await scene.worker.suspend(a_suspension(scene.run, a_token_wait("one"), a_sleep("short", 50)))
    delivered = await scene.worker.take()

    tokens = {step.step_name: step.token for step in first.resolutions}
    assert {step.step_name for step in first.resolutions} == {"one", "two"}
    assert all(step.status == WAITING for step in first.resolutions)
    assert len(set(tokens.values())) == 2
    assert {step.step_name: step.token for step in again.resolutions} == tokens
    assert {step.step_name: step.token for step in delivered.steps if step.token} == tokens


async def test_an_event_tells_the_wait_its_id_and_its_time(scene: Scene) -> None:
    before_ms = int(time.time() * 1000) - 1000
    await scene.worker.do(some_waits(scene.run, an_event_wait("step", key="order-1")))

    emitted = await scene.calls.emit("paid", key="order-1")

    step = (await scene.worker.resolution()).step
    assert step.event_id == emitted.event_id
    assert before_ms < step.event_time.ToMilliseconds() < before_ms + 10_000


async def test_a_child_starts_with_what_the_wait_says_and_knows_its_parent(scene: Scene) -> None:
    wait = a_child_wait("step", input={"data": b'{"n":7}'}, max_attempts=3, priority=5)

    await scene.worker.do(a_suspension(scene.run, wait))

    child = await scene.children.take()
    assert (child.input.data, child.max_attempts, child.parent_run_id) == (b'{"n":7}', 3, scene.run.run_id)
    [step] = await scene.calls.steps(scene.run.run_id)
    assert (step.child_run_id, step.status) == (child.run_id, WAITING)


@pytest.mark.parametrize(
    ("end", "kind", "type_"),
    [
        ("failed", failure_pb2.FAILURE_KIND_ERROR, "ChildFailedError"),
        ("canceled", failure_pb2.FAILURE_KIND_CANCELED, "ChildCanceledError"),
        ("missing", failure_pb2.FAILURE_KIND_RUN_NOT_FOUND, "RunNotFoundError"),
    ],
)
async def test_a_child_that_comes_to_nothing_fails_its_wait_with_why(
    scene: Scene, end: str, kind: failure_pb2.FailureKind.ValueType, type_: str
) -> None:
    child_id = "run_of-nobody" if end == "missing" else await scene.calls.start(CHILD, "children")
    answer = await scene.worker.do(some_waits(scene.run, a_run_wait(child_id, "step")))
    if end == "failed":
        await scene.children.do(a_raised(await scene.children.take(), message="no luck"))
    if end == "canceled":
        await scene.children.take()
        await scene.children.do(
            a_result(scene.children.assignments[0], canceled=pb.RunCanceled(reason=pb.CANCELED_REASON_WORKER_STOPPED))
        )

    step = answer.resolutions[0] if end == "missing" else (await scene.worker.resolution()).step

    assert (step.status, step.failure.failure_kind, step.failure.type) == (run_pb2.STEP_STATUS_FAILED, kind, type_)
    assert child_id in step.failure.message
    assert (step.failure.cause.message == "no luck") == (end == "failed")


# ---- time-outs ----


async def test_an_event_that_does_not_come_in_time_ends_its_wait_without_one(scene: Scene) -> None:
    await scene.worker.do(some_waits(scene.run, an_event_wait("step", timeout=ms(100))))

    step = (await scene.worker.resolution()).step

    assert (step.status, step.HasField("output"), step.event_id) == (SUCCEEDED, False, "")


@pytest.mark.parametrize("kind", ["child", "token"])
async def test_a_child_or_token_that_takes_too_long_fails_its_wait_and_the_child_ends(scene: Scene, kind: str) -> None:
    wait = a_child_wait("step", timeout=ms(100)) if kind == "child" else a_token_wait("step", timeout=ms(100))
    await scene.worker.do(some_waits(scene.run, wait))

    step = (await scene.worker.resolution()).step

    assert (step.status, step.failure.type) == (run_pb2.STEP_STATUS_FAILED, "TimeoutError")
    assert step.failure.failure_kind == failure_pb2.FAILURE_KIND_TIMEOUT
    assert "'step'" in step.failure.message or '"step"' in step.failure.message
    if kind == "child":
        child = await scene.children.take()
        await scene.children.until(lambda: scene.children.cancellations, saying="the child goes on")
        assert scene.children.cancellations[0].lease_token == child.lease_token


async def test_a_time_out_counts_from_when_its_wait_began_and_not_from_a_later_delivery(scene: Scene) -> None:
    wait = an_event_wait("step", timeout=ms(700))
    began = time.monotonic()
    await scene.worker.suspend(a_suspension(scene.run, wait, a_sleep("short", 300)))
    again = await scene.worker.take()

    await scene.worker.do(some_waits(again, wait, steps_recorded=1))

    await scene.worker.resolution()
    assert 0.6 < time.monotonic() - began < 3.0


# ---- answers ----


async def test_a_run_that_is_to_be_canceled_is_not_set_aside(scene: Scene) -> None:
    await scene.calls.cancel(scene.run.run_id)

    answer = await scene.worker.suspend(a_suspension(scene.run, a_sleep()))

    assert answer.status == pb.ITEM_STATUS_CANCELED
    assert await scene.calls.status(scene.run.run_id) == "canceled"


async def test_a_suspension_that_is_sent_again_is_answered_again(scene: Scene) -> None:
    item = a_suspension(scene.run, a_sleep())
    assert (await scene.worker.do(item)).status == SUSPENDED

    assert (await scene.worker.do(item)).status == SUSPENDED

    assert len(await scene.calls.steps(scene.run.run_id)) == 1


async def test_waits_that_are_asked_for_again_begin_once(scene: Scene) -> None:
    waits = [WAITS["event"], a_sleep(), a_child_wait()]
    for _ in range(2):
        assert (await scene.worker.do(some_waits(scene.run, *waits))).status == OK
    assert (await scene.worker.suspend(a_parking(scene.run, *waits))).status == pb.ITEM_STATUS_PARKED

    assert len(await scene.calls.steps(scene.run.run_id)) == 3
    assert len((await scene.calls.run(scene.run.run_id)).waiting_for) == 3
    await scene.children.take()
    await scene.children.quiet()
    assert len(scene.children.assignments) == 1


async def test_a_suspension_whose_worker_has_not_heard_of_the_end_of_another_wait_is_told_of_it(scene: Scene) -> None:
    await scene.worker.do(some_waits(scene.run, an_event_wait("first", "first")))
    await scene.calls.emit("first")
    await scene.worker.resolution()

    answer = await scene.worker.do(a_suspension(scene.run, a_sleep(), steps_recorded=0))
    assert (answer.status, [step.step_name for step in answer.resolutions]) == (RESOLVED, ["first"])

    assert (await scene.worker.suspend(a_suspension(scene.run, a_sleep(), steps_recorded=1))).status == SUSPENDED


@pytest.mark.parametrize(
    "other",
    [a_step("x", "step"), a_sleep("step"), an_event_wait("step", "another"), an_event_wait("step", key="another")],
    ids=["function", "kind", "event", "key"],
)
@pytest.mark.parametrize("how", [a_suspension, some_waits], ids=["suspended", "begun"])
async def test_a_wait_for_something_else_under_a_known_name_is_non_deterministic(
    scene: Scene, other: pb.Wait | pb.StepReport, how: Callable[..., Item]
) -> None:
    if isinstance(other, pb.StepReport):
        other.lease_token = scene.run.lease_token
        await scene.worker.do(other)
    else:
        await scene.worker.do(some_waits(scene.run, other))

    answer = await scene.worker.do(how(scene.run, an_event_wait("step")))

    assert (answer.status, answer.reason) == (pb.ITEM_STATUS_INVALID, "NON_DETERMINISTIC")
    assert "'step'" in answer.message
    assert (await scene.worker.do(a_raised(scene.run, cause=a_failure()))).status == OK


async def test_a_lost_lease_begins_no_wait(scene: Scene) -> None:
    await scene.worker.do(a_result(scene.run))

    for item in (a_suspension(scene.run, a_sleep()), some_waits(scene.run, a_sleep())):
        # The run has ended under this token, which is answered as it was.
        answer = await scene.worker.do(item)
        assert answer.status == SUSPENDED
    for item in (a_suspension("run_x.0123456789abcde", a_sleep()), some_waits("run_x.0123456789abcde", a_sleep())):
        assert (await scene.worker.do(item)).status == pb.ITEM_STATUS_LEASE_LOST
    assert await scene.calls.steps(scene.run.run_id) == []
