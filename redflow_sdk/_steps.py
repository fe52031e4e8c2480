"""The functions of one delivery's steps: each is called once, and recorded before the handler goes on. On the worker's
loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Final

from redflow_sdk import converter
from redflow_sdk._around import AroundRun
from redflow_sdk._contained import ENDS_OF_PROGRAMS
from redflow_sdk._failures import raised_again
from redflow_sdk._handler_thread import HandlerThread
from redflow_sdk._messages import Answer, StepKind, StepReport, StepSnapshot, Verdict
from redflow_sdk._names import check_name
from redflow_sdk._race import Member, current_member
from redflow_sdk._retries import Rest, delay_before_next, pause_name
from redflow_sdk._step_calls import StepCall
from redflow_sdk._step_gate import StepGate, step_at_work
from redflow_sdk._step_log import StepLog
from redflow_sdk._suspension import Suspension, refusal_of
from redflow_sdk._threads import Threads
from redflow_sdk._types import Function, Value
from redflow_sdk._wait_steps import WaitSteps
from redflow_sdk.errors import CodecError, InvalidInputError, RunCanceledError, SerializationError, StepFailedError
from redflow_sdk.records import Failure, Payload
from redflow_sdk.retry import RetryPolicy

log = logging.getLogger("redflow.worker")

WAITED_OUT_S: Final = 1.0
"""A longer pause before another try is a wait of the run, which takes up no slot."""


class TriedInVain(Exception):
    """A try has failed and is on record; another one follows."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"another try follows after {delay_s} s")
        self.delay_s = delay_s


@dataclass(slots=True)
class Step:
    """A step that its handler waits for. `tries` are the calls of its function in this attempt of the run."""

    call: StepCall
    seq: int
    known: StepSnapshot | None
    member: Member | None
    tries: int
    pause_s: float = WAITED_OUT_S
    """How long it rests before the next try, if it is not on record since when."""
    began_at: float = 0.0

    def on_record(self) -> StepSnapshot | None:
        """Its outcome in an earlier delivery: no one else calls its function meanwhile."""
        return self.known

    @property
    def number(self) -> str:
        """Which try it is, of how many."""
        return f"{self.tries} of {self.call.retry.max_attempts if self.call.retry else 1}"

    def next_try(self) -> Step:
        """The function is called once more."""
        self.tries += 1
        self.began_at = time.monotonic()
        return self


