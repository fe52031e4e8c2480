"""How a run gets from one place to another, and to its end; what its end means for others is in `effects.py`."""

from __future__ import annotations

from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import RunStatus
from redflow_server.store import codec
from tests.oracle.model.world import Moment, RunOnRecord

RUN_TIMEOUT = codec.encode_failure(
    Failure("RunTimeoutError", "the run took longer than its run time-out", FailureKind.TIMEOUT)
)
START_TIMEOUT = codec.encode_failure(
    Failure("StartTimeoutError", "no worker started the run within its start time-out", FailureKind.TIMEOUT)
)
WORKER_LOST = codec.encode_failure(
    Failure("WorkerLostError", "workers were lost with the run too often", FailureKind.WORKER_LOST)
)
UNKNOWN_WORKFLOW = codec.encode_failure(
    Failure("UnknownWorkflowError", "no worker knows the workflow", FailureKind.UNKNOWN_WORKFLOW)
)
MISSES_OF_A_LOSS = 5
MAX_LOSSES_IN_ALL = 50
MAX_FRUITLESS = 100
"""Deliveries since the last progress, those apart that were rejected."""


def enter_lane(moment: Moment, run: RunOnRecord) -> None:
    """Queued: by priority, then in order of arrival; a run that comes back has its place."""
    world = moment.world
    run.status, run.available_at = RunStatus.QUEUED, None
    if run.place is None:
        world.run_seq += 1
        run.place = world.run_seq - run.priority * 2**42
    note_filled(moment, run)


def note_filled(moment: Moment, run: RunOnRecord) -> None:
    """A lane that was empty gets a number, the first of all from the time."""
    world = moment.world
    others = (one for one in world.runs.values() if one.status is RunStatus.QUEUED and one.lane == run.lane)
    if any(one is not run for one in others):
        return
    world.lane_seq = world.lane_seq + 1 if world.lane_seq else moment.now * 1000
    world.lane_changes[run.lane] = world.lane_seq


def enter_schedule(run: RunOnRecord, at: int) -> None:
    run.status, run.available_at = RunStatus.SCHEDULED, at


def end_lease(run: RunOnRecord, ended_as: str = "") -> None:
    """With `ended_as` the holder gave it back, and hears that when it repeats the item; else it was taken away."""
    run.ended_token, run.ended_as = (run.token, ended_as) if ended_as else ("", "")
    run.token, run.stamp, run.lease_ends_at = "", None, None
    run.is_acked = run.is_parked = run.is_woken = False


def take_up(run: RunOnRecord) -> None:
    """The worker has it, and its handler is at work."""
    run.is_acked, run.is_parked, run.is_woken = True, False, False
    has_started(run)


def has_started(run: RunOnRecord) -> None:
    if run.start_deadline is not None:
        run.start_deadline = run.look_again_at = None


def lose(moment: Moment, run: RunOnRecord) -> RunStatus:
    """A worker was lost with it: where it goes."""
    run.losses += 1
    run.losses_total += 1
    return judge(moment, run)


def judge(moment: Moment, run: RunOnRecord) -> RunStatus:
    """Where a run goes that comes back without progress; one that the next time would end is delivered alone."""
    fruitless = run.deliveries - run.fruitful
    most = moment.max_losses
    if run.losses <= most and run.losses_total <= MAX_LOSSES_IN_ALL and fruitless <= MAX_FRUITLESS:
        has_one_left = run.losses_total >= MAX_LOSSES_IN_ALL or fruitless >= MAX_FRUITLESS
        run.is_solo = has_one_left or 0 < run.losses >= most
        return RunStatus.QUEUED
    if not run.is_failing:
        run.error = WORKER_LOST
    return RunStatus.FAILED


def miss(moment: Moment, run: RunOnRecord) -> RunStatus:
    """Nobody acknowledged its delivery: where it goes."""
    run.undelivered += 1
    if run.undelivered < MISSES_OF_A_LOSS:
        return judge(moment, run)
    run.undelivered = 0
    return lose(moment, run)


def progress(run: RunOnRecord) -> None:
    """It has come further: what was counted against it counts no more."""
    run.losses = run.undelivered = 0
    run.is_solo = False
    if run.deliveries > 1:
        run.fruitful = run.deliveries


def home_of(run: RunOnRecord) -> RunStatus:
    """Where a run goes that is taken from its worker without progress."""
    waits_on = run.is_parked and not run.is_woken and run.waits
    return RunStatus.WAITING if waits_on else RunStatus.QUEUED


def is_late(moment: Moment, run: RunOnRecord) -> bool:
    """Whether its run time-out has passed; in phase failing it had before."""
    over = run.run_deadline is not None and run.run_deadline <= moment.now
    return (over or run.timeout_requested_at is not None) and not run.is_failing


def verdict(moment: Moment, run: RunOnRecord, wanted: RunStatus) -> RunStatus:
    """Where a run goes whose lease ends: a cancel wins, then a time-out."""
    if run.cancel_requested_at is not None:
        return RunStatus.CANCELED
    return RunStatus.FAILED if is_late(moment, run) else wanted


def begin_failing(moment: Moment, run: RunOnRecord) -> bool:
    """Whether its failure handler is to be run now; it gets counts and a deadline of its own."""
    if run.is_failing or run.handler_ms is None:
        return False
    run.is_failing = True
    run.failing_deadline = moment.now + run.handler_ms
    progress(run)
    run.losses_total = 0
    run.run_deadline = run.start_deadline = run.timeout_requested_at = run.look_again_at = None
    return True


def settle(moment: Moment, run: RunOnRecord, wanted: RunStatus, at: int | None = None) -> RunStatus:
    """Ends the lease, if there is one, and brings the run to where it goes."""
    status = verdict(moment, run, wanted)
    if run.cancel_requested_at is None and is_late(moment, run):
        run.error = RUN_TIMEOUT
    if status is RunStatus.FAILED and begin_failing(moment, run):
        status = RunStatus.QUEUED
    if run.token:
        end_lease(run, ended_as=status)
    if status.is_terminal:
        finish(moment, run, status)
    elif status is RunStatus.WAITING:
        run.status = status
    else:
        run.placed_at = moment.now
        if status is RunStatus.QUEUED:
            enter_lane(moment, run)
        else:
            assert at is not None
            enter_schedule(run, at)
    return status


def finish(moment: Moment, run: RunOnRecord, status: RunStatus) -> None:
    """Ends a run: only what is of interest afterwards stays, and others hear of it."""
    from tests.oracle.model import effects  # the end of a run may be the end of others, which is a circle

    had_waits, had_children, was_awaited = bool(run.waits), bool(run.children), run.is_awaited
    if run.is_failing and run.failure_handler is None:
        run.failure_handler = HandlerState.NOT_RUN
    run.status = status
    run.finished_at = run.purge_from = max(moment.now, run.started_at or 0)
    run.place = run.placed_at = run.available_at = run.event_seq = None
    run.run_deadline = run.start_deadline = run.failing_deadline = None
    run.look_again_at = run.timeout_requested_at = run.handler_ms = None
    run.losses = run.undelivered = run.resolutions = run.fruitful = 0
    run.retry_policy = ""
    run.is_typed = run.is_failing = run.is_awaited = run.is_solo = False
    run.waiters, run.cursors = [], {}
    if had_waits:
        effects.withdraw_waits(moment, run)
    if had_children:
        effects.close_children(moment, run)
    if was_awaited:
        effects.wake_awaiters(moment, run.id)
