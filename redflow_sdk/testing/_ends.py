"""How attempts, runs and waits end, and where a run goes when its lease does: the rules of the gateway's scripts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from redflow_sdk._messages import ChildTarget, StepSnapshot, StepState, Stop, StopReason, TokenTarget
from redflow_sdk._retries import NEVER_RETRIED
from redflow_sdk.records import Failure, Payload, RunStatus
from redflow_sdk.retry import RetryPolicy
from redflow_sdk.testing._clock import milliseconds
from redflow_sdk.testing._world import ENDS, OpenWait, RunRecord, StepRecord, World

RUN_TIMED_OUT: Final = Failure("RunTimeoutError", "the run took longer than its run time-out", "timeout")
WORKER_LOST: Final = Failure("WorkerLostError", "workers were lost with the run too often", "worker_lost")
NOT_NEEDED: Final = "no run needs it any more"
FAILURE_HANDLER_TIMEOUT_S: Final = 300.0
DEFAULT_RETRY: Final = RetryPolicy()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a wait comes to."""

    output: Payload | None = None
    failure: Failure | None = None
    event_id: str = ""
    event_time: datetime | None = None

    @property
    def state(self) -> StepState:
        """The state of its step."""
        return StepState.FAILED if self.failure is not None else StepState.SUCCEEDED


# ---- runs ----


def settled_status(run: RunRecord, wanted: RunStatus) -> RunStatus:
    """Where a run goes: a cancel wins over everything, then a time-out."""
    if run.cancel_reason is not None:
        return "canceled"
    return "failed" if run.is_late else wanted


def settle(world: World, run: RunRecord, wanted: RunStatus, at_ms: int = 0) -> RunStatus:
    """Its lease is over; `at_ms` is when a scheduled one goes on."""
    status = settled_status(run, wanted)
    if status == "failed" and run.is_late:
        run.failure = RUN_TIMED_OUT
    if status == "failed" and begin_failing(world, run):
        status = "queued"
    run.lease = None
    if status in ENDS:
        finish(world, run, status)
        return status
    run.status = status
    if status == "queued":
        world.ready.append(run)
    elif status == "scheduled":
        run.available_ms = at_ms
        world.clock.at(at_ms, partial(promote, world, run))
    return status


def promote(world: World, run: RunRecord) -> None:
    """The time of a scheduled run has come."""
    if run.status == "scheduled":
        run.status = "queued"
        world.ready.append(run)


def begin_failing(world: World, run: RunRecord) -> bool:
    """A failed run stays open until its failure handler has run. False when it has none, or that has had its turn."""
    workflow = None if run.holder is None else run.holder.workflow
    if run.is_failing or workflow is None or workflow.on_failure is None:
        return False
    run.is_failing = True
    run.is_late = False
    _set_deadline(world, run, workflow.failure_handler_timeout or FAILURE_HANDLER_TIMEOUT_S, _end_failing)
    return True


def begin_run_timeout(world: World, run: RunRecord) -> None:
    """A run has been started for the first time."""
    timeout = None if run.holder is None else run.holder.workflow.run_timeout
    if timeout is not None:
        _set_deadline(world, run, timeout, _time_out_run)


def _set_deadline(world: World, run: RunRecord, seconds: float, call: Callable[[World, RunRecord], None]) -> None:
    if run.deadline is not None:
        run.deadline.cancel()
    run.deadline = world.clock.after(seconds, partial(call, world, run))


def _time_out_run(world: World, run: RunRecord) -> None:
    run.is_late = True
    if run.lease is not None and run.holder is not None:
        run.holder.stop(Stop(run.lease, StopReason.TIMEOUT))
        return
    leave(world, run)
    settle(world, run, "failed")


def _end_failing(world: World, run: RunRecord) -> None:
    if run.lease is not None and run.holder is not None:
        run.holder.stop(Stop(run.lease, StopReason.LEASE_LOST))
        run.lease = None
    leave(world, run)
    finish(world, run, settled_status(run, "failed"))


def leave(world: World, run: RunRecord) -> None:
    """A run without a lease is taken out of the place where it stands."""
    if run.status == "queued" and run in world.ready:
        world.ready.remove(run)


def finish(world: World, run: RunRecord, status: RunStatus) -> None:
    """Ends a run, and what only it needs; runs that wait for it go on."""
    if run.deadline is not None:
        run.deadline.cancel()
    if run.is_failing and not run.handler_state:
        run.handler_state = "not_run"
    if status == "succeeded":
        run.failure = None
    run.status, run.finished_ms = status, world.now_ms
    for open_wait in list(run.waits.values()):
        withdraw(world, run, open_wait)
    for child in run.ends_along:
        cancel_child(world, child)
    for awaiter, step_name in list(run.awaited_by):
        resolve(world, awaiter, step_name, outcome_of(run))


