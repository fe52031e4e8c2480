"""What must hold of everything stored, checked against a live Redis.

Each rule is a function of what was read, and says what is wrong; most look at one run. Every transition is one script
and a run is read by one script (`snapshot.py`), so a run is never caught halfway: what is reported was stored so at one
instant. Rules overlap where the same fault breaks two of them. None of them rests on this moment being `now` for the
gateways, save that an idempotency key whose window is open has to lead somewhere, and that nothing is left in the
outbox, and no event undelivered, for a minute. What binds things to each other is in `invariants_between.py`, of waits
in `invariants_waits.py`, of events in `invariants_events.py`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from redis.asyncio import Redis

from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store import invariants_between as between
from redflow_server.store import invariants_events as of_events
from redflow_server.store import invariants_waits as of_waits
from redflow_server.store.invariants_between import Details, Findings
from redflow_server.store.invariants_waits import FINISHED_STEPS
from redflow_server.store.keys import Keys
from redflow_server.store.snapshot import read_snapshot
from redflow_server.store.snapshot_states import RunState, Snapshot, header_of, number

HOMES: Final = {"lane": RunStatus.QUEUED, "scheduled": RunStatus.SCHEDULED, "leases": RunStatus.RUNNING}
"""The places of open runs, and the status that belongs there."""
LEASE_FIELDS: Final = ("leaseToken", "leaseOwner", "acked")
PUT_OFF_MS: Final = 1000
"""An assignment that is on its way when its start deadline passes is looked at again after this long."""
TTL_NEEDED: Final = frozenset({"session", "idempotency", "event_key"})
TTL_ALLOWED: Final = TTL_NEEDED | {"owner_builds", "emitted"}
MAX_EXACT: Final = 2**53

INTEGER: Final = re.compile(r"-?[0-9]{1,16}")
INTEGER_FIELDS: Final = (
    *("seq", "place", "priority", "attempt", "maxAttempts", "failures", "deliveries", "undelivered", "losses"),
    *("lossesTotal", "stepsDone", "stepsBytes", "createdAt", "availableAt", "placedAt", "startedAt", "finishedAt"),
    *("cancelRequestedAt", "timeoutRequestedAt", "startDeadline", "runDeadline", "keyExpiresAt"),
    *("openWaits", "resolutions", "eventSeq", "handlerMs", "failingDeadline"),
)
DEADLINES: Final = ("startDeadline", "runDeadline", "failingDeadline")
INTEGER_HEADERS: Final = ("seq", "attempt", "startedAt", "finishedAt", "size", "tries", "resolved")


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold: of which run or key, and how, in a sentence."""

    rule: str
    subject: str
    detail: str


async def check(client: Redis, keys: Keys) -> list[Violation]:
    """Everything under the prefix that breaks a rule. Reads all of it, with a client that answers bytes.

    Raises StoreUnavailable.
    """
    return violations(await read_snapshot(client, keys))


def violations(snapshot: Snapshot) -> list[Violation]:
    """What of all that was read breaks a rule."""
    return [
        Violation(name, subject, detail) for name, (_, find) in _RULES.items() for subject, detail in find(snapshot)
    ]


# ---- where runs stand ----


def one_place(run: RunState) -> Details:
    """An open run is in exactly one place, or in none while it waits."""
    if run.status is None or run.is_terminal:
        return
    found = [place for place in HOMES if place in run.scores]
    found += [stray.key for stray in run.strays if stray.kind == "lane"]
    if run.status is RunStatus.WAITING:
        if not run.waits:
            yield "is waiting, but no wait of it is open"
        if found:
            yield f"is waiting and stands in {' and in '.join(found)}"
    elif len(found) != 1:
        yield f"is {run.status} and stands in {' and in '.join(found) or 'no place'}"


def placed_runs_match(run: RunState) -> Details:
    """What stands in a place has a record that belongs there."""
    for place, status in HOMES.items():
        if place in run.scores and run.status is not status:
            yield f"stands in {place}, but {_condition(run)}"
    for stray in run.strays:
        if stray.kind == "lane":
            yield f"stands in {stray.key}, but {_condition(run)}{' for another lane' if run.status else ''}"


def _condition(run: RunState) -> str:
    return f"it is {run.status}" if run.status else "it has no record"


