"""Verbs about the steps of a leased run: what they did, what they wait for, what they start and emit."""

from __future__ import annotations

import json

from redflow_server.domain.leases import (
    BeginWaits,
    ClosePolicy,
    EmitStep,
    Outcome,
    RecordStep,
    StartStep,
    StepRecord,
    StepRecorded,
    Suspend,
    Suspended,
)
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store import codec
from tests.oracle.model import views
from tests.oracle.model.beginning import begin, refuse
from tests.oracle.model.effects import Outcome as WaitOutcome
from tests.oracle.model.effects import withdraw
from tests.oracle.model.emission import emit
from tests.oracle.model.moves import settle, take_up, verdict
from tests.oracle.model.recording import Refused, judge, under_lease, write
from tests.oracle.model.starts import named_by_step
from tests.oracle.model.world import Moment, RunOnRecord, StepOnRecord

WAITS = (StepKind.TIMER, StepKind.EVENT, StepKind.CHILD, StepKind.TOKEN)
REFUSING = (Outcome.NON_DETERMINISTIC, Outcome.TOO_MANY_STEPS)


def record_step(moment: Moment, record: RecordStep) -> StepRecorded:
    run = under_lease(moment, record.run_id, record.lease_token)
    step = record.step
    if isinstance(run, Refused):
        ended = moment.run(record.run_id)
        is_there = run.outcome is Outcome.DUPLICATE and ended is not None and step.name in ended.steps
        return StepRecorded(Outcome.DUPLICATE if is_there else Outcome.LEASE_LOST)
    if run.is_failing:
        return StepRecorded(Outcome.NOT_ALLOWED)
    if run.steps_done < record.steps_recorded:
        return StepRecorded(Outcome.STEPS_MISSING)
    outcome = judge(run, step)
    if outcome in REFUSING:
        return StepRecorded(outcome)
    if outcome is Outcome.OK:
        take_up(run)
        write(moment, run, step, resolved=_number_in_race(run, record))
        for rival in record.rivals if step.status is StepStatus.SUCCEEDED else ():
            if rival in run.waits:
                withdraw(moment, run, rival)
    ended_rivals = [rival for rival in record.rivals if rival in run.steps and run.steps[rival].status in views.ENDED]
    stored = views.step(step.name, run.steps[step.name]) if outcome is Outcome.CONFLICT else None
    return StepRecorded(outcome, run.cancel_requested_at is not None, stored, rivals_over=views.over(run, ended_rivals))


def _number_in_race(run: RunOnRecord, record: RecordStep) -> int:
    """The end of a step in a race is numbered with those of the waits; a failure that is reported again keeps it."""
    has_ended = record.step.status is StepStatus.SUCCEEDED or record.step.is_final
    there = run.steps.get(record.step.name)
    if not (record.rivals and has_ended):
        return 0
    _, value = codec.encode_outcome(record.step.output, record.step.failure)
    said = (record.step.status, run.attempt, value)
    if there is not None and there.resolved and (there.status, there.attempt, there.value) == said:
        return there.resolved
    run.resolutions += 1
    return run.resolutions


# ---- waits ----


def _may_wait(moment: Moment, effect: BeginWaits | Suspend) -> RunOnRecord | Suspended:
    run = under_lease(moment, effect.run_id, effect.lease_token)
    if isinstance(run, Refused):
        return Suspended(run.outcome, run.status)
    if run.steps_done < effect.steps_recorded:
        return Suspended(Outcome.STEPS_MISSING)
    return run


def step_wait(moment: Moment, effect: BeginWaits) -> Suspended:
    run = _may_wait(moment, effect)
    if isinstance(run, Suspended):
        return run
    if refused := refuse(run, effect.waits):
        return Suspended(refused.outcome, step_name=refused.step_name)
    begin(moment, run, effect.waits)
    names = [wait.name for wait in effect.waits]
    is_canceled = run.cancel_requested_at is not None
    # The token of an open wait is for its worker to know.
    tokens = [views.step(name, run.steps[name]) for name in names if _is_open_token(run, name)]
    resolutions = sorted((*views.over(run, names), *tokens), key=lambda step: (step.resolved_seq, step.name))
    outcome = Outcome.RESOLVED if resolutions else Outcome.OK
    return Suspended(outcome, resolutions=tuple(resolutions), cancel_requested=is_canceled)


