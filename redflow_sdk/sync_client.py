"""A client that blocks: for scripts, Django views and notebooks.

Everything is done by an async client whose one place to wait blocks instead. So its coroutines never yield, and run to
their end on the caller's thread, in or beside whatever loop: arguments are checked, and outputs made, where the caller
is, and only what gRPC does is done on the io thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Generic, Literal, TypeVar, overload

from redflow_sdk._client_link import ClientLink
from redflow_sdk._transport.calls import CALL_TIMEOUT
from redflow_sdk._transport.thread import io_thread
from redflow_sdk._types import Given, JsonValue, Value
from redflow_sdk.client import Client, RunList
from redflow_sdk.codec import PayloadCodec
from redflow_sdk.handle import RunHandle
from redflow_sdk.middleware import Middleware
from redflow_sdk.records import Run, RunStatus, Schedule, Stats, Step, WorkerInfo, WorkflowInfo
from redflow_sdk.workflow import AnyWorkflow, Workflow

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")


class _BlockingClient(Client):
    """Its coroutines block, and never yield."""

    async def _ask(self, question: Callable[[ClientLink], Coroutine[Value, Value, T]]) -> T:
        io = io_thread()
        return io.run_blocking(question(self._connection.link(io.loop)))


def _outcome(blocking: Coroutine[Value, Value, T]) -> T:
    """What a coroutine of a blocking client returns. Raises what it raises."""
    try:
        blocking.send(None)
    except StopIteration as returned:
        outcome: T = returned.value
        return outcome
    raise AssertionError("a coroutine of a blocking client has waited for something else")


class SyncRunHandle(Generic[OutputT]):
    """A run and the type of its output, like `RunHandle`, whose calls block."""

    def __init__(self, handle: RunHandle[OutputT]) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"SyncRunHandle({self.id!r})"

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._handle.id

    @property
    def created(self) -> bool:
        """False when an idempotency key answered an existing run."""
        return self._handle.created

    @property
    def input_differs(self) -> bool:
        """Whether that one was started with other input."""
        return self._handle.input_differs

    def get(self) -> Run:
        """The run as it is now. Raises RunNotFoundError, UnavailableError."""
        return _outcome(self._handle.get())

    def cancel(self, reason: str = "") -> bool:
        """Asks for it to end as canceled, with a `reason` for the record; False when it had ended, or there is none.

        Raises UnavailableError.
        """
        return _outcome(self._handle.cancel(reason))

    def result(self, timeout: float | None = None) -> OutputT:
        """Waits for the output, at most `timeout` seconds (None: for ever), and then for the gateway's answer at most
        one more. Raises what `RunHandle.result` raises.
        """
        return _outcome(self._handle.result(timeout))


class SyncRunList:
    """Runs, newest first: iterate over it, or take a page of it."""

    def __init__(self, runs: RunList) -> None:
        self._runs = runs

    def __iter__(self) -> Iterator[Run]:
        token = ""
        while True:
            page = _outcome(self._runs.page_after(token))
            yield from page.runs
            token = page.next_page_token
            if not token:
                return

    def page(self, limit: int = 50, offset: int = 0) -> list[Run]:
        """At most `limit` runs (1 to 500), after the first `offset` ones (0 to 10,000)."""
        return _outcome(self._runs.page(limit, offset))


class SyncClient:
    """Talks to a gateway at `target` like `Client`, and blocks. It needs no event loop, and any number of threads may
    use one at once.

    Connects with the first call. Calls are repeated while the gateway is away, at most for `call_timeout` seconds; then
    they raise UnavailableError. In an `async def` handler use `Client`: what blocks holds up all handlers of the
    worker. `codec` and `middleware` are as in `Client`.

        with SyncClient() as client:
            greeting = client.execute(greet, "Ada")
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        codec: PayloadCodec | None = None,
        middleware: Sequence[Middleware] = (),
        call_timeout: float = CALL_TIMEOUT,
    ) -> None:
        self._client = _BlockingClient(target, codec=codec, middleware=middleware, call_timeout=call_timeout)

    @overload
    def start(
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
    ) -> SyncRunHandle[OutputT]: ...
    @overload
    def start(
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
    ) -> SyncRunHandle[OutputT]: ...
    @overload
    def start(
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
    ) -> SyncRunHandle[JsonValue]: ...
    def start(
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
    ) -> SyncRunHandle[Value]:
        """Starts a run and returns its handle.

        `workflow` is a workflow, or the name of one; `input` is checked against the former's type. `idempotency_key`
        makes one run of all starts of the workflow with the key within `idempotency_ttl` seconds (7 days), counted
        anew with each. When such a start has other input, `on_input_mismatch` "return" gives the handle of the run
        that there is, whose `input_differs` is true, and "reject" raises. The run does not begin before `delay` seconds
        have passed, or before `available_at`, an aware time. `queue`, `max_attempts` stand instead of the workflow's;
        `priority` is -1000 to 1000, higher first.

        Raises what `Client.start` raises.
        """
        starting = self._client.start(
            workflow,
            input,
            idempotency_key=idempotency_key,
            idempotency_ttl=idempotency_ttl,
            delay=delay,
            available_at=available_at,
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            on_input_mismatch=on_input_mismatch,
        )
        return SyncRunHandle(_outcome(starting))

    @overload
    def execute(
        self, workflow: Workflow[None, OutputT], input: None = None, *, timeout: float | None = None
    ) -> OutputT: ...
    @overload
    def execute(
        self, workflow: Workflow[InputT, OutputT], input: Given[InputT], *, timeout: float | None = None
    ) -> OutputT: ...
    @overload
    def execute(self, workflow: str, input: object = None, *, timeout: float | None = None) -> JsonValue: ...
    def execute(self, workflow: AnyWorkflow | str, input: object = None, *, timeout: float | None = None) -> Value:
        """Starts a run and waits for its output, at most `timeout` seconds (None: for ever). Raises what `start` and
        `SyncRunHandle.result` raise; on TimeoutError the run goes on.
        """
        return _outcome(self._client.execute(workflow, input, timeout=timeout))

    def emit_event(
        self,
        event: str,
        payload: object = None,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event, like `Client.emit_event`: a run of every workflow that subscribes to it is started, and
        waits for it go on. Returns the ids of the runs. Raises InvalidInputError, SerializationError, UnavailableError.
        """
        emitting = self._client.emit_event(
            event, payload, key=key, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl
        )
        return _outcome(emitting)

    def schedule_event(
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
        scheduling = self._client.schedule_event(
            event,
            payload,
            available_at=available_at,
            idempotency_key=idempotency_key,
            idempotency_ttl=idempotency_ttl,
        )
        return _outcome(scheduling)

    def complete_token(self, token: str, output: object = None) -> None:
        """Gives the step that waits for `token`, the text that `Steps.token` has made, its value. Once: a repeat of the
        same is taken.

        Raises TokenNotFoundError, NotWaitingError when it was completed with something else, has timed out, or its run
        has ended, and SerializationError, UnavailableError.
        """
        _outcome(self._client.complete_token(token, output))

    def fail_token(self, token: str, message: str, *, type: str = "TokenFailed") -> None:
        """Fails the step that waits for the token: it raises TokenFailedError, whose `failure` has `message` and
        `type`. Otherwise like `complete_token`.
        """
        _outcome(self._client.fail_token(token, message, type=type))

    def list_schedules(self, *, workflow: str | None = None) -> list[Schedule]:
        """The cron schedules in force, of one workflow by its name or of all, in the order of workflows' names."""
        return _outcome(self._client.list_schedules(workflow=workflow))

    def handle(self, run_id: str) -> SyncRunHandle[JsonValue]:
        """The handle of a run by its id. Asks nobody: whether there is such a run its methods say. Its output is plain
        JSON.
        """
        return SyncRunHandle(self._client.handle(run_id))

    def get_run(self, run_id: str) -> Run:
        """A run as it is now. Raises RunNotFoundError."""
        return _outcome(self._client.get_run(run_id))

    def get_run_steps(self, run_id: str) -> list[Step]:
        """The steps of a run, in order of first use. Raises RunNotFoundError."""
        return _outcome(self._client.get_run_steps(run_id))

    def list_runs(self, *, workflow: str | None = None, status: RunStatus | None = None) -> SyncRunList:
        """Runs, newest first, without payloads, of the workflow of this name and in this status; None is all. Nothing
        is asked before the list is used.

            for run in client.list_runs(workflow="pay", status="failed"):
                print(run.id, run.failure)
        """
        return SyncRunList(self._client.list_runs(workflow=workflow, status=status))

    def cancel_run(self, run_id: str, *, reason: str = "") -> bool:
        """Asks for a run to end as canceled, with a `reason` for the record; False when it had ended, or there is none.

        A run that no worker has ends at once. A handler at work is told to stop, and the run ends when it has, or
        without it after the cancel grace of the gateway.
        """
        return _outcome(self._client.cancel_run(run_id, reason=reason))

    def wait_run(self, run_id: str, timeout: float) -> Run | None:
        """The run when it ends within `timeout` seconds, at most 45; else None. Raises RunNotFoundError, and a second
        after that time UnavailableError when there is no gateway to say so.
        """
        return _outcome(self._client.wait_run(run_id, timeout))

    def get_workflow(self, name: str) -> WorkflowInfo:
        """A workflow as it is registered. Raises UnknownWorkflowError."""
        return _outcome(self._client.get_workflow(name))

    def list_workflows(self) -> list[WorkflowInfo]:
        """All registered workflows, by name."""
        return _outcome(self._client.list_workflows())

    def list_workers(self) -> list[WorkerInfo]:
        """The workers connected to any gateway, by name; at most 1,000."""
        return _outcome(self._client.list_workers())

    def stats(self) -> Stats:
        """How many runs there are in each status, and in which lanes they wait."""
        return _outcome(self._client.stats())

    def close(self) -> None:
        """Ends the connection; another call opens a new one."""
        _outcome(self._client.close())

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
