"""Cancel and time-out: pushed, repeated, and at last forced. A lease and the grace are one second here."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.config import Config
from redflow_server.domain.timing import Timing
from tests.conftest import StartGateway
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, OpenWorker, started
from tests.rpc.items import a_raised, a_release, a_result, a_step
from tests.rpc.scripted_worker import Item, ScriptedWorker, a_definition

CANCELED = pb.ITEM_STATUS_CANCELED
REQUESTED = pb.RunCanceled(reason=pb.CANCELED_REASON_REQUESTED)
WORKER_STOPPED = pb.RunCanceled(reason=pb.CANCELED_REASON_WORKER_STOPPED)


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, timing=Timing(lease_ms=1000, cancel_grace_ms=1000))


async def pushed(worker: ScriptedWorker, within: float = 1.0) -> pb.Cancellation:
    """The order to stop, which has to come by itself."""
    await worker.until(lambda: worker.cancellations, within=within, saying="no order to stop was pushed")
    return worker.cancellations[0]


# ---- the order ----


async def test_an_order_to_stop_arrives_within_a_second_with_its_reason_message_and_grace(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)

    assert await calls.cancel(assignment.run_id, "changed my mind")

    order = await pushed(worker)
    assert (order.lease_token, order.reason) == (assignment.lease_token, pb.CANCELLATION_REASON_USER)
    assert (order.message, order.grace.ToMilliseconds()) == ("changed my mind", 1000)
    assert await calls.status(assignment.run_id) == "running", "the handler has not ended yet"


async def test_an_order_reaches_a_run_that_was_claimed_through_another_gateway(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    one, other = await start_gateway(), await start_gateway()
    calls = calls_to(other)
    worker = await open_worker("w", at=one)
    run_id = await calls.start()
    assignment = await worker.take()

    await calls.cancel(run_id)

    assert (await pushed(worker)).lease_token == assignment.lease_token


@pytest.mark.parametrize("reason", ["", "a\nb\r\n", "x" * 4096, "💥 \x1b[31m", " leading", "a b  c"])
async def test_the_reason_arrives_as_it_was_given(calls: Calls, open_worker: OpenWorker, reason: str) -> None:
    worker, assignment = await started(calls, open_worker)

    await calls.cancel(assignment.run_id, reason)

    assert (await pushed(worker)).message == reason
    assert (await calls.run(assignment.run_id)).cancel_reason == reason


async def test_every_heartbeat_reply_and_every_answer_repeats_the_order_until_the_run_has_ended(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    await calls.cancel(assignment.run_id, "first reason")
    await calls.cancel(assignment.run_id, "second reason")

    for number in range(3):
        reply = await worker.beat(assignment.lease_token)
        [order] = reply.cancellations
        assert (order.lease_token, order.reason) == (assignment.lease_token, pb.CANCELLATION_REASON_USER)
        assert order.message == "first reason"
        answer = await worker.do(a_step(assignment, f"s{number}"))
        assert (answer.status, answer.cancel_requested) == (pb.ITEM_STATUS_OK, True)

    assert (await worker.do(a_result(assignment, canceled=REQUESTED))).status == CANCELED
    assert list((await worker.beat(assignment.lease_token)).cancellations) == []


async def test_steps_are_answered_without_an_order_when_there_is_none(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker)

    assert not (await worker.do(a_step(assignment))).cancel_requested
    assert list((await worker.beat(assignment.lease_token)).cancellations) == []
    assert worker.cancellations == []


# ---- how the run ends ----

ENDS = {
    "canceled": lambda one: a_result(one, canceled=REQUESTED),
    "stopped": lambda one: a_result(one, canceled=WORKER_STOPPED),
    "returned": a_result,
    "raised": a_raised,
    "raised and retried": lambda one: a_raised(one, next_retry_delay=Duration()),
    "released": a_release,
    "released later": lambda one: a_release(one, delay=Duration(seconds=60)),
    "ignored": lambda one: a_release(one, pb.RELEASE_REASON_CANCEL_IGNORED),
}


@pytest.mark.parametrize("end", ENDS)
async def test_cancel_wins_whatever_the_worker_reports(calls: Calls, open_worker: OpenWorker, end: str) -> None:
    worker, assignment = await started(calls, open_worker, max_attempts=5)
    await calls.cancel(assignment.run_id, "enough")
    await pushed(worker)
    item: Item = ENDS[end](assignment)

    assert (await worker.do(item)).status == CANCELED

    run = await calls.run(assignment.run_id)
    assert (run.status, run.cancel_reason) == (run_pb2.RUN_STATUS_CANCELED, "enough")
    assert not run.HasField("output")
    await worker.quiet()
    assert len(worker.assignments) == 1


async def test_a_step_reported_beside_the_end_of_a_canceled_run_is_still_recorded(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    await calls.cancel(assignment.run_id)
    step, result = a_step(assignment, "a"), a_result(assignment, canceled=REQUESTED, final_steps=[a_step("", "b")])

    await worker.send(result, step)

    assert (await worker.answer_to(step)).status == pb.ITEM_STATUS_OK
    assert (await worker.answer_to(result)).status == CANCELED
    assert [one.step_name for one in await calls.steps(assignment.run_id)] == ["a", "b"]


async def test_a_stopped_worker_ends_its_runs_as_canceled_though_nobody_had_asked(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker, max_attempts=5)

    assert (await worker.do(a_result(assignment, canceled=WORKER_STOPPED))).status == CANCELED

    assert await calls.status(assignment.run_id) == "canceled"


@pytest.mark.parametrize("reason", [pb.CANCELED_REASON_UNSPECIFIED, pb.CANCELED_REASON_REQUESTED, 77])
async def test_a_handler_that_ends_as_canceled_although_nobody_had_asked_fails_and_is_not_retried(
    calls: Calls, open_worker: OpenWorker, reason: int
) -> None:
    worker, assignment = await started(calls, open_worker, max_attempts=5)

    canceled = pb.RunCanceled(reason=reason)  # type: ignore[arg-type]  # one of a later revision
    assert (await worker.do(a_result(assignment, canceled=canceled))).status == pb.ITEM_STATUS_OK

    run = await calls.run(assignment.run_id)
    assert (run.status, run.failure.failure_kind) == (run_pb2.RUN_STATUS_FAILED, failure_pb2.FAILURE_KIND_CANCELED)


async def test_a_run_that_is_canceled_before_its_claim_is_never_assigned(calls: Calls, open_worker: OpenWorker) -> None:
    queued, kept = await calls.start(), await calls.start()
    assert await calls.cancel(queued)
    assert await calls.status(queued) == "canceled"

    worker = await open_worker("w", slot_limit=5)

    await worker.quiet()
    assert [one.run_id for one in worker.assignments] == [kept]


# ---- by force ----


async def test_a_deaf_worker_keeps_its_run_no_longer_than_the_grace_and_a_lease_although_it_renews(
    calls: Calls, open_worker: OpenWorker
) -> None:
    deaf, assignment = await started(calls, open_worker)
    began = asyncio.get_running_loop().time()
    await calls.cancel(assignment.run_id)

    await calls.run_in(assignment.run_id, "canceled", within=4)

    assert 1.0 <= asyncio.get_running_loop().time() - began <= 3.5
    assert not deaf.ended
    assert (await deaf.do(a_step(assignment))).status == pb.ITEM_STATUS_LEASE_LOST
    deaf.held.clear()
    run_id = await calls.start()
    assert (await deaf.assignment()).run_id == run_id, "its slot is free again"


async def test_a_run_over_its_time_is_told_to_stop_and_fails_as_timed_out_by_obedience_or_by_force(
    calls: Calls, open_worker: OpenWorker
) -> None:
    timeout = Duration(nanos=400_000_000)
    obedient, ended = await started(calls, open_worker, run_timeout=timeout, max_attempts=5)
    deaf = await open_worker(a_definition("deaf", run_timeout=timeout, max_attempts=5), owner="owner-2")
    await calls.start("deaf")
    forced = await deaf.take()

    for worker, assignment in ((obedient, ended), (deaf, forced)):
        order = await pushed(worker, within=3)
        assert (order.lease_token, order.reason) == (assignment.lease_token, pb.CANCELLATION_REASON_TIMEOUT)
    assert (await obedient.do(a_result(ended, canceled=REQUESTED))).status == pb.ITEM_STATUS_OK

    for assignment in (ended, forced):
        run = await calls.run_in(assignment.run_id, "failed", within=4)
        assert run.failure.failure_kind == failure_pb2.FAILURE_KIND_TIMEOUT
        assert run.attempt == 1
    assert (await deaf.do(a_result(forced))).status == pb.ITEM_STATUS_LEASE_LOST


async def test_a_result_that_comes_after_the_time_is_up_does_not_count(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker, run_timeout=Duration(nanos=200_000_000))
    await pushed(worker, within=2)

    await worker.do(a_result(assignment))

    run = await calls.run(assignment.run_id)
    assert run.status == run_pb2.RUN_STATUS_FAILED
    assert run.failure.failure_kind == failure_pb2.FAILURE_KIND_TIMEOUT


async def test_a_cancel_that_meets_the_claim_reaches_the_worker_with_the_assignment_or_after_it(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=100)

    async def start_and_cancel() -> str:
        run_id = await calls.start()
        await calls.cancel(run_id)
        return run_id

    run_ids = await asyncio.gather(*(start_and_cancel() for _ in range(60)))

    for assignment in worker.assignments:
        await worker.acknowledge(assignment)
    await worker.quiet()
    assigned = {one.lease_token: one for one in worker.assignments}
    pushed_to = {order.lease_token for order in worker.cancellations}
    told = {token for token, one in assigned.items() if one.HasField("cancellation")} | pushed_to
    assert assigned.keys() - told == set(), "told only with the next heartbeat"
    for one in assigned.values():
        assert (await worker.do(a_result(one, canceled=REQUESTED))).status == CANCELED
    assert {await calls.status(run_id) for run_id in run_ids} == {"canceled"}