def _is_open_token(run: RunOnRecord, name: str) -> bool:
    return name in run.waits and run.waits[name].kind is StepKind.TOKEN


def suspend(moment: Moment, effect: Suspend) -> Suspended:
    run = _may_wait(moment, effect)
    if isinstance(run, Suspended):
        return run
    if verdict(moment, run, RunStatus.WAITING) is not RunStatus.WAITING:
        return Suspended(Outcome.OK, settle(moment, run, RunStatus.WAITING))
    if refused := refuse(run, effect.waits):
        return Suspended(refused.outcome, step_name=refused.step_name)
    begin(moment, run, effect.waits)
    resolutions = views.over(run, [wait.name for wait in effect.waits])
    if not resolutions and run.steps_done > effect.steps_recorded:
        # It may not have heard of others that are over.
        resolutions = views.over(run, [name for name, step in run.steps.items() if step.kind in WAITS])
    if resolutions or not effect.waits:
        return Suspended(Outcome.RESOLVED, resolutions=resolutions)
    if effect.parks:
        run.is_parked = True
        return Suspended(Outcome.PARKED)
    return Suspended(Outcome.OK, settle(moment, run, RunStatus.WAITING))


# ---- effects ----


def _may_have_effect(
    moment: Moment, effect: StartStep | EmitStep, kind: StepKind
) -> tuple[RunOnRecord, Outcome] | StepRecorded:
    run = under_lease(moment, effect.run_id, effect.lease_token)
    if isinstance(run, Refused):
        return StepRecorded(run.outcome)
    if run.is_failing:
        return StepRecorded(Outcome.NOT_ALLOWED)
    if run.steps_done < effect.steps_recorded:
        return StepRecorded(Outcome.STEPS_MISSING)
    outcome = judge(run, _effect(effect, kind, b""))
    return StepRecorded(outcome, step_name=effect.name) if outcome in REFUSING else (run, outcome)


def _effect(effect: StartStep | EmitStep, kind: StepKind, value: bytes) -> StepRecord:
    output = Payload(value)
    return StepRecord(effect.name, effect.seq, kind, StepStatus.SUCCEEDED, output, None, is_final=True, elapsed_ms=0)


def _recorded(run: RunOnRecord, name: str) -> StepRecorded:
    return StepRecorded(Outcome.OK, run.cancel_requested_at is not None, views.step(name, run.steps[name]))


def step_start(moment: Moment, effect: StartStep) -> StepRecorded:
    allowed = _may_have_effect(moment, effect, StepKind.START)
    if isinstance(allowed, StepRecorded):
        return allowed
    run, outcome = allowed
    # That no such run can be started is what the step has come to, for ever.
    if outcome is not Outcome.OK or effect.name in run.steps:
        return _recorded(run, effect.name)
    take_up(run)
    child = named_by_step(moment, run, effect.start)
    if isinstance(child, WaitOutcome):
        run.steps[effect.name] = StepOnRecord(
            child.status, StepKind.START, effect.seq, run.attempt, moment.now, moment.now, True, value=child.value
        )
        return _recorded(run, effect.name)
    if effect.close_policy is ClosePolicy.CANCEL and child.parent == run.id:
        run.children.add(child.id)
    write(moment, run, _effect(effect, StepKind.START, f'"{child.id}"'.encode()), target=child.id)
    return _recorded(run, effect.name)


def step_emit(moment: Moment, effect: EmitStep) -> StepRecorded:
    allowed = _may_have_effect(moment, effect, StepKind.EMIT)
    if isinstance(allowed, StepRecorded):
        return allowed
    run, outcome = allowed
    if outcome is not Outcome.OK:
        return _recorded(run, effect.name)
    at = effect.event.available_at_ms if effect.delay_ms is None else moment.now + effect.delay_ms
    emitted = emit(moment, effect.event, at)
    take_up(run)
    value = json.dumps(emitted.run_ids, separators=(",", ":")).encode()
    write(moment, run, _effect(effect, StepKind.EMIT, value))
    return _recorded(run, effect.name)
