"""What must hold between things: runs and those that wait for them, events and their subscribers, cron schedules and
the workflows that have them. The rules are in the table of `invariants.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.snapshot_states import RunState, Snapshot

Findings = Iterator[tuple[str, str]]
"""What is wrong with what: subjects and details."""
Details = Iterator[str]

HEADER: Final = ("status", "kind", "seq", "attempt", "final", "startedAt", "finishedAt", "size", "target", "meta")
MAX_OUTBOX_AGE_MS: Final = 60_000
OUTBOX_WORDS: Final = frozenset({"wake", "cancel", "withdraw"})


def header_of(raw: str) -> dict[str, str]:
    """The fields of a step's header, as many as it has."""
    return dict(zip(HEADER, raw.split("|", len(HEADER) - 1), strict=False))


# ---- runs that wait for runs ----


def waits(run: RunState) -> Details:
    """An open wait is a step that waits, is known to the run that it is for, and counted; and the reverse.

    What has ended hears of it by the outbox, and so do those that wait for what has ended.
    """
    if run.status is not None:
        yield from _waits_of_record(run)
    if run.status is None and run.waits:
        yield "has open waits, but no record"
    for awaiter in run.awaiters:
        if not awaiter.has_wait:
            yield f"is awaited by {awaiter.name!r}, which has no such wait"
    if run.awaiters and (run.status is None or run.is_terminal) and not run.is_waking:
        yield f"is awaited, but {'it has ended' if run.status else 'it has no record'} and nobody will tell of it"


def _waits_of_record(run: RunState) -> Details:
    if run.is_terminal and run.waits and not run.is_withdrawing:
        yield f"is {run.status} and still has {len(run.waits)} open waits"
    if not run.is_terminal:
        if (run.number("openWaits") or 0) != len(run.waits):
            yield f"has {len(run.waits)} open waits, but its openWaits is {run.record.get('openWaits')}"
        if run.awaiters and "awaited" not in run.record:
            yield "is awaited, but does not know"
        for wait in run.waits:
            if not wait.is_known:
                yield f"waits in {wait.step!r} for run {wait.target}, which does not know"
            if not wait.has_end:
                yield f"waits in {wait.step!r} for run {wait.target}, which has ended or is gone, and nobody will tell"
    waiting = {
        name: header["target"]
        for name, header in ((name, header_of(raw)) for name, raw in run.headers.items())
        if header["status"] == StepStatus.WAITING and header.get("kind") == StepKind.CHILD and "meta" in header
    }
    targets = {wait.step: wait.target for wait in run.waits}
    for step in sorted(waiting.keys() | targets.keys()):
        if waiting.get(step) != targets.get(step):
            yield f"has a step {step!r} that waits for {waiting.get(step)}, and an open wait for {targets.get(step)}"


def failing(run: RunState) -> Details:
    """In phase failing is a run that is open, does not wait, and has a deadline for it; what became of it is said only
    of one that has ended.
    """
    phase, has_deadline = run.record.get("phase"), "failingDeadline" in run.record
    if phase is None:
        if has_deadline:
            yield "has a deadline for its failure handler, but is not in phase failing"
    elif phase != "failing" or run.is_terminal or run.status is RunStatus.WAITING:
        yield f"is {run.status} in phase {phase}"
    elif not has_deadline:
        yield "is in phase failing without a deadline"
    if "failureHandler" in run.record and not run.is_terminal:
        yield f"is {run.status}, but its failure handler is {run.record['failureHandler']}"


def outbox(snapshot: Snapshot) -> Findings:
    """What the ends of runs left to be done is known by its word, and is done within a minute."""
    for one in snapshot.outbox:
        word, _, run_id = one.entry.partition(" ")
        if word not in OUTBOX_WORDS or not run_id:
            yield snapshot.keys.outbox, f"has an entry {one.entry!r} that nobody knows how to apply"
        elif one.age_ms > MAX_OUTBOX_AGE_MS:
            yield snapshot.keys.outbox, f"has the entry {one.entry!r} for {one.age_ms / 1000:.0f} s"


# ---- events and schedules, which start runs ----


def events(snapshot: Snapshot) -> Findings:
    """An emitted event is kept while runs of it are left to start, and then for as long as repeats are answered."""
    for event in snapshot.events:
        key = snapshot.keys.emitted(event.event_id)
        if not event.exists:
            yield event.event_id, "has subscribers left to start, but nothing is known of it"
            continue
        if event.name is None or event.expires_at is None:
            yield key, "lacks a name, or the end of its window"
        if event.is_fanning_out and not event.has_part:
            yield key, "is to start subscribers, but has none left"
        if event.has_part and not event.is_fanning_out:
            yield key, "has subscribers left, but nobody is to start them"
        if event.is_fanning_out and event.ttl_ms >= 0:
            yield key, "has subscribers left to start, and would go before its time"
        if not event.is_fanning_out and event.ttl_ms < 0:
            yield key, "has no TTL, and nothing else removes it"
    for pointer in snapshot.event_keys:
        own = snapshot.keys.event_key(pointer.name or "", "")
        if pointer.name is not None and not pointer.key.startswith(own.removesuffix("0:")):
            yield pointer.key, f"leads to event {pointer.event_id}, which is a {pointer.name!r}"


def schedules(snapshot: Snapshot) -> Findings:
    """A cron schedule has a next occurrence or a problem, and is in the list of its workflow; and the reverse."""
    for schedule in snapshot.schedules:
        if not schedule.is_defined:
            left = {
                "a next occurrence": schedule.has_next,
                "a problem": schedule.has_problem,
                "a count of skipped ones": schedule.has_skipped,
            }
            for what, is_there in left.items():
                if is_there:
                    yield schedule.schedule_id, f"has {what}, but no definition"
        elif schedule.has_next == schedule.has_problem:
            both = "both a next occurrence and" if schedule.has_next else "neither a next occurrence nor"
            yield schedule.schedule_id, f"has {both} a problem"
        own = (schedule.workflow,) if schedule.is_defined else ()
        if schedule.listed_by != own:
            listed = " and ".join(schedule.listed_by) or "no workflow"
            yield schedule.schedule_id, f"is listed by {listed}, but defined for {schedule.workflow or 'none'}"
