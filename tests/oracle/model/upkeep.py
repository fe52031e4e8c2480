"""Verbs about what is due because time has passed, and about repairs."""

from __future__ import annotations

from collections import Counter

from redflow_server.domain.ids import counted
from redflow_server.domain.leases import Lane
from redflow_server.domain.states import RunStatus, StepKind
from redflow_server.store.replies import Due, Passed, Purged, Reaped, Unknown
from tests.oracle.model import places
from tests.oracle.model.effects import (
    NOTHING,
    cancel_unneeded,
    close_children,
    failed_with,
    release,
    resolve,
    wake_awaiters,
    withdraw,
    withdraw_waits,
)
from tests.oracle.model.moves import (
    START_TIMEOUT,
    UNKNOWN_WORKFLOW,
    end_lease,
    finish,
    home_of,
    lose,
    miss,
    settle,
    verdict,
)
from tests.oracle.model.places import earliest, name_of
from tests.oracle.model.world import Moment, OpenWait, RunOnRecord

LISTED_LANES = 1000
LOOK_AGAIN_MS = 1000
OWED_MS = 60_000


def _next(times: dict[str, int]) -> int | None:
    return min(times.values(), default=None)


def _due(moment: Moment, times: dict[str, int], limit: int) -> list[str]:
    return [name for at, name in earliest(times) if at <= moment.now][:limit]


def due(moment: Moment, lane_change: int) -> Due:
    world = moment.world
    filled = places.lanes(world)
    changed = sorted((change, name_of(lane)) for lane, change in world.lane_changes.items() if lane in filled)
    crons = {name: cron.next_at for name, cron in world.crons.items() if cron.next_at is not None}
    is_behind = bool(world.fan_outs or world.deliveries)
    return Due(
        now_ms=moment.now,
        scheduled_at_ms=_next(places.scheduled(world)),
        deadline_at_ms=_next(places.deadlines(world)),
        lanes=tuple((name, change) for change, name in changed if change > lane_change)[:LISTED_LANES],
        lane_change=world.lane_seq,
        timer_at_ms=_next(places.timers(world)),
        cron_at_ms=_next(crons),
        outbox_at_ms=_next(world.outbox) or (moment.now if is_behind else None),
    )


def promote(moment: Moment, limit: int) -> Passed:
    names = _due(moment, places.scheduled(moment.world), limit)
    for name in names:
        run = moment.world.runs[name]
        run.available_at = None
        settle(moment, run, RunStatus.QUEUED)
    return Passed(len(names), _next(places.scheduled(moment.world)))


def reap(moment: Moment, lease_ms: int, quiet_ms: int, limit: int) -> Reaped:
    """Not right after nobody has looked for a while: no worker could have renewed."""
    world, counts = moment.world, Counter[str]()
    last, world.reap_last = world.reap_last, moment.now
    if last is not None and moment.now - last > quiet_ms:
        world.reap_not_before = moment.now + lease_ms
    if world.reap_not_before is not None and moment.now < world.reap_not_before <= moment.now + lease_ms:
        return Reaped(0, 0, 0, 0)
    world.reap_not_before = None
    longest = moment.now + lease_ms
    for at, name in [one for one in earliest(places.leases(world)) if one[0] > longest][:limit]:
        assert at > longest
        world.runs[name].lease_ends_at = longest
    for name in _due(moment, places.leases(world), limit):
        run = world.runs[name]
        wanted = _lost_by_its_worker(moment, run)
        end_lease(run)
        counts[settle(moment, run, wanted)] += 1
    return Reaped(counts["queued"], counts["waiting"], counts["failed"], counts["canceled"])


def _lost_by_its_worker(moment: Moment, run: RunOnRecord) -> RunStatus:
    """Where it goes: at no cost when it was parked, else as what was lost with it, or never arrived."""
    if run.is_parked:
        return home_of(run)
    return lose(moment, run) if run.is_acked else miss(moment, run)


def fire_timers(moment: Moment, limit: int) -> Passed:
    fired = 0
    for member in _due(moment, places.timers(moment.world), limit):
        run_id, _, name = member.partition(" ")
        run = moment.world.runs[run_id]
        if name not in run.waits:
            continue  # withdrawn by one that was due before
        fired += 1
        if run.has_ended:
            withdraw(moment, run, name)
        else:
            _time_out(moment, run, name, run.waits[name])
    return Passed(fired, _next(places.timers(moment.world)))


