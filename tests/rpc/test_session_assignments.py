"""Capacity: a worker is never given more than it has said that it takes, and gives back what it does not take."""

from __future__ import annotations

import asyncio

import pytest

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker
from tests.rpc.items import a_release, a_result, a_step
from tests.rpc.scripted_worker import ScriptedWorker


async def work_off(worker: ScriptedWorker, count: int) -> list[str]:
    """Takes and completes so many runs, in the order in which they come; their ids."""
    done = []
    for _ in range(count):
        assignment = await worker.take()
        await worker.send(a_result(assignment))
        done.append(assignment.run_id)
    return done


@pytest.mark.parametrize("slot_limit", [1, 3])
async def test_a_worker_never_holds_more_runs_than_it_has_slots(
    calls: Calls, open_worker: OpenWorker, slot_limit: int
) -> None:
    run_ids = await calls.start_many(30)
    worker = await open_worker("w", slot_limit=slot_limit)
    await worker.quiet()
    assert len(worker.assignments) == slot_limit

    assert sorted(await work_off(worker, 30)) == sorted(run_ids)

    await worker.quiet()
    assert worker.most_held == slot_limit
    assert len(worker.assignments) == 30


async def test_a_step_or_a_receipt_frees_no_slot_but_a_result_and_a_release_do(
    calls: Calls, open_worker: OpenWorker
) -> None:
    await calls.start_many(3)
    worker = await open_worker("w")
    first = await worker.take()
    await worker.acknowledge(first)
    assert (await worker.do(a_step(first))).status == pb.ITEM_STATUS_OK
    await worker.quiet()
    assert len(worker.assignments) == 1

    assert (await worker.do(a_result(first))).status == pb.ITEM_STATUS_OK
    second = await worker.take()
    await worker.quiet()
    assert len(worker.assignments) == 2

    assert (await worker.do(a_release(second))).status == pb.ITEM_STATUS_OK
    await worker.assignment()
    await worker.quiet()
    assert worker.most_held == 1


async def test_capacity_is_absolute_however_often_it_is_said(calls: Calls, open_worker: OpenWorker) -> None:
    await calls.start_many(10)
    worker = await open_worker("w", slot_limit=0)
    await worker.quiet()
    assert worker.assignments == []

    for _ in range(5):
        await worker.say(capacity=pb.Capacity(slot_limit=2))

    await worker.quiet()
    assert len(worker.assignments) == 2


async def test_a_paused_worker_keeps_what_it_has_and_gets_nothing_more_until_it_goes_on(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=2)
    first = await calls.start()
    assignment = await worker.take()
    await worker.say(capacity=pb.Capacity(slot_limit=2, paused=True))
    await worker.quiet()

    await calls.start_many(3)

    await worker.quiet()
    assert [one.run_id for one in worker.assignments] == [first]
    assert (await worker.do(a_step(assignment))).status == pb.ITEM_STATUS_OK
    await worker.say(capacity=pb.Capacity(slot_limit=2, paused=False))
    await worker.assignment()
    await worker.quiet()
    assert worker.most_held == 2


async def test_a_worker_that_shrinks_keeps_its_runs_and_grows_again_without_losing_a_slot(
    calls: Calls, open_worker: OpenWorker
) -> None:
    await calls.start_many(40)
    worker = await open_worker("w", slot_limit=4)
    for _ in range(4):
        await worker.take()
    await worker.say(capacity=pb.Capacity(slot_limit=1))

    for left in (3, 2, 1):
        await worker.do(a_result(next(iter(worker.held))))
        await worker.quiet()
        assert len(worker.held) == left, "it was given more than one run although it holds more"

    for slot_limit in (2, 1, 5, 0, 3):
        await worker.say(capacity=pb.Capacity(slot_limit=slot_limit))
        await worker.quiet()
        while len(worker.held) > slot_limit:
            await worker.do(a_result(next(iter(worker.held))))
        await worker.quiet()
        assert len(worker.held) == slot_limit


async def test_a_negative_capacity_breaks_the_protocol(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")

    await worker.say(capacity=pb.Capacity(slot_limit=-1))

    error = await worker.end()
    assert error is not None
    assert (error.reason, error.permanent) == ("PROTOCOL_VIOLATION", False)
    assert "-1" in error.message


async def test_receipts_may_come_twice_late_or_for_leases_that_nobody_gave(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    await worker.acknowledge(assignment)
    await worker.do(a_result(assignment))

    await worker.acknowledge(assignment)
    await worker.say(
        assignment_acks=[
            pb.AssignmentAck(lease_token=token, reject_reason=reason)
            for token in ("", "x", f"{run_id}.{'x' * 15}", assignment.lease_token)
            for reason in (pb.REJECT_REASON_UNSPECIFIED, pb.REJECT_REASON_OVERLOADED)
        ]
    )

    await worker.quiet()
    assert not worker.ended
    assert await calls.status(run_id) == "succeeded"
    second = await calls.start()
    assert await work_off(worker, 1) == [second]


async def test_sixty_four_assignments_may_be_acknowledged_in_any_order(calls: Calls, open_worker: OpenWorker) -> None:
    run_ids = await calls.start_many(64)
    worker = await open_worker("w", slot_limit=64)
    assignments = [await worker.assignment() for _ in range(64)]

    for assignment in reversed(assignments):
        await worker.acknowledge(assignment)
    results = [a_result(assignment) for assignment in assignments[::2] + assignments[1::2]]
    await worker.send(*results)

    for result in results:
        assert (await worker.answer_to(result)).status == pb.ITEM_STATUS_OK
    assert [await calls.status(run_id) for run_id in run_ids] == ["succeeded"] * 64


async def test_no_slot_is_lost_over_many_runs_of_several_workers(calls: Calls, open_worker: OpenWorker) -> None:
    workers = [await open_worker("w", slot_limit=2) for _ in range(3)]
    run_ids = await calls.start_many(300)

    working = [asyncio.create_task(work_off(worker, 300)) for worker in workers]
    await calls.run_in(run_ids[-1], "succeeded")
    for worker in workers:
        await worker.quiet()
    for work in working:
        work.cancel()
    await asyncio.wait(working)

    assert sum(len(worker.assignments) for worker in workers) == 300
    await calls.start_many(6)
    for worker in workers:
        await worker.until(lambda worker=worker: len(worker.held) == 2, saying="a slot is lost")
        assert worker.most_held == 2
