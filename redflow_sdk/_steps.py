"""The steps of one delivery: each is run once, and recorded before the handler goes on. On the worker's loop."""

from __future__ import annotations

import asyncio
import builtins
import functools
import inspect
import math
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Final

from redflow_sdk import converter
from redflow_sdk._failures import failure_of, fitted
from redflow_sdk._link import Link
from redflow_sdk._messages import Answer, Assignment, StepReport, StepSnapshot, Stop, Verdict
from redflow_sdk._names import check_name
from redflow_sdk._threads import Outcome, Threads
from redflow_sdk._types import Function, Value
from redflow_sdk.context import StepCall
from redflow_sdk.errors import (
    DuplicateStepError,
    InvalidInputError,
    NonDeterministicError,
    RunCanceledError,
    SerializationError,
    StepFailedError,
)
from redflow_sdk.records import Failure, Payload


class StepLog:
    """What is on record of a run, and what this delivery adds."""

    def __init__(
        self,
        assignment: Assignment,
        link: Link,
        threads: Threads,
        max_payload_bytes: int,
        on_lost: Callable[[], None],
    ) -> None:
        """`on_lost` is called when the gateway answers that the run is no longer this worker's."""
        self.stop_order: Stop | None = None
        """Why the handler has to end, when it has to."""
        self._token = assignment.lease_token
        self._attempt = assignment.attempt
        self._link = link
        self._threads = threads
        self._max_payload_bytes = max_payload_bytes
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._used: set[str] = set()
        # Steps of `def` handlers begin in threads.
        self._names_lock = threading.Lock()
        self._for_threads: set[asyncio.Task[Outcome]] = set()
        self._know(assignment.steps)

    def _know(self, steps: tuple[StepSnapshot, ...]) -> None:
        self._on_record = {step.name: step for step in steps}
        self._recorded = set(self._on_record)
        self._next_seq = max((step.seq for step in steps), default=0)

    async def fetch_all(self) -> None:
        """Learns all steps on record, when the assignment could not carry them. Raises CancelledError."""
        steps = await self._link.steps_on_record(self._token)
        if steps is None:
            raise asyncio.CancelledError("the run was lost")
        self._know(steps)

    @property
    def recorded(self) -> int:
        """How many steps are on record."""
        return len(self._recorded)

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""
        return self.stop_order is not None

    def close(self) -> None:
        """The handler has ended: no step begins any more."""
        self._is_closed = True

    def cancel_for_threads(self) -> None:
        """Cancels what a handler in a thread waits for, which itself cannot be interrupted."""
        for task in self._for_threads - {asyncio.current_task()}:
            task.cancel()

    async def run_step(self, call: StepCall) -> Value:
        """A step of an async handler."""
        self._check(call)
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
            if isinstance(error, ENDS_OF_PROGRAMS):
                # Raised in a task of a TaskGroup, it would end the whole program.
                failure = self.failure(error)
                raise StepFailedError(f"{failure.type}: {failure.message}", failure) from error
            raise
        return await self._record_success(call, seq, started, value)

    def run_step_blocking(self, call: StepCall) -> Value:
        """A step of a handler in a thread: a `def` function runs right there, the rest on the worker's loop."""
        if inspect.iscoroutinefunction(call.function):
            return self._on_loop(self.run_step(call))
        self._check(call)
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

    def _check(self, call: StepCall) -> None:
        check_name("step name", call.name)
        if call.timeout is not None and not (math.isfinite(call.timeout) and call.timeout > 0):
            raise InvalidInputError(f"timeout must be a positive number of seconds; got {call.timeout}")
        if self._is_closed and not self.is_stopped:
            raise RuntimeError(f"step {call.name!r} begins after its handler has returned; await what you start")

    def _on_loop(self, work: Coroutine[Value, Value, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(self._outcome_of(work), self._loop).result().get()

    async def _outcome_of(self, work: Coroutine[Value, Value, Value]) -> Outcome:
        """What became of it, as a value: a task that raised SystemExit would end the loop."""
        task = asyncio.current_task()
        assert task is not None
        self._for_threads.add(task)
        try:
            return Outcome(await work)
        except asyncio.CancelledError as error:
            canceled = RunCanceledError("the run was canceled")
            canceled.__cause__ = error
            return Outcome(error=canceled)
        except BaseException as error:  # raised again in the thread that waits
            return Outcome(error=error)
        finally:
            self._for_threads.discard(task)

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
        failed_here = known.is_final and known.attempt == self._attempt
        return (known if known.succeeded or failed_here else None), known.seq

    async def _call(self, call: StepCall) -> Value:
        if inspect.iscoroutinefunction(call.function):
            return await call.function(*call.args, **call.kwargs)
        bound = functools.partial(call.function, *call.args, **call.kwargs)
        value = await self._threads.run_step(bound)
        return await value if inspect.isawaitable(value) else value

    async def _replay(self, known: StepSnapshot, function: Function) -> Value:
        if known.is_by_reference:
            fetched = await self._link.step_on_record(self._token, known.name)
            if fetched is None:
                self._on_lost()
                raise asyncio.CancelledError("the run was lost")
            known = fetched
        if known.succeeded:
            return _value(known.output, function)
        assert known.failure is not None
        raise _raised_again(known.failure)

    async def _record_success(self, call: StepCall, seq: int, started: float, value: Value) -> Value:
        try:
            output = self.payload(f"the value of step {call.name!r}", value)
        except SerializationError as error:
            await self._record_failure(call, seq, started, error)
            raise
        elapsed = time.monotonic() - started
        report = StepReport(self._token, self.recorded, call.name, seq, output, None, elapsed, is_final=False)
        answer = await self._report_step(report)
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
        failure = self.failure(error)
        if canceled:
            failure = Failure("CancelledError", "the step was canceled", "canceled", "", "python")
        elapsed = time.monotonic() - started
        report = StepReport(self._token, self.recorded, call.name, seq, None, failure, elapsed, is_final=True)
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
            self._on_lost()
            raise asyncio.CancelledError("the run was lost")
        return answer

    def failure(self, error: BaseException) -> Failure:
        """An exception as it is stored."""
        return fitted(failure_of(error), self._max_payload_bytes)

    def payload(self, what: str, value: Value) -> Payload:
        """A value as it is stored. Raises SerializationError, which names it by `what`."""
        try:
            data = converter.encode(value)
        except SerializationError as error:
            raise SerializationError(f"{what} {error}") from None
        if len(data) > self._max_payload_bytes:
            limit = self._max_payload_bytes
            raise SerializationError(f"{what} must be at most {limit} bytes of JSON; it has {len(data)}")
        return Payload(data)


_AS_THEY_ARE: Final = (str, int, bool, type(None))
ENDS_OF_ITERATORS: Final = (StopIteration, StopAsyncIteration)
ENDS_OF_PROGRAMS: Final = (SystemExit, KeyboardInterrupt)


def _value(payload: Payload | None, function: Function) -> Value:
    if payload is None:
        return None
    return converter.decode(payload.data, converter.result_type(function))


def _raised_again(failure: Failure) -> Exception:
    """What a recorded failure raises when the handler comes to it again: the built-in of its name, if it is one."""
    error = StepFailedError(f"{failure.type}: {failure.message}", failure)
    builtin = getattr(builtins, failure.type, None)
    # What ends iterators may not be raised out of a coroutine.
    if isinstance(builtin, type) and issubclass(builtin, Exception) and not issubclass(builtin, ENDS_OF_ITERATORS):
        try:
            again = builtin(failure.message)
        except TypeError:  # it takes other arguments
            return error
        again.__cause__ = error
        return again
    return error
