"""A worker that does not take what it is given: the run waits a moment, and goes to somebody else."""

from __future__ import annotations

import asyncio

import pytest

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker

REASONS = {
    "unknown": pb.REJECT_REASON_UNKNOWN_WORKFLOW,
    "overloaded": pb.REJECT_REASON_OVERLOADED,
    "draining": pb.REJECT_REASON_DRAINING,
}


async def test_a_rejected_run_waits_a_second_and_is_then_not_offered_to_that_worker_again(
    calls: Calls, open_worker: OpenWorker
) -> None:
    """For each reason a worker alone with its run: nothing else could take it meanwhile."""
    workers = {name: await open_worker(name, owner=name, worker_name=name) for name in REASONS}
    run_ids = {name: await calls.start(name) for name in REASONS}
    for name, worker in workers.items():
        await worker.reject(await worker.assignment(), REASONS[name])
        run = await calls.run_in(run_ids[name], "scheduled")
        left_ms = run.available_time.ToMilliseconds() - run.create_time.ToMilliseconds()
        assert left_ms >= 1000, f"{name}: {left_ms} ms"
        assert (run.losses, run.attempt) == (0, 1)

    for name, worker in workers.items():
        await calls.run_in(run_ids[name], "queued")
        await worker.quiet()

    assert {name: len(worker.assignments) for name, worker in workers.items()} == dict.fromkeys(REASONS, 1)


async def test_a_rejected_run_goes_to_another_worker_at_no_cost(calls: Calls, open_worker: OpenWorker) -> None:
    """For each reason at the same time, so that the second of delay passes once."""
    unwilling = {name: await open_worker(name, owner=name) for name in REASONS}
    run_ids = {name: await calls.start(name) for name in REASONS}
    for name, worker in unwilling.items():
        await worker.reject(await worker.assignment(), REASONS[name])
    rejected_at = asyncio.get_running_loop().time()
    willing = await open_worker(*REASONS, owner="willing", slot_limit=3)

    taken = {one.workflow: one for one in [await willing.assignment() for _ in REASONS]}

    assert asyncio.get_running_loop().time() - rejected_at >= 0.9
    for name, run_id in run_ids.items():
        assert (taken[name].run_id, taken[name].attempt, taken[name].delivery_count) == (run_id, 1, 2)
        assert (await calls.run(run_id)).losses == 0
        assert len(unwilling[name].assignments) == 1


async def test_a_worker_that_rejects_one_lane_still_gets_the_runs_of_others(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("unwanted", "wanted")
    await calls.start("unwanted")
    await worker.reject(await worker.assignment(), pb.REJECT_REASON_OVERLOADED)

    run_id = await calls.start("wanted")
    await worker.quiet()

    assert [one.run_id for one in worker.assignments[1:]] == [run_id]


async def test_a_worker_without_the_handler_is_not_offered_the_workflow_before_it_registers_anew(
    calls: Calls, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.session.LEFT_OUT_S", 0.1)
    worker = await open_worker("w", "control", instance_id="instance-1", slot_limit=2)
    run_id = await calls.start()
    await worker.reject(await worker.assignment(), pb.REJECT_REASON_UNKNOWN_WORKFLOW)
    await worker.quiet()
    control_id = await calls.start("control")
    await worker.reject(await worker.assignment(), pb.REJECT_REASON_OVERLOADED)
    await worker.quiet()

    # What was rejected later, for a while only, comes again: by then the other would have come, too.
    assert (await worker.assignment()).run_id == control_id
    await worker.quiet()

    assert [one.run_id for one in worker.assignments] == [run_id, control_id, control_id]
    assert await calls.status(run_id) == "queued"
    again = await open_worker("w", instance_id="instance-1", session_number=2)
    assert (await again.assignment()).run_id == run_id


async def test_an_overloaded_worker_is_offered_the_run_again_after_a_while(
    calls: Calls, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.session.LEFT_OUT_S", 0.1)
    worker = await open_worker("w")
    run_id = await calls.start()
    await worker.reject(await worker.assignment(), pb.REJECT_REASON_OVERLOADED)
    await worker.quiet()

    assert (await worker.assignment()).run_id == run_id


async def test_a_worker_that_has_room_again_is_offered_the_run_as_soon_as_it_says_so(
    calls: Calls, open_worker: OpenWorker
) -> None:
    """As when a handler still ended while its lease was lost, and the next run came meanwhile."""
    worker = await open_worker("w")
    run_id = await calls.start()
    await worker.reject(await worker.assignment(), pb.REJECT_REASON_OVERLOADED)
    await calls.run_in(run_id, "scheduled")

    await worker.say(capacity=pb.Capacity(slot_limit=1))

    assert (await worker.assignment()).run_id == run_id
