"""Waits begin: which of them are new, what they are for, and those that are over at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from redflow_sdk._messages import (
    Answer,
    ChildTarget,
    EventTarget,
    StepKind,
    StepSnapshot,
    StepState,
    TimerTarget,
    TokenTarget,
    Verdict,
    Wait,
)
from redflow_sdk._wait_steps import KIND_OF
from redflow_sdk.records import Failure
from redflow_sdk.testing._clock import Due, milliseconds
from redflow_sdk.testing._ends import Outcome, outcome_of, resolve, time_out, withdraw_rivals
from redflow_sdk.testing._events import channel_of, take_event
from redflow_sdk.testing._starts import run_to_await
from redflow_sdk.testing._world import OpenWait, RunRecord, StepRecord, World

MAX_STEPS: Final = 10_000
NOT_ALLOWED: Final = Answer(
    Verdict.INVALID,
    "NOT_ALLOWED",
    "this is not to be done while the failure handler of a run runs, or only then",
)


def refusal(run: RunRecord, name: str, kind: StepKind) -> Answer | None:
    """Why a step of this name and kind cannot be put on record; None when it can."""
    if run.is_failing:
        return NOT_ALLOWED
    there = run.steps.get(name)
    if there is None and len(run.steps) >= MAX_STEPS:
        return Answer(Verdict.INVALID, "TOO_MANY_STEPS", f"the run has too many steps to record step {name!r}")
    if there is not None and there.snapshot.kind is not kind:
        return Answer(Verdict.INVALID, "NON_DETERMINISTIC", f"step {name!r} is on record as another kind of step")
    return None


def refusal_of_waits(run: RunRecord, waits: Iterable[Wait]) -> Answer | None:
    """Why these waits cannot begin; None when they can."""
    for wait in waits:
        refused = refusal(run, wait.name, KIND_OF[type(wait.target)])
        open_wait = run.waits.get(wait.name)
        if refused is None and open_wait is not None and _differs(open_wait.wait, wait):
            what = f"step {wait.name!r} is on record as another kind of step"
            refused = Answer(Verdict.INVALID, "NON_DETERMINISTIC", what)
        if refused is not None:
            return refused
    return None


def _differs(known: Wait, wait: Wait) -> bool:
    return channel_of(known.target) != channel_of(wait.target)


def begin(world: World, run: RunRecord, waits: Sequence[Wait]) -> None:
    """Registers waits. Of a race whose first wait is over at once the rest does not begin."""
    decided = {wait.group for wait in waits if wait.group and wait.name in run.steps and wait.name not in run.waits}
    for wait in waits:
        open_wait = run.waits.get(wait.name)
        if open_wait is not None and wait.group:
            open_wait.wait = replace(open_wait.wait, group=wait.group)
    for group in decided:
        withdraw_rivals(world, run, group)
    for wait in waits:
        if wait.name in run.steps:
            continue
        if wait.group in decided:
            _put_on_record(world, run, wait, StepState.WITHDRAWN)
            continue
        _begin(world, run, wait)
        if wait.group and wait.name not in run.waits:
            decided.add(wait.group)


def _begin(world: World, run: RunRecord, wait: Wait) -> None:
    record = _put_on_record(world, run, wait, StepState.WAITING)
    open_wait = run.waits[wait.name] = OpenWait(wait, next(world.numbers), _due(world, run, wait))
    match wait.target:
        case ChildTarget(start=start):
            found = run_to_await(world, run, wait.name, start)
            if isinstance(found, Failure):
                resolve(world, run, wait.name, Outcome(failure=found))
                return
            record.snapshot = replace(record.snapshot, child_run_id=found.id)
            open_wait.child = found
            if found.has_ended:
                resolve(world, run, wait.name, outcome_of(found))
            else:
                found.awaited_by.append((run, wait.name))
        case EventTarget(event=event, key=key):
            world.awaited_events.add(event)
            take_event(world, run, wait.name, (event, key))
        case TokenTarget():
            record.snapshot = replace(record.snapshot, token=f"tok_{run.id}.{wait.name}")
            world.on_token(run, wait.name)
        case TimerTarget():
            if open_wait.due is not None and open_wait.due.at_ms <= world.now_ms:
                resolve(world, run, wait.name, Outcome())


def _due(world: World, run: RunRecord, wait: Wait) -> Due | None:
    """When a wait is over at the latest."""
    call = partial(time_out, world, run, wait.name)
    if isinstance(wait.target, TimerTarget):
        if wait.target.until is not None:
            return world.clock.at(world.clock.ms_of(wait.target.until), call)
        return world.clock.after(wait.target.delay_s or 0.0, call)
    return None if wait.timeout_s is None else world.clock.at(world.now_ms + milliseconds(wait.timeout_s), call)


def _put_on_record(world: World, run: RunRecord, wait: Wait, state: StepState) -> StepRecord:
    snapshot = StepSnapshot(wait.name, wait.seq, state, run.attempt, kind=KIND_OF[type(wait.target)])
    ended_ms = world.now_ms if state is StepState.WITHDRAWN else None
    run.steps[wait.name] = record = StepRecord(snapshot, world.now_ms, ended_ms)
    return record


def ended(run: RunRecord, names: Iterable[str]) -> tuple[StepSnapshot, ...]:
    """Of the waits of a run, those that are over."""
    known = (run.steps[name].snapshot for name in names)
    return tuple(step for step in known if step.state is not StepState.WAITING)
