"""SystemService: what a gateway says of itself and of the installation, and starting over."""

from __future__ import annotations

import time

import grpc
import pytest

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.api.v1 import system_service_pb2 as pb
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from redflow_server.version import VERSION
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_raised, a_result
from tests.rpc.scripted_worker import a_definition
from tests.rpc.wait_items import a_parking, a_sleep


async def stats_of(calls: Calls) -> pb.GetStatsResponse:
    return await calls.system.GetStats(pb.GetStatsRequest())


# ---- what it is ----


async def test_a_gateway_says_what_it_is_speaks_and_accepts(gateway: Gateway, calls: Calls, prefix: str) -> None:
    info = await calls.system.GetServerInfo(pb.GetServerInfoRequest())

    assert (info.gateway_id, info.version, info.prefix) == (gateway.gateway_id, VERSION, prefix)
    assert (info.min_revision, info.max_revision) == (1, 1)
    assert list(info.capabilities) == [
        *(worker_pb2.CAPABILITY_PARKING, worker_pb2.CAPABILITY_LAZY_OUTPUTS, worker_pb2.CAPABILITY_FAILURE_HANDLERS),
    ]
    assert info.limits.max_payload_bytes == gateway.config.limits.max_payload_bytes
    assert info.store_version.split()[0] in ("valkey", "redis")
    assert info.store_version.split()[1][0].isdigit()
    assert info.durability.persistence != worker_pb2.PERSISTENCE_UNSPECIFIED


# ---- counts ----


