"""Runs whose handlers a worker keeps in memory while they wait, by its messages: slots, stops, and ways to lose them.

A lease is one second here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.config import Config
from redflow_server.domain.leases import WaitOver
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, Dial, OpenWorker, started
from tests.rpc.items import a_result, a_step
from tests.rpc.scripted_worker import Item, ScriptedWorker, a_definition, an_open
from tests.rpc.wait_items import a_parking, a_sleep, a_suspension, an_event_wait, some_waits

PARKED = pb.ITEM_STATUS_PARKED
SUSPENDED = pb.ITEM_STATUS_SUSPENDED
HELD = pb.LEASE_VERDICT_KIND_HELD
CLOSE = pb.CloseSession(reason="done")
REQUESTED = pb.RunCanceled(reason=pb.CANCELED_REASON_REQUESTED)
EVENT: Final = an_event_wait()


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, timing=Timing(lease_ms=1000, cancel_grace_ms=1000), drain_grace_ms=3000)


async def parked(
    calls: Calls, open_worker: OpenWorker, *waits: pb.Wait, **definition: object
) -> tuple[ScriptedWorker, pb.Assignment]:
    """A worker with one slot that keeps a run parked until an event, or one of these waits."""
    worker, run = await started(calls, open_worker, **definition)
    assert (await worker.suspend(a_parking(run, *(waits or (EVENT,))))).status == PARKED
    return worker, run


def listed(*runs: pb.Assignment, state: pb.LeaseState.ValueType = pb.LEASE_STATE_PARKED) -> list[pb.HeldLease]:
    """The inventory of a worker that comes back with these runs, which wait for an event."""
    return [pb.HeldLease(lease_token=run.lease_token, state=state, open_waits=["event"]) for run in runs]


async def assert_it_waits_at_no_cost(calls: Calls, run: pb.Assignment) -> None:
    """Asserts that the run goes back to its wait, and that its end brings it to another worker."""
    record = await calls.run_in(run.run_id, "waiting", within=8)
    assert (record.losses, record.attempt) == (0, 1)
    await calls.emit("paid")
    await calls.run_in(run.run_id, "queued")


# ---- slots ----


async def test_while_it_is_parked_its_worker_gets_the_next_run_and_goes_on_with_it_when_that_has_ended(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await parked(calls, open_worker)
    await calls.start_many(2)
    other = await worker.take()
    await calls.emit("paid")
    await worker.quiet()
    assert worker.resolutions == []

    await worker.do(a_result(other))

    assert (await worker.resolution()).lease_token == run.lease_token
    await worker.quiet()
    assert len(worker.assignments) == 2, "the third one has to wait"
    await worker.do(a_result(run, steps_recorded=1))
    await worker.do(a_result(await worker.take()))
    assert worker.cancellations == []


async def test_without_a_slot_for_a_second_it_is_let_go_and_goes_on_elsewhere(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await parked(calls, open_worker)
    await calls.start()
    await worker.take()

    await calls.emit("paid")

    await worker.until(lambda: worker.cancellations, saying="it waits for its slot for ever")
    [order] = worker.cancellations
    assert (order.lease_token, order.reason) == (run.lease_token, pb.CANCELLATION_REASON_UNPARKED)
    worker.held.pop(run.lease_token)
    other = await open_worker("w")
    again = await other.take()
    assert (again.run_id, again.delivery_count, again.attempt) == (run.run_id, 2, 1)
    assert (await worker.do(a_step(run))).status == pb.ITEM_STATUS_LEASE_LOST
    assert (await other.do(a_result(again, steps_recorded=1))).status == pb.ITEM_STATUS_OK
    assert worker.resolutions == []


async def test_a_lease_outlives_its_time_while_heartbeats_list_it_as_parked(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await parked(calls, open_worker, a_sleep("long", 2500))

    assert (await worker.resolution(within=8)).step.step_name == "long"

    assert (await worker.do(a_result(run, steps_recorded=1))).status == pb.ITEM_STATUS_OK
    record = await calls.run(run.run_id)
    assert (record.delivery_count, record.losses) == (1, 0)


@pytest.mark.parametrize("is_over", [False, True], ids=["open", "over"])
async def test_at_the_end_of_its_time_in_memory_it_is_set_aside_or_goes_on(
    calls: Calls, open_worker: OpenWorker, is_over: bool
) -> None:
    worker, run = await parked(calls, open_worker)
    if is_over:
        await worker.say(capacity=pb.Capacity(slot_limit=0))
        await calls.emit("paid")
        await worker.quiet()

    suspending = a_suspension(run, EVENT)
    await worker.send(suspending)
    if is_over:
        await worker.say(capacity=pb.Capacity(slot_limit=1))
    answer = await worker.answer_to(suspending)

    if is_over:
        assert (answer.status, [step.step_name for step in answer.resolutions]) == (pb.ITEM_STATUS_RESOLVED, ["event"])
        assert (await worker.do(a_result(run, steps_recorded=1))).status == pb.ITEM_STATUS_OK
    else:
        assert answer.status == SUSPENDED
        worker.held.clear()
        await calls.emit("paid")
        assert (await worker.take()).run_id == run.run_id


# ---- what is lost on the way ----


class DeafGateway(Gateway):
    """A gateway on which every message about a wait is lost."""

    lost = 0

    def wait_over(self, over: WaitOver) -> None:
        self.lost += 1


@pytest_asyncio.fixture
async def deaf(config: Config, gateway: Gateway) -> AsyncIterator[DeafGateway]:
    """Beside the test's gateway, which others talk to."""
    deaf = DeafGateway(config)
    await deaf.start()
    yield deaf
    await deaf.stop()


