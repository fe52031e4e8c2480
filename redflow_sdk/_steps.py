"""The steps of one delivery: each is run once, and recorded before the handler goes on. On the worker's loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from redflow_sdk import converter
from redflow_sdk._failures import child_error, raised_again
from redflow_sdk._messages import Emit, StepKind, StepReport, StepSnapshot, Verdict, Wait
from redflow_sdk._names import check_name
from redflow_sdk._step_calls import ChildCall, EmitCall, StepCall
from redflow_sdk._step_log import StepLog
from redflow_sdk._suspension import RunSuspended, Suspension, refusal_of
from redflow_sdk._threads import Outcome, Threads
from redflow_sdk._types import Function, Value
from redflow_sdk.errors import (
    InvalidInputError,
    NonRetriableError,
    RunCanceledError,
    SerializationError,
    StepFailedError,
)
from redflow_sdk.records import Failure, Payload

_AS_THEY_ARE: Final = (str, int, bool, type(None))
ENDS_OF_PROGRAMS: Final = (SystemExit, KeyboardInterrupt)
_step_at_work: Final[ContextVar[str | None]] = ContextVar("step_at_work", default=None)
"""The step whose function is called."""


class DeliverySteps:
    """Runs the steps that a handler asks for."""

    def __init__(self, log: StepLog, threads: Threads, suspension: Suspension) -> None:
        self.log = log
        self.suspension = suspension
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._for_threads: set[asyncio.Task[Outcome]] = set()

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""
        return self.log.stop_order is not None

    def close(self) -> None:
        """The handler has ended: no step begins any more, and no wait goes on."""
        self._is_closed = True
        self.suspension.close()

    def cancel_for_threads(self) -> None:
        """Cancels what a handler in a thread waits for, which itself cannot be interrupted."""
        for task in self._for_threads - {asyncio.current_task()}:
            task.cancel()

    # ---- functions ----

    async def run_step(self, call: StepCall) -> Value:
        """A step of an async handler."""
        self._check(call)
        await self._begin()
        try:
            known, seq = self.log.take(call.name, StepKind.FUNCTION)
            if known is not None:
                return await self._replay(known, call.function)
            return await self._run(call, seq)
        finally:
            self.suspension.end_step()

    async def _begin(self) -> None:
        """A step is at work, as soon as one may be. Raises CancelledError when none may any more."""
        while True:
            if self.is_stopped:
                raise asyncio.CancelledError("the run was canceled")
            if self.suspension.begin_step():
                return
            await self.suspension.decided()

    async def _run(self, call: StepCall, seq: int) -> Value:
        started = time.monotonic()
        try:
            async with asyncio.timeout(call.timeout):
                value = await self._call(call)
        except BaseException as error:  # recorded, and raised again to the handler
            await self._record_failure(call, seq, started, error)
            if isinstance(error, ENDS_OF_PROGRAMS):
                # Raised in a task of a TaskGroup, it would end the whole program.
                failure = self.log.failure(error)
                raise StepFailedError(f"{failure.type}: {failure.message}", failure) from error
            raise
        return await self._record_success(call, seq, started, value)

    async def _call(self, call: StepCall) -> Value:
        outer = _step_at_work.set(call.name)
        try:
            if inspect.iscoroutinefunction(call.function):
                return await call.function(*call.args, **call.kwargs)
            bound = functools.partial(call.function, *call.args, **call.kwargs)
            value = await self._threads.run_step(bound)
            return await value if inspect.isawaitable(value) else value
        finally:
            _step_at_work.reset(outer)

    def run_step_blocking(self, call: StepCall) -> Value:
        """A step of a handler in a thread: a `def` function runs right there, the rest on the worker's loop."""
        if inspect.iscoroutinefunction(call.function):
            return self._on_loop(self.run_step(call))
        self._check(call)
        if self.is_stopped or not self.suspension.begin_step():
            self._on_loop(self._begin())
        try:
            known, seq = self.log.take(call.name, StepKind.FUNCTION)
            if known is not None:
                return self._on_loop(self._replay(known, call.function))
            return self._run_blocking(call, seq)
        finally:
            self.suspension.end_step()

    def _run_blocking(self, call: StepCall, seq: int) -> Value:
        started = time.monotonic()
        outer = _step_at_work.set(call.name)
        try:
            value = call.function(*call.args, **call.kwargs)
            if call.timeout is not None and time.monotonic() - started > call.timeout:
                raise TimeoutError(f"step {call.name!r} took longer than {call.timeout} s")
        except BaseException as error:  # recorded, and raised again to the handler
            self._on_loop(self._record_failure(call, seq, started, error))
            raise
        finally:
            _step_at_work.reset(outer)
        return self._on_loop(self._record_success(call, seq, started, value))

    def _check(self, call: StepCall) -> None:
        check_name("step name", call.name)
        if call.timeout is not None and not (math.isfinite(call.timeout) and call.timeout > 0):
            raise InvalidInputError(f"timeout must be a positive number of seconds; got {call.timeout}")
        self._check_open(call.name)

    def _check_open(self, name: str) -> None:
        if self._is_closed and not self.is_stopped:
            raise RuntimeError(f"step {name!r} begins after its handler has returned; await what you start")

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
            if self.suspension.is_over:
                return Outcome(error=RunSuspended())
            canceled = RunCanceledError("the run was canceled")
            canceled.__cause__ = error
            return Outcome(error=canceled)
        except BaseException as error:  # raised again in the thread that waits
            return Outcome(error=error)
        finally:
            self._for_threads.discard(task)

    async def _replay(self, known: StepSnapshot, function: Function) -> Value:
        known = await self.log.whole(known)
        if known.succeeded:
            return _value(known.output, function)
        assert known.failure is not None
        raise raised_again(known.failure)

    # ---- other runs ----

    async def run_child(self, call: ChildCall) -> Value:
        """A step that starts a run and waits for its end."""
        self._check_wait(call.name)
        if self.is_stopped:
            raise asyncio.CancelledError("the run was canceled")
        start = replace(call.start, input=self.log.within_limit(f"the input of step {call.name!r}", call.start.input))
        known, seq = self.log.take(call.name, StepKind.CHILD)
        if known is None:
            known = await self.suspension.wait_for(Wait(call.name, seq, start), self.log.is_open(call.name))
            self.log.add(call.name)
        known = await self._whole(known)
        if known.succeeded:
            return None if known.output is None else converter.decode(known.output.data, call.output_type)
        assert known.failure is not None
        raise child_error(known.failure)

    def _check_wait(self, name: str) -> None:
        self._check_open(name)
        within = _step_at_work.get()
        if within is not None:
            # The run is not set aside while a step is at work, and this one would be until the wait is over.
            raise NonRetriableError(
                f"step {name!r} waits for a run within step {within!r}, which would never end; wait in the handler"
            )

    async def _whole(self, known: StepSnapshot) -> StepSnapshot:
        """A step on record with its value; while that is fetched the handler is not at rest."""
        if not known.is_by_reference:
            return known
        await self._begin()
        try:
            return await self.log.whole(known)
        finally:
            self.suspension.end_step()

    async def emit(self, call: EmitCall) -> list[str]:
        """A step that emits an event: the ids of the runs it starts."""
        self._check_open(call.name)
        payload = self.log.within_limit(f"the payload of step {call.name!r}", call.payload)
        await self._begin()
        try:
            known, seq = self.log.take(call.name, StepKind.EMIT)
            if known is None:
                known = await self._emit(replace(call, payload=payload), seq)
            known = await self.log.whole(known)
        finally:
            self.suspension.end_step()
        assert known.output is not None
        ids: list[str] = converter.decode(known.output.data, list[str])
        return ids

    async def _emit(self, call: EmitCall, seq: int) -> StepSnapshot:
        emit = Emit(
            *(self.log.token, self.log.recorded, call.name, seq, call.event, call.payload),
            *(call.idempotency_key, call.idempotency_ttl, call.available_at),
        )
        answer = await self.log.report(emit)
        if answer.verdict is Verdict.TOO_LARGE:
            raise SerializationError(answer.message)
        if not answer.resolutions:
            raise refusal_of(answer)
        return answer.resolutions[0]

    def run_child_blocking(self, call: ChildCall) -> Value:
        """The same for a handler in a thread."""
        self._check_wait(call.name)
        return self._on_loop(self.run_child(call))

    def emit_blocking(self, call: EmitCall) -> list[str]:
        """The same for a handler in a thread."""
        ids: list[str] = self._on_loop(self.emit(call))
        return ids

    # ---- what a function did ----

    async def _record_success(self, call: StepCall, seq: int, started: float, value: Value) -> Value:
        try:
            output = self.log.payload(f"the value of step {call.name!r}", value)
        except SerializationError as error:
            await self._record_failure(call, seq, started, error)
            raise
        answer = await self.log.report(self._report(call, seq, started, output))
        if answer.verdict is Verdict.CONFLICT and answer.stored is not None:
            return _value(answer.stored.output, call.function)
        if answer.verdict is Verdict.TOO_LARGE:
            raise SerializationError(answer.message)
        if answer.verdict is Verdict.INVALID:
            raise refusal_of(answer)
        return value if type(value) in _AS_THEY_ARE else _value(output, call.function)

    async def _record_failure(self, call: StepCall, seq: int, started: float, error: BaseException) -> None:
        """Records a failed step, unless the run goes on elsewhere, where the step has to be run again."""
        stop = self.log.stop_order
        if stop is not None and stop.reason.is_lost:
            return
        if isinstance(error, (asyncio.CancelledError, RunCanceledError)):
            canceled = Failure("CancelledError", "the step was canceled", "canceled", "", "python")
            # Not final: its handler has seen no failure of it, and a replay calls it again.
            report = replace(self._report(call, seq, started, canceled), is_final=False)
            self.log.report_on_the_way_out(report)
        else:
            await self.log.report(self._report(call, seq, started, self.log.failure(error)))

    def _report(self, call: StepCall, seq: int, started: float, outcome: Payload | Failure) -> StepReport:
        return StepReport(
            lease_token=self.log.token,
            steps_recorded=self.log.recorded,
            name=call.name,
            seq=seq,
            output=outcome if isinstance(outcome, Payload) else None,
            failure=outcome if isinstance(outcome, Failure) else None,
            elapsed_s=time.monotonic() - started,
            is_final=isinstance(outcome, Failure),
        )


def _value(payload: Payload | None, function: Function) -> Value:
    if payload is None:
        return None
    return converter.decode(payload.data, converter.result_type(function))
