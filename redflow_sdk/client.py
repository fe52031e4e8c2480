"""Starting and watching runs, and looking at who works on them."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, TypeVar, overload

from redflow_sdk import converter
from redflow_sdk._around import Around
from redflow_sdk._client_link import ClientLink
from redflow_sdk._messages import RunStart
from redflow_sdk._sealing import Sealing
from redflow_sdk._start import StartOptions, run_start
from redflow_sdk._step_calls import EmitCall, check_aware, emit_call
from redflow_sdk._transport.calls import ANSWER_TIME, CALL_TIMEOUT, WAIT_SLICE, Calls
from redflow_sdk._transport.channel import target_or_default
from redflow_sdk._transport.run_stream import Start, Started
from redflow_sdk._transport.thread import IoThread, io_thread
from redflow_sdk._types import Value
from redflow_sdk.codec import PayloadCodec
from redflow_sdk.errors import InvalidInputError, RunNotFoundError, TokenNotFoundError
from redflow_sdk.handle import RunHandle
from redflow_sdk.middleware import Middleware
from redflow_sdk.records import Failure, Payload, Run, RunStatus, Schedule, Stats, Step, WorkerInfo, WorkflowInfo
from redflow_sdk.workflow import AnyWorkflow, Workflow

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

FAILURE_BYTES: Final = 256 * 1024
"""How large the failure of a token may be."""


class RunList:
    """Runs, newest first: iterate over it, or take a page of it."""

    def __init__(self, client: Client, status: RunStatus | None, workflow: str | None) -> None:
        self._client = client
        self._status = status
        self._workflow = workflow

    async def __aiter__(self) -> AsyncIterator[Run]:
        token = ""
        while True:
            calls, io = self._client.connection()
            page = await io.run(calls.list_runs(self._status, self._workflow, 200, 0, token))
            for run in page.runs:
                yield self._client.sealing.opened_run(run)
            token = page.next_page_token
            if not token:
                return

    async def page(self, limit: int = 50, offset: int = 0) -> list[Run]:
        """At most `limit` runs (1 to 500), after the first `offset` ones (0 to 10,000)."""
        calls, io = self._client.connection()
        limit, offset = max(1, min(limit, 500)), max(0, offset)
        page = await io.run(calls.list_runs(self._status, self._workflow, limit, offset, ""))
        return list(map(self._client.sealing.opened_run, page.runs))


class Client:
    """Talks to a gateway at `target` (`host:port`; default REDFLOW_TARGET, or localhost:7379).

    Connects with the first call. Calls are repeated while the gateway is away, at most for 15 s. `codec` encodes all
    values that are sent, and decodes those that come; one that it does not decode is given as a Payload. `middleware`
    is told of starts and events. Raises InvalidInputError for arguments that make no sense.

        async with Client() as client:
            greeting = await client.execute(greet, "Ada")
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        codec: PayloadCodec | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._target = target_or_default(target)
        self.sealing = Sealing(codec, "client")
        """What the codec does; for the SDK itself."""
        self._around = Around(middleware)
        self._calls: Calls | None = None
        self._io: IoThread | None = None
        self._links: dict[asyncio.AbstractEventLoop, ClientLink] = {}

    def _link(self) -> ClientLink:
        """The way of the running loop to the connection."""
        calls, io = self.connection()
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            self._links = {other: link for other, link in self._links.items() if not other.is_closed()}
            link = self._links[loop] = ClientLink(calls, io)
        return link

    def connection(self) -> tuple[Calls, IoThread]:
        """The calls of the client and the thread they run on; for the SDK itself."""
        if self._calls is None or self._io is None:
            self._io = io_thread()
            self._calls = self._io.run_blocking(_open(self._target))
        io_thread()  # refuses a child of the process that made it
        return self._calls, self._io

    @overload
    async def start(
        self,
        workflow: Workflow[InputT, OutputT],
        input: InputT = ...,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        available_at: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        on_input_mismatch: Literal["return", "reject"] = "return",
    ) -> RunHandle[OutputT]: ...
    @overload
    async def start(
        self,
        workflow: str,
        input: object = ...,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        available_at: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        on_input_mismatch: Literal["return", "reject"] = "return",
    ) -> RunHandle[Value]: ...
    async def start(
        self,
        workflow: AnyWorkflow | str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        available_at: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        on_input_mismatch: Literal["return", "reject"] = "return",
    ) -> RunHandle[Value]:
        """Starts a run and returns its handle.

        `idempotency_key` makes one run of all starts with the key within `idempotency_ttl` seconds (7 days), counted
        anew with each; `on_input_mismatch` says what to do when such a start has other input. `available_at` is an
        aware time not to start before. `queue`, `max_attempts` stand instead of the workflow's; `priority` is -1000
        to 1000, higher first.

        Raises InputValidationError and SerializationError for the input, InvalidInputError, UnknownWorkflowError when
        a name is not registered and no queue is given, IdempotencyKeyReusedError, UnavailableError.
        """
        if available_at is not None:
            check_aware("available_at", available_at)
        if on_input_mismatch not in ("return", "reject"):
            raise InvalidInputError(f'on_input_mismatch must be "return" or "reject"; got {on_input_mismatch!r}')
        describe = self.sealing.describe
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts, describe)
        start = Start(
            self._run_start(workflow, input, options),
            available_at,
            rejects_other_input=on_input_mismatch == "reject",
            is_typed=isinstance(workflow, Workflow),
        )
        return self._handle(workflow, await self._link().start(start, CALL_TIMEOUT))

    def _run_start(self, workflow: AnyWorkflow | str, input: Value, options: StartOptions) -> RunStart:
        start = run_start(workflow, input, options)
        sealed = self.sealing.sealed("the input", start.input)
        return dataclasses.replace(start, input=self._around.started("run", start.workflow, sealed))

    def _handle(self, workflow: AnyWorkflow | str, started: Started) -> RunHandle[Value]:
        output_type = workflow.output_type if isinstance(workflow, Workflow) else Any
        return RunHandle(started.run_id, self, output_type, started.created, started.input_differs)

    @overload
    async def execute(
        self, workflow: Workflow[InputT, OutputT], input: InputT = ..., *, timeout: float | None = None
    ) -> OutputT: ...
    @overload
    async def execute(self, workflow: str, input: object = ..., *, timeout: float | None = None) -> Value: ...
    async def execute(
        self, workflow: AnyWorkflow | str, input: object = None, *, timeout: float | None = None
    ) -> Value:
        """Starts a run and waits for its output, at most `timeout` seconds. Raises what `start` and `result` raise."""
        options = StartOptions(describe=self.sealing.describe)
        start = Start(self._run_start(workflow, input, options), is_typed=isinstance(workflow, Workflow))
        wait_s = None if timeout is None else max(timeout, 0.0)
        answer_s = CALL_TIMEOUT if wait_s is None else min(wait_s + ANSWER_TIME, CALL_TIMEOUT)
        until = math.inf if wait_s is None else time.monotonic() + wait_s
        executed = await self._link().execute(start, answer_s, wait_s)
        handle = self._handle(workflow, executed.started)
        if executed.ended is not None:
            return handle.output_of(self.sealing.opened_run(executed.ended))
        try:
            return await handle.result(None if wait_s is None else max(until - time.monotonic(), 0.0))
        except TimeoutError:
            raise TimeoutError(f"run {handle.id} has not ended within {timeout} s") from None

    async def emit_event(
        self,
        event: str,
        payload: object = None,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event: a run of every workflow that subscribes to it is started. Returns their ids.

        Handlers that wait for the event with exactly this `key`, or with none, go on; so do those that begin to wait
        for it within the next ten minutes.
        All emits with one `idempotency_key` within `idempotency_ttl` seconds (7 days), counted anew with each, are one.
        Raises InvalidInputError, SerializationError, UnavailableError.
        """
        return await self._emit(
            emit_call("emit", event, payload, key=key, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl)
        )

    async def schedule_event(
        self,
        event: str,
        payload: object = None,
        *,
        available_at: datetime,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event whose runs are created now and start at `available_at`, an aware time."""
        call = emit_call("schedule", event, payload, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl)
        return await self._emit(dataclasses.replace(call, available_at=check_aware("available_at", available_at)))

    async def _emit(self, call: EmitCall) -> list[str]:
        sealed = self.sealing.sealed("the payload", call.payload)
        call = dataclasses.replace(call, payload=self._around.started("event", call.event, sealed))
        calls, io = self.connection()
        return await io.run(calls.emit_event(call))

    async def complete_token(self, token: str, output: object = None) -> None:
        """Gives the step that waits for the token its value. Once: a repeat of the same is taken.

        Raises TokenNotFoundError, NotWaitingError when it was completed with something else, has timed out, or its run
        has ended, and SerializationError, UnavailableError.
        """
        await self._complete(token, self.sealing.sealed("the output", Payload(converter.encode(output))))

    async def fail_token(self, token: str, message: str, *, type: str = "TokenFailed") -> None:
        """Fails the step that waits for the token: it raises TokenFailedError. Otherwise like `complete_token`."""
        await self._complete(token, self.sealing.sealed_failure(Failure(type, message), FAILURE_BYTES))

    async def _complete(self, token: str, outcome: Payload | Failure) -> None:
        if not (isinstance(token, str) and token.isascii()):
            raise TokenNotFoundError(f"there is no token {ascii(token)[:100]}", "TOKEN_NOT_FOUND")
        calls, io = self.connection()
        await io.run(calls.complete_token(token, outcome))

    async def list_schedules(self, *, workflow: str | None = None) -> list[Schedule]:
        """The cron schedules in force, of one workflow or of all, by the names of their workflows."""
        calls, io = self.connection()
        return [*map(self.sealing.opened_schedule, await io.run(calls.list_schedules(workflow or "")))]

    def handle(self, run_id: str) -> RunHandle[Value]:
        """The handle of a run by its id."""
        return RunHandle(run_id, self, Any)

    async def get_run(self, run_id: str) -> Run:
        """A run. Raises RunNotFoundError."""
        calls, io = self.connection()
        return self.sealing.opened_run(await io.run(calls.get_run(run_id)))

    async def get_run_steps(self, run_id: str) -> list[Step]:
        """The steps of a run, in order of first use. Raises RunNotFoundError."""
        calls, io = self.connection()
        return [*map(self.sealing.opened_step, await io.run(calls.list_steps(run_id)))]

    def list_runs(self, *, workflow: str | None = None, status: RunStatus | None = None) -> RunList:
        """Runs, newest first, without payloads; both filters hold together."""
        return RunList(self, status, workflow)

    async def cancel_run(self, run_id: str, *, reason: str = "") -> bool:
        """Asks for a run to end as canceled; False when it had ended, or there is none."""
        calls, io = self.connection()
        try:
            return await io.run(calls.cancel_run(run_id, reason))
        except RunNotFoundError:
            return False

    async def wait_run(self, run_id: str, timeout: float) -> Run | None:
        """The run when it ends within `timeout` seconds, at most 45; else None. Raises RunNotFoundError, and a second
        after that time UnavailableError when there is no gateway to say so.
        """
        until = time.monotonic() + min(timeout, WAIT_SLICE)
        run = await self._link().wait(run_id, until - time.monotonic()) if timeout > 0 else None
        if run is None:
            calls, io = self.connection()
            run = await io.run(calls.wait_run(run_id, max(0.0, until - time.monotonic())))
        return run and self.sealing.opened_run(run)

    async def get_workflow(self, name: str) -> WorkflowInfo:
        """A workflow as it is registered. Raises UnknownWorkflowError."""
        calls, io = self.connection()
        return self.sealing.opened_workflow(await io.run(calls.get_workflow(name)))

    async def list_workflows(self) -> list[WorkflowInfo]:
        """All registered workflows, by name."""
        calls, io = self.connection()
        return [*map(self.sealing.opened_workflow, await io.run(calls.list_workflows()))]

    async def list_workers(self) -> list[WorkerInfo]:
        """The workers connected to any gateway, by name; at most 1,000."""
        calls, io = self.connection()
        return await io.run(calls.list_workers())

    async def stats(self) -> Stats:
        """How many runs there are, and where they wait."""
        calls, io = self.connection()
        return await io.run(calls.stats())

    async def close(self) -> None:
        """Ends the connection."""
        if self._calls is not None and self._io is not None:
            calls, self._calls = self._calls, None
            self._links.clear()
            await self._io.run(calls.close())

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _open(target: str) -> Calls:
    return Calls(target)
