"""What must hold between things: runs and what their ends leave to be done, cron schedules and the workflows that have
them. The rules are in the table of `invariants.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from redflow_server.domain.states import RunStatus
from redflow_server.store.snapshot_states import RunState, Snapshot

Findings = Iterator[tuple[str, str]]
"""What is wrong with what: subjects and details."""
Details = Iterator[str]

MAX_OUTBOX_AGE_MS: Final = 60_000
OUTBOX_WORDS: Final = frozenset({"wake", "cancel", "withdraw", "close"})


# ---- what ends leave to be done ----


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


# ---- schedules, which start runs ----


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
