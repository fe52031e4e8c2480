"""Redis is full: who drains it is let in and goes on, who brings something new is told to come again."""

from __future__ import annotations

import asyncio

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from tests.builders import memory_is_full
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.items import a_result, a_step, held
from tests.rpc.scripted_worker import a_definition, an_open

OK = pb.ITEM_STATUS_OK


async def test_a_worker_whose_workflows_are_registered_connects_and_drains_the_store(
    calls: Calls, dial: Dial, open_worker: OpenWorker, redis: RedisCommand
) -> None:
    gone = await open_worker("w")
    run_ids = await calls.start_many(3)
    first = await gone.take()
    await gone.quiet()
    async with memory_is_full(redis):
        await gone.cut()
        worker = await open_worker("w", build_id="build-2", session_number=2, held_leases=held(first.lease_token))
        for _ in run_ids[1:]:
            assert (await worker.do(a_result(next(iter(worker.held))))).status == OK
            assignment = await worker.take()
            assert (await worker.do(a_step(assignment))).status == OK
        assert (await worker.do(a_result(next(iter(worker.held)), steps_recorded=1))).status == OK
    assert [await calls.status(run_id) for run_id in run_ids] == ["succeeded"] * 3


async def test_a_worker_that_brings_a_new_workflow_is_refused_for_now_and_let_in_when_there_is_room(
    gateway: Gateway, dial: Dial, open_worker: OpenWorker, redis: RedisCommand
) -> None:
    await open_worker("w")
    async with memory_is_full(redis):
        for opening in (an_open("w", "new"), an_open(a_definition("w", max_attempts=9))):
            late = dial()
            await late.say(open=opening)
            error = await late.end()
            assert error is not None
            assert (error.reason, error.permanent) == ("STORE_FULL", False)
            assert error.retry_delay.ToMilliseconds() > 0
    await dial().open(an_open("w", "new"))


async def test_a_caller_may_wait_for_the_end_of_a_run(
    calls: Calls, open_worker: OpenWorker, redis: RedisCommand
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    async with memory_is_full(redis):
        waiting = asyncio.ensure_future(calls.runs.WaitRun(run_service_pb2.WaitRunRequest(run_id=run_id)))
        await worker.quiet()
        assert (await worker.do(a_result(assignment))).status == OK
        assert (await asyncio.wait_for(waiting, 5)).done


async def test_connected_workers_stay_listed_and_their_workflows_in_force(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker, redis: RedisCommand
) -> None:
    worker = await open_worker("w", slot_limit=1)
    async with memory_is_full(redis):
        await worker.say(capacity=pb.Capacity(slot_limit=7))
        await worker.quiet()
        gateway.duties.registry.wake()  # else it is told every ten seconds

        async def is_told() -> bool:
            return [one.slot_limit for one in await calls.worker_list()] == [7]

        await eventually(is_told)
    assert not gateway.telemetry.counters["refused.STORE_FULL"]