class FunctionSteps:
    """Runs the functions that a handler asks for."""

    def __init__(
        self,
        log: StepLog,
        gate: StepGate,
        threads: Threads,
        suspension: Suspension,
        waits: WaitSteps,
        *,
        around: AroundRun,
        rest: Rest,
    ) -> None:
        self._log = log
        self._gate = gate
        self._threads = threads
        self._suspension = suspension
        self._waits = waits
        self._around = around
        self._rest = rest

    def check(self, call: StepCall) -> None:
        """Raises InvalidInputError, and RuntimeError for a step that begins after its handler has returned."""
        check_name("step name", call.name)
        if call.timeout is not None and not (math.isfinite(call.timeout) and call.timeout > 0):
            raise InvalidInputError(f"timeout must be a positive number of seconds; got {call.timeout}")
        if call.retry is not None and not isinstance(call.retry, RetryPolicy):
            raise InvalidInputError(f"retry must be a RetryPolicy; got {ascii(call.retry)[:100]}")
        self._gate.check_open(call.name)

    async def run(self, call: StepCall) -> Value:
        """A step of an async handler."""
        self.check(call)
        step: Step | None = None
        while True:
            if not self._gate.begins_at_once():
                await self._gate.begin()
            try:
                if step is None:
                    # What is called within the function of a member is no member.
                    step = self._take(call, None if step_at_work.get() else current_member())
                    if step.member is not None:
                        await step.member.enter(call.name, step.on_record)
                if step.known is not None:
                    return await self._replay(step.known, call.function)
                if not self._is_paused(step):
                    return await self._try(step.next_try())
            except TriedInVain as again:
                assert step is not None
                step.pause_s = again.delay_s
                if again.delay_s < WAITED_OUT_S:
                    await self._rest(again.delay_s)
                    continue
            finally:
                self._gate.end()
            await self._waits.pause(self._pause_of(step), step.pause_s)

    def _take(self, call: StepCall, member: Member | None) -> Step:
        known, seq = self._log.take(call.name, StepKind.FUNCTION)
        return Step(call, seq, known, member, self._log.tries_of(call.name))

    def _is_paused(self, step: Step) -> bool:
        """Whether a delivery before has begun to wait for the next try, and that is not over."""
        return step.tries > 0 and self._log.is_open(self._pause_of(step))

    def _pause_of(self, step: Step) -> str:
        return pause_name(step.call.name, self._log.attempt, step.tries + 1)

    async def _try(self, step: Step) -> Value:
        try:
            value = await self._call_in_time(step)
        except BaseException as error:  # recorded, and raised again to the handler
            delay_s = delay_before_next(step.call.retry, step.tries, error)
            await self._record_raised(step, error, delay_s)
            if delay_s is not None:
                raise TriedInVain(delay_s) from error
            if isinstance(error, ENDS_OF_PROGRAMS):
                # Raised in a task of a TaskGroup, it would end the whole program.
                failure = self._log.failure(error)
                raise StepFailedError(f"{failure.type}: {failure.message}", failure) from error
            raise
        return await self._record_success(step, value)

    async def _call_in_time(self, step: Step) -> Value:
        if step.call.timeout is None:
            return await self._call(step)
        async with asyncio.timeout(step.call.timeout):
            return await self._call(step)

    async def _call(self, step: Step) -> Value:
        outer = step_at_work.set(step.call.name)
        try:
            if self._around.has_steps:
                return await self._around.step(
                    step.call.name, step.tries, functools.partial(self._result_of, step.call)
                )
            return await self._result_of(step.call)
        finally:
            step_at_work.reset(outer)

    async def _result_of(self, call: StepCall) -> Value:
        if inspect.iscoroutinefunction(call.function):
            return await call.function(*call.args, **call.kwargs)
        bound = functools.partial(call.function, *call.args, **call.kwargs)
        value = await self._threads.run_step(bound)
        return await value if inspect.isawaitable(value) else value

    async def _replay(self, known: StepSnapshot, function: Function) -> Value:
        known = await self._log.whole(known)
        if known.succeeded:
            return self._value(known.output, function)
        assert known.failure is not None
        raise raised_again(known.failure)

    # ---- what a function did ----

    async def _record_success(self, step: Step, value: Value) -> Value:
        call = step.call
        try:
            output = self._log.payload(f"the value of step {call.name!r}", value)
        except (SerializationError, CodecError) as error:
            await self._record_failure(step, error)
            raise
        answer = await self._recorded(step, self._report(step, output))
        if answer.verdict is Verdict.CONFLICT and answer.stored is not None:
            return self._value(answer.stored.output, call.function)
        if answer.verdict is Verdict.TOO_LARGE:
            raise SerializationError(answer.message)
        if answer.verdict is Verdict.INVALID:
            raise refusal_of(answer)
        if converter.comes_back_the_same(value, converter.result_type(call.function)):
            return value
        # As a replay reads it, so that a handler sees one value whatever happens.
        return self._value(output, call.function)

    async def _record_raised(self, step: Step, error: BaseException, delay_s: float | None) -> None:
        """Records what a function has raised, by when it is tried again: a try, or the failure of its step."""
        if isinstance(error, (asyncio.CancelledError, RunCanceledError)):
            self._record_canceled(step)
        elif delay_s is None:
            await self._record_failure(step, error)
        else:
            await self._record_try(step, error, delay_s)

    def _record_canceled(self, step: Step) -> None:
        if not self._goes_on_elsewhere:
            canceled = Failure("CancelledError", "the step was canceled", "canceled", "", "python")
            # Not final: its handler has seen no failure of it, and a replay calls it again.
            self._log.report_on_the_way_out(self._report(step, canceled))

    async def _record_try(self, step: Step, error: BaseException, delay_s: float) -> None:
        if not self._goes_on_elsewhere:
            failure = self._log.failure(error)
            log.warning(
                *("step %r of run %s failed in try %s, again in %.1f s: %s: %s", step.call.name, self._log.run_id),
                *(step.number, delay_s, failure.type, failure.message[:200]),
            )
            await self._log.report(self._report(step, failure))

    async def _record_failure(self, step: Step, error: BaseException) -> None:
        """The step has failed for this attempt."""
        if not self._goes_on_elsewhere:
            failure = self._log.failure(error)
            if step.tries > 1:
                log.warning(
                    *("step %r of run %s failed in try %s, its last: %s: %s", step.call.name, self._log.run_id),
                    *(step.number, failure.type, failure.message[:200]),
                )
            await self._recorded(step, replace(self._report(step, failure), is_final=True))

    @property
    def _goes_on_elsewhere(self) -> bool:
        """Whether the run does, where the step has to be run again: what it has raised here is not recorded."""
        stop = self._log.stop_order
        return stop is not None and stop.reason.is_lost

    def _recorded(self, step: Step, report: StepReport) -> Coroutine[Value, Value, Answer]:
        """The answer to how the step has ended."""
        return self._log.report(report) if step.member is None else self._recorded_in_race(step.member, report)

    async def _recorded_in_race(self, member: Member, report: StepReport) -> Answer:
        """The answer says who was before it."""
        with member.reporting():
            rivals = tuple(rival.step_name for rival in member.rivals)
            answer = await self._log.report(replace(report, rivals=rivals))
        member.lost_to = tuple(rival for rival in answer.resolutions if self._log.decides(rival))
        self._suspension.overtaken(answer.resolutions)
        return answer

    def _report(self, step: Step, outcome: Payload | Failure) -> StepReport:
        return StepReport(
            lease_token=self._log.token,
            steps_recorded=self._log.recorded,
            name=step.call.name,
            seq=step.seq,
            output=outcome if isinstance(outcome, Payload) else None,
            failure=self._log.sealed(outcome) if isinstance(outcome, Failure) else None,
            elapsed_s=time.monotonic() - step.began_at,
            is_final=False,
            tries=step.tries,
        )

    # ---- in a thread ----

    def run_in_thread(self, call: StepCall, threads: HandlerThread) -> Value:
        """A `def` step of a `def` handler: it runs right there, the rest on the worker's loop."""
        self.check(call)
        step: Step | None = None
        while True:
            if not self._gate.begins_at_once():
                threads.on_loop(self._gate.begin())
            try:
                step = step or self._take(call, None)
                if step.known is not None:
                    return threads.on_loop(self._replay(step.known, call.function))
                if not self._is_paused(step):
                    return self._try_in_thread(step.next_try(), threads)
            except TriedInVain as again:
                assert step is not None
                step.pause_s = again.delay_s
                if again.delay_s < WAITED_OUT_S:
                    threads.on_loop(self._rest(again.delay_s))
                    continue
            finally:
                self._gate.end()
            threads.on_loop(self._waits.pause(self._pause_of(step), step.pause_s))

    def _try_in_thread(self, step: Step, threads: HandlerThread) -> Value:
        call = step.call
        outer = step_at_work.set(call.name)
        try:
            value = self._called_in_thread(step, threads)
            if call.timeout is not None and time.monotonic() - step.began_at > call.timeout:
                raise TimeoutError(f"step {call.name!r} took longer than {call.timeout} s")
        except BaseException as error:  # recorded, and raised again to the handler
            delay_s = delay_before_next(call.retry, step.tries, error)
            threads.on_loop(self._record_raised(step, error, delay_s))
            if delay_s is not None:
                raise TriedInVain(delay_s) from error
            raise
        finally:
            step_at_work.reset(outer)
        return threads.on_loop(self._record_success(step, value))

    def _called_in_thread(self, step: Step, threads: HandlerThread) -> Value:
        call = step.call
        bound = functools.partial(call.function, *call.args, **call.kwargs)
        if not self._around.has_steps:
            return bound()
        return threads.with_calls(lambda here: self._around.step(call.name, step.tries, lambda: here(bound)))

    def _value(self, payload: Payload | None, function: Function) -> Value:
        if payload is None:
            return None
        return self._log.sealing.read("the value of a step", payload, converter.result_type(function))
