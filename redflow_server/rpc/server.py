"""The gRPC server: services, health and reflection on one port."""

from __future__ import annotations

from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from redflow_sdk.proto.api.v1 import (
    event_service_pb2,
    event_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    system_service_pb2,
    system_service_pb2_grpc,
    workflow_service_pb2,
    workflow_service_pb2_grpc,
)
from redflow_sdk.proto.worker.v1 import worker_pb2, worker_pb2_grpc
from redflow_server.domain.names import Limits
from redflow_server.rpc.errors import Answering
from redflow_server.rpc.event_service import EventService
from redflow_server.rpc.run_service import RunService
from redflow_server.rpc.system_service import SystemService
from redflow_server.rpc.worker_service import WorkerService
from redflow_server.rpc.workflow_service import WorkflowService

WORKER_SERVICE: Final = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name

OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.max_concurrent_streams", 1_000),
)


class RpcServer:
    """The port of a gateway."""

    def __init__(
        self,
        *,
        worker: WorkerService,
        runs: RunService,
        events: EventService,
        workflows: WorkflowService,
        system: SystemService,
        answering: Answering,
        limits: Limits,
        has_reflection: bool,
        shares_port: bool,
    ) -> None:
        # A little more than the limit, so that what is over it is refused with a reason.
        size = limits.max_message_bytes + 1024 * 1024
        options = (
            *OPTIONS,
            ("grpc.max_receive_message_length", size),
            ("grpc.max_send_message_length", 2 * size),
            # gRPC has it on: a second gateway that was started by mistake would share the port in silence.
            ("grpc.so_reuseport", int(shares_port)),
        )
        self._server = grpc.aio.server(interceptors=(answering,), options=options)
        self._health = health.aio.HealthServicer()
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, self._server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(runs, self._server)
        workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server(workflows, self._server)
        system_service_pb2_grpc.add_SystemServiceServicer_to_server(system, self._server)
        event_service_pb2_grpc.add_EventServiceServicer_to_server(events, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if has_reflection:
            files = (worker_pb2, run_service_pb2, workflow_service_pb2, system_service_pb2, event_service_pb2)
            names = [service.full_name for file in files for service in file.DESCRIPTOR.services_by_name.values()]
            reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)

    def listen(self, host: str, port: int) -> int:
        """Binds the port; 0 takes a free one. Returns the port. Raises OSError when it is taken."""
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}" if ":" not in host else f"[{host}]:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {host}:{port}: the address is in use or not ours") from error
        if bound == 0:
            raise OSError(f"cannot listen on {host}:{port}: the address is in use or not ours")
        return bound

    async def start(self) -> None:
        """Takes calls."""
        await self._server.start()

    async def set_health(self, is_serving: bool) -> None:
        """Says whether workers should connect here. The process itself is well as long as it answers."""
        serving = health_pb2.HealthCheckResponse.SERVING
        not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set("", serving)
        await self._health.set(WORKER_SERVICE, serving if is_serving else not_serving)

    async def stop(self, grace_s: float) -> None:
        """Takes no more calls and ends those under way."""
        await self._server.stop(grace_s)
