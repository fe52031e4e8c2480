"""WorkflowService: the registry."""

from __future__ import annotations

from redflow_sdk.proto.api.v1 import workflow_service_pb2 as pb
from redflow_sdk.proto.api.v1 import workflow_service_pb2_grpc as stubs
from redflow_server.domain.registry import Registration
from redflow_server.engine.registry import Registry
from redflow_server.rpc import convert
from redflow_server.rpc.errors import Context


class WorkflowService(stubs.WorkflowServiceServicer):
    """Parse, call the engine, render."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def GetWorkflow(self, request: pb.GetWorkflowRequest, context: Context) -> pb.GetWorkflowResponse:
        return pb.GetWorkflowResponse(workflow=convert.workflow(await self._registry.get(request.name)))

    async def ListWorkflows(self, request: pb.ListWorkflowsRequest, context: Context) -> pb.ListWorkflowsResponse:
        after = convert.position_of(request.page_token)
        workflows, last = await self._registry.list(convert.page_size(request.page_size), after)
        return pb.ListWorkflowsResponse(
            workflows=map(convert.workflow, workflows), next_page_token=convert.page_token(last)
        )

    async def ListSchedules(self, request: pb.ListSchedulesRequest, context: Context) -> pb.ListSchedulesResponse:
        after = convert.position_of(request.page_token)
        schedules, last = await self._registry.schedules(request.workflow, convert.page_size(request.page_size), after)
        return pb.ListSchedulesResponse(
            schedules=map(convert.schedule, schedules), next_page_token=convert.page_token(last)
        )

    async def RegisterWorkflows(
        self, request: pb.RegisterWorkflowsRequest, context: Context
    ) -> pb.RegisterWorkflowsResponse:
        definitions = tuple(convert.definition_of(definition) for definition in request.workflows)
        results = await self._registry.register(Registration(request.owner, request.build_id, definitions))
        return pb.RegisterWorkflowsResponse(results=map(convert.registration_result, results))
