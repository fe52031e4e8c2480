"""What becomes of the items of a worker: applied to the runs as the scripts of a gateway would, and answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from redflow_sdk import converter
from redflow_sdk._messages import (
    Answer,
    BeginWaits,
    Canceled,
    Completed,
    Emit,
    Failed,
    FailureHandled,
    Item,
    Release,
    Start,
    StepKind,
    StepReport,
    StepSnapshot,
    StepState,
    Suspend,
    Verdict,
)
from redflow_sdk.records import Failure, Payload, RunStatus
from redflow_sdk.testing import _events
from redflow_sdk.testing._ends import (
    begin_failing,
    delay_ms,
    may_be_retried,
    number_resolution,
    settle,
    settled_status,
    withdraw,
    write_step,
)
from redflow_sdk.testing._starts import named_run
from redflow_sdk.testing._waits import NOT_ALLOWED, begin, ended, refusal, refusal_of_waits
from redflow_sdk.testing._world import RunRecord, World

RUN_FAILURE_HANDLER: Final = Answer(Verdict.RUN_FAILURE_HANDLER)
STOPPED: Final = Failure("CanceledError", "the worker was stopped", "canceled")


def answer(world: World, item: Item) -> Answer:
    """Applies an item, and answers it."""
    run = next((run for run in world.runs.values() if run.lease == item.lease_token), None)
    if run is None:
        return Answer(Verdict.LEASE_LOST)
    match item:
        case StepReport():
            return _record_step(world, run, item)
        case BeginWaits():
            return _begin_waits(world, run, item)
        case Start():
            return _start(world, run, item)
        case Emit():
            return _emit(world, run, item)
        case Suspend():
            return _suspend(world, run, item)
        case Completed() | Failed() if run.is_failing:
            return RUN_FAILURE_HANDLER
        case Completed():
            run.output = item.output
            return _ended(settle(world, run, "succeeded"))
        case Failed():
            return _fail(world, run, item.failure)
        case FailureHandled():
            return _failure_handled(world, run, item)
        case Canceled():
            return _abort(world, run, item)
        case Release():
            return _ended(settle(world, run, "queued"))


# ---- steps ----


def _record_step(world: World, run: RunRecord, report: StepReport) -> Answer:
    refused = refusal(run, report.name, StepKind.FUNCTION)
    if refused is not None:
        return refused
    there = run.steps.get(report.name)
    if there is not None and there.snapshot.succeeded:
        return Answer(Verdict.CONFLICT, stored=there.snapshot)
    has_succeeded = report.failure is None
    step = StepSnapshot(
        name=report.name,
        seq=report.seq,
        state=StepState.SUCCEEDED if has_succeeded else StepState.FAILED,
        attempt=run.attempt,
        is_final=has_succeeded or report.is_final,
        output=report.output,
        failure=report.failure,
        resolved_seq=number_resolution(run) if report.rivals and (has_succeeded or report.is_final) else 0,
        tries=report.tries,
    )
    for name in report.rivals if has_succeeded else ():
        if name in run.waits:
            withdraw(world, run, run.waits[name])
    write_step(world, run, step)
    rivals = ended(run, [name for name in report.rivals if name in run.steps])
    return Answer(Verdict.OK, resolutions=tuple(rival for rival in rivals if rival.is_finished))


def _start(world: World, run: RunRecord, item: Start) -> Answer:
    refused = refusal(run, item.name, StepKind.START)
    if refused is not None:
        return refused
    found = named_run(world, run, item.name, item.start)
    step = StepSnapshot(item.name, item.seq, StepState.FAILED, run.attempt, is_final=True, kind=StepKind.START)
    if isinstance(found, Failure):
        step = replace(step, failure=found)
    else:
        output = Payload(converter.encode(found.id))
        step = replace(step, state=StepState.SUCCEEDED, output=output, child_run_id=found.id)
        if item.ends_with_parent and found.parent is run:
            run.ends_along.append(found)
    return Answer(Verdict.OK, resolutions=(write_step(world, run, step).snapshot,))


def _emit(world: World, run: RunRecord, item: Emit) -> Answer:
    refused = refusal(run, item.name, StepKind.EMIT)
    if refused is not None:
        return refused
    available_ms = None if item.available_at is None else world.clock.ms_of(item.available_at)
    event = _events.NewEvent(
        *(item.event, item.key, item.payload, available_ms, item.idempotency_key, item.idempotency_ttl)
    )
    emitted = _events.emit(world, event)
    if emitted not in world.emitted:
        world.emitted.append(emitted)
    output = Payload(converter.encode(emitted.started))
    step = StepSnapshot(item.name, item.seq, StepState.SUCCEEDED, run.attempt, is_final=True, output=output)
    return Answer(Verdict.OK, resolutions=(write_step(world, run, replace(step, kind=StepKind.EMIT)).snapshot,))


# ---- waits ----


def _begin_waits(world: World, run: RunRecord, item: BeginWaits) -> Answer:
    refused = refusal_of_waits(run, item.waits)
    if refused is not None:
        return refused
    begin(world, run, item.waits)
    names = [wait.name for wait in item.waits]
    # The token of a wait is for its worker to know while the wait is open.
    tokens = tuple(run.steps[name].snapshot for name in names if name in run.waits and run.steps[name].snapshot.token)
    over = ended(run, names) + tokens
    return Answer(Verdict.RESOLVED, resolutions=over) if over else Answer(Verdict.OK)


def _suspend(world: World, run: RunRecord, item: Suspend) -> Answer:
    if settled_status(run, "waiting") != "waiting":
        return _suspended(settle(world, run, "waiting"))
    refused = refusal_of_waits(run, item.waits)
    if refused is not None:
        return refused
    begin(world, run, item.waits)
    over = ended(run, [wait.name for wait in item.waits])
    if not over and run.steps_done > item.steps_recorded:
        over = ended(run, [step.name for step in run.snapshots if step.kind in _WAITS])
    if over or not item.waits:
        return Answer(Verdict.RESOLVED, resolutions=over)
    return _suspended(settle(world, run, "waiting"))


_WAITS: Final = (StepKind.TIMER, StepKind.EVENT, StepKind.CHILD, StepKind.TOKEN)


def _suspended(status: RunStatus) -> Answer:
    return Answer(Verdict.CANCELED if status == "canceled" else Verdict.SUSPENDED)


# ---- ends ----


def _ended(status: RunStatus) -> Answer:
    return Answer(Verdict.CANCELED if status == "canceled" else Verdict.OK)


def _fail(world: World, run: RunRecord, failure: Failure) -> Answer:
    run.failure = failure
    if not may_be_retried(failure) or run.attempt >= run.max_attempts:
        is_plain = run.cancel_reason is None and not run.is_late
        if is_plain and begin_failing(world, run):
            return RUN_FAILURE_HANDLER
        return _ended(settle(world, run, "failed"))
    run.failures = run.attempt
    delay = delay_ms(run, failure)
    return _ended(settle(world, run, "scheduled" if delay else "queued", world.now_ms + delay))


def _failure_handled(world: World, run: RunRecord, item: FailureHandled) -> Answer:
    if not run.is_failing:
        return NOT_ALLOWED
    run.handler_state = "done" if item.failure is None else "failed"
    run.handler_failure = item.failure
    return _ended(settle(world, run, "failed"))


def _abort(world: World, run: RunRecord, item: Canceled) -> Answer:
    if run.is_failing:
        run.handler_state, run.handler_failure = "failed", STOPPED
        return _ended(settle(world, run, "failed"))
    if item.is_worker_stopped and run.cancel_reason is None:
        run.cancel_reason = "the worker was stopped"
    return _ended(settle(world, run, "canceled"))
