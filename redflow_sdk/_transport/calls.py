"""The calls of clients, in terms of the SDK's values."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from redflow_sdk._step_calls import EmitCall
from redflow_sdk._transport import convert
from redflow_sdk._transport.channel import call, open_channel
from redflow_sdk._transport.run_stream import RunStream
from redflow_sdk.errors import InvalidInputError
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
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.records import Failure, Payload, Run, RunStatus, Schedule, Stats, Step, WorkerInfo, WorkflowInfo

CALL_TIMEOUT: Final = 15.0
"""Seconds until a call is given up, unless a client says otherwise."""
WAIT_SLICE: Final = 45.0
"""Seconds that the gateway may be asked to wait."""
ANSWER_TIME: Final = 1.0
"""Seconds for an answer to arrive, beyond those that somebody wants to wait."""


@dataclass(frozen=True, slots=True)
class RunsPage:
    """A page of a listing; an empty token on the last one."""

    runs: tuple[Run, ...]
    next_page_token: str


class Calls:
    """Calls over one channel, on the io thread; starts of runs and waits for them have a stream, `run_stream`."""

    def __init__(self, target: str, timeout_s: float = CALL_TIMEOUT) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._channel = open_channel(target)
        self._runs = run_service_pb2_grpc.RunServiceStub(self._channel)
        self._events = event_service_pb2_grpc.EventServiceStub(self._channel)
        self._workflows = workflow_service_pb2_grpc.WorkflowServiceStub(self._channel)
        self._system = system_service_pb2_grpc.SystemServiceStub(self._channel)
        self.run_stream = RunStream(self._runs)
        self.is_closed = False

    async def close(self) -> None:
        """Closes the channel. Whatever is under way raises UnavailableError."""
        self.is_closed = True
        self.run_stream.close()
        await self._channel.close()

    async def get_run(self, run_id: str) -> Run:
        """One run."""
        response = await call(self._runs.GetRun, run_service_pb2.GetRunRequest(run_id=run_id), self._timeout_s)
        return convert.run_of(response.run)

    async def list_steps(self, run_id: str) -> list[Step]:
        """All steps of a run."""
        steps: list[Step] = []
        token = ""
        while True:
            request = run_service_pb2.ListRunStepsRequest(run_id=run_id, page_size=500, page_token=token)
            response = await call(self._runs.ListRunSteps, request, self._timeout_s)
            steps += map(convert.step_of, response.steps)
            token = response.next_page_token
            if not token:
                return steps

    async def list_runs(
        self, status: RunStatus | None, workflow: str | None, limit: int, offset: int, page_token: str
    ) -> RunsPage:
        """A page of runs, newest first."""
        if status is not None and status not in convert.RUN_STATUS:
            raise InvalidInputError(f"status must be one of {', '.join(convert.RUN_STATUS)}; got {status!r}")
        request = run_service_pb2.ListRunsRequest(
            status=convert.RUN_STATUS[status] if status else run_pb2.RUN_STATUS_UNSPECIFIED,
            workflow=workflow or "",
            page_size=limit,
            offset=offset,
            page_token=page_token,
        )
        response = await call(self._runs.ListRuns, request, self._timeout_s)
        return RunsPage(tuple(map(convert.run_of, response.runs)), response.next_page_token)

    async def cancel_run(self, run_id: str, reason: str) -> bool:
        """Asks for a run to end as canceled."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id, reason=reason, request_id=secrets.token_urlsafe(16))
        response = await call(self._runs.CancelRun, request, self._timeout_s)
        return response.accepted

    async def wait_run(self, run_id: str, timeout: float) -> Run | None:
        """The run when it has ended within `timeout` seconds, at most 45; else None.

        Raises UnavailableError a second after that when there is no answer.
        """
        timeout = min(timeout, WAIT_SLICE)
        request = run_service_pb2.WaitRunRequest(run_id=run_id, timeout=convert.duration(timeout))
        response = await call(self._runs.WaitRun, request, timeout + ANSWER_TIME)
        return convert.run_of(response.run) if response.done else None

    async def get_workflow(self, name: str) -> WorkflowInfo:
        """One registered workflow."""
        request = workflow_service_pb2.GetWorkflowRequest(name=name)
        response = await call(self._workflows.GetWorkflow, request, self._timeout_s)
        return convert.workflow_of(response.workflow)

    async def list_workflows(self) -> list[WorkflowInfo]:
        """All registered workflows, by name."""
        workflows: list[WorkflowInfo] = []
        token = ""
        while True:
            request = workflow_service_pb2.ListWorkflowsRequest(page_size=500, page_token=token)
            response = await call(self._workflows.ListWorkflows, request, self._timeout_s)
            workflows += map(convert.workflow_of, response.workflows)
            token = response.next_page_token
            if not token:
                return workflows

    async def list_schedules(self, workflow: str) -> list[Schedule]:
        """The cron schedules of a workflow, or of all."""
        schedules: list[Schedule] = []
        token = ""
        while True:
            request = workflow_service_pb2.ListSchedulesRequest(workflow=workflow, page_size=500, page_token=token)
            response = await call(self._workflows.ListSchedules, request, self._timeout_s)
            schedules += map(convert.schedule_of, response.schedules)
            token = response.next_page_token
            if not token:
                return schedules

    async def emit_event(self, emit: EmitCall) -> list[str]:
        """Emits an event; a repeat answers the same runs."""
        request = event_service_pb2.EmitEventRequest(
            event_name=emit.event,
            payload=convert.payload(emit.payload),
            idempotency_key=emit.idempotency_key or "",
            request_id=secrets.token_urlsafe(16),
        )
        if emit.key is not None:
            request.key = emit.key
        if emit.available_at is not None:
            request.available_time.CopyFrom(convert.timestamp(emit.available_at))
        if emit.idempotency_ttl is not None:
            request.idempotency_ttl.CopyFrom(convert.duration(emit.idempotency_ttl))
        response = await call(self._events.EmitEvent, request, self._timeout_s)
        return list(response.run_ids)

    async def complete_token(self, token: str, outcome: Payload | Failure) -> None:
        """Ends the wait for a token; a repeat of the same is taken."""
        request = run_service_pb2.CompleteTokenRequest(token=token)
        if isinstance(outcome, Failure):
            request.failure.CopyFrom(convert.failure(outcome))
        else:
            request.output.CopyFrom(convert.payload(outcome))
        await call(self._runs.CompleteToken, request, self._timeout_s)

    async def list_workers(self) -> list[WorkerInfo]:
        """The connected workers, by name."""
        response = await call(self._system.ListWorkers, system_service_pb2.ListWorkersRequest(), self._timeout_s)
        workers = map(convert.worker_of, response.workers)
        return sorted(workers, key=lambda worker: (worker.name, worker.connected_at, worker.session_id))

    async def stats(self) -> Stats:
        """Counts of runs, and the depth of lanes."""
        response = await call(self._system.GetStats, system_service_pb2.GetStatsRequest(), self._timeout_s)
        return convert.stats_of(response)
