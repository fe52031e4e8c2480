"""Leaving: a worker that drains, closes, or is told that its gateway goes away."""

from __future__ import annotations

import asyncio

import grpc

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_result, a_step, held
from tests.rpc.scripted_worker import ScriptedWorker

WORKER_SERVICE = "redflow.worker.v1.WorkerService"


def came_after_the_barrier(worker: ScriptedWorker) -> list[str]:
    """The assignments that were sent after the drain was acknowledged."""
    barrier = worker.order.index("drain_ack")
    return [field for field in worker.order[barrier:] if field == "assignments"]


# ---- a worker drains ----


async def test_no_assignment_follows_the_acknowledgement_of_a_drain(calls: Calls, open_worker: OpenWorker) -> None:
    """Under load, at moments that differ by fractions of a round trip."""
    for number in range(12):
        worker = await open_worker("w", slot_limit=20)
        starting = [asyncio.create_task(calls.start_many(10)) for _ in range(3)]
        await asyncio.sleep(0.002 * number)  # the moment is what varies

        await worker.say(drain=pb.DrainRequest())

        await worker.until(lambda worker=worker: worker.drain_acks, saying="no acknowledgement")
        await asyncio.gather(*starting)
        await worker.quiet()
        assert came_after_the_barrier(worker) == []
        assert worker.drain_acks == 1
        await worker.say(close=pb.CloseSession())
        await worker.end()


async def test_a_draining_worker_finishes_what_it_has_while_others_take_what_is_new(
    calls: Calls, open_worker: OpenWorker
) -> None:
    draining = await open_worker("w", slot_limit=5)
    run_id = await calls.start()
    assignment = await draining.take()
    await draining.say(drain=pb.DrainRequest())
    await draining.until(lambda: draining.drain_acks, saying="no acknowledgement")
    other = await open_worker("w")

    new = await calls.start()

    assert (await other.take()).run_id == new
    await draining.quiet()
    assert len(draining.assignments) == 1
    assert (await draining.do(a_step(assignment))).status == pb.ITEM_STATUS_OK
    assert (await draining.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    assert await calls.status(run_id) == "succeeded"
    # More capacity makes it take no more.
    await draining.say(capacity=pb.Capacity(slot_limit=10))
    await calls.start()
    await draining.quiet()
    assert len(draining.assignments) == 1


async def test_an_idle_worker_is_told_at_once_that_it_is_drained_and_only_once(
    gateway: Gateway, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")

    for _ in range(3):
        await worker.say(drain=pb.DrainRequest())

    await worker.until(lambda: worker.drain_acks, within=1, saying="no acknowledgement")
    await worker.quiet()
    assert worker.drain_acks == 1


# ---- a worker closes ----


async def test_a_closed_session_hands_back_everything_at_once_and_at_no_cost(
    calls: Calls, open_worker: OpenWorker
) -> None:
    leaving = await open_worker("w", slot_limit=6)
    run_ids = await calls.start_many(6)
    for _ in range(3):
        await leaving.take()
    for _ in range(3):
        await leaving.assignment()  # not acknowledged
    await leaving.quiet()
    other = await open_worker("w", slot_limit=6)

    await leaving.say(close=pb.CloseSession(reason="deploy"))

    taken = [await other.assignment(within=1.5) for _ in range(6)]
    assert [one.run_id for one in taken] == run_ids, "they keep their places"
    assert await leaving.end() is None
    assert leaving.code is grpc.StatusCode.OK
    for run_id in run_ids:
        run = await calls.run(run_id)
        assert (run.losses, run.attempt, run.delivery_count) == (0, 1, 2)


async def test_a_result_in_the_message_that_closes_the_session_counts(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()

    await worker.say(run_results=[a_result(assignment)], close=pb.CloseSession())

    await worker.end()
    await calls.run_in(run_id, "succeeded")


# ---- a gateway drains ----


async def test_a_draining_gateway_tells_its_workers_takes_their_reports_and_waits_until_they_have_left(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    old, new = await start_gateway(drain_grace_ms=5000), await start_gateway()
    calls = calls_to(old)
    worker = await open_worker("w", at=old, instance_id="instance-1", slot_limit=2)
    run_id = await calls.start()
    assignment = await worker.take()

    async def is_serving() -> bool:
        return await calls.health_of(WORKER_SERVICE) == "SERVING"

    await eventually(is_serving, within=3)

    draining = asyncio.create_task(old.drain())
    await worker.until(lambda: worker.draining, within=1, saying="it was not told")

    assert worker.draining is not None
    assert worker.draining.grace.ToMilliseconds() == 5000
    assert await calls.health_of(WORKER_SERVICE) == "NOT_SERVING"
    assert await calls.health_of("") == "SERVING"
    waiting = await calls.start()
    await worker.quiet()
    assert len(worker.assignments) == 1, "its capacity counts as 0 here"
    assert (await worker.do(a_step(assignment, "a"))).status == pb.ITEM_STATUS_OK
    later = await open_worker(
        "w", at=new, instance_id="instance-1", session_number=2, slot_limit=2, held_leases=held(assignment.lease_token)
    )
    assert (await later.assignment()).run_id == waiting
    assert not draining.done()
    assert (await worker.do(a_step(assignment, "b"))).status == pb.ITEM_STATUS_OK, "the old stream still takes reports"
    await worker.say(close=pb.CloseSession())
    await worker.end()
    await asyncio.wait_for(draining, 1)
    assert (await later.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run_id)).losses == 0


async def test_a_gateway_without_workers_drains_at_once(gateway: Gateway) -> None:
    await asyncio.wait_for(gateway.drain(), 1)


async def test_a_gateway_waits_for_a_worker_that_stays_no_longer_than_the_grace(
    start_gateway: StartGateway, open_worker: OpenWorker
) -> None:
    gateway = await start_gateway(drain_grace_ms=300)
    worker = await open_worker("w", at=gateway)

    await asyncio.wait_for(gateway.drain(), 2)

    assert not worker.ended
    await gateway.stop()
    error = await worker.end(within=1)
    assert error is not None
    assert not error.permanent


async def test_a_gateway_with_open_streams_and_waiting_callers_stops_within_two_seconds(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    gateway, other = await start_gateway(), await start_gateway()
    calls = calls_to(gateway)
    workers = [await open_worker("w", at=gateway, slot_limit=1) for _ in range(20)]
    run_ids = await calls.start_many(30)
    for worker in workers:
        await worker.take()
        await worker.quiet()
    request = run_service_pb2.WaitRunRequest(run_id=run_ids[-1])
    waiting = [asyncio.create_task(_wait(calls, request)) for _ in range(50)]
    await eventually(lambda: gateway._waiters.count == len(waiting))
    began = asyncio.get_running_loop().time()

    await gateway.stop()

    assert asyncio.get_running_loop().time() - began < 2
    codes = set(await asyncio.wait_for(asyncio.gather(*waiting), 1))
    assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}, codes
    for worker in workers:
        error = await worker.end(within=1)
        assert error is None or (error.reason, error.permanent) == ("GATEWAY_STOPPED", False)
        assert worker.code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert gateway.telemetry.counters["faults"] == 0
    # Nothing was handed back: the workers may take their leases up at the other gateway.
    statuses = [await calls_to(other).status(run_id) for run_id in run_ids]
    assert statuses == ["running"] * 20 + ["queued"] * 10


async def _wait(calls: Calls, request: run_service_pb2.WaitRunRequest) -> grpc.StatusCode:
    try:
        await calls.runs.WaitRun(request)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
