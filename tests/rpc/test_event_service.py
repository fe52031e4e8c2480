"""EventService: emitting events over the wire."""

from __future__ import annotations

import time
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.api.v1 import event_service_pb2 as pb
from redflow_sdk.proto.v1 import payload_pb2, workflow_pb2
from redflow_server.domain.states import RunStatus
from redflow_server.gateway import Gateway
from tests.builders import AWKWARD_BYTES, memory_is_full
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import CallsTo, OpenWorker
from tests.rpc.items import a_result
from tests.rpc.scripted_worker import a_definition
from tests.rpc.test_workflow_service import register

PAYLOAD = payload_pb2.Payload(data=b'{"n":1}')


async def emit(calls: Calls, name: str = "paid", **fields: Any) -> pb.EmitEventResponse:  # Any: fields of the request
    request = pb.EmitEventRequest(**{"event_name": name, "payload": PAYLOAD, **fields})
    response: pb.EmitEventResponse = await calls.events.EmitEvent(request)
    return response


def subscriber(name: str, event: str = "paid", **fields: Any) -> workflow_pb2.WorkflowDefinition:  # Any: as above
    return a_definition(name, "q", event_triggers=[workflow_pb2.EventTrigger(event_name=event)], **fields)


async def test_an_event_starts_a_run_of_each_subscriber_and_its_worker_gets_the_payload(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker(subscriber("a"), subscriber("b"), subscriber("c", "sent"), slot_limit=2)
    payload = payload_pb2.Payload(data=b"\x00\xff", content_type="x/y", metadata={"k": "é"})

    emitted = await emit(calls, payload=payload)

    assert emitted.created and emitted.event_id
    assignments = [await worker.assignment() for _ in range(2)]
    assert sorted(one.run_id for one in assignments) == sorted(emitted.run_ids)
    assert [one.input for one in assignments] == [payload] * 2
    for one in assignments:
        assert (await worker.do(a_result(one))).status == 1


async def test_an_event_that_nobody_listens_to_starts_nothing(calls: Calls) -> None:
    emitted = await emit(calls)
    assert list(emitted.run_ids) == []
    assert emitted.created


@pytest.mark.parametrize("kind", AWKWARD_BYTES)
async def test_the_payload_is_the_runs_input_byte_for_byte(calls: Calls, kind: str) -> None:
    await register(calls, subscriber("a"))
    payload = payload_pb2.Payload(data=AWKWARD_BYTES[kind], content_type="x/y", metadata={"k": "é"})
    [run_id] = (await emit(calls, payload=payload)).run_ids
    assert (await calls.run(run_id)).input == payload


async def test_an_event_without_a_payload_has_an_empty_object(calls: Calls) -> None:
    await register(calls, subscriber("a"))
    emitted = await calls.events.EmitEvent(pb.EmitEventRequest(event_name="paid"))
    assert (await calls.run(emitted.run_ids[0])).input.data == b"{}"


async def test_an_event_for_later_makes_its_runs_now_which_start_then(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker(subscriber("a"))
    at = Timestamp()
    at.FromMilliseconds(int(time.time() * 1000) + 1200)

    [run_id] = (await emit(calls, available_time=at)).run_ids

    run = await calls.run(run_id)
    assert (await calls.status(run_id), run.available_time) == ("scheduled", at)
    assert (await worker.assignment()).run_id == run_id
    assert time.time() * 1000 >= at.ToMilliseconds()


# ---- once ----


async def test_a_call_that_is_repeated_with_its_request_id_is_one_event(calls: Calls) -> None:
    await register(calls, subscriber("a"))
    first, again, other = [await emit(calls, request_id=one) for one in ("r-1", "r-1", "r-2")]
    assert first == again
    assert first.created
    assert other.event_id != first.event_id and list(other.run_ids) != list(first.run_ids)


async def test_a_call_that_is_repeated_at_another_gateway_is_one_event(
    start_gateway: StartGateway, calls_to: CallsTo
) -> None:
    one, other = calls_to(await start_gateway()), calls_to(await start_gateway())
    await register(one, subscriber("a"))
    assert await emit(one, request_id="r-1") == await emit(other, request_id="r-1")


async def test_calls_without_a_request_id_are_events_of_their_own(calls: Calls) -> None:
    await register(calls, subscriber("a"))
    assert (await emit(calls)).event_id != (await emit(calls)).event_id


async def test_an_idempotency_key_names_one_event_of_a_name(calls: Calls) -> None:
    await register(calls, subscriber("a"), subscriber("b", "sent"))
    first = await emit(calls, idempotency_key="k", request_id="r-1")
    again = await emit(calls, idempotency_key="k", request_id="r-2")
    other = await emit(calls, "sent", idempotency_key="k", request_id="r-3")
    assert (again.event_id, list(again.run_ids), again.created) == (first.event_id, list(first.run_ids), False)
    assert other.created and other.event_id != first.event_id


async def test_a_key_is_free_again_when_its_window_has_passed(calls: Calls) -> None:
    window = Duration(nanos=200_000_000)
    first = await emit(calls, idempotency_key="k", idempotency_ttl=window)

    async def is_another() -> bool:
        # Looked at less often than the window is long: each look makes the window count anew.
        return (await emit(calls, idempotency_key="k", idempotency_ttl=window)).event_id != first.event_id

    await eventually(is_another, every=0.4)


# ---- refused ----

REFUSED: dict[str, tuple[dict[str, Any], str]] = {  # Any: fields of the request
    "no name": ({"event_name": ""}, "event_name"),
    "a name of 257 bytes": ({"event_name": "x" * 257}, "event_name"),
    "a name with a NUL": ({"event_name": "a\x00"}, "event_name"),
    "a key of 257 bytes": ({"idempotency_key": "x" * 257}, "idempotency_key"),
    "a request id of 257 bytes": ({"request_id": "x" * 257}, "request_id"),
    "a window of nothing": ({"idempotency_key": "k", "idempotency_ttl": Duration()}, "idempotency_ttl"),
    "a negative window": ({"idempotency_key": "k", "idempotency_ttl": Duration(seconds=-1)}, "idempotency_ttl"),
    "an endless window": ({"idempotency_key": "k", "idempotency_ttl": Duration(seconds=2**40)}, "idempotency_ttl"),
    "a time that is none": ({"available_time": Timestamp(nanos=2_000_000_000)}, "available_time"),
    "a payload over the limit": ({"payload": payload_pb2.Payload(data=b"x" * (1024 * 1024 + 1))}, "payload"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_cannot_be_emitted_is_refused_with_the_field_and_starts_nothing(
    gateway: Gateway, calls: Calls, kind: str
) -> None:
    fields, field = REFUSED[kind]
    await register(calls, subscriber("a"))

    answer = await refused(emit(calls, **fields))

    assert answer.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in answer.field
    assert sum(count for _, count in (await gateway.store.read_stats()).runs) == 0
    assert gateway.telemetry.counters["faults"] == 0


async def test_when_memory_is_full_the_call_may_be_repeated_and_then_starts_all(
    calls: Calls, redis: RedisCommand
) -> None:
    await register(calls, subscriber("a"), subscriber("b"))
    async with memory_is_full(redis):
        answer = await refused(emit(calls, request_id="r-1"))
    assert answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len((await emit(calls, request_id="r-1")).run_ids) == 2


# ---- many ----


async def test_a_thousand_subscribers_are_all_started_by_whichever_gateway(
    start_gateway: StartGateway, calls_to: CallsTo
) -> None:
    gateways = [await start_gateway(), await start_gateway()]
    calls = calls_to(gateways[0])
    await register(calls, *(subscriber(f"w{number:04}") for number in range(1_000)))

    emitted = await emit(calls)

    assert len(set(emitted.run_ids)) == 1_000

    async def are_queued() -> bool:
        return dict((await gateways[1].store.read_stats()).runs).get(RunStatus.QUEUED) == 1_000

    await eventually(are_queued, within=20)
    assert {await calls.status(run_id) for run_id in (emitted.run_ids[0], emitted.run_ids[-1])} == {"queued"}
    started = sum(gateway.telemetry.counters["events.fanned_out"] for gateway in gateways)
    assert started == 1_000
