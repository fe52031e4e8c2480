"""Redis goes away and comes back: items are answered to be sent again, once each counts, and no session ends.

The store of these tests is their own, with an append-only file: what it acknowledged is there again after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.store.keys import Keys
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.items import a_result, a_step, held
from tests.rpc.scripted_worker import Item, ScriptedWorker, an_open
from tests.rpc.store_process import StoreProcess

OK = pb.ITEM_STATUS_OK
UNAVAILABLE = pb.ITEM_STATUS_UNAVAILABLE
WORKER_SERVICE = "redflow.worker.v1.WorkerService"


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[StoreProcess]:
    with StoreProcess(tmp_path / "data") as store:
        yield store


@pytest.fixture
def redis_url(own_store: StoreProcess) -> str:
    return own_store.url


async def is_back(calls: Calls, run_id: str) -> None:
    """Returns when the gateway reaches the store again."""

    async def answers() -> bool:
        try:
            return bool(await calls.run(run_id))
        except grpc.aio.AioRpcError:
            return False

    await eventually(answers, within=8)


async def refused_for_now(worker: ScriptedWorker, *items: Item) -> None:
    """The items are answered to be sent again."""
    for item in items:
        answer = await worker.do(item)
        assert (answer.status, answer.reason) == (UNAVAILABLE, "STORE_UNAVAILABLE"), answer
        assert answer.retry_delay.ToMilliseconds() > 0


async def test_an_item_that_the_store_did_not_take_counts_once_when_it_is_sent_again_and_nothing_of_its_run_passes_it(
    calls: Calls, open_worker: OpenWorker, own_store: StoreProcess
) -> None:
    worker = await open_worker("w", slot_limit=2)
    run_id, other_id = await calls.start_many(2)
    assignment, other = await worker.take(), await worker.take()
    await worker.quiet()
    step, result = a_step(assignment, "a"), a_result(assignment, steps_recorded=1)

    own_store.kill()
    await refused_for_now(worker, step, result)
    own_store.start()
    await is_back(calls, run_id)

    answer = await worker.do(result)
    assert answer.status == UNAVAILABLE, "it has passed the step that comes before it"
    assert (await worker.do(a_result(other))).status == OK, "another run does not wait for it"
    for item in (step, result):
        assert (await worker.do(item)).status == OK
        assert (await worker.do(item)).status == pb.ITEM_STATUS_DUPLICATE
    assert [one.step_name for one in await calls.steps(run_id)] == ["a"]
    assert [await calls.status(one) for one in (run_id, other_id)] == ["succeeded"] * 2
    assert not worker.ended


async def test_while_the_store_is_away_heartbeats_are_answered_with_0_and_sessions_stay_open_and_work_afterwards(
    calls: Calls, open_worker: OpenWorker, own_store: StoreProcess
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    await worker.quiet()
    await worker.fall_silent()

    own_store.kill()
    worker.replies.clear()
    for _ in range(3):
        heard = len(worker.replies)
        await worker.say(heartbeat=pb.Heartbeat(sequence=77, leases=held(assignment.lease_token)))
        await worker.until(lambda heard=heard: len(worker.replies) > heard, saying="no answer")
    assert {reply.sequence for reply in worker.replies} == {0}
    assert all(not reply.lost_lease_tokens for reply in worker.replies)
    own_store.start()
    await is_back(calls, run_id)

    reply = await worker.beat(assignment.lease_token)
    assert (reply.sequence > 0, list(reply.lost_lease_tokens)) == (True, [])
    worker.beat_on()
    assert (await worker.do(a_result(assignment))).status == OK
    started = await calls.start()
    assert (await worker.assignment(within=10)).run_id == started
    assert not worker.ended


async def test_while_the_store_is_away_calls_and_opens_are_refused_for_now_and_health_says_so(
    calls: Calls, dial: Dial, open_worker: OpenWorker, own_store: StoreProcess, redis: RedisCommand, keys: Keys
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    await worker.quiet()
    waiting = asyncio.create_task(_wait(calls, run_id))
    await eventually(lambda: redis("HGET", keys.run(run_id), "waiters"), saying="nobody waits")
    own_store.kill()

    start = await refused(calls.runs.StartRun(run_service_pb2.StartRunRequest(workflow="w", queue="q")))
    assert (start.code, start.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert start.retry_delay_ms
    batch = await calls.runs.BatchStartRuns(
        run_service_pb2.BatchStartRunsRequest(runs=[run_service_pb2.StartRunRequest(workflow="w", queue="q")])
    )
    assert [result.refused.reason for result in batch.results] == ["STORE_UNAVAILABLE"]
    late = dial()
    await late.say(open=an_open("w"))
    error = await late.end()
    assert error is not None
    assert (error.reason, error.permanent) == ("STORE_UNAVAILABLE", False)
    assert error.retry_delay.ToMilliseconds() > 0
    await _health_becomes(calls, "NOT_SERVING")
    assert await calls.health_of("") == "SERVING"

    own_store.start()
    await is_back(calls, run_id)
    await _health_becomes(calls, "SERVING")
    assert (await worker.do(a_result(assignment))).status == OK
    assert (await asyncio.wait_for(waiting, 8)).done, "a caller who waited through the outage is answered"


async def _wait(calls: Calls, run_id: str) -> run_service_pb2.WaitRunResponse:
    return await calls.runs.WaitRun(run_service_pb2.WaitRunRequest(run_id=run_id))


async def _health_becomes(calls: Calls, wanted: str) -> None:
    async def is_so() -> bool:
        return await calls.health_of(WORKER_SERVICE) == wanted

    await eventually(is_so, within=8)


async def test_scripts_that_redis_has_forgotten_are_loaded_again_and_nobody_notices(
    calls: Calls, open_worker: OpenWorker, redis: RedisCommand
) -> None:
    worker = await open_worker("w", slot_limit=3)
    run_ids = []
    for _ in range(3):
        await redis("SCRIPT", "FLUSH")
        run_ids.append(await calls.start())
        assignment = await worker.take()
        await redis("SCRIPT", "FLUSH")
        step, result = a_step(assignment, "a"), a_result(assignment, steps_recorded=1)

        await worker.send(step, result)

        assert [(await worker.answer_to(item)).status for item in (step, result)] == [OK, OK]
    assert [await calls.status(run_id) for run_id in run_ids] == ["succeeded"] * 3


async def test_a_store_without_room_takes_no_run_but_every_report(
    calls: Calls, open_worker: OpenWorker, redis: RedisCommand
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    await worker.quiet()
    await redis("CONFIG", "SET", "maxmemory", 1)

    full = await refused(calls.runs.StartRun(run_service_pb2.StartRunRequest(workflow="w", queue="q")))
    step, result = await worker.do(a_step(assignment, "a")), await worker.do(a_result(assignment, steps_recorded=1))
    await redis("CONFIG", "SET", "maxmemory", 0)

    assert (full.code, full.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL")
    assert (step.status, result.status) == (OK, OK)
    assert await calls.status(run_id) == "succeeded"
