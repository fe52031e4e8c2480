"""What must hold of runs that wait: for a time, an event, another run or a token. The rules are in the table of
`invariants.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.invariants_between import Details, Findings
from redflow_server.store.snapshot_states import OpenWait, RunState, Snapshot, StandingWait, header_of, number

FINISHED_STEPS: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})
WAITS: Final = frozenset({StepKind.TIMER, StepKind.EVENT, StepKind.CHILD, StepKind.TOKEN})
NAMES_TARGET: Final = frozenset({StepKind.CHILD, StepKind.TOKEN})
"""Kinds of which the header names what is waited for, too; that of one for an event names the event that it got."""


def waits(run: RunState) -> Details:
    """An open wait is a step that waits for the same, is counted, and known to the run that it is for; and the reverse.

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
            if wait.kind == StepKind.CHILD:
                yield from _wait_for_run(wait)
    open_waits = {wait.step: _named_by(wait.kind, wait.target) for wait in run.waits}
    waiting = {
        name: _named_by(header["kind"], header["target"])
        for name, header in ((name, header_of(raw)) for name, raw in run.headers.items())
        if header["status"] == StepStatus.WAITING and "meta" in header
    }
    for step in sorted(waiting.keys() | open_waits.keys()):
        if waiting.get(step) != open_waits.get(step):
            yield f"has a step {step!r} that waits for {waiting.get(step)}, and an open wait for {open_waits.get(step)}"


def _wait_for_run(wait: OpenWait) -> Details:
    if not wait.is_known:
        yield f"waits in {wait.step!r} for run {wait.target}, which does not know"
    if not wait.has_end:
        yield f"waits in {wait.step!r} for run {wait.target}, which has ended or is gone, and nobody will tell"


def _named_by(kind: str, target: str) -> str:
    return f"{kind} {target}" if kind in NAMES_TARGET else kind


def resolutions(run: RunState) -> Details:
    """What a run was given by its waits is numbered in that order: each has a number of its own, up to the count."""
    numbers = Counter[float]()
    for name, raw in run.headers.items():
        header = header_of(raw)
        at = number(header.get("resolved"))
        if at is not None:
            numbers[at] += 1
        elif header.get("kind") in WAITS and header["status"] in FINISHED_STEPS and "meta" in header:
            yield f"has a wait {name!r} with an outcome, but without its number"
    for at, count in numbers.items():
        if count > 1:
            yield f"has {count} steps that were resolved as number {at:.0f}"
    most = run.number("resolutions") or 0
    if numbers and run.status is not None and not run.is_terminal and max(numbers) > most:
        yield f"has a step that was resolved as number {max(numbers):.0f}, but its resolutions are {most:.0f}"


# ---- where waits stand ----


def timers(snapshot: Snapshot) -> Findings:
    """A wait has a timer exactly while it has a deadline, at that; one for a time has one."""
    for run in snapshot.runs:
        for wait in run.waits:
            deadline = number(wait.deadline)
            if deadline is None and wait.kind == StepKind.TIMER:
                yield run.run_id, f"sleeps in {wait.step!r} for ever"
            if deadline is not None and wait.timer_at is None:
                yield run.run_id, f"waits in {wait.step!r} until {deadline:.0f}, but has no timer for it"
            elif deadline is not None and wait.timer_at != deadline:
                yield run.run_id, f"has a timer for {wait.step!r} at {wait.timer_at:.0f} instead of {deadline:.0f}"
    yield from _nobody_waits(snapshot.timers, "has a timer for {step!r}, which has no deadline")


def event_waits(snapshot: Snapshot) -> Findings:
    """A wait for an event, and no other, stands on its channel; no event has passed it by that its run has not had."""
    for run in snapshot.runs:
        for wait in run.waits if not run.is_terminal else ():
            if wait.kind == StepKind.EVENT and wait.place is None:
                yield run.run_id, f"waits in {wait.step!r} on channel {wait.target}, which does not know"
            if wait.missed is not None:
                yield run.run_id, f"waits in {wait.step!r} on channel {wait.target}, where it has missed {wait.missed}"
    yield from _nobody_waits(snapshot.event_waits, "stands on channel {key} for {step!r}, which does not wait there")


def _nobody_waits(entries: Iterable[StandingWait], detail: str) -> Findings:
    for one in entries:
        if not one.belongs:
            run_id, _, step = one.member.partition(" ")
            yield run_id, detail.format(step=step, key=one.key)


# ---- parking, and what is kept beside a run ----


def parked(run: RunState) -> Details:
    """A parked run is leased, with its handler in memory, and waits, or was given what it waits for and is to hear of
    it.
    """
    if "parked" not in run.record:
        if "woken" in run.record:
            yield "was woken, but is not parked"
    elif run.status is not RunStatus.RUNNING or "leases" not in run.scores:
        yield f"is parked, but {run.status or 'has no record'} and not leased"
    elif "phase" in run.record:
        yield f"is parked in phase {run.record['phase']}"
    elif not run.waits and "woken" not in run.record:
        yield "is parked, but waits for nothing"


def kept_beside(run: RunState) -> Details:
    """A run has cursors, and children that are to end with it, exactly while its record says so; children also while
    the outbox is to end them.
    """
    is_open = run.status is not None and not run.is_terminal
    for what, is_there, is_left_over in (
        ("cursors", bool(run.cursors), False),
        ("children", run.has_children, run.is_closing),
    ):
        if what in run.record and not is_open:
            yield f"is {run.status}, but its record still says that it has {what}"
        elif what in run.record and not is_there:
            yield f"has no {what}, but its record says so"
        elif what not in run.record and is_there and not is_left_over:
            yield f"has {what}, which its record does not say"
