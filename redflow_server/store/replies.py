"""What the scripts' answers mean, for those that need more than a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from redflow_server.domain.errors import NotWaiting, PrefixTaken, TokenNotFound
from redflow_server.domain.events import EmittedEvent
from redflow_server.domain.leases import (
    Claim,
    Claimed,
    ClaimedRun,
    LeaseEnded,
    LeaseStanding,
    ListedLease,
    Outcome,
    Standing,
    StepRecorded,
    Stop,
    StopReason,
    Suspended,
)
from redflow_server.domain.registry import Registered, RegistrationResult, RegistrationStatus, Workflow
from redflow_server.domain.runs import LaneDepth, RunPage, Stats, Step
from redflow_server.domain.schedules import DueSchedule, DueSchedules, Schedule
from redflow_server.domain.states import RunStatus
from redflow_server.store import codec, codec_registry
from redflow_server.store.codec import Reply
from redflow_server.store.keys import lane_of

OUTCOMES: Final = {outcome.encode(): outcome for outcome in Outcome}
STATUSES: Final = {status.encode(): status for status in RunStatus}
_NAMES_STEP: Final = (Outcome.NON_DETERMINISTIC, Outcome.TOO_MANY_STEPS)


@dataclass(frozen=True, slots=True)
class Due:
    """When the next thing of each kind is due, by Redis' clock, and the lanes that have filled, with their numbers and
    the last number of all.
    """

    now_ms: int
    scheduled_at_ms: int | None
    deadline_at_ms: int | None
    lanes: tuple[tuple[str, int], ...]
    lane_change: int
    timer_at_ms: int | None = None
    cron_at_ms: int | None = None
    outbox_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """How many due things a pass dealt with, and when the next one is due."""

    count: int
    next_at_ms: int | None


@dataclass(frozen=True, slots=True)
class FannedOut:
    """Subscribers of an event whose runs a pass has started, and whether some are left."""

    count: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class Reaped:
    """Where the runs went whose leases were taken away."""

    queued: int
    waiting: int
    failed: int
    canceled: int

    @property
    def total(self) -> int:
        """How many there were."""
        return self.queued + self.waiting + self.failed + self.canceled


@dataclass(frozen=True, slots=True)
class Unknown:
    """Runs of an unknown workflow that were failed, where in the lane to go on (None at its end), and whether none is
    left in it.
    """

    failed: int
    next_offset: int | None
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Purged:
    """Runs removed, and runs looked at."""

    purged: int
    seen: int


@dataclass(frozen=True, slots=True)
class Repair:
    """What of a run was missing, and is there again."""

    run_id: str
    what: str


@dataclass(frozen=True, slots=True)
class Swept:
    """Repairs, and where to go on; None at the end."""

    next_seq: int | None
    repairs: tuple[Repair, ...]


def run_page(reply: Reply) -> RunPage:
    """Answer of list_runs."""
    next_seq, records = reply
    runs = tuple(codec.decode_run(codec.text(run_id), record) for run_id, record in records)
    return RunPage(runs, next_seq or None)


def status(reply: Reply) -> RunStatus | None:
    """Answer of watch_run."""
    return None if reply == b"missing" else RunStatus(codec.text(reply))


def claimed(claim: Claim, reply: Reply) -> Claimed:
    """Answer of claim."""
    emptied, entries, lane_change = reply
    runs = []
    for run_id, lane, attempt, max_attempts, deliveries, time_left, parent, failure, data, meta, steps in entries:
        name = codec.text(run_id)
        run = ClaimedRun(
            run_id=name,
            lease_token=f"{name}.{claim.secret}",
            lane=claim.lanes[lane],
            attempt=attempt,
            max_attempts=max_attempts,
            deliveries=deliveries,
            input=codec.decode_payload(data, meta),
            steps=None if steps is None else codec.decode_steps(steps) if steps else (),
            run_time_left_ms=codec.number(time_left) if isinstance(time_left, bytes) else time_left,
            parent_run_id=codec.text(parent),
            failure=codec.decode_failure(failure),
        )
        runs.append(run)
    left_empty = tuple(lane for lane, flag in zip(claim.lanes, emptied, strict=True) if flag)
    return Claimed(tuple(runs), left_empty, lane_change)


def standings(leases: Sequence[ListedLease], reply: Reply) -> tuple[LeaseStanding, ...]:
    """Answer of renew."""
    found = []
    for lease, answer in zip(leases, reply, strict=True):
        token, stop = lease.lease_token, None
        if len(answer) >= 3 and answer[1]:
            stop = Stop(token, StopReason(codec.text(answer[1])), codec.text(answer[2]))
        is_solo = len(answer) > 3 and bool(answer[3])
        over, unknown = (tuple(map(codec.text, names)) for names in (answer[4:] or ((), ())))
        found.append(LeaseStanding(token, Standing(codec.text(answer[0])), stop, is_solo, over, unknown))
    return tuple(found)


def step_recorded(name: bytes, reply: Reply) -> StepRecorded:
    """Answer of record_step."""
    outcome = OUTCOMES[reply[0]]
    if len(reply) < 3:
        return StepRecorded(outcome)
    stored = codec.decode_step(name, reply[3], reply[4]) if outcome is Outcome.CONFLICT else None
    return StepRecorded(outcome, reply[1] == 1, stored, rivals_over=_resolved(reply[2]))


def _resolved(entries: Reply) -> tuple[Step, ...]:
    """Waits that are over, in the order in which they ended; mostly none."""
    if not entries:
        return ()
    steps = (codec.decode_step(*entry) for entry in entries)
    return tuple(sorted(steps, key=lambda step: step.resolved_seq))


def effect_recorded(name: bytes, reply: Reply) -> StepRecorded:
    """Answer of step_emit and step_start."""
    outcome = OUTCOMES[reply[0]]
    if outcome is Outcome.OK:
        return StepRecorded(outcome, reply[1] == 1, codec.decode_step(name, reply[2], reply[3]))
    return StepRecorded(outcome, step_name=codec.text(reply[1]) if outcome in _NAMES_STEP else "")


def suspended(reply: Reply) -> Suspended:
    """Answer of suspend and step_wait."""
    outcome = OUTCOMES[reply[0]]
    match outcome:
        case Outcome.OK | Outcome.DUPLICATE if isinstance(reply[1], bytes):
            return Suspended(outcome, STATUSES[reply[1]])
        case Outcome.OK | Outcome.PARKED:
            return Suspended(outcome, cancel_requested=reply[1] == 1)
        case Outcome.RESOLVED:
            return Suspended(outcome, resolutions=_resolved(reply[2]), cancel_requested=reply[1] == 1)
        case _:
            return Suspended(outcome, step_name=codec.text(reply[1]) if outcome in _NAMES_STEP else "")


def emitted(reply: Reply) -> EmittedEvent:
    """Answer of emit_event."""
    event_id, run_ids, was_created = reply
    return EmittedEvent(codec.text(event_id), tuple(codec.text(run_ids).split()), was_created == 1)


def due_schedules(reply: Reply) -> DueSchedules:
    """Answer of due_schedules."""
    now_ms, entries, next_at = reply
    return DueSchedules(now_ms, tuple(_due_schedule(*entry) for entry in entries), codec.number(next_at))


def _due_schedule(schedule_id: bytes, occurrence: bytes, document: bytes | None) -> DueSchedule:
    due = DueSchedule(codec.text(schedule_id), codec.number(occurrence) or 0, document or b"")
    try:
        workflow, cron = codec_registry.decode_schedule(due.document)
    except (ValueError, LookupError, TypeError, AttributeError):
        return due
    return replace(due, workflow=workflow, cron=cron)


def schedules(reply: Reply) -> tuple[Schedule, ...]:
    """Answer of read_schedules."""
    found = []
    for schedule_id, document, next_at, last_at, skipped, problem in reply:
        workflow, cron = codec_registry.decode_schedule(document)
        times = codec.number(next_at), codec.number(last_at)
        found.append(
            Schedule(
                codec.text(schedule_id), workflow, cron, *times, codec.number(skipped) or 0, problem=codec.text(problem)
            )
        )
    return tuple(found)


def lease_ended(reply: Reply) -> LeaseEnded:
    """Answer of complete, fail, abort and release."""
    outcome = OUTCOMES[reply[0]]
    if outcome is Outcome.OK or outcome is Outcome.DUPLICATE:
        said = reply[2] if len(reply) > 2 else ()
        conflicts = tuple(codec.decode_step(name, header, None) for name, header in said) if said else ()
        return LeaseEnded(outcome, STATUSES[reply[1]], conflicts)
    return LeaseEnded(outcome, step_name=codec.text(reply[1]) if len(reply) > 1 else "")


def due(reply: Reply) -> Due:
    """Answer of due."""
    now_ms, scheduled, deadline, timer, cron, outbox, flat, lane_change = reply
    lanes = tuple((codec.text(name), int(change)) for name, change in zip(flat[::2], flat[1::2], strict=True))
    return Due(
        now_ms=now_ms,
        scheduled_at_ms=codec.number(scheduled),
        deadline_at_ms=codec.number(deadline),
        timer_at_ms=codec.number(timer),
        cron_at_ms=codec.number(cron),
        outbox_at_ms=codec.number(outbox),
        lanes=lanes,
        lane_change=lane_change,
    )


def passed(reply: Reply) -> Passed:
    """Answer of promote, expire, fire_timers and apply_outbox."""
    count, next_at = reply
    return Passed(count, codec.number(next_at))


def swept(reply: Reply) -> Swept:
    """Answer of sweep."""
    next_seq, repairs = reply
    return Swept(next_seq or None, tuple(Repair(codec.text(run_id), codec.text(what)) for run_id, what in repairs))


def registered(names: Sequence[str], reply: Reply) -> Registered:
    """Answer of register."""
    answers, retired = reply
    results = tuple(
        RegistrationResult(name, RegistrationStatus(codec.text(status)), former_queues=tuple(map(codec.text, former)))
        for name, (status, former) in zip(names, answers, strict=True)
    )
    return Registered(results, tuple(map(codec.text, retired)))


def workflows(reply: Reply) -> tuple[Workflow | None, ...]:
    """Answer of read_workflows."""
    return tuple(codec_registry.decode_workflow(flat) if flat else None for flat in reply)


def token_completed(reply: Reply) -> None:
    """Answer of complete_token. Raises TokenNotFound, NotWaiting."""
    if reply == b"missing":
        raise TokenNotFound
    if reply == b"not_waiting":
        raise NotWaiting


def stats(reply: Reply) -> Stats:
    """Answer of read_stats."""
    counts, lanes, lane_count, remembered, dropped = reply
    depths: Counter[tuple[str, str]] = Counter()
    for name, depth in lanes:
        lane = lane_of(codec.text(name))
        depths[lane.queue, lane.workflow] += depth
    return Stats(
        tuple(zip(RunStatus, counts, strict=True)),
        tuple(LaneDepth(*where, depth) for where, depth in depths.items()),
        lane_count - len(lanes) + len(depths),
        remembered,
        codec.number(dropped) or 0,
    )


def prefix_claimed(reply: Reply) -> None:
    """Answer of claim_prefix."""
    outcome, found = map(codec.text, reply)
    if outcome == "foreign":
        raise PrefixTaken("another engine keeps its workflows under this prefix; choose another one with --prefix")
    if outcome == "format":
        raise PrefixTaken(f"the keys under this prefix are of format {found}, which this version does not read")
