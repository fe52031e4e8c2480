"""Opening a session: who may, what the gateway answers, and what it refuses."""

from __future__ import annotations

import asyncio

import pytest

from redflow_sdk.proto.api.v1 import system_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.conftest import StartGateway
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.items import a_step
from tests.rpc.scripted_worker import an_open, refusal_of

# ---- what the gateway answers ----


@pytest.mark.parametrize(
    ("lease_ms", "beat_ms", "ack_ms", "margin_ms", "silence_ms"),
    [(900, 300, 450, 180, 1000), (30_000, 10_000, 5000, 5000, 25_000)],
)
async def test_every_time_of_a_session_follows_from_the_lease(
    start_gateway: StartGateway, dial: Dial, lease_ms: int, beat_ms: int, ack_ms: int, margin_ms: int, silence_ms: int
) -> None:
    gateway = await start_gateway(timing=Timing(lease_ms=lease_ms, cancel_grace_ms=1234))

    timing = (await dial(gateway).open(an_open("w"))).timing

    named = {field.name: value.ToMilliseconds() for field, value in timing.ListFields()}
    assert named == {
        "lease": lease_ms,
        "heartbeat_interval": beat_ms,
        "ack_timeout": ack_ms,
        "fence_margin": margin_ms,
        "silence_timeout": silence_ms,
        "cancel_grace": 1234,
    }


async def test_the_answer_names_session_and_gateway_and_says_what_they_accept_and_how_durable_they_are(
    gateway: Gateway, calls: Calls, dial: Dial, redis: RedisCommand
) -> None:
    first, second = await dial().open(an_open("w")), await dial().open(an_open("w"))

    assert first.session_id != second.session_id
    assert first.gateway_id == gateway.gateway_id
    assert first.revision == 1
    limits = gateway.config.limits
    assert first.limits.max_payload_bytes == limits.max_payload_bytes == 1024 * 1024
    assert first.limits.max_message_bytes == limits.max_message_bytes == 4 * 1024 * 1024
    assert first.limits.max_items_per_message == 256
    assert (first.limits.max_name_bytes, first.limits.max_metadata_bytes) == (256, 8 * 1024)
    assert (first.limits.max_steps, first.limits.max_waits) == (10_000, 100)
    _, save = await redis("CONFIG", "GET", "save")
    _, aof = await redis("CONFIG", "GET", "appendonly")
    wanted = pb.PERSISTENCE_MEMORY if (save, aof) == ("", "no") else pb.PERSISTENCE_SNAPSHOT
    assert (first.durability.persistence, first.durability.replicas) == (wanted, 0)
    info = await calls.system.GetServerInfo(system_service_pb2.GetServerInfoRequest())
    assert (info.limits, info.durability) == (first.limits, first.durability)


# ---- the first message ----


@pytest.mark.parametrize(
    "first",
    [
        pb.SessionRequest(),
        pb.SessionRequest(heartbeat=pb.Heartbeat(sequence=1)),
        pb.SessionRequest(capacity=pb.Capacity(slot_limit=1)),
        pb.SessionRequest(step_reports=[a_step("run_x.0123456789abcde")]),
        pb.SessionRequest(drain=pb.DrainRequest()),
        pb.SessionRequest(close=pb.CloseSession()),
    ],
    ids=["nothing", "heartbeat", "capacity", "step_report", "drain", "close"],
)
async def test_a_session_begins_with_open(gateway: Gateway, dial: Dial, first: pb.SessionRequest) -> None:
    worker = dial()

    await worker.say(**{field.name: value for field, value in first.ListFields()})

    error = await worker.end()
    assert error is not None
    assert (error.reason, error.permanent) == ("PROTOCOL_VIOLATION", False)
    assert "open" in error.message


async def test_a_stream_that_says_nothing_is_ended_after_five_seconds_and_one_that_beats_stays_open(
    gateway: Gateway, dial: Dial, open_worker: OpenWorker
) -> None:
    mute, idle = dial(), await open_worker("w")
    began = asyncio.get_running_loop().time()

    error = await mute.end(within=7)

    assert 4.5 <= asyncio.get_running_loop().time() - began <= 6.5
    assert error is not None
    assert error.reason == "PROTOCOL_VIOLATION"
    assert "5 s" in error.message
    await idle.quiet()
    assert not idle.ended


async def test_a_stream_that_ends_before_its_first_message_ends_quietly(gateway: Gateway, dial: Dial) -> None:
    worker = dial()

    await worker.finish_writing()

    assert await worker.end() is None
    assert gateway.telemetry.counters["faults"] == 0


async def test_a_second_open_ends_the_session_and_leaves_its_leases_as_they_are(
    calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start("w")
    await worker.take()
    await worker.quiet()

    await worker.say(open=an_open("w"))

    error = await worker.end()
    assert error is not None
    assert (error.reason, error.permanent) == ("PROTOCOL_VIOLATION", False)
    assert (await calls.run(run_id)).losses == 0
    assert await calls.status(run_id) == "running"


async def test_what_follows_open_in_the_first_message_is_dealt_with(calls: Calls, dial: Dial) -> None:
    worker = dial()

    await worker.say(open=an_open("w", slot_limit=1), capacity=pb.Capacity(slot_limit=2))

    await calls.start_many(3)
    await worker.assignment()
    await worker.assignment()
    await worker.quiet()
    assert len(worker.assignments) == 2


async def test_a_first_message_that_breaks_the_protocol_behind_its_open_leaves_no_session(
    gateway: Gateway, calls: Calls, dial: Dial, open_worker: OpenWorker
) -> None:
    worker = dial()

    await worker.say(open=an_open("w"), capacity=pb.Capacity(slot_limit=-1))

    error = await worker.end()
    assert error is not None
    assert (error.reason, error.permanent) == ("PROTOCOL_VIOLATION", False)
    assert await calls.worker_list() == []
    run_id = await calls.start("w")
    assignment = await (await open_worker("w")).take()
    assert (assignment.run_id, assignment.delivery_count) == (run_id, 1), "nobody had it before"


@pytest.mark.leaves_faults
async def test_a_fault_while_a_session_is_opened_is_answered_in_band_and_its_worker_may_come_again(
    gateway: Gateway, dial: Dial, redis: RedisCommand, keys: Keys
) -> None:
    await redis("SET", keys.workflows, "no set")

    error = await refusal_of(dial(), an_open("w"))

    assert (error.reason, error.permanent) == ("INTERNAL", False)
    assert error.retry_delay.ToMilliseconds() > 0
    assert gateway.telemetry.counters["faults"] == 1
    await redis("DEL", keys.workflows)
    await dial().open(an_open("w"))


# ---- a gateway that leaves ----


async def test_a_draining_gateway_opens_no_session_but_says_that_another_one_may(
    gateway: Gateway, dial: Dial, open_worker: OpenWorker
) -> None:
    staying = await open_worker("w")
    draining = asyncio.create_task(gateway.drain())
    await staying.until(lambda: staying.draining, saying="it was not told")

    error = await refusal_of(dial(), an_open("w"))

    assert (error.reason, error.permanent) == ("GATEWAY_DRAINING", False)
    assert error.retry_delay.ToMilliseconds() > 0
    await staying.say(close=pb.CloseSession())
    await draining