@pytest.mark.parametrize("how", [a_parking, some_waits], ids=["parked", "at work"])
async def test_an_outcome_whose_message_was_lost_comes_after_the_next_heartbeat_that_lists_its_wait(
    deaf: DeafGateway, calls: Calls, open_worker: OpenWorker, how: Callable[..., Item]
) -> None:
    worker = await open_worker("w", at=deaf)
    await calls.start()
    run = await worker.take()
    await worker.do(how(run, EVENT))
    worker.open_waits[run.lease_token] = ["event"]

    await calls.emit("paid", b'"yes"')

    resolution = await worker.resolution()
    assert (resolution.lease_token, resolution.step.output.data) == (run.lease_token, b'"yes"')
    assert deaf.lost == 1
    assert "wait_resolutions" in worker.order[worker.order.index("heartbeat_reply") :]


async def test_a_wait_that_nobody_has_heard_of_is_answered_without_a_status(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await parked(calls, open_worker)
    worker.open_waits[run.lease_token] = ["event", "lost"]

    resolution = await worker.resolution()

    assert (resolution.step.step_name, resolution.step.status) == ("lost", run_pb2.STEP_STATUS_UNSPECIFIED)
    assert (await worker.suspend(a_parking(run, EVENT, a_sleep("lost")))).status == PARKED
    assert {step.step_name for step in await calls.steps(run.run_id)} == {"event", "lost"}


async def test_a_value_that_does_not_fit_is_fetched_by_its_name(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await parked(calls, open_worker)
    data = b"x" * 100_000

    await calls.emit("paid", data)

    step = (await worker.resolution()).step
    assert (step.WhichOneof("value"), step.output_ref.size_bytes) == ("output_ref", len(data))
    request = pb.GetStepOutputsRequest(lease_token=run.lease_token, step_names=["event"])
    [fetched] = (await calls.workers.GetStepOutputs(request)).steps
    assert fetched.output.data == data


# ---- orders to stop ----


async def test_an_order_to_cancel_is_pushed_to_a_parked_handler(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await parked(calls, open_worker)

    await calls.cancel(run.run_id, "changed my mind")

    await worker.until(lambda: worker.cancellations, within=1.0, saying="no order to stop was pushed")
    order = worker.cancellations[0]
    assert (order.lease_token, order.reason) == (run.lease_token, pb.CANCELLATION_REASON_USER)
    assert (await worker.do(a_result(run, canceled=REQUESTED))).status == pb.ITEM_STATUS_CANCELED
    assert [step.status for step in await calls.steps(run.run_id)] == [run_pb2.STEP_STATUS_WITHDRAWN]
    await calls.emit("paid")
    await worker.quiet()
    assert worker.resolutions == []


async def test_a_parked_handler_that_does_not_hear_of_it_is_canceled_after_the_grace(
    calls: Calls, open_worker: OpenWorker
) -> None:
    _, run = await parked(calls, open_worker)

    await calls.cancel(run.run_id)

    await calls.run_in(run.run_id, "canceled")


async def test_a_parked_run_over_its_time_is_told_to_stop_and_fails(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await parked(calls, open_worker, run_timeout=Duration(nanos=500_000_000))

    await worker.until(lambda: worker.cancellations, saying="no order to stop was pushed")
    assert worker.cancellations[0].reason == pb.CANCELLATION_REASON_TIMEOUT
    await worker.do(a_result(run, canceled=REQUESTED))

    record = await calls.run_in(run.run_id, "failed")
    assert record.failure.failure_kind == failure_pb2.FAILURE_KIND_TIMEOUT


# ---- a worker that comes back, or does not ----


@pytest.mark.parametrize("is_over", [False, True], ids=["ends later", "has ended"])
@pytest.mark.parametrize("where", ["same gateway", "another gateway"])
async def test_a_worker_that_comes_back_goes_on_with_it_on_whatever_gateway(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker, where: str, is_over: bool
) -> None:
    one = await start_gateway()
    other = one if where == "same gateway" else await start_gateway()
    calls = calls_to(other)
    first = await open_worker("w", at=one, instance_id="instance")
    await calls.start()
    run = await first.take()
    await first.suspend(a_parking(run, EVENT))
    await first.cut()
    await calls.start()
    if is_over:
        await calls.emit("paid")

    back = {"instance_id": "instance", "session_number": 2, "held_leases": listed(run)}
    worker = await open_worker("w", at=other, **back)
    assert worker.opened is not None
    assert [verdict.verdict for verdict in worker.opened.lease_verdicts] == [HELD]
    if not is_over:
        await worker.do(a_result(await worker.take()))
        await calls.emit("paid")

    assert (await worker.resolution()).lease_token == run.lease_token
    await worker.quiet()
    assert len(worker.assignments) == (0 if is_over else 1), "its slot is taken"
    assert (await worker.do(a_result(run, steps_recorded=1))).status == pb.ITEM_STATUS_OK


async def test_a_worker_that_dies_with_it_has_lost_nothing(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await parked(calls, open_worker)
    await worker.cut()
    await assert_it_waits_at_no_cost(calls, run)


async def test_a_worker_that_falls_silent_with_it_has_lost_nothing(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await parked(calls, open_worker)
    await worker.fall_silent()
    error = await worker.end()
    assert error is not None and error.reason == "SESSION_SILENT"
    await assert_it_waits_at_no_cost(calls, run)


async def test_a_worker_that_dies_before_it_has_heard_of_the_end_of_a_wait_leaves_the_run_in_its_lane_at_no_cost(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await parked(calls, open_worker)
    await worker.cut()
    await calls.emit("paid")

    record = await calls.run_in(run.run_id, "queued", within=8)

    assert record.losses == 0
    again = await (await open_worker("w")).take()
    assert [step.status for step in again.steps] == [run_pb2.STEP_STATUS_SUCCEEDED]


@pytest.mark.parametrize("state", [None, pb.LEASE_STATE_FENCED], ids=["left out", "fenced"])
async def test_a_parked_run_that_a_worker_has_given_up_goes_back_to_its_wait_at_no_cost(
    calls: Calls, open_worker: OpenWorker, state: pb.LeaseState.ValueType | None
) -> None:
    worker, run = await parked(calls, open_worker)
    if state is None:
        del worker.held[run.lease_token]
    else:
        worker.held[run.lease_token] = state
    await worker.say(capacity=pb.Capacity(slot_limit=0))
    await assert_it_waits_at_no_cost(calls, run)


# ---- leaving ----


async def test_a_worker_that_drains_still_hears_of_it_and_sets_the_others_aside(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=2)
    await calls.start_many(2)
    goes_on, stays = await worker.take(), await worker.take()
    await worker.suspend(a_parking(goes_on, EVENT))
    await worker.suspend(a_parking(stays, a_sleep("long")))

    await worker.say(drain=pb.DrainRequest())
    await worker.until(lambda: worker.drain_acks, saying="no acknowledgement")
    await calls.emit("paid")

    assert (await worker.resolution()).lease_token == goes_on.lease_token
    assert (await worker.do(a_result(goes_on, steps_recorded=1))).status == pb.ITEM_STATUS_OK
    assert (await worker.suspend(a_suspension(stays, a_sleep("long")))).status == SUSPENDED
    await worker.say(close=CLOSE)
    assert await worker.end() is None
    assert (await calls.run(stays.run_id)).losses == 0


async def test_a_worker_that_says_goodbye_hands_it_back_to_its_wait_at_once(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await parked(calls, open_worker)

    await worker.say(close=CLOSE)
    await worker.end()

    await assert_it_waits_at_no_cost(calls, run)


async def test_it_moves_with_its_worker_from_a_gateway_that_goes_away(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker, dial: Dial
) -> None:
    leaving, staying = await start_gateway(), await start_gateway()
    calls = calls_to(staying)
    old = await open_worker("w", at=leaving, instance_id="instance")
    await calls.start()
    run = await old.take()
    await old.suspend(a_parking(run, EVENT))

    leaving._sessions.drain(3000)
    await old.until(lambda: old.draining, saying="not told")
    new = dial(staying)
    await new.open(an_open("w", instance_id="instance", session_number=2, held_leases=listed(run)))
    new.beat_on()
    await old.say(close=CLOSE)
    await old.end()
    await calls.emit("paid")

    assert (await new.resolution()).lease_token == run.lease_token
    assert (await new.do(a_result(run, steps_recorded=1))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run.run_id)).delivery_count == 1
    assert old.resolutions == []


async def test_another_worker_may_take_up_what_was_set_aside_meanwhile(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await parked(calls, open_worker)
    assert (await worker.suspend(a_suspension(run, EVENT))).status == SUSPENDED
    await worker.say(capacity=pb.Capacity(slot_limit=0))
    other = await open_worker(a_definition("w"))

    await calls.emit("paid")

    assert (await other.take()).run_id == run.run_id
    assert worker.resolutions == []
