"""EventService: emitting events."""

from __future__ import annotations

from redflow_sdk.proto.api.v1 import event_service_pb2 as pb
from redflow_sdk.proto.api.v1 import event_service_pb2_grpc as stubs
from redflow_server.domain.events import REPEATED_WITHIN_MS, NewEvent
from redflow_server.domain.payloads import EMPTY_OBJECT
from redflow_server.domain.runs import DEFAULT_IDEMPOTENCY_TTL_MS
from redflow_server.engine.events import Events, event_id_of_request
from redflow_server.rpc import convert
from redflow_server.rpc.errors import Context


class EventService(stubs.EventServiceServicer):
    """Parse, call the engine, render."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def EmitEvent(self, request: pb.EmitEventRequest, context: Context) -> pb.EmitEventResponse:
        emitted = await self._events.emit(_new_event(request))
        return pb.EmitEventResponse(event_id=emitted.event_id, run_ids=emitted.run_ids, created=emitted.was_created)


def _new_event(request: pb.EmitEventRequest) -> NewEvent:
    ttl_ms = convert.optional_ms("idempotency_ttl", request, "idempotency_ttl")
    if ttl_ms is None:
        ttl_ms = DEFAULT_IDEMPOTENCY_TTL_MS if request.idempotency_key else REPEATED_WITHIN_MS
    available_at_ms = None
    if request.HasField("available_time"):
        available_at_ms = convert.at_ms_of("available_time", request.available_time)
    return NewEvent(
        event_id=event_id_of_request(request.request_id),
        name=request.event_name,
        payload=convert.payload_of(request.payload) if request.HasField("payload") else EMPTY_OBJECT,
        idempotency_key=request.idempotency_key,
        idempotency_ttl_ms=ttl_ms,
        available_at_ms=available_at_ms,
        key=request.key if request.HasField("key") else None,
    )
