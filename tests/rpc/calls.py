"""A client that knows only the generated stubs, and how a refusal looks to any client's standard library."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from redflow_sdk.proto.api.v1 import (
    event_service_pb2,
    event_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    system_service_pb2,
    system_service_pb2_grpc,
    workflow_service_pb2_grpc,
)
from redflow_sdk.proto.v1 import payload_pb2, run_pb2, status_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc
from tests.eventually import eventually

TRAILER = "grpc-status-details-bin"
Fields = Any  # Any: whatever the message takes


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused call: its status, and what the trailer says of it."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    domain: str = ""
    about: tuple[tuple[str, str], ...] = ()
    retry_delay_ms: int | None = None

    @property
    def field(self) -> str:
        """The field that was refused; "" when the refusal is about none."""
        return dict(self.about).get("field", "")


def refusal_of(error: grpc.aio.AioRpcError) -> Refused:
    """What a refused call tells its caller."""
    trailer = dict(error.trailing_metadata() or ()).get(TRAILER)
    message = error.details() or ""
    if trailer is None:
        return Refused(error.code(), message)
    assert isinstance(trailer, bytes)
    status = status_pb2.Status.FromString(trailer)
    assert (status.code, status.message) == (error.code().value[0], message), "the trailer repeats the status"
    info, retry_delay_ms = status_pb2.ErrorInfo(), None
    for detail in status.details:
        match detail.type_url:
            case "type.googleapis.com/google.rpc.ErrorInfo":
                info = status_pb2.ErrorInfo.FromString(detail.value)
            case "type.googleapis.com/google.rpc.RetryInfo":
                delay = status_pb2.RetryInfo.FromString(detail.value).retry_delay
                retry_delay_ms = delay.ToMilliseconds()
    about = tuple(sorted(info.metadata.items()))
    return Refused(error.code(), message, info.reason, info.domain, about, retry_delay_ms)


async def refused(call: Awaitable[Any]) -> Refused:  # Any: what it would answer does not matter
    """How a call is refused; fails when it is not."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"not refused: {answer}"[:500])


class Calls:
    """The services of one gateway, over a channel of its own."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.aio.insecure_channel(target, options=(("grpc.use_local_subchannel_pool", 1),))
        self.runs = run_service_pb2_grpc.RunServiceStub(self.channel)
        self.workflows = workflow_service_pb2_grpc.WorkflowServiceStub(self.channel)
        self.system = system_service_pb2_grpc.SystemServiceStub(self.channel)
        self.events = event_service_pb2_grpc.EventServiceStub(self.channel)
        self.workers = worker_pb2_grpc.WorkerServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    async def close(self) -> None:
        """Closes the channel."""
        await self.channel.close()

    # ---- what nearly every test asks for ----

    async def start(self, workflow: str = "w", queue: str = "q", data: bytes = b"{}", **fields: Fields) -> str:
        """Starts a run; its id."""
        request = run_service_pb2.StartRunRequest(
            workflow=workflow, queue=queue, input=payload_pb2.Payload(data=data), **fields
        )
        return (await self.runs.StartRun(request)).run_id

    async def start_many(self, count: int, workflow: str = "w", queue: str = "q", **fields: Fields) -> list[str]:
        """Starts many runs, in one call; their ids."""
        request = run_service_pb2.StartRunRequest(workflow=workflow, queue=queue, **fields)
        answer = await self.runs.BatchStartRuns(run_service_pb2.BatchStartRunsRequest(runs=[request] * count))
        return [result.started.run_id for result in answer.results]

    async def run(self, run_id: str) -> run_pb2.Run:
        """A run as it is on record."""
        return (await self.runs.GetRun(run_service_pb2.GetRunRequest(run_id=run_id))).run

    async def status(self, run_id: str) -> str:
        """A run's status in a word, such as `queued`."""
        return run_pb2.RunStatus.Name((await self.run(run_id)).status).removeprefix("RUN_STATUS_").lower()

    async def run_in(self, run_id: str, status: str, *, within: float = 5.0) -> run_pb2.Run:
        """The run as soon as it is in this status."""

        async def is_there() -> bool:
            return await self.status(run_id) == status

        await eventually(is_there, within=within, saying=f"{run_id} is not {status}")
        return await self.run(run_id)

    async def cancel(self, run_id: str, reason: str = "changed my mind") -> bool:
        """Asks for a run to be canceled."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id, reason=reason)
        return (await self.runs.CancelRun(request)).accepted

    async def emit(self, name: str, data: bytes = b"{}", **fields: Fields) -> event_service_pb2.EmitEventResponse:
        """Emits an event."""
        request = event_service_pb2.EmitEventRequest(event_name=name, payload=payload_pb2.Payload(data=data), **fields)
        response: event_service_pb2.EmitEventResponse = await self.events.EmitEvent(request)
        return response

    async def complete_token(self, token: str, data: bytes = b'"yes"') -> None:
        """Gives the wait for a token its value."""
        output = payload_pb2.Payload(data=data)
        await self.runs.CompleteToken(run_service_pb2.CompleteTokenRequest(token=token, output=output))

    async def steps(self, run_id: str) -> list[run_pb2.Step]:
        """The first 500 steps of a run."""
        request = run_service_pb2.ListRunStepsRequest(run_id=run_id, page_size=500)
        return list((await self.runs.ListRunSteps(request)).steps)

    async def worker_list(self) -> list[system_service_pb2.Worker]:
        """The connected workers."""
        return list((await self.system.ListWorkers(system_service_pb2.ListWorkersRequest())).workers)

    async def health_of(self, service: str) -> str:
        """SERVING or NOT_SERVING."""
        answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