def token_iff_leased(run: RunState) -> Details:
    """A run has a lease token, and whose it is, exactly while it is leased."""
    if run.status is None:
        return
    is_leased, token = "leases" in run.scores, run.record.get("leaseToken", "")
    if is_leased:
        for name in ("leaseToken", "leaseOwner"):
            if not run.record.get(name):
                yield f"is leased, but has no {name}"
    else:
        for name in LEASE_FIELDS:
            if name in run.record:
                yield f"is not leased, but has {name}"
    if token and not token.startswith(f"{run.run_id}."):
        yield f"has the lease token {token} of another run"


def terminal_is_final(run: RunState) -> Details:
    """A run that has ended is in no place, has no lease, no deadline, and the time of its end."""
    if not run.is_terminal:
        return
    found = [place for place in (*HOMES, "deadlines") if place in run.scores]
    found += [stray.key for stray in run.strays if stray.kind == "lane"]
    for place in found:
        yield f"is {run.status} and still stands in {place}"
    for name in LEASE_FIELDS:
        if name in run.record:
            yield f"is {run.status} and still has {name}"
    if not run.record.get("finishedAt"):
        yield f"is {run.status}, but has no finishedAt"


def places(run: RunState) -> Details:
    """A run stands in its lane at its place, and among the scheduled at the time it becomes available."""
    for place, name in (("lane", "place"), ("scheduled", "availableAt")):
        if place in run.scores and run.status is HOMES[place] and run.scores[place] != run.number(name):
            yield f"stands in {place} at {run.scores[place]:.0f}, but its {name} is {run.record.get(name)}"


def deadlines(run: RunState) -> Details:
    """A run is among the deadlines while it has one, at the earliest.

    Not necessarily once it was told to stop; and later, when its start deadline passed while it was on its way.
    """
    due = [at for name in DEADLINES if (at := run.number(name)) is not None]
    at = run.scores.get("deadlines")
    if at is None:
        if due and "timeoutRequestedAt" not in run.record:
            yield f"has a deadline at {min(due):.0f}, but is not among the deadlines"
        return
    start = run.number("startDeadline") if run.number("deliveries") else None
    is_put_off = start is not None and at >= start + PUT_OFF_MS
    if not due:
        yield f"stands among the deadlines, but {'has none' if run.record else 'it has no record'}"
    elif at != min(due) and not is_put_off:
        yield f"stands among the deadlines at {at:.0f} instead of {min(due):.0f}"


# ---- how runs are listed ----


def listing(run: RunState) -> Details:
    """A run is listed once: under its status, and under its status and workflow, by its number.

    So the index of a status and those of its workflows have as many entries as there are records.
    """
    for stray in run.strays:
        if stray.kind in ("status", "workflow_status"):
            yield f"is listed in {stray.key}, but {_condition(run)}"
    for index in ("status", "workflow_status") if run.status else ():
        if index not in run.scores:
            yield f"is {run.status}, but not listed in its {index} index"
        elif run.scores[index] != run.number("seq"):
            yield f"is listed in its {index} index at {run.scores[index]:.0f}, but its seq is {run.record.get('seq')}"


def retention(run: RunState) -> Details:
    """Runs that have ended, and no others, are where purge finds them, not before the time of their end."""
    for stray in run.strays:
        if stray.kind == "finished":
            yield f"stands in {stray.key}, but {_condition(run)}"
    if run.is_terminal:
        at, finished_at = run.scores.get("finished"), run.number("finishedAt")
        if at is None:
            yield f"is {run.status}, but purge will not find it"
        elif finished_at is not None and at < finished_at:
            yield f"stands among the finished at {at:.0f}, before its end at {finished_at:.0f}"


# ---- what runs hold ----


def attempts(run: RunState) -> Details:
    """Attempts are counted from 1 to the most there may be; the one that runs follows those that failed."""
    if run.status is None:
        return
    attempt, failures = run.number("attempt") or 0, run.number("failures") or 0
    most = run.number("maxAttempts") or 1
    if "startedAt" in run.record and not 1 <= attempt <= most:
        yield f"was started and is in attempt {attempt:.0f} of {most:.0f}"
    if run.status is RunStatus.RUNNING and attempt != failures + 1:
        yield f"is in attempt {attempt:.0f} after {failures:.0f} failures"