def _time_out(moment: Moment, run: RunOnRecord, name: str, wait: OpenWait) -> None:
    if wait.kind in (StepKind.CHILD, StepKind.TOKEN):
        what = f"for run {wait.target}" if wait.kind is StepKind.CHILD else "for its token"
        message = f'step "{name}" has waited {what} longer than its time-out'
        resolve(moment, run, name, failed_with("timeout", "TimeoutError", message))
    else:
        resolve(moment, run, name, NOTHING)
    release(moment, run, wait)


def expire(moment: Moment, limit: int) -> Passed:
    names = _due(moment, places.deadlines(moment.world), limit)
    expired = sum(_expire(moment, moment.world.runs[name]) for name in names if not moment.world.runs[name].has_ended)
    return Passed(expired, _next(places.deadlines(moment.world)))


def _expire(moment: Moment, run: RunOnRecord) -> bool:
    """Whether its time was up."""

    def is_over(at: int | None) -> bool:
        return at is not None and at <= moment.now

    run.look_again_at = None
    if is_over(run.failing_deadline):
        if run.token:
            end_lease(run)
        finish(moment, run, verdict(moment, run, RunStatus.FAILED))
        return True
    if is_over(run.run_deadline):
        if run.token:
            run.timeout_requested_at = run.timeout_requested_at or moment.now
        else:
            _leave(run)
            settle(moment, run, RunStatus.FAILED)
        return True
    if not is_over(run.start_deadline):
        return False
    if not run.token:
        run.error = START_TIMEOUT
        finish(moment, run, RunStatus.FAILED)
        return True
    if run.is_acked:
        run.start_deadline = None
    else:
        run.look_again_at = moment.now + LOOK_AGAIN_MS
    return False


def _leave(run: RunOnRecord) -> None:
    """It has left its lane before it comes back to one."""
    run.status = RunStatus.RUNNING


def fail_unknown(moment: Moment, lane: Lane, grace_ms: int, offset: int, limit: int) -> Unknown:
    def standing() -> dict[str, int]:
        return places.lanes(moment.world).get(Lane(lane.queue, lane.workflow), {})

    if lane.workflow in moment.world.workflows:
        return Unknown(0, None, not standing())
    names = [name for _, name in earliest(standing())][offset : offset + limit]
    failed = 0
    for name in names:
        run = moment.world.runs[name]
        since = run.created_at if run.placed_at is None else run.placed_at
        is_new = not (run.is_typed or run.deliveries or run.is_failing)
        if run.status is RunStatus.QUEUED and is_new and moment.now - since >= grace_ms:
            run.attempt, run.error = 1, UNKNOWN_WORKFLOW
            finish(moment, run, RunStatus.FAILED)
            failed += 1
    return Unknown(failed, offset + limit - failed if len(names) == limit else None, not standing())


def purge(moment: Moment, retention_ms: dict[RunStatus, int], limit: int) -> Purged:
    world, seen, purged = moment.world, 0, 0
    for status, keep_ms in retention_ms.items():
        ended = places.finished(world).get(status.value, {})
        old = [name for at, name in earliest(ended) if at <= moment.now - keep_ms][: max(0, limit - seen)]
        for name in old:
            seen += 1
            run = world.runs[name]
            needed_until = _needed_until(moment, run)
            if needed_until > moment.now:
                run.purge_from = needed_until - keep_ms
                continue
            purged += 1
            del world.runs[name]
            pointer = world.pointers.get((run.workflow, run.key))
            if pointer is not None and pointer.target == name:
                del world.pointers[run.workflow, run.key]
    return Purged(purged, seen)


def _needed_until(moment: Moment, run: RunOnRecord) -> int:
    """A run stays while its key is in its window, unless a step made that, and while it owes something to others."""
    is_of_step = bool(run.parent) and run.key.startswith(f"stepwf:{counted(run.parent)}:")
    needed = 0 if is_of_step else run.key_expires_at or 0
    for what, owed in (("wake", run.awaiters), ("withdraw", run.waits), ("close", run.children)):
        if owed:
            moment.put_off(what, run.id)
            needed = max(needed, moment.now + OWED_MS)
    return needed


def apply_outbox(moment: Moment, limit: int) -> Passed:
    entries = [name for _, name in earliest(moment.world.outbox)][:limit]
    for entry in entries:
        del moment.world.outbox[entry]
        what, _, run_id = entry.partition(" ")
        run = moment.run(run_id)
        match what:
            case "wake":
                wake_awaiters(moment, run_id)
            case "cancel":
                cancel_unneeded(moment, run_id)
            case "withdraw" if run is not None and run.has_ended:
                withdraw_waits(moment, run)
            case "close" if run is not None and run.has_ended:
                close_children(moment, run)
    return Passed(len(entries), _next(moment.world.outbox))
