"""A lease handed back by its worker costs nothing, whatever the reason: no attempt, no loss, and not its place."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.items import a_release, a_step
from tests.rpc.scripted_worker import an_open

REASONS = {
    "unspecified": pb.RELEASE_REASON_UNSPECIFIED,
    "not started": pb.RELEASE_REASON_NOT_STARTED,
    "shutdown": pb.RELEASE_REASON_SHUTDOWN,
    "overloaded": pb.RELEASE_REASON_OVERLOADED,
    "cancel ignored": pb.RELEASE_REASON_CANCEL_IGNORED,
    "fenced": pb.RELEASE_REASON_FENCED,
    "of a later revision": 77,
}


@pytest.mark.parametrize("reason", REASONS)
async def test_a_released_run_goes_to_the_next_worker_with_its_attempt_and_its_steps(
    calls: Calls, open_worker: OpenWorker, reason: str
) -> None:
    leaving = await open_worker("w")
    run_id = await calls.start()
    assignment = await leaving.take()
    await leaving.do(a_step(assignment, "a"))
    await leaving.say(capacity=pb.Capacity(slot_limit=0))
    release = a_release(assignment, REASONS[reason], steps_recorded=1)

    assert (await leaving.do(release)).status == pb.ITEM_STATUS_OK

    taken = await (await open_worker("w")).take()
    assert (taken.run_id, taken.attempt, taken.delivery_count) == (run_id, 1, 2)
    assert [step.step_name for step in taken.steps] == ["a"]
    assert (await calls.run(run_id)).losses == 0
    assert (await leaving.do(release)).status == pb.ITEM_STATUS_DUPLICATE


async def test_a_run_released_with_a_delay_is_not_assigned_before(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    release = a_release(await worker.take(), delay=Duration(seconds=3600))

    assert (await worker.do(release)).status == pb.ITEM_STATUS_OK

    run = await calls.run(run_id)
    assert await calls.status(run_id) == "scheduled"
    left_ms = run.available_time.ToMilliseconds() - run.start_time.ToMilliseconds()
    assert 3_599_000 < left_ms < 3_700_000
    await worker.quiet()
    assert len(worker.assignments) == 1


async def test_runs_on_their_way_to_a_session_that_broke_off_go_to_others_when_their_lease_ends(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    """They may have arrived. The lease is six seconds."""
    run_ids = await calls.start_many(30)
    for number in range(4):
        unlucky = dial()
        await unlucky.say(open=an_open("w", slot_limit=10))
        if number % 2:
            await unlucky.assignment()
        await unlucky.cut()

    worker = await open_worker("w", slot_limit=30)

    taken = [await worker.assignment(within=9) for _ in range(30)]
    assert sorted(one.run_id for one in taken) == sorted(run_ids)
    assert {(await calls.run(run_id)).losses for run_id in run_ids} == {0}


async def test_a_run_whose_receipt_was_lost_with_the_stream_stays_with_its_worker(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    run_id = await calls.start("w")
    first = dial()
    opening = an_open("w", slot_limit=10)
    await first.open(opening)
    assignment = await first.assignment()
    await first.cut()
    other = await open_worker("w", slot_limit=10)
    await other.quiet()
    assert other.assignments == []

    second = dial()
    opening.session_number += 1
    opening.held_leases.add(lease_token=assignment.lease_token, state=pb.LEASE_STATE_RUNNING)
    opened = await second.open(opening)
    assert [it.verdict for it in opened.lease_verdicts] == [pb.LEASE_VERDICT_KIND_HELD]
    assert (await calls.run(run_id)).delivery_count == 1
