"""One delivery of a run: calls the handler, records its steps, reports what became of it. On the worker's loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import threading
import time
import typing
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from typing import Any, Final, TypeVar

from redflow_sdk import converter
from redflow_sdk._failures import canceled_failure, failure_of, fitted
from redflow_sdk._link import Link
from redflow_sdk._messages import (
    Answer,
    Assignment,
    Canceled,
    Completed,
    Failed,
    Item,
    Release,
    ReleaseReason,
    StepReport,
    StepSnapshot,
    Stop,
    StopReason,
    Verdict,
)
from redflow_sdk._names import check_name
from redflow_sdk._threads import Threads
from redflow_sdk._types import Function, Value
from redflow_sdk.context import BlockingContext, Context, RunInfo, StepCall
from redflow_sdk.errors import (
    DuplicateStepError,
    InputValidationError,
    InvalidInputError,
    NonDeterministicError,
    RunCanceledError,
    SerializationError,
    StepFailedError,
)
from redflow_sdk.records import Failure, Payload
from redflow_sdk.workflow import AnyWorkflow

T = TypeVar("T")

NO_LOCK: Final = nullcontext()


class Phase(Enum):
    """Where an execution is."""

    HANDLING = auto()
    REPORTING = auto()


class Execution:
    """A handler at work."""

    def __init__(
        self,
        assignment: Assignment,
        workflow: AnyWorkflow,
        link: Link,
        threads: Threads,
        max_payload_bytes: int,
    ) -> None:
        self.token = assignment.lease_token
        self.stop_order: Stop | None = None
        self._assignment = assignment
        self._workflow = workflow
        self._link = link
        self._threads = threads
        self._max_payload_bytes = max_payload_bytes
        self._loop = asyncio.get_running_loop()
        self._on_record = {step.name: step for step in assignment.steps}
        self._recorded = set(self._on_record)
        self._used: set[str] = set()
        self._next_seq = max((step.seq for step in assignment.steps), default=0)
        # Steps of `def` handlers begin in threads.
        self._names_lock: AbstractContextManager[object] = NO_LOCK if workflow.is_async else threading.Lock()
        self._phase = Phase.HANDLING
        self._task: asyncio.Task[None] | None = None
        self.is_abandoned = False
        """Whether the worker has given up on the handler, which goes on."""

    @property
    def workflow_name(self) -> str:
        """The workflow it runs."""
        return self._assignment.workflow

    @property
    def run_id(self) -> str:
        """The run it executes."""
        return self._assignment.run_id

    # ---- life ----

    async def run(self) -> None:
        """Runs the handler and reports its end."""
        self._task = asyncio.current_task()
        self._link.started(self.token)
        item = await self._handle()
        self._phase = Phase.REPORTING
        if item is not None and not self.is_abandoned:
            await self._report_end(item)

    def stop(self, stop: Stop) -> None:
        """The handler has to end."""
        if self.stop_order is not None and not stop.reason.is_lost:
            return
        self.stop_order = stop
        if self._phase is Phase.HANDLING and self._workflow.is_async and self._task is not None:
            self._task.cancel()

    def abandon(self) -> asyncio.Future[Answer] | None:
        """The handler does not end although it has to: its run ends, or goes back, without it."""
        if self._phase is not Phase.HANDLING or self.is_abandoned or self.stop_order is None:
            return None
        self.is_abandoned = True
        if self.stop_order.reason is StopReason.WORKER_STOPPED:
            return self._link.report(Canceled(self.token, len(self._recorded), is_worker_stopped=True))
        if self.stop_order.reason.is_lost:
            return None
        return self._link.report(Release(self.token, len(self._recorded), ReleaseReason.CANCEL_IGNORED))

    def hand_back(self) -> asyncio.Future[Answer] | None:
        """The worker shuts down: the run goes on elsewhere from what is recorded."""
        if self._phase is not Phase.HANDLING or self.is_abandoned:
            return None
        self.is_abandoned = True
        answer = self._link.report(Release(self.token, len(self._recorded), ReleaseReason.SHUTDOWN))
        self.stop(Stop(self.token, StopReason.MOVED, "the worker shuts down"))
        return answer

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""
        return self.stop_order is not None

    # ---- the handler ----

    async def _handle(self) -> Item | None:
        """Calls the handler; what is to be reported of its end, or None when nothing may be."""
        assignment, workflow = self._assignment, self._workflow
        try:
            if self.is_stopped:
                raise asyncio.CancelledError("stopped before it began")
            arguments = self._arguments()
            run = RunInfo(
                assignment.run_id,
                assignment.workflow,
                assignment.queue,
                assignment.attempt,
                assignment.max_attempts,
                assignment.delivery_count,
            )
            if workflow.is_async:
                output = await workflow.function(Context(run, self), *arguments)
            else:
                handler = functools.partial(workflow.function, BlockingContext(run, self), *arguments)
                output = await self._threads.run_handler(handler)
            return Completed(self.token, len(self._recorded), self._payload("the output", output))
        except BaseException as error:  # whatever a handler raises, SystemExit too, ends its run and not the worker
            return self._end_of(error)

    def _arguments(self) -> tuple[Value, ...]:
        if not self._workflow.takes_input:
            return ()
        data = self._assignment.input.data if self._assignment.input else b"null"
        try:
            return (converter.decode(data, self._workflow.input_type),)
        except InputValidationError as error:
            raise InputValidationError(f"the input does not fit: {error}", error.details) from None

    def _end_of(self, error: BaseException) -> Item | None:
        stop = self.stop_order
        recorded = len(self._recorded)
        if stop is not None and stop.reason.is_lost:
            return None
        if isinstance(error, (asyncio.CancelledError, RunCanceledError)):
            if stop is None:
                return Failed(self.token, recorded, canceled_failure())
            return Canceled(self.token, recorded, stop.reason is StopReason.WORKER_STOPPED)
        return Failed(self.token, recorded, self._failure(error))

    def _failure(self, error: BaseException) -> Failure:
        return fitted(failure_of(error), self._max_payload_bytes)

    async def _report_end(self, item: Item) -> None:
        answer = await self._link.report(item)
        if answer.verdict not in (Verdict.INVALID, Verdict.TOO_LARGE):
            return
        error = SerializationError(f"the gateway does not take the result: {answer.message}")
        answer = await self._link.report(Failed(self.token, len(self._recorded), self._failure(error)))
        if answer.verdict in (Verdict.INVALID, Verdict.TOO_LARGE):
            self._link.tell(lambda protocol: protocol.give_up(self.token))

    # ---- steps ----

    async def run_step(self, call: StepCall) -> Value:
        """A step of an async handler."""
        _check(call)
        if self.is_stopped:
            raise asyncio.CancelledError("the run was canceled")
        known, seq = self._begin_step(call.name)
        if known is not None:
            return await self._replay(known, call.function)
        started = time.monotonic()
        try:
            async with asyncio.timeout(call.timeout):
                value = await self._call(call)
        except BaseException as error:  # recorded, and raised again to the handler
            await self._record_failure(call, seq, started, error)
            raise
        return await self._record_success(call, seq, started, value)

    def run_step_blocking(self, call: StepCall) -> Value:
        """A step of a handler in a thread: a `def` function runs right there, the rest on the worker's loop."""
        if inspect.iscoroutinefunction(call.function):
            return self._on_loop(self.run_step(call))
        _check(call)
        if self.is_stopped:
            raise RunCanceledError("the run was canceled")
        known, seq = self._begin_step(call.name)
        if known is not None:
            return self._on_loop(self._replay(known, call.function))
        started = time.monotonic()
        try:
            value = call.function(*call.args, **call.kwargs)
            if call.timeout is not None and time.monotonic() - started > call.timeout:
                raise TimeoutError(f"step {call.name!r} took longer than {call.timeout} s")
        except BaseException as error:  # recorded, and raised again to the handler
            self._on_loop(self._record_failure(call, seq, started, error))
            raise
        return self._on_loop(self._record_success(call, seq, started, value))

    def _on_loop(self, work: Coroutine[Value, Value, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except asyncio.CancelledError as error:
            raise RunCanceledError("the run was canceled") from error

    def _begin_step(self, name: str) -> tuple[StepSnapshot | None, int]:
        """Takes a name for this run. Gives what is on record, if that is the step's outcome, and its number."""
        with self._names_lock:
            if name in self._used:
                raise DuplicateStepError(f"step {name!r} was used before in this run; give each use its own name")
            self._used.add(name)
            known = self._on_record.get(name)
            if known is None:
                self._next_seq += 1
                return None, self._next_seq
        failed_here = known.is_final and known.attempt == self._assignment.attempt
        return (known if known.succeeded or failed_here else None), known.seq

    async def _call(self, call: StepCall) -> Value:
        if inspect.iscoroutinefunction(call.function):
            return await call.function(*call.args, **call.kwargs)
        bound = functools.partial(call.function, *call.args, **call.kwargs)
        value = await self._threads.run_step(bound)
        return await value if inspect.isawaitable(value) else value

    async def _replay(self, known: StepSnapshot, function: Function) -> Value:
        if known.is_by_reference:
            fetched = await self._link.fetch(self.token, known.name)
            if fetched is None:
                raise asyncio.CancelledError("the run was lost")
            known = fetched
        if known.succeeded:
            return _value(known.output, function)
        assert known.failure is not None
        raise _raised_again(known.failure)

    async def _record_success(self, call: StepCall, seq: int, started: float, value: Value) -> Value:
        try:
            output = self._payload(f"the value of step {call.name!r}", value)
        except SerializationError as error:
            await self._record_failure(call, seq, started, error)
            raise
        elapsed = time.monotonic() - started
        answer = await self._report_step(
            StepReport(self.token, len(self._recorded), call.name, seq, output, None, elapsed)
        )
        if answer.verdict is Verdict.CONFLICT and answer.stored is not None:
            return _value(answer.stored.output, call.function)
        if answer.verdict is Verdict.TOO_LARGE:
            raise SerializationError(answer.message)
        if answer.verdict is Verdict.INVALID:
            raise NonDeterministicError(answer.message)
        return value if type(value) in _AS_THEY_ARE else _value(output, call.function)

    async def _record_failure(self, call: StepCall, seq: int, started: float, error: BaseException) -> None:
        """Records a failed step, unless the run goes on elsewhere, where the step has to be run again."""
        if self.stop_order is not None and self.stop_order.reason.is_lost:
            return
        canceled = isinstance(error, (asyncio.CancelledError, RunCanceledError))
        failure = self._failure(error)
        if canceled:
            failure = Failure("CancelledError", "the step was canceled", "canceled", "", "python")
        elapsed = time.monotonic() - started
        report = StepReport(self.token, len(self._recorded), call.name, seq, None, failure, elapsed)
        if canceled:
            self._link.report(report)  # the handler is on its way out; the order on the wire is kept
        else:
            await self._report_step(report)

    async def _report_step(self, report: StepReport) -> Answer:
        """Reports a step; when it is answered the step is on record."""
        answer = await self._link.report(report)
        if answer.verdict in (Verdict.OK, Verdict.DUPLICATE, Verdict.CONFLICT):
            self._recorded.add(report.name)
        if answer.verdict in (Verdict.LEASE_LOST, Verdict.MOVED):
            self.stop(Stop(self.token, StopReason.LEASE_LOST))
            raise asyncio.CancelledError("the run was lost")
        return answer

    def _payload(self, what: str, value: Value) -> Payload:
        try:
            data = converter.encode(value)
        except SerializationError as error:
            raise SerializationError(f"{what} {error}") from None
        if len(data) > self._max_payload_bytes:
            limit = self._max_payload_bytes
            raise SerializationError(f"{what} must be at most {limit} bytes of JSON; it has {len(data)}")
        return Payload(data)


_AS_THEY_ARE: Final = (str, int, bool, type(None))


def _check(call: StepCall) -> None:
    check_name("step name", call.name)
    if call.timeout is not None and not (math.isfinite(call.timeout) and call.timeout > 0):
        raise InvalidInputError(f"timeout must be a positive number of seconds; got {call.timeout}")


def _value(payload: Payload | None, function: Function) -> Value:
    if payload is None:
        return None
    return converter.decode(payload.data, _return_type(function))


@functools.lru_cache(maxsize=1024)
def _return_type(function: Function) -> object:
    """The annotation of what a function returns; anything when it has none that can be read."""
    try:
        return typing.get_type_hints(inspect.unwrap(function)).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return Any


def _raised_again(failure: Failure) -> Exception:
    """What a recorded failure raises when the handler comes to it again: the built-in of its name, if it is one."""
    error = StepFailedError(f"{failure.type}: {failure.message}", failure)
    builtin = getattr(__import__("builtins"), failure.type, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        try:
            again = builtin(failure.message)
        except Exception:  # one that takes other arguments
            return error
        again.__cause__ = error
        return again
    return error
