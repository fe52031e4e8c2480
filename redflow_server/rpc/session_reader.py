"""What a worker says, from messages of the protocol to values of the session. Its items are `item_reader.py`'s."""

from __future__ import annotations

from typing import Final

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.names import Limits
from redflow_server.domain.session import (
    Capacity,
    Heartbeat,
    HeldLease,
    LeaseState,
    OpenSession,
    Receipt,
    RejectReason,
    SdkInfo,
    WorkerMessage,
)
from redflow_server.rpc import convert
from redflow_server.rpc.item_reader import ItemReader

LEASE_STATE_OF: Final = {worker_pb2.LeaseState.Value(f"LEASE_STATE_{state.name}"): state for state in LeaseState}
REJECT_REASON_OF: Final = {
    worker_pb2.REJECT_REASON_UNSPECIFIED: None,
    worker_pb2.REJECT_REASON_UNKNOWN_WORKFLOW: RejectReason.UNKNOWN_WORKFLOW,
    worker_pb2.REJECT_REASON_OVERLOADED: RejectReason.OVERLOADED,
    worker_pb2.REJECT_REASON_DRAINING: RejectReason.DRAINING,
}


class SessionReader:
    """Makes values of what a worker says."""

    def __init__(self, limits: Limits) -> None:
        self._items = ItemReader(limits)

    def message(self, request: worker_pb2.SessionRequest) -> WorkerMessage:
        """A whole message. Raises ProtocolViolation."""
        return WorkerMessage(
            opening=self.opening(request.open) if request.HasField("open") else None,
            heartbeat=_heartbeat(request.heartbeat) if request.HasField("heartbeat") else None,
            receipts=tuple(
                Receipt(ack.lease_token, REJECT_REASON_OF.get(ack.reject_reason, RejectReason.OTHER))
                for ack in request.assignment_acks
            ),
            items=self._items.items(request),
            capacity=Capacity(request.capacity.slot_limit, request.capacity.paused)
            if request.HasField("capacity")
            else None,
            drains=request.HasField("drain"),
            closes=request.HasField("close"),
        )

    def opening(self, message: worker_pb2.OpenSession) -> OpenSession:
        """The first message of a worker. Raises InvalidInput."""
        return OpenSession(
            min_revision=message.min_revision,
            max_revision=message.max_revision,
            owner=message.owner,
            worker_name=message.worker_name,
            instance_id=message.instance_id,
            build_id=message.build_id,
            sdk=SdkInfo(message.sdk.name, message.sdk.version, message.sdk.language),
            queues=tuple(dict.fromkeys(message.queues)),
            workflows=tuple(convert.definition_of(definition) for definition in message.workflows),
            slot_limit=message.slot_limit,
            max_receive_bytes=message.max_receive_bytes,
            session_number=message.session_number,
            held_leases=tuple(_held(lease) for lease in message.held_leases),
        )


def _heartbeat(message: worker_pb2.Heartbeat) -> Heartbeat:
    return Heartbeat(message.sequence, tuple(_held(lease) for lease in message.leases))


def _held(message: worker_pb2.HeldLease) -> HeldLease:
    # A state of a later revision is, for this gateway, one more in which the handler is at work.
    state = LEASE_STATE_OF.get(message.state, LeaseState.RUNNING)
    return HeldLease(message.lease_token, state, tuple(message.open_waits))