def steps(run: RunState) -> Details:
    """Every step has a header and a value of the size it says; the record counts the steps and their bytes."""
    if run.status is None:
        return
    done = 0
    for name, raw in run.headers.items():
        header = header_of(raw)
        done += header["status"] in FINISHED_STEPS
        is_known = header["status"] in set(StepStatus) and header.get("kind") in set(StepKind)
        if "meta" not in header or not is_known:
            yield f"has a step {name!r} whose header cannot be read: {raw!r}"
        elif name not in run.sizes:
            yield f"has a step {name!r} without a value"
        elif number(header["size"]) != run.sizes[name]:
            yield f"has a step {name!r} of {run.sizes[name]} bytes, but its header says {header['size']}"
    for name in run.sizes.keys() - run.headers.keys():
        yield f"has a value without a header, of a step {name!r}"
    for name in run.other_step_fields:
        yield f"has {name!r} among its steps, which is no field of one"
    if done != (run.number("stepsDone") or 0):
        yield f"has {done} finished steps, but its stepsDone is {run.record.get('stepsDone')}"
    size = sum(run.sizes.values())
    if not run.is_terminal and size != (run.number("stepsBytes") or 0):
        yield f"has steps of {size} bytes, but its stepsBytes is {run.record.get('stepsBytes')}"


def idempotency(snapshot: Snapshot) -> Findings:
    """A key leads to the run that names it, or to one that is gone; and there is one run in a window."""
    for pointer in snapshot.pointers:
        if pointer.target_exists and pointer.own_key != pointer.key:
            yield pointer.key, f"leads to run {pointer.target}, which does not name this key and workflow"
    by_key: defaultdict[tuple[str, str], list[RunState]] = defaultdict(list)
    for run in snapshot.runs:
        if run.status and (key := run.record.get("idempotencyKey")):
            by_key[run.record["workflow"], key].append(run)
            if run.pointer is None and (run.number("keyExpiresAt") or 0) > run.now_ms:
                yield run.run_id, f"has the key {key!r} in its window, but the key leads nowhere"
    for runs in by_key.values():
        runs.sort(key=lambda run: run.number("seq") or 0)
        for earlier, later in pairwise(runs):
            # Told by the times on record, whoever's clock they are by.
            if (earlier.number("keyExpiresAt") or 0) > (later.number("createdAt") or 0):
                yield later.run_id, f"was started in the window of the key that it shares with run {earlier.run_id}"


def numbers(snapshot: Snapshot) -> Findings:
    """Integers are stored as integers, and small enough for Lua to keep them exact."""
    for run in snapshot.runs:
        for name in INTEGER_FIELDS:
            if name in run.record and not _is_integer(run.record[name]):
                yield run.run_id, f"has {run.record[name]!r} as {name}"
        for place, score in (*run.scores.items(), *((stray.key, stray.score) for stray in run.strays)):
            if not _is_integer(score):
                yield run.run_id, f"stands in {place} at {score!r}"
        for step, raw in run.headers.items():
            header = header_of(raw)
            for name in INTEGER_HEADERS:
                if header.get(name) and not _is_integer(header[name]):
                    yield run.run_id, f"has {header[name]!r} as {name} of step {step!r}"
        for wait in run.waits:
            for at in (wait.since, wait.deadline):
                if at and not _is_integer(at):
                    yield run.run_id, f"has {at!r} as a time of its wait {wait.step!r}"
        for channel, cursor in run.cursors.items():
            if not _is_integer(cursor):
                yield run.run_id, f"has {cursor!r} as its cursor on channel {channel}"
    for stored in snapshot.numbers:
        if not _is_integer(stored.value):
            yield stored.key, f"has {stored.value!r} as {stored.what}"


def _is_integer(value: str | float) -> bool:
    if isinstance(value, str):
        return INTEGER.fullmatch(value) is not None and abs(int(value)) <= MAX_EXACT
    return value.is_integer() and abs(value) <= MAX_EXACT


# ---- what is beside the runs ----


def lanes_set(snapshot: Snapshot) -> Findings:
    """The set of lanes has the lanes that are not empty."""
    for lane in snapshot.lanes:
        if lane.depth and lane.change is None:
            yield lane.key, f"has {lane.depth} runs, but is not in the set of lanes"
        if not lane.depth and lane.change is not None:
            yield lane.key, "is empty, but in the set of lanes"


def registry(snapshot: Snapshot) -> Findings:
    """A workflow that is registered, and no other, is in the set of workflows, its owner's and its events'."""
    for workflow in snapshot.workflows:
        if workflow.exists and not workflow.is_registered:
            yield workflow.name, "has a definition, but is not in the set of workflows"
        if workflow.is_registered and not workflow.exists:
            yield workflow.name, "is in the set of workflows, but has no definition"
        for key in workflow.missing:
            yield workflow.name, f"is not in {key}, where its definition puts it"
        for key in workflow.strays:
            yield workflow.name, f"is in {key}, where no definition puts it"


