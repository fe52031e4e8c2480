"""Steps of one delivery that wait, and those that have an effect elsewhere. On the worker's loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from redflow_sdk import converter
from redflow_sdk._around import AroundRun
from redflow_sdk._failures import child_error
from redflow_sdk._messages import (
    Answer,
    BeginWaits,
    ChildTarget,
    Emit,
    EventTarget,
    RunStart,
    Start,
    StepKind,
    StepSnapshot,
    StepState,
    TimerTarget,
    TokenTarget,
    Verdict,
    Wait,
)
from redflow_sdk._open_waits import always
from redflow_sdk._race import check_no_member, current_member
from redflow_sdk._step_calls import ChildCall, EmitCall, WaitCall
from redflow_sdk._step_gate import StepGate
from redflow_sdk._step_log import StepLog
from redflow_sdk._suspension import Suspension, refusal_of
from redflow_sdk._types import Value
from redflow_sdk.errors import NonDeterministicError, SerializationError

KIND_OF: Final = {
    TimerTarget: StepKind.TIMER,
    EventTarget: StepKind.EVENT,
    ChildTarget: StepKind.CHILD,
    TokenTarget: StepKind.TOKEN,
}


class WaitSteps:
    """Waits, and the runs and events that steps start."""

    def __init__(self, log: StepLog, gate: StepGate, suspension: Suspension, around: AroundRun) -> None:
        self._log = log
        self._gate = gate
        self._suspension = suspension
        self._around = around
        self._tokens: dict[str, Wait] = {}

    async def wait(self, call: WaitCall) -> Value:
        """What the step waits for."""
        self._gate.check_wait(call.name)
        target = call.target
        if isinstance(target, ChildTarget):
            target = ChildTarget(self._outgoing(call.name, target.start))
        known, seq = self._log.take(call.name, KIND_OF[type(target)])
        if isinstance(target, ChildTarget) and known is None and not self._log.is_open(call.name):
            target = ChildTarget(self._with_headers(target.start))
        known = await self._outcome(Wait(call.name, seq, target, call.timeout), known)
        return call.read(known, self._log.sealing.describe)

    def _outgoing(self, name: str, start: RunStart) -> RunStart:
        """A start as it leaves. Raises CodecError, SerializationError."""
        return replace(start, input=self._log.outgoing(f"the input of step {name!r}", start.input))

    def _with_headers(self, start: RunStart) -> RunStart:
        """A start that is not on record. Raises what middleware raises."""
        return replace(start, input=self._around.started("run", start.workflow, start.input))

    async def pause(self, name: str, delay_s: float) -> None:
        """Waits before another try of a function. No race is about that, although the function may be in one."""
        self._gate.check_wait(name)
        known, seq = self._log.take(name, StepKind.TIMER)
        if known is None:
            await self._suspension.wait_for(Wait(name, seq, TimerTarget(delay_s=delay_s)))

    async def _outcome(self, wait: Wait, known: StepSnapshot | None) -> StepSnapshot:
        member = current_member()
        if member is not None:
            known = await member.enter(wait.name, lambda: self._log.outcome_of(wait.name))
            wait = replace(wait, group=member.group)
        if known is None:
            known = await self._suspension.wait_for(wait, always if member is None else member.may_begin)
        if member is not None:
            member.outcome = known
        if known.state is StepState.WITHDRAWN:
            raise NonDeterministicError(f"step {wait.name!r} has lost a race before, which has ended its wait")
        return await self._whole(known)

    async def _whole(self, known: StepSnapshot) -> StepSnapshot:
        """A step on record with its value; while that is fetched the handler is not at rest."""
        if not known.is_by_reference:
            return await self._log.whole(known)
        await self._gate.begin()
        try:
            return await self._log.whole(known)
        finally:
            self._gate.end()

    # ---- tokens ----

    async def token(self, name: str, timeout: float | None) -> str:
        """The token of a step, which waits from now on."""
        self._gate.check_wait(name)
        await self._gate.begin()
        try:
            _, seq = self._log.take(name, StepKind.TOKEN)
            self._tokens[name] = wait = Wait(name, seq, TokenTarget(), timeout)
            token = self._log.token_of(name)
            if not token:
                answer = await self._log.command(BeginWaits(self._log.token, self._log.recorded, (wait,)))
                step = _only_step(answer)
                token = step.token
                if step.is_finished:
                    self._log.note(step)
            return token
        finally:
            self._gate.end()

    async def completed(self, call: WaitCall) -> Value:
        """What the token of a step was completed with."""
        self._gate.check_wait(call.name)
        known = await self._outcome(self._tokens[call.name], self._log.outcome_of(call.name))
        self._log.note(known)
        return call.read(known, self._log.sealing.describe)

    # ---- effects ----

    async def emit(self, call: EmitCall) -> list[str]:
        """A step that emits an event: the ids of the runs it starts."""
        self._gate.check_open(call.name)
        check_no_member(call.name)
        payload = self._log.outgoing(f"the payload of step {call.name!r}", call.payload)
        await self._gate.begin()
        try:
            known, seq = self._log.take(call.name, StepKind.EMIT)
            if known is None:
                payload = self._around.started("event", call.event, payload)
                emit = Emit(
                    *(self._log.token, self._log.recorded, call.name, seq, call.event, call.key, payload),
                    *(call.idempotency_key, call.idempotency_ttl, call.available_at),
                )
                known = _only_step(await self._log.report(emit))
            known = await self._log.whole(known)
        finally:
            self._gate.end()
        assert known.output is not None
        ids: list[str] = converter.decode(known.output.data, list[str])
        return ids

    async def start(self, call: ChildCall) -> str:
        """A step that starts a run without waiting for it: its id."""
        self._gate.check_open(call.name)
        check_no_member(call.name)
        start = self._outgoing(call.name, call.start)
        await self._gate.begin()
        try:
            known, seq = self._log.take(call.name, StepKind.START)
            if known is None:
                token, recorded = self._log.token, self._log.recorded
                command = Start(token, recorded, call.name, seq, self._with_headers(start), call.ends_with_parent)
                known = _only_step(await self._log.report(command))
        finally:
            self._gate.end()
        if known.failure is not None:
            raise child_error(self._log.sealing.opened_failure(known.failure))
        return known.child_run_id


def _only_step(answer: Answer) -> StepSnapshot:
    """The step that an effect has recorded. Raises when the gateway refuses it."""
    if answer.verdict is Verdict.TOO_LARGE:
        raise SerializationError(answer.message)
    if not answer.resolutions:
        raise refusal_of(answer)
    return answer.resolutions[0]
