"""What an outage or a foreign hand may do to what stands where, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.states import RunStatus, StepKind
from redflow_server.store.keys import Keys
from tests.oracle.model.places import deadline_of, name_of
from tests.oracle.model.world import OpenWait, RunOnRecord, World

MAX_WAITS = 100
"""Of more waits a sweep looks at some."""
Command = tuple[str, str, str]


@dataclass(frozen=True)
class Damage:
    """A run that lacks something, what, and in which of its waits."""

    run_id: str
    what: str
    key: str
    member: str
    step: str = ""

    def command(self, prefix: str) -> Command:
        verb = "SREM" if self.what == "awaiter" else "ZREM"
        return verb, f"{prefix}:{self.key}", self.member


def possible_damages(world: World) -> list[Damage]:
    """All that a sweep would repair."""
    return [damage for run in world.runs.values() for damage in (*_of_places(run), *_of_waits(world, run))]


def _of_places(run: RunOnRecord) -> list[Damage]:
    keys = Keys("")
    found = [("listing", keys.workflow_status(run.status, run.workflow))]
    match run.status:
        case RunStatus.QUEUED:
            found.append(("lane", keys.lane(name_of(run.lane))))
        case RunStatus.SCHEDULED:
            found.append(("schedule", keys.scheduled))
        case RunStatus.RUNNING:
            found.append(("lease", keys.leases))
        case status if status.is_terminal:
            found.append(("retention", keys.finished(status)))
    if deadline_of(run) is not None:
        found.append(("deadline", keys.deadlines))
    return [Damage(run.id, what, key[1:], run.id) for what, key in found]


def _of_waits(world: World, run: RunOnRecord) -> list[Damage]:
    if run.status is not RunStatus.WAITING or len(run.waits) > MAX_WAITS:
        return []
    return [damage for name, wait in run.waits.items() for damage in _of_wait(world, run, name, wait)]


def _of_wait(world: World, run: RunOnRecord, name: str, wait: OpenWait) -> list[Damage]:
    keys, member, found = Keys(""), f"{run.id} {name}", []
    if wait.deadline is not None:
        found.append(("timer", keys.timers))
    if wait.kind is StepKind.EVENT:
        found.append(("event wait", keys.event_waits(wait.target)))
    if wait.kind is StepKind.CHILD and not world.runs[wait.target].has_ended:
        found.append(("awaiter", keys.awaiters(wait.target)))
    return [Damage(run.id, what, key[1:], member, name) for what, key in found]


@dataclass(frozen=True)
class Stray:
    """An entry that stands in a set from long ago, where it does not belong, and the verb that looks there."""

    verb: str
    key: str
    member: str

    def command(self, prefix: str) -> tuple[str, str, int, str]:
        return "ZADD", f"{prefix}:{self.key}", 1, self.member


def possible_strays(world: World, now: int) -> list[Stray]:
    """Entries of runs that are not there, and of such whose time has not come."""
    keys = Keys("")
    found = [
        Stray("fire_timers", keys.timers[1:], "run_gone step ☃"),
        Stray("promote", keys.scheduled[1:], "run_gone"),
        Stray("expire", keys.deadlines[1:], "run_gone"),
    ]
    for run in world.runs.values():
        if run.status is not RunStatus.SCHEDULED:
            found.append(Stray("promote", keys.scheduled[1:], run.id))
        deadlines = (run.start_deadline, run.run_deadline, run.failing_deadline)
        if all(at is None or at > now for at in deadlines):
            found.append(Stray("expire", keys.deadlines[1:], run.id))
        found += [
            Stray("fire_timers", keys.timers[1:], f"{run.id} {name}")
            for name, wait in run.waits.items()
            if wait.deadline is None or wait.deadline > now
        ]
    return found