def cancel_child(world: World, run: RunRecord) -> None:
    """Ends a run that nobody needs any more, unless some run waits for it."""
    if run.has_ended or run.cancel_reason is not None or run.awaited_by:
        return
    run.cancel_reason = NOT_NEEDED
    if run.lease is not None and run.holder is not None:
        run.holder.stop(Stop(run.lease, StopReason.PARENT, NOT_NEEDED))
        return
    leave(world, run)
    finish(world, run, "canceled")


# ---- attempts ----


def may_be_retried(failure: Failure) -> bool:
    """Whether another attempt may follow."""
    return not failure.no_retry and failure.kind not in NEVER_RETRIED


def delay_ms(run: RunRecord, failure: Failure) -> int:
    """How long until the next attempt. There is no jitter: a play takes the same time each time."""
    if failure.retry_after is not None:
        return milliseconds(failure.retry_after)
    policy = (run.holder.workflow.retry if run.holder is not None else None) or DEFAULT_RETRY
    try:
        grown = policy.initial * policy.multiplier ** (run.attempt - 1)
    except OverflowError:
        grown = policy.maximum
    return int(min(policy.maximum, grown) * 1000)


# ---- waits ----


def resolve(world: World, run: RunRecord, name: str, outcome: Outcome) -> None:
    """Gives an open wait its outcome, for ever, and withdraws those that have lost the race against it."""
    open_wait = run.waits.get(name)
    if open_wait is None or run.has_ended:
        return
    _close(run, open_wait)
    record = run.steps[name]
    record.snapshot = replace(
        record.snapshot,
        state=outcome.state,
        attempt=run.attempt,
        is_final=True,
        output=outcome.output,
        failure=outcome.failure,
        resolved_seq=number_resolution(run),
        event_id=outcome.event_id,
        event_time=outcome.event_time,
    )
    record.ended_ms = world.now_ms
    if open_wait.wait.group:
        withdraw_rivals(world, run, open_wait.wait.group)
    if run.lease is not None and run.holder is not None:
        run.holder.resolve(run.lease, record.snapshot)
    elif run.status == "waiting":
        run.status = "queued"
        world.ready.append(run)


def number_resolution(run: RunRecord) -> int:
    """The number of what has just been over."""
    run.resolutions += 1
    return run.resolutions


def withdraw_rivals(world: World, run: RunRecord, group: str) -> None:
    """The other waits of a race that is decided."""
    for rival in [rival for rival in run.waits.values() if rival.wait.group == group]:
        withdraw(world, run, rival)


def withdraw(world: World, run: RunRecord, open_wait: OpenWait) -> None:
    """An open wait that nobody needs any more is over without an outcome; a run that only it waited for ends."""
    _close(run, open_wait)
    record: StepRecord = run.steps[open_wait.wait.name]
    record.snapshot = replace(record.snapshot, state=StepState.WITHDRAWN)
    record.ended_ms = world.now_ms
    _release_child(world, run, open_wait)


def time_out(world: World, run: RunRecord, name: str) -> None:
    """A sleep is over, no event has come, or what a wait is for took too long."""
    open_wait = run.waits.get(name)
    if open_wait is None:
        return
    match open_wait.wait.target:
        case ChildTarget():
            target = f"run {open_wait.child.id}" if open_wait.child is not None else "a run"
            outcome = Outcome(failure=_timed_out(name, target))
        case TokenTarget():
            outcome = Outcome(failure=_timed_out(name, "its token"))
        case _:
            outcome = Outcome()
    resolve(world, run, name, outcome)
    _release_child(world, run, open_wait)


def _timed_out(name: str, target: str) -> Failure:
    return Failure("TimeoutError", f'step "{name}" has waited for {target} longer than its time-out', "timeout")


def _close(run: RunRecord, open_wait: OpenWait) -> None:
    name = open_wait.wait.name
    del run.waits[name]
    if open_wait.due is not None:
        open_wait.due.cancel()
    if open_wait.child is not None:
        open_wait.child.awaited_by = [
            (awaiter, step) for awaiter, step in open_wait.child.awaited_by if awaiter is not run or step != name
        ]


def _release_child(world: World, run: RunRecord, open_wait: OpenWait) -> None:
    if open_wait.child is not None and open_wait.child.parent is run:
        cancel_child(world, open_wait.child)


def outcome_of(run: RunRecord) -> Outcome:
    """What a wait for the end of a run gets."""
    if run.status == "succeeded":
        return Outcome(output=run.output)
    if run.status == "failed":
        return Outcome(failure=Failure("ChildFailedError", f"run {run.id} has failed", cause=run.failure))
    return Outcome(failure=Failure("ChildCanceledError", f"run {run.id} was canceled", "canceled", cause=run.failure))


def write_step(world: World, run: RunRecord, snapshot: StepSnapshot) -> StepRecord:
    """Puts a step on record that is no wait."""
    snapshot = replace(snapshot, attempt=run.attempt)
    before = run.steps.get(snapshot.name)
    is_another_try = before is not None and before.snapshot.attempt == run.attempt and snapshot.tries > 1
    began_ms = before.began_ms if before is not None and is_another_try else world.now_ms
    run.steps[snapshot.name] = record = StepRecord(snapshot, began_ms, world.now_ms)
    return record
