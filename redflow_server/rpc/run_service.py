"""RunService: starting, watching and canceling runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import grpc

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc as stubs
from redflow_server.domain.errors import InternalFault, InvalidInput, Refusal
from redflow_server.domain.payloads import EMPTY_OBJECT
from redflow_server.domain.runs import (
    DEFAULT_IDEMPOTENCY_TTL_MS,
    InputMismatch,
    NewRun,
    Run,
    RunNews,
    RunQuery,
    StartAnswer,
    StartedRun,
)
from redflow_server.domain.tokens import Completion, step_of
from redflow_server.engine.client_runs import ClientRuns
from redflow_server.engine.runs import MAX_WAIT_S, Runs, run_id_of_request
from redflow_server.engine.tokens import Tokens
from redflow_server.rpc import convert
from redflow_server.rpc.errors import Context
from redflow_server.telemetry import Telemetry

MAX_BATCH = 1000
MESSAGE_BYTES = 1024 * 1024
"""Of runs that have ended together; one that is larger has a message of its own."""
MISMATCH = {pb.INPUT_MISMATCH_REJECT: InputMismatch.REJECT}


class RunService(stubs.RunServiceServicer):
    """Parse, call the engine, render."""

    def __init__(self, runs: Runs, tokens: Tokens, telemetry: Telemetry) -> None:
        self._runs = runs
        self._telemetry = telemetry
        self._tokens = tokens
        self._readers: set[asyncio.Task[None]] = set()

    async def StartRun(self, request: pb.StartRunRequest, context: Context) -> pb.StartRunResponse:
        return _started(await self._runs.start(_new_run(request)))

    async def BatchStartRuns(self, request: pb.BatchStartRunsRequest, context: Context) -> pb.BatchStartRunsResponse:
        if len(request.runs) > MAX_BATCH:
            raise InvalidInput("runs", f"must be at most {MAX_BATCH}", len(request.runs))
        answers = await self._runs.start_many([_new_run_or_refusal(run) for run in request.runs])
        return pb.BatchStartRunsResponse(results=map(_result, answers))

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:
        return pb.GetRunResponse(run=convert.run(await self._runs.get(request.run_id)))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:
        if request.offset and request.page_token:
            raise InvalidInput("offset", "must be 0 with a page_token", request.offset)
        query = RunQuery(
            status=convert.RUN_STATUS_OF.get(request.status),
            workflow=request.workflow or None,
            limit=convert.page_size(request.page_size),
            offset=max(0, request.offset),
            before_seq=convert.number_of(request.page_token),
        )
        page = await self._runs.list(query)
        return pb.ListRunsResponse(runs=map(convert.run, page.runs), next_page_token=convert.page_token(page.next_seq))

    async def ListRunSteps(self, request: pb.ListRunStepsRequest, context: Context) -> pb.ListRunStepsResponse:
        offset = convert.number_of(request.page_token) or 0
        page = await self._runs.steps(request.run_id, convert.page_size(request.page_size), offset)
        return pb.ListRunStepsResponse(
            steps=map(convert.step, page.steps), next_page_token=convert.page_token(page.next_offset)
        )

    async def CancelRun(self, request: pb.CancelRunRequest, context: Context) -> pb.CancelRunResponse:
        accepted = await self._runs.cancel(request.run_id, request.reason, request.request_id)
        return pb.CancelRunResponse(accepted=accepted)

    async def WaitRun(self, request: pb.WaitRunRequest, context: Context) -> pb.WaitRunResponse:
        timeout_ms = convert.optional_ms("timeout", request, "timeout")
        run = await self._runs.wait(request.run_id, MAX_WAIT_S if timeout_ms is None else timeout_ms / 1000)
        return pb.WaitRunResponse(done=run.status.is_terminal, run=convert.run(run))

    async def ExecuteRuns(
        self, request_iterator: AsyncIterator[pb.ExecuteRunsRequest], context: Context
    ) -> AsyncIterator[pb.ExecuteRunsResponse]:
        runs = self._runs.of_client()
        # It ends by itself with the stream: a read that is cancelled leaks in grpc.aio.
        reading = asyncio.create_task(_read_requests(request_iterator, runs))
        self._readers.add(reading)
        reading.add_done_callback(self._readers.discard)
        reading.add_done_callback(partial(self._was_read, runs))
        try:
            while (news := await runs.take()) is not None:
                for response in _news(news):
                    yield response
        finally:
            runs.close()

    def _was_read(self, runs: ClientRuns, reading: asyncio.Task[None]) -> None:
        """A fault of ours must not leave a stream that nobody reads."""
        if not reading.cancelled() and (error := reading.exception()) is not None:
            runs.refuse(InternalFault(f"fault {self._telemetry.fault('ExecuteRuns', error)}"))

    async def CompleteToken(self, request: pb.CompleteTokenRequest, context: Context) -> pb.CompleteTokenResponse:
        outcome = request.WhichOneof("outcome")
        output = convert.payload_of(request.output) if outcome == "output" else None
        failure = convert.failure_of("failure", request.failure) if outcome == "failure" else None
        await self._tokens.complete(Completion(request.token, step_of(request.token), output, failure))
        return pb.CompleteTokenResponse()


async def _read_requests(requests: AsyncIterator[pb.ExecuteRunsRequest], runs: ClientRuns) -> None:
    try:
        async for request in requests:
            if len(request.starts) > MAX_BATCH:
                raise InvalidInput("starts", f"must be at most {MAX_BATCH}", len(request.starts))
            # What is not waited for any more makes room.
            runs.forget(request.forgotten_run_ids)
            for start in request.starts:
                _begin(start, runs)
            runs.want(request.run_ids)
            await runs.room()
    except Refusal as refusal:
        runs.refuse(refusal)
    except (grpc.aio.UsageError, grpc.RpcError, asyncio.InvalidStateError):
        return  # the stream has ended
    else:
        runs.complete()


def _begin(start: pb.NumberedStart, runs: ClientRuns) -> None:
    run = _new_run_or_refusal(start.run)
    if isinstance(run, Refusal):
        runs.refuse_start(start.number, run)
    elif start.wait:
        runs.execute(start.number, run)
    else:
        runs.start(start.number, run)


def _news(news: RunNews) -> Iterator[pb.ExecuteRunsResponse]:
    response = pb.ExecuteRunsResponse(
        starts=map(_start_answer, news.starts), unknown_run_ids=news.unknown, untold_run_ids=news.untold
    )
    size = 0
    for run in news.runs:
        size += _size(run)
        if response.runs and size > MESSAGE_BYTES:
            yield response
            response, size = pb.ExecuteRunsResponse(), _size(run)
        response.runs.append(convert.run(run))
    yield response


def _size(run: Run) -> int:
    return sum(len(payload.data) for payload in (run.input, run.output) if payload is not None)


def _new_run(request: pb.StartRunRequest) -> NewRun:
    ttl_ms = convert.optional_ms("idempotency_ttl", request, "idempotency_ttl")
    available_at_ms = None
    if request.HasField("available_time"):
        available_at_ms = convert.at_ms_of("available_time", request.available_time)
    return NewRun(
        run_id=run_id_of_request(request.request_id),
        workflow=request.workflow,
        input=convert.payload_of(request.input) if request.HasField("input") else EMPTY_OBJECT,
        queue=request.queue or None,
        priority=request.priority,
        max_attempts=request.max_attempts or None,
        available_at_ms=available_at_ms,
        idempotency_key=request.idempotency_key or None,
        idempotency_ttl_ms=DEFAULT_IDEMPOTENCY_TTL_MS if ttl_ms is None else ttl_ms,
        on_input_mismatch=MISMATCH.get(request.on_input_mismatch, InputMismatch.RETURN),
        is_typed=request.typed,
    )


def _new_run_or_refusal(request: pb.StartRunRequest) -> NewRun | Refusal:
    try:
        return _new_run(request)
    except Refusal as refusal:
        return refusal


def _started(started: StartedRun) -> pb.StartRunResponse:
    return pb.StartRunResponse(run_id=started.run_id, created=started.was_created, input_differs=started.input_differs)


def _refused(refusal: Refusal) -> pb.StartRefusal:
    return pb.StartRefusal(reason=refusal.reason, message=str(refusal))


def _result(answer: StartedRun | Refusal) -> pb.BatchStartRunsResult:
    if isinstance(answer, Refusal):
        return pb.BatchStartRunsResult(refused=_refused(answer))
    return pb.BatchStartRunsResult(started=_started(answer))


def _start_answer(answer: StartAnswer) -> pb.StartAnswer:
    if isinstance(answer.result, Refusal):
        return pb.StartAnswer(number=answer.number, refused=_refused(answer.result))
    return pb.StartAnswer(number=answer.number, started=_started(answer.result))