def owned_keys(snapshot: Snapshot) -> Findings:
    """Every key is of a known kind and goes some day: with its run or workflow, when it is empty, or by its TTL."""
    for key in snapshot.stored:
        if key.kind is None:
            yield key.name, f"is a {key.type} that no rule knows"
        elif key.type != key.kind.type:
            yield key.name, f"is a {key.type} instead of a {key.kind.type}"
        elif key.ttl_ms < 0 and key.kind.name in TTL_NEEDED:
            yield key.name, "has no TTL, and nothing else removes it"
        elif key.ttl_ms < 0 and not key.has_owner:
            yield key.name, "is kept for an owner who has no workflows, and nothing removes it"
        elif key.ttl_ms >= 0 and key.kind.name not in TTL_ALLOWED:
            yield key.name, "has a TTL, and would go before its time"
    for run in snapshot.runs:
        if run.record and run.status is None:
            yield snapshot.keys.run(run.run_id), "lacks a status, workflow or queue, so that nothing removes it"
        if not run.record and run.has_data:
            yield snapshot.keys.data(run.run_id), "holds payloads of a run that has no record"
        if not run.record and run.has_steps:
            yield snapshot.keys.steps(run.run_id), "holds steps of a run that has no record"


# ---- the table ----


def _each_run(rule: Callable[[RunState], Details]) -> Callable[[Snapshot], Findings]:
    def find(snapshot: Snapshot) -> Findings:
        return ((run.run_id, detail) for run in snapshot.runs for detail in rule(run))

    return find


_RULES: Final[dict[str, tuple[str, Callable[[Snapshot], Findings]]]] = {
    "one-place": ("an open run is in one of its lane, scheduled and leases, or waits", _each_run(one_place)),
    "placed-runs-match": ("what is in a lane, scheduled or leases belongs there", _each_run(placed_runs_match)),
    "token-iff-leased": ("a run has a lease token exactly while it is leased", _each_run(token_iff_leased)),
    "terminal-is-final": ("a run that has ended is in no place and has no lease", _each_run(terminal_is_final)),
    "listing": ("every run is listed once, under its status, by its number", _each_run(listing)),
    "lanes-set": ("the set of lanes has the lanes that are not empty", lanes_set),
    "deadlines": ("a run is among the deadlines at its earliest one", _each_run(deadlines)),
    "retention": ("runs that have ended, and no others, are found by purge", _each_run(retention)),
    "steps": ("steps have header and value, and are counted in the record", _each_run(steps)),
    "idempotency": ("one idempotency key in its window leads to one run", idempotency),
    "numbers": ("integers are stored as integers", numbers),
    "owned-keys": ("every key is known and is removed some day", owned_keys),
    "registry": ("sets of workflows agree with the definitions", registry),
    "attempts": ("attempts are counted from 1 to the most there may be", _each_run(attempts)),
    "places": ("a run stands in its lane at its place", _each_run(places)),
    "waits": ("open waits are steps that wait, and known to the runs that they are for", _each_run(of_waits.waits)),
    "timers": ("a wait has a timer exactly while it has a deadline", of_waits.timers),
    "event-waits": ("a wait for an event stands on its channel, and has missed none", of_waits.event_waits),
    "resolutions": ("what a run was given by its waits is numbered", _each_run(of_waits.resolutions)),
    "parked": ("a parked run is leased, and waits or is to hear of an outcome", _each_run(of_waits.parked)),
    "kept-beside": ("a run has cursors and children while its record says so", _each_run(of_waits.kept_beside)),
    "failing": ("a run in phase failing is open and has a deadline", _each_run(between.failing)),
    "outbox": ("nothing is left in the outbox for a minute", between.outbox),
    "events": ("events are kept while runs are left to start", of_events.events),
    "event-memory": ("remembered events are in the log of their channel, and counted", of_events.event_memory),
    "deliveries": ("waits hear of an event within a minute", of_events.deliveries),
    "schedules": ("cron schedules agree with the definitions", between.schedules),
}

RULES: Final = {name: meaning for name, (meaning, _) in _RULES.items()}
"""The rules' names, with what each one means."""