async def test_runs_are_counted_by_status_and_lanes_by_their_depth(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w", slot_limit=4)
    await calls.start_many(4)
    one, two, three, _ = [await worker.take() for _ in range(4)]
    await worker.say(capacity=worker_pb2.Capacity(slot_limit=0))
    await worker.do(a_result(one))
    await worker.do(a_raised(two))
    await calls.cancel(three.run_id)
    await worker.do(a_result(three))
    await calls.start_many(3, "w", "q")
    await calls.start_many(2, "b: {x}", "odd 💥")
    await calls.start("w", available_time={"seconds": 4_000_000_000})

    stats = await stats_of(calls)

    counts = {run_pb2.RunStatus.Name(one.status).removeprefix("RUN_STATUS_"): one.count for one in stats.runs}
    assert counts == {
        "SCHEDULED": 1,
        "QUEUED": 5,
        "RUNNING": 1,
        "WAITING": 0,
        "SUCCEEDED": 1,
        "FAILED": 1,
        "CANCELED": 1,
    }
    assert [(lane.queue, lane.workflow, lane.depth) for lane in stats.lanes] == [("odd 💥", "b: {x}", 2), ("q", "w", 3)]
    assert stats.lane_count == 2


async def test_at_most_five_hundred_lanes_are_listed_and_all_are_counted(calls: Calls) -> None:
    starts = [run_service_pb2.StartRunRequest(workflow="w", queue=f"q{number}") for number in range(510)]
    await calls.runs.BatchStartRuns(run_service_pb2.BatchStartRunsRequest(runs=starts))

    stats = await stats_of(calls)

    assert (len(stats.lanes), stats.lane_count) == (500, 510)
    assert stats.lanes[0].queue == "q509", "those that filled last"


async def test_events_that_a_wait_can_still_get_are_counted_and_so_are_those_forgotten_because_there_were_too_many(
    calls: Calls,
) -> None:
    stats = await stats_of(calls)
    assert (stats.events_remembered, stats.events_dropped) == (0, 0)

    await calls.emit("paid")
    for number in range(105):
        await calls.emit("paid", key="order-1", request_id=f"request {number}")
        await calls.emit("paid", key="order-1", request_id=f"request {number}")

    stats = await stats_of(calls)
    assert (stats.events_remembered, stats.events_dropped) == (101, 5), "a hundred of each name and key"


# ---- workers ----


async def test_a_worker_is_listed_with_its_leases_and_how_many_of_them_are_parked(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=2)
    await calls.start_many(3)
    await worker.take()
    await worker.suspend(a_parking(await worker.take(), a_sleep()))
    await worker.take()

    gateway.duties.registry.wake()

    async def is_listed() -> bool:
        [listed] = await calls.worker_list()
        return (listed.leases, listed.parked) == (3, 1)

    await eventually(is_listed)


async def test_a_worker_is_listed_while_it_is_connected_at_any_gateway(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    one, other = await start_gateway(), await start_gateway()
    calls = calls_to(other)
    sdk = worker_pb2.SdkInfo(name="sdk", version="1", language="go")
    worker = await open_worker(
        a_definition("a", "q1"),
        a_definition("b", "q2"),
        at=one,
        sdk=sdk,
        slot_limit=7,
        worker_name="name",
        owner="owner",
        instance_id="instance",
        build_id="build",
    )

    # A session does not wait until it is in the listing.
    await eventually(calls.worker_list, within=2)
    [listed] = await calls.worker_list()

    assert worker.opened is not None
    assert (listed.session_id, listed.gateway_id) == (worker.opened.session_id, one.gateway_id)
    assert (listed.worker_name, listed.owner) == ("name", "owner")
    assert (listed.instance_id, listed.build_id, listed.sdk) == ("instance", "build", sdk)
    assert (sorted(listed.queues), sorted(listed.workflows)) == (["q1", "q2"], ["a", "b"])
    assert (listed.slot_limit, listed.leases, listed.draining) == (7, 0, False)
    assert abs(listed.connect_time.ToMilliseconds() - time.time() * 1000) < 5000
    await worker.cut()

    async def is_gone() -> bool:
        return await calls.worker_list() == []

    await eventually(is_gone, within=2)


async def test_the_listing_follows_what_a_worker_holds_and_does(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=3)
    await calls.start_many(2)
    for _ in range(2):
        await worker.take()
    await worker.say(capacity=worker_pb2.Capacity(slot_limit=5), drain=worker_pb2.DrainRequest())
    await worker.until(lambda: worker.drain_acks, saying="not drained")

    gateway.duties.registry.wake()  # else it is told every ten seconds

    async def is_told() -> bool:
        [listed] = await calls.worker_list()
        return (listed.leases, listed.slot_limit, listed.draining) == (2, 5, True)

    await eventually(is_told)


async def test_a_worker_whose_description_was_lost_works_on_and_is_listed_again(
    gateway: Gateway, calls: Calls, open_worker: OpenWorker, keys: Keys, redis: RedisCommand
) -> None:
    worker = await open_worker("w")
    assert worker.opened is not None
    await redis("DEL", keys.session(worker.opened.session_id), keys.sessions)
    assert await calls.worker_list() == []

    run_id = await calls.start()
    await worker.do(a_result(await worker.take()))

    assert await calls.status(run_id) == "succeeded"
    gateway.duties.registry.wake()  # else it is told every ten seconds
    await eventually(calls.worker_list)


# ---- starting over ----


async def test_the_state_is_not_reset_unless_the_gateway_was_started_to_allow_it(calls: Calls, prefix: str) -> None:
    run_id = await calls.start()

    for asked in (prefix, "", "other"):
        answer = await refused(calls.system.ResetState(pb.ResetStateRequest(prefix=asked)))
        assert (answer.code, answer.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RESET_NOT_ALLOWED")

    assert await calls.status(run_id) == "queued"


@pytest.mark.parametrize("asked", ["", "*", "t:", "other"])
async def test_the_state_is_not_reset_unless_the_prefix_is_repeated(
    start_gateway: StartGateway, calls_to: CallsTo, asked: str
) -> None:
    calls = calls_to(await start_gateway(allows_reset=True))
    run_id = await calls.start()

    answer = await refused(calls.system.ResetState(pb.ResetStateRequest(prefix=asked)))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert answer.field == "prefix"
    assert await calls.status(run_id) == "queued"


async def test_a_reset_deletes_every_key_under_the_prefix_and_no_other(
    start_gateway: StartGateway, calls_to: CallsTo, prefix: str, redis: RedisCommand
) -> None:
    calls = calls_to(await start_gateway(allows_reset=True))
    await calls.start_many(700)
    neighbours = [f"{prefix}x:run:1", f"x{prefix}:run:1", f"{prefix[:-1]}?:run:1"]
    for key in neighbours:
        await redis("SET", key, "mine")

    answer = await calls.system.ResetState(pb.ResetStateRequest(prefix=prefix))

    assert answer.deleted_keys >= 1400
    assert [await redis("GET", key) for key in neighbours] == ["mine"] * 3
    await redis("DEL", *neighbours)
    stats = await stats_of(calls)
    assert ({one.count for one in stats.runs}, stats.lane_count) == ({0}, 0)


async def test_after_a_reset_the_gateway_works_on_and_another_one_starts_beside_it(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker, prefix: str, keys: Keys
) -> None:
    gateway = await start_gateway(allows_reset=True)
    calls = calls_to(gateway)
    await calls.system.ResetState(pb.ResetStateRequest(prefix=prefix))

    worker = await open_worker("w", at=gateway)
    run_id = await calls.start("w", "")
    await worker.do(a_result(await worker.take()))

    assert await calls.status(run_id) == "succeeded"
    other = await start_gateway()
    assert await calls_to(other).status(run_id) == "succeeded"
