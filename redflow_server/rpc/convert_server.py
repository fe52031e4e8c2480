"""What a gateway says of itself, the same for every caller."""

from __future__ import annotations

from typing import Final

from redflow_sdk.proto.api.v1 import system_service_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.names import Limits
from redflow_server.domain.timing import Timing
from redflow_server.engine.sessions import REVISION
from redflow_server.rpc.convert import duration
from redflow_server.store.admin import Persistence, RedisReport
from redflow_server.version import VERSION

PERSISTENCE: Final = {kind: worker_pb2.Persistence.Value(f"PERSISTENCE_{kind.name}") for kind in Persistence}
CAPABILITIES: Final = (
    worker_pb2.CAPABILITY_PARKING,
    worker_pb2.CAPABILITY_LAZY_OUTPUTS,
    worker_pb2.CAPABILITY_FAILURE_HANDLERS,
)


def opened(gateway_id: str, timing: Timing, limits: Limits, report: RedisReport) -> worker_pb2.SessionOpened:
    """The part of SessionOpened that is the same for every session."""
    return worker_pb2.SessionOpened(
        gateway_id=gateway_id,
        capabilities=CAPABILITIES,
        limits=worker_pb2.Limits(
            max_payload_bytes=limits.max_payload_bytes,
            max_message_bytes=limits.max_message_bytes,
            max_items_per_message=limits.max_items_per_message,
            max_name_bytes=limits.max_name_bytes,
            max_metadata_bytes=limits.max_metadata_bytes,
            max_steps=limits.max_steps,
            max_waits=limits.max_waits,
        ),
        timing=worker_pb2.Timing(
            lease=duration(timing.lease_ms),
            heartbeat_interval=duration(timing.heartbeat_ms),
            ack_timeout=duration(timing.ack_ms),
            fence_margin=duration(timing.fence_margin_ms),
            silence_timeout=duration(timing.silence_ms),
            cancel_grace=duration(timing.cancel_grace_ms),
        ),
        durability=worker_pb2.Durability(persistence=PERSISTENCE[report.persistence], replicas=report.replicas),
    )


def server_info(
    message: worker_pb2.SessionOpened, report: RedisReport, prefix: str
) -> system_service_pb2.GetServerInfoResponse:
    """The whole answer of GetServerInfo."""
    return system_service_pb2.GetServerInfoResponse(
        gateway_id=message.gateway_id,
        version=VERSION,
        min_revision=REVISION,
        max_revision=REVISION,
        capabilities=message.capabilities,
        limits=message.limits,
        durability=message.durability,
        store_version=f"{report.name} {report.version}",
        prefix=prefix,
    )
