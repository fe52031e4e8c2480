"""SystemService: the gateway itself."""

from __future__ import annotations

from redflow_sdk.proto.api.v1 import system_service_pb2 as pb
from redflow_sdk.proto.api.v1 import system_service_pb2_grpc as stubs
from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.workers import Worker
from redflow_server.engine.runs import Runs
from redflow_server.engine.system import System
from redflow_server.rpc import convert
from redflow_server.rpc.errors import Context


class SystemService(stubs.SystemServiceServicer):
    """Parse, call the engine, render."""

    def __init__(self, system: System, runs: Runs, info: pb.GetServerInfoResponse) -> None:
        self._system = system
        self._runs = runs
        self._info = info

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Context) -> pb.GetServerInfoResponse:
        return self._info

    async def GetStats(self, request: pb.GetStatsRequest, context: Context) -> pb.GetStatsResponse:
        stats = await self._runs.stats()
        return pb.GetStatsResponse(
            runs=[pb.StatusCount(status=convert.RUN_STATUS[status], count=count) for status, count in stats.runs],
            lanes=[pb.LaneDepth(queue=lane.queue, workflow=lane.workflow, depth=lane.depth) for lane in stats.lanes],
            lane_count=stats.lane_count,
            events_remembered=stats.events_remembered,
            events_dropped=stats.events_dropped,
        )

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:
        return pb.ListWorkersResponse(workers=map(_worker, await self._system.workers()))

    async def ResetState(self, request: pb.ResetStateRequest, context: Context) -> pb.ResetStateResponse:
        return pb.ResetStateResponse(deleted_keys=await self._system.reset(request.prefix))


def _worker(worker: Worker) -> pb.Worker:
    return pb.Worker(
        session_id=worker.session_id,
        gateway_id=worker.gateway_id,
        worker_name=worker.worker_name,
        owner=worker.owner,
        instance_id=worker.instance_id,
        build_id=worker.build_id,
        sdk=worker_pb2.SdkInfo(name=worker.sdk.name, version=worker.sdk.version, language=worker.sdk.language),
        queues=worker.queues,
        workflows=worker.workflows,
        slot_limit=worker.slot_limit,
        leases=worker.leases,
        draining=worker.is_draining,
        connect_time=convert.timestamp(worker.connected_at_ms),
        parked=worker.parked,
    )
