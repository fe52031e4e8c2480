"""Verbs about leases: how they are given, kept, and ended by their holders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from redflow_server.domain.leases import (
    AbortRun,
    Claim,
    Claimed,
    ClaimedRun,
    CompleteRun,
    EndFailing,
    FailAttempt,
    Lane,
    LeaseEnded,
    LeaseStanding,
    LeaseToRenew,
    Outcome,
    Release,
    ReleaseReason,
    Stamp,
    Standing,
    Stop,
    StopReason,
)
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.store import codec
from tests.oracle.model import views
from tests.oracle.model.moves import (
    begin_failing,
    end_lease,
    has_started,
    home_of,
    judge,
    lose,
    miss,
    progress,
    settle,
    take_up,
    verdict,
)
from tests.oracle.model.places import earliest, lanes
from tests.oracle.model.recording import Refused, judge_final, under_lease, write_final
from tests.oracle.model.starts import input_of
from tests.oracle.model.world import Moment, RunOnRecord

CLAIM_BYTES = 1024 * 1024
INLINE_STEPS, INLINE_STEP_BYTES = 64, 64 * 1024
MAX_SKIPPED = 100
"""Runs that a claim looks at beyond those that it may give."""


# ---- claim ----


@dataclass
class Claiming:
    """How far a claim has come."""

    claim: Claim
    found: list[ClaimedRun] = field(default_factory=list)
    size: int = 0
    seen: int = 0
    is_full: bool = False


def claim(moment: Moment, request: Claim) -> Claimed:
    """From its lanes in turn, an equal share of each at a time, as far as the answer has room."""
    progress = Claiming(request)
    share = math.ceil(request.count / len(request.lanes))
    while True:
        before = progress.seen
        for lane in request.lanes:
            room = min(share, request.count - len(progress.found))
            if room > 0 and not progress.is_full:
                _take(moment, progress, lane, room)
        is_done = progress.is_full or progress.seen == before or len(progress.found) >= request.count
        if is_done or progress.seen > request.count + MAX_SKIPPED:
            break
    filled = lanes(moment.world)
    emptied = tuple(lane for lane in request.lanes if lane not in filled)
    return Claimed(tuple(progress.found), emptied, moment.world.lane_seq)


def _take(moment: Moment, progress: Claiming, lane: Lane, room: int) -> None:
    standing = lanes(moment.world).get(lane, {})
    granted, overdue = [], []
    for _, run_id in earliest(standing)[:room]:
        run = moment.world.runs[run_id]
        progress.seen += 1
        if verdict(moment, run, RunStatus.QUEUED) is not RunStatus.QUEUED:
            overdue.append(run)
            continue
        progress.size += len(run.input) + (run.steps_bytes if _goes_inline(run) else 0)
        progress.is_full = progress.size > CLAIM_BYTES and bool(progress.found or granted)
        if progress.is_full:
            break
        granted.append(run)
    for run in granted:
        _grant(moment, progress.claim, run)
    # They have left the lane with the others.
    for run in overdue:
        run.status = RunStatus.RUNNING
    for run in overdue:
        # The end of one may have been the end of another.
        if not run.has_ended:
            settle(moment, run, RunStatus.QUEUED)
    progress.found += [_claimed(moment, progress.claim, lane, run) for run in granted]


def _goes_inline(run: RunOnRecord) -> bool:
    return len(run.steps) <= INLINE_STEPS and run.steps_bytes <= INLINE_STEP_BYTES


def _grant(moment: Moment, request: Claim, run: RunOnRecord) -> None:
    known = moment.world.workflows.get(run.workflow)
    run.status = RunStatus.RUNNING
    run.attempt = run.failures + 1
    run.deliveries += 1
    run.token, run.stamp = f"{run.id}.{request.secret}", request.stamp
    run.lease_ends_at = moment.now + request.lease_ms
    run.retry_policy = known.retry_policy if known else ""
    run.handler_ms = known.handler_ms if known else None
    if run.started_at is None:
        run.started_at = moment.now
        if known and known.definition.run_timeout_ms:
            run.run_deadline = moment.now + known.definition.run_timeout_ms
            run.look_again_at = None


def _claimed(moment: Moment, request: Claim, lane: Lane, run: RunOnRecord) -> ClaimedRun:
    return ClaimedRun(
        run_id=run.id,
        lease_token=f"{run.id}.{request.secret}",
        lane=lane,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        deliveries=run.deliveries,
        input=input_of(run.input, run.input_meta),
        steps=views.steps_of(run) if _goes_inline(run) else None,
        run_time_left_ms=None if run.run_deadline is None else run.run_deadline - moment.now,
        parent_run_id=run.parent,
        failure=codec.decode_failure(run.error) if run.is_failing else None,
    )


# ---- renew ----


def renew(
    moment: Moment, stamp: Stamp, leases: Sequence[LeaseToRenew], lease_ms: int, grace_ms: int
) -> tuple[LeaseStanding, ...]:
    return tuple(_renew_one(moment, stamp, lease, lease_ms, grace_ms) for lease in leases)


def _renew_one(moment: Moment, stamp: Stamp, lease: LeaseToRenew, lease_ms: int, grace_ms: int) -> LeaseStanding:
    token, open_waits = lease.listed.lease_token, lease.listed.open_waits
    run = moment.run(lease.run_id)
    if run is None or run.token != token:
        is_finished = run is not None and run.ended_token == token
        return LeaseStanding(token, Standing.FINISHED if is_finished else Standing.LOST)
    assert run.stamp is not None
    if run.stamp != stamp and run.stamp.epoch >= stamp.epoch:
        return LeaseStanding(token, Standing.MOVED)
    run.stamp = stamp
    stop, since = _order_to_stop(run)
    if stop is None or moment.now - since <= grace_ms:
        run.lease_ends_at = moment.now + lease_ms
        run.is_acked, run.undelivered = True, 0
        has_started(run)
    over = tuple(name for name in open_waits if _is(run, name) not in (None, StepStatus.WAITING))
    unknown = tuple(name for name in open_waits if _is(run, name) is None)
    return LeaseStanding(token, Standing.HELD, stop, run.is_solo, over, unknown)


def _is(run: RunOnRecord, step: str) -> StepStatus | None:
    return run.steps[step].status if step in run.steps else None


def _order_to_stop(run: RunOnRecord) -> tuple[Stop | None, int]:
    if run.cancel_requested_at is not None:
        return Stop(run.token, StopReason.USER, run.cancel_reason), run.cancel_requested_at
    if run.timeout_requested_at is not None:
        return Stop(run.token, StopReason.TIMEOUT), run.timeout_requested_at
    return None, 0


# ---- ends ----


def _holder_of(moment: Moment, end: CompleteRun | FailAttempt | AbortRun) -> RunOnRecord | LeaseEnded:
    """The run, if its worker may end the lease with this result."""
    run = under_lease(moment, end.run_id, end.lease_token)
    if isinstance(run, Refused):
        return run.as_lease_ended
    if run.is_failing and not isinstance(end, AbortRun):
        return LeaseEnded(Outcome.RUN_FAILURE_HANDLER)
    if run.steps_done < end.steps_recorded:
        return LeaseEnded(Outcome.STEPS_MISSING)
    if refused := judge_final(run, end.final_steps):
        return refused.as_lease_ended
    return run


def complete(moment: Moment, end: CompleteRun) -> LeaseEnded:
    run = _holder_of(moment, end)
    if isinstance(run, LeaseEnded):
        return run
    conflicts = write_final(moment, run, end.final_steps)
    if verdict(moment, run, RunStatus.SUCCEEDED) is RunStatus.SUCCEEDED:
        if run.failures:
            run.error = None
        if end.output is not None:
            run.output, run.output_meta = end.output.data, codec.encode_meta(end.output)
    return LeaseEnded(Outcome.OK, settle(moment, run, RunStatus.SUCCEEDED), conflicts)


def backoff_ms(policy: str, attempt: int, jitter: float) -> int:
    """Before the attempt after this one: 250 ms doubled up to 30 s and up to 100 ms more, or as registered."""
    if not policy:
        return math.floor(min(30_000, 250 * 2.0 ** (attempt - 1)) + 100 * jitter)
    initial, multiplier, maximum, ratio = map(float, policy.split())
    delay = min(maximum, initial * multiplier ** (attempt - 1))
    return math.floor(delay + delay * ratio * jitter)


def fail(moment: Moment, end: FailAttempt) -> LeaseEnded:
    run = _holder_of(moment, end)
    if isinstance(run, LeaseEnded):
        return run
    conflicts = write_final(moment, run, end.final_steps)
    run.error = codec.encode_failure(end.failure)
    take_up(run)
    if not end.failure.may_be_retried or run.attempt >= run.max_attempts:
        is_plain = verdict(moment, run, RunStatus.SUCCEEDED) is RunStatus.SUCCEEDED
        if is_plain and begin_failing(moment, run):
            return LeaseEnded(Outcome.RUN_FAILURE_HANDLER)
        return LeaseEnded(Outcome.OK, settle(moment, run, RunStatus.FAILED), conflicts)
    delay_ms = end.failure.next_retry_delay_ms
    if delay_ms is None:
        delay_ms = backoff_ms(run.retry_policy, run.attempt, end.jitter)
    run.failures = run.attempt
    progress(run)
    run.place = None
    wanted = RunStatus.SCHEDULED if delay_ms > 0 else RunStatus.QUEUED
    return LeaseEnded(Outcome.OK, settle(moment, run, wanted, moment.now + delay_ms), conflicts)


def abort(moment: Moment, end: AbortRun) -> LeaseEnded:
    run = _holder_of(moment, end)
    if isinstance(run, LeaseEnded):
        return run
    conflicts = write_final(moment, run, end.final_steps)
    wanted = RunStatus.CANCELED if end.is_worker_stopped and not run.is_failing else RunStatus.FAILED
    status = verdict(moment, run, wanted)
    failure = codec.encode_failure(end.failure)
    if status is RunStatus.FAILED and run.is_failing:
        run.handler_error, run.failure_handler = failure, HandlerState.FAILED
    elif status is RunStatus.FAILED:
        run.error = failure
    if status is RunStatus.CANCELED and not run.cancel_reason:
        run.cancel_reason = end.reason
    return LeaseEnded(Outcome.OK, settle(moment, run, wanted), conflicts)


def end_failing(moment: Moment, end: EndFailing) -> LeaseEnded:
    run = under_lease(moment, end.run_id, end.lease_token)
    if isinstance(run, Refused):
        return run.as_lease_ended
    if not run.is_failing:
        return LeaseEnded(Outcome.NOT_ALLOWED)
    run.failure_handler = HandlerState.FAILED if end.failure else HandlerState.DONE
    if end.failure:
        run.handler_error = codec.encode_failure(end.failure)
    return LeaseEnded(Outcome.OK, settle(moment, run, RunStatus.FAILED))


def _after_release(moment: Moment, run: RunOnRecord, reason: ReleaseReason) -> RunStatus:
    """Where it goes. That a worker rejected it is no delivery without progress."""
    if reason in (ReleaseReason.NOT_STARTED, ReleaseReason.OVERLOADED):
        run.fruitful += 1
        return home_of(run)
    if reason is ReleaseReason.UNDELIVERED:
        return miss(moment, run)
    if run.is_parked:
        return home_of(run)
    return lose(moment, run) if reason is ReleaseReason.VANISHED else judge(moment, run)


def release(moment: Moment, request: Release) -> LeaseEnded:
    """At no cost in attempts. A gateway takes back only what carries its stamp; to the holder that is lost."""
    run = under_lease(moment, request.run_id, request.lease_token)
    if isinstance(run, Refused):
        return run.as_lease_ended
    is_undelivered = request.reason is ReleaseReason.UNDELIVERED
    if (request.stamp and run.stamp != request.stamp) or (is_undelivered and run.is_acked):
        return LeaseEnded(Outcome.MOVED)
    if run.steps_done < request.steps_recorded:
        return LeaseEnded(Outcome.STEPS_MISSING)
    wanted = _after_release(moment, run, request.reason)
    if wanted is RunStatus.QUEUED and request.delay_ms > 0:
        wanted = RunStatus.SCHEDULED
    if request.stamp:
        end_lease(run)
    return LeaseEnded(Outcome.OK, settle(moment, run, wanted, moment.now + request.delay_ms))
