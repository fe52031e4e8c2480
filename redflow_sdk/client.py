"""Starting and watching runs, and looking at who works on them."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, overload

from redflow_sdk import converter
from redflow_sdk._around import Around
from redflow_sdk._client_connection import ClientConnection
from redflow_sdk._client_link import ClientLink
from redflow_sdk._messages import RunStart
from redflow_sdk._numbers import check_seconds
from redflow_sdk._sealing import Sealing
from redflow_sdk._start import StartOptions, run_start
from redflow_sdk._step_calls import EmitCall, check_aware, emit_call
from redflow_sdk._transport.calls import ANSWER_TIME, CALL_TIMEOUT, WAIT_SLICE, Calls, RunsPage
from redflow_sdk._transport.channel import target_or_default
from redflow_sdk._transport.starts import Start, Started
from redflow_sdk._types import Given, JsonValue, Value
from redflow_sdk.codec import PayloadCodec
from redflow_sdk.errors import InvalidInputError, RunNotFoundError, TokenNotFoundError
from redflow_sdk.handle import RunHandle
from redflow_sdk.middleware import Middleware
from redflow_sdk.records import Failure, Payload, Run, RunStatus, Schedule, Stats, Step, WorkerInfo, WorkflowInfo
from redflow_sdk.workflow import AnyWorkflow, Workflow

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")
P = ParamSpec("P")

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
            page = await self.page_after(token)
            for run in page.runs:
                yield run
            token = page.next_page_token
            if not token:
                return

    async def page(self, limit: int = 50, offset: int = 0) -> list[Run]:
        """At most `limit` runs (1 to 500), after the first `offset` ones (0 to 10,000)."""
        page = await self._page(max(1, min(limit, 500)), max(0, offset), "")
        return list(page.runs)

    async def page_after(self, token: str) -> RunsPage:
        """The page that the one before it names, the first one without a name; for the SDK itself."""
        return await self._page(200, 0, token)

    async def _page(self, limit: int, offset: int, token: str) -> RunsPage:
        page = await self._client._call(Calls.list_runs, self._status, self._workflow, limit, offset, token)
        return dataclasses.replace(page, runs=tuple(map(self._client.sealing.opened_run, page.runs)))


class Client:
    """Talks to a gateway at `target` (`host:port`; default REDFLOW_TARGET, or localhost:7379).

    Connects with the first call. One serves any number of tasks. Calls are repeated while the gateway is away, at most
    for `call_timeout` seconds; then they raise UnavailableError. `codec` encodes all values that are sent, and decodes
    those that come; one that it does not decode is given as a Payload. `middleware` is told of starts and events.
    Raises InvalidInputError for arguments that make no sense.

        async with Client() as client:
            greeting = await client.execute(greet, "Ada")
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        codec: PayloadCodec | None = None,
        middleware: Sequence[Middleware] = (),
        call_timeout: float = CALL_TIMEOUT,
    ) -> None:
        self._call_timeout_s = check_seconds("call_timeout", call_timeout)
        self._connection = ClientConnection(target_or_default(target), self._call_timeout_s)
        self.sealing: Final = Sealing(codec, "client")  # of no use to others
        self._around = Around(middleware)

    async def _ask(self, question: Callable[[ClientLink], Coroutine[Value, Value, T]]) -> T:
        """What the gateway answers. Nothing else here waits: a client that blocks differs in this alone."""
        return await question(self._connection.link(asyncio.get_running_loop()))

    async def _call(
        self, method: Callable[Concatenate[Calls, P], Coroutine[Value, Value, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._ask(lambda link: link.call(method, *args, **kwargs))

    @overload
    async def start(
        self,
        workflow: Workflow[None, OutputT],
        input: None = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        delay: float | None = None,
        available_at: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        on_input_mismatch: Literal["return", "reject"] = "return",
    ) -> RunHandle[OutputT]: ...
    @overload
    async def start(
        self,
        workflow: Workflow[InputT, OutputT],
        input: Given[InputT],
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        delay: float | None = None,
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
        input: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        delay: float | None = None,
        available_at: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        on_input_mismatch: Literal["return", "reject"] = "return",
    ) -> RunHandle[JsonValue]: ...
    async def start(
        self,
        workflow: AnyWorkflow | str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        delay: float | None = None,
        available_at: datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        on_input_mismatch: Literal["return", "reject"] = "return",
    ) -> RunHandle[Value]:
        """Starts a run and returns its handle.

        `workflow` is a workflow, or the name of one; `input` is checked against the former's type. `idempotency_key`
        makes one run of all starts of the workflow with the key within `idempotency_ttl` seconds (7 days), counted
        anew with each. When such a start has other input, `on_input_mismatch` "return" gives the handle of the run
        that there is, whose `input_differs` is true, and "reject" raises. The run does not begin before `delay` seconds
        have passed, or before `available_at`, an aware time. `queue`, `max_attempts` stand instead of the workflow's;
        `priority` is -1000 to 1000, higher first.

        Raises InputValidationError and SerializationError for the input, InvalidInputError, UnknownWorkflowError when
        a name is not registered and no queue is given, IdempotencyKeyReusedError, UnavailableError.
        """
        if on_input_mismatch not in ("return", "reject"):
            raise InvalidInputError(f'on_input_mismatch must be "return" or "reject"; got {on_input_mismatch!r}')
        describe = self.sealing.describe
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts, describe)
        start = Start(
            self._run_start(workflow, input, options),
            _begin_of(delay, available_at),
            rejects_other_input=on_input_mismatch == "reject",
            is_typed=isinstance(workflow, Workflow),
        )
        return self._handle(workflow, await self._ask(lambda link: link.start(start, self._call_timeout_s)))

    def _run_start(self, workflow: AnyWorkflow | str, input: Value, options: StartOptions) -> RunStart:
        start = run_start(workflow, input, options)
        sealed = self.sealing.sealed("the input", start.input)
        return dataclasses.replace(start, input=self._around.started("run", start.workflow, sealed))

    def _handle(self, workflow: AnyWorkflow | str, started: Started) -> RunHandle[Value]:
        output_type = workflow.output_type if isinstance(workflow, Workflow) else Any
        return RunHandle(started.run_id, self, output_type, started.created, started.input_differs)

    @overload
    async def execute(
        self, workflow: Workflow[None, OutputT], input: None = None, *, timeout: float | None = None
    ) -> OutputT: ...
    @overload
    async def execute(
        self, workflow: Workflow[InputT, OutputT], input: Given[InputT], *, timeout: float | None = None
    ) -> OutputT: ...
    @overload
    async def execute(self, workflow: str, input: object = None, *, timeout: float | None = None) -> JsonValue: ...
    async def execute(
        self, workflow: AnyWorkflow | str, input: object = None, *, timeout: float | None = None
    ) -> Value:
        """Starts a run and waits for its output, at most `timeout` seconds (None: for ever). Raises what `start` and
        `RunHandle.result` raise; on TimeoutError the run goes on.
        """
        options = StartOptions(describe=self.sealing.describe)
        start = Start(self._run_start(workflow, input, options), is_typed=isinstance(workflow, Workflow))
        wait_s = math.inf if timeout is None else max(timeout, 0.0)
        answer_s = min(wait_s + ANSWER_TIME, self._call_timeout_s)
        until = time.monotonic() + wait_s
        executed = await self._ask(lambda link: link.execute(start, answer_s, wait_s))
        handle = self._handle(workflow, executed.started)
        if executed.ended is not None:
            return handle.output_of(self.sealing.opened_run(executed.ended))
        try:
            return await handle.result(None if timeout is None else max(until - time.monotonic(), 0.0))
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
        call = emit_call(
            "emit", event, payload, key=key, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl
        )
        return await self._emit(call)

    async def schedule_event(
        self,
        event: str,
        payload: object = None,
        *,
        available_at: datetime,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event whose runs are created now and start at `available_at`, an aware time. Returns their ids.

        Waits do not see it. Otherwise like `emit_event`.
        """
        call = emit_call("schedule", event, payload, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl)
        return await self._emit(dataclasses.replace(call, available_at=check_aware("available_at", available_at)))

    async def _emit(self, call: EmitCall) -> list[str]:
        sealed = self.sealing.sealed("the payload", call.payload)
        call = dataclasses.replace(call, payload=self._around.started("event", call.event, sealed))
        return await self._call(Calls.emit_event, call)

    async def complete_token(self, token: str, output: object = None) -> None:
        """Gives the step that waits for `token`, the text that `Steps.token` has made, its value. Once: a repeat of the
        same is taken.

        Raises TokenNotFoundError, NotWaitingError when it was completed with something else, has timed out, or its run
        has ended, and SerializationError, UnavailableError.
        """
        await self._complete(token, self.sealing.sealed("the output", Payload(converter.encode(output, "the output"))))

    async def fail_token(self, token: str, message: str, *, type: str = "TokenFailed") -> None:
        """Fails the step that waits for the token: it raises TokenFailedError, whose `failure` has `message` and
        `type`. Otherwise like `complete_token`.
        """
        await self._complete(token, self.sealing.sealed_failure(Failure(type, message), FAILURE_BYTES))

    async def _complete(self, token: str, outcome: Payload | Failure) -> None:
        if not (isinstance(token, str) and token.isascii()):
            raise TokenNotFoundError(f"there is no token {ascii(token)[:100]}", "TOKEN_NOT_FOUND")
        await self._call(Calls.complete_token, token, outcome)

    async def list_schedules(self, *, workflow: str | None = None) -> list[Schedule]:
        """The cron schedules in force, of one workflow by its name or of all, in the order of workflows' names."""
        return [*map(self.sealing.opened_schedule, await self._call(Calls.list_schedules, workflow or ""))]

    def handle(self, run_id: str) -> RunHandle[JsonValue]:
        """The handle of a run by its id. Asks nobody: whether there is such a run its methods say. Its output is plain
        JSON.
        """
        return RunHandle(run_id, self, Any)

    async def get_run(self, run_id: str) -> Run:
        """A run as it is now. Raises RunNotFoundError."""
        return self.sealing.opened_run(await self._call(Calls.get_run, run_id))

    async def get_run_steps(self, run_id: str) -> list[Step]:
        """The steps of a run, in order of first use. Raises RunNotFoundError."""
        return [*map(self.sealing.opened_step, await self._call(Calls.list_steps, run_id))]

    def list_runs(self, *, workflow: str | None = None, status: RunStatus | None = None) -> RunList:
        """Runs, newest first, without payloads, of the workflow of this name and in this status; None is all. Nothing
        is asked before the list is used.

            async for run in client.list_runs(workflow="pay", status="failed"):
                print(run.id, run.failure)
        """
        return RunList(self, status, workflow)

    async def cancel_run(self, run_id: str, *, reason: str = "") -> bool:
        """Asks for a run to end as canceled, with a `reason` for the record; False when it had ended, or there is none.

        A run that no worker has ends at once. A handler at work is told to stop, and the run ends when it has, or
        without it after the cancel grace of the gateway.
        """
        try:
            return await self._call(Calls.cancel_run, run_id, reason)
        except RunNotFoundError:
            return False

    async def wait_run(self, run_id: str, timeout: float) -> Run | None:
        """The run when it ends within `timeout` seconds, at most 45; else None. Raises RunNotFoundError, and a second
        after that time UnavailableError when there is no gateway to say so.
        """
        until = time.monotonic() + min(timeout, WAIT_SLICE)
        if timeout > 0:
            run = await self._ask(lambda link: link.wait(run_id, until - time.monotonic()))
            if run is not None:
                return self.sealing.opened_run(run)
        run = await self._call(Calls.wait_run, run_id, max(0.0, until - time.monotonic()))
        return run and self.sealing.opened_run(run)

    async def get_workflow(self, name: str) -> WorkflowInfo:
        """A workflow as it is registered. Raises UnknownWorkflowError."""
        return self.sealing.opened_workflow(await self._call(Calls.get_workflow, name))

    async def list_workflows(self) -> list[WorkflowInfo]:
        """All registered workflows, by name."""
        return [*map(self.sealing.opened_workflow, await self._call(Calls.list_workflows))]

    async def list_workers(self) -> list[WorkerInfo]:
        """The workers connected to any gateway, by name; at most 1,000."""
        return await self._call(Calls.list_workers)

    async def stats(self) -> Stats:
        """How many runs there are in each status, and in which lanes they wait."""
        return await self._call(Calls.stats)

    async def close(self) -> None:
        """Ends the connection; another call opens a new one."""
        if self._connection.is_open:
            await self._ask(ClientLink.close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _begin_of(delay: float | None, available_at: datetime | None) -> datetime | None:
    """When a run may begin; None is at once. Raises InvalidInputError."""
    if delay is None:
        return None if available_at is None else check_aware("available_at", available_at)
    if available_at is not None:
        raise InvalidInputError("delay and available_at are two ways to say the same; give one of them")
    return datetime.now(UTC) + timedelta(seconds=check_seconds("delay", delay, lowest=0.0))
