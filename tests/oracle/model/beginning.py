"""How waits begin: what one means beside those on record, and that one may be over at once."""

from __future__ import annotations

from redflow_server.domain.leases import Outcome
from redflow_server.domain.names import MAX_STEPS
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, TokenWait, Wait
from tests.oracle.model.effects import NOTHING, failed_with, outcome_of, resolve, withdraw_group
from tests.oracle.model.effects import Outcome as WaitOutcome
from tests.oracle.model.emission import take_event
from tests.oracle.model.moves import take_up
from tests.oracle.model.recording import Refused
from tests.oracle.model.starts import closes_a_circle, named_by_step
from tests.oracle.model.world import Moment, OpenWait, RunOnRecord, StepOnRecord


def refuse(run: RunOnRecord, waits: tuple[Wait, ...]) -> Refused | None:
    """Why none of the waits may begin."""
    if run.is_failing:
        return Refused(Outcome.NOT_ALLOWED)
    new = 0
    for wait in waits:
        there = run.steps.get(wait.name)
        if there is None:
            if len(run.steps) + new >= MAX_STEPS:
                return Refused(Outcome.TOO_MANY_STEPS, wait.name)
            new += 1
        elif there.kind is not wait.kind or _is_for_another_event(run, wait):
            return Refused(Outcome.NON_DETERMINISTIC, wait.name)
    return None


def _is_for_another_event(run: RunOnRecord, wait: Wait) -> bool:
    is_open = wait.name in run.waits and isinstance(wait.target, EventWait)
    return is_open and run.waits[wait.name].target != wait.target.channel  # type: ignore[union-attr]  # is an event


def begin(moment: Moment, run: RunOnRecord, waits: tuple[Wait, ...]) -> None:
    """Of a race that is decided the rest does not begin; a repeat of an open wait changes only its race."""
    known = {wait.name: run.steps[wait.name] for wait in waits if wait.name in run.steps}
    decided = {wait.group for wait in waits if wait.name in known and wait.name not in run.waits and wait.group}
    for wait in waits:
        if wait.name in run.waits and wait.name in known and wait.group:
            run.waits[wait.name].group = wait.group
    for group in sorted(decided):
        withdraw_group(moment, run, group)
    for wait in waits:
        if wait.name in known:
            continue
        if wait.group in decided:
            _begin_withdrawn(moment, run, wait)
            continue
        _begin_new(moment, run, wait)
        if wait.group and wait.name not in run.waits:
            decided.add(wait.group)
    take_up(run)


def _begin_withdrawn(moment: Moment, run: RunOnRecord, wait: Wait) -> None:
    run.steps[wait.name] = StepOnRecord(
        StepStatus.WITHDRAWN, wait.kind, wait.seq, run.attempt, moment.now, finished_at=moment.now
    )


def _begin_new(moment: Moment, run: RunOnRecord, wait: Wait) -> None:
    match wait.target:
        case TimerWait():
            opened = _open(moment, run, wait, "")
            if opened.deadline is not None and opened.deadline <= moment.now:
                resolve(moment, run, wait.name, NOTHING)
        case TokenWait(token=token):
            _open(moment, run, wait, token)
        case EventWait(channel=channel):
            opened = _open(moment, run, wait, channel)
            if not take_event(moment, run, wait.name):
                opened.number = moment.world.event_seq = (moment.world.event_seq or 0) + 1
        case ChildWait():
            _begin_for_run(moment, run, wait, wait.target)


def _open(moment: Moment, run: RunOnRecord, wait: Wait, target: str) -> OpenWait:
    deadline = None if wait.timeout_ms is None else moment.now + wait.timeout_ms
    if isinstance(wait.target, TimerWait) and wait.target.until_ms is not None:
        deadline = wait.target.until_ms
    opened = OpenWait(
        wait.kind, moment.now, None if deadline is None else max(moment.now, deadline), wait.group, target
    )
    run.waits[wait.name] = opened
    shown = "" if wait.kind is StepKind.EVENT else target
    run.steps[wait.name] = StepOnRecord(StepStatus.WAITING, wait.kind, wait.seq, run.attempt, moment.now, target=shown)
    return opened


def _begin_for_run(moment: Moment, run: RunOnRecord, wait: Wait, target: ChildWait) -> None:
    child = named_by_step(moment, run, target.start)
    if isinstance(child, WaitOutcome):
        # A workflow that nobody has registered is no run to point at.
        _open(moment, run, wait, "" if target.start.workflow else target.start.run_id)
        resolve(moment, run, wait.name, child)
        return
    _open(moment, run, wait, child.id)
    if not child.has_ended and closes_a_circle(moment, run, child):
        message = f"run {child.id} waits for the run that would wait for it"
        resolve(moment, run, wait.name, failed_with("await_cycle", "AwaitCycleError", message))
        return
    if child.has_ended and not moment.is_full:
        outcome = outcome_of(child)
        moment.count_effect(len(outcome.value))
        resolve(moment, run, wait.name, outcome)
        return
    child.awaiters.add((run.id, wait.name))
    if child.has_ended:
        moment.put_off("wake", child.id)
    else:
        child.is_awaited = True
