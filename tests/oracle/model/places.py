"""What follows from what is stored: where things stand in order of time, and the indexes that Redis keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from redflow_server.domain.leases import Lane
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import SOLO, lane_name
from tests.oracle.model.world import RunOnRecord, World

K = TypeVar("K", bound=str)


def earliest(times: Mapping[K, int]) -> list[tuple[int, K]]:
    """Times and names, as a sorted set has them: ties by name."""
    return sorted(((at, name) for name, at in times.items()), key=lambda one: (one[0], one[1].encode()))


def deadline_of(run: RunOnRecord) -> int | None:
    """When a run is looked at because its time may be up."""
    if run.look_again_at is not None:
        return run.look_again_at
    if run.timeout_requested_at is not None:
        return None
    deadlines = (run.start_deadline, run.run_deadline, run.failing_deadline)
    return min((at for at in deadlines if at is not None), default=None)


def deadlines(world: World) -> dict[str, int]:
    times = {run.id: deadline_of(run) for run in world.runs.values()}
    return {run_id: at for run_id, at in times.items() if at is not None}


def scheduled(world: World) -> dict[str, int]:
    return {run.id: run.available_at or 0 for run in world.runs.values() if run.status is RunStatus.SCHEDULED}


def leases(world: World) -> dict[str, int]:
    return {run.id: run.lease_ends_at for run in world.runs.values() if run.lease_ends_at is not None}


def timers(world: World) -> dict[str, int]:
    """Open waits with a deadline, each by run and step."""
    return {
        f"{run.id} {name}": wait.deadline
        for run in world.runs.values()
        for name, wait in run.waits.items()
        if wait.deadline is not None
    }


def lanes(world: World) -> dict[Lane, dict[str, int]]:
    """Queued runs by lane, at their places."""
    found: dict[Lane, dict[str, int]] = {}
    for run in world.runs.values():
        if run.status is RunStatus.QUEUED:
            found.setdefault(run.lane, {})[run.id] = run.place or 0
    return found


def name_of(lane: Lane) -> str:
    """As it stands in keys."""
    return (SOLO if lane.is_solo else "") + lane_name(lane.queue, lane.workflow)


def forget_empty_lanes(world: World) -> None:
    """The number of a lane goes with its last run."""
    filled = lanes(world)
    world.lane_changes = {lane: change for lane, change in world.lane_changes.items() if lane in filled}


def by_status(world: World) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for run in world.runs.values():
        found.setdefault(run.status.value, {})[run.id] = run.seq
    return found


def by_status_and_workflow(world: World) -> dict[tuple[str, str], dict[str, int]]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for run in world.runs.values():
        found.setdefault((run.status.value, run.workflow), {})[run.id] = run.seq
    return found


def finished(world: World) -> dict[str, dict[str, int]]:
    """Runs that have ended, by the time from which purge looks at them."""
    found: dict[str, dict[str, int]] = {}
    for run in world.runs.values():
        if run.purge_from is not None:
            found.setdefault(run.status.value, {})[run.id] = run.purge_from
    return found


def event_waits(world: World) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for run in world.runs.values():
        for name, wait in run.waits.items():
            if wait.number is not None:
                found.setdefault(wait.target, {})[f"{run.id} {name}"] = wait.number
    return found


def event_workflows(world: World) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, workflow in world.workflows.items():
        for event in workflow.definition.event_names:
            found.setdefault(event, set()).add(name)
    return found


def owner_workflows(world: World) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, workflow in world.workflows.items():
        found.setdefault(workflow.owner, set()).add(name)
    return found


def indexes(world: World) -> dict[str, object]:
    """All of them by name; each is a set of keys in Redis."""
    return {
        "deadlines": deadlines(world),
        "scheduled": scheduled(world),
        "leases": leases(world),
        "timers": timers(world),
        "lanes": lanes(world),
        "filled lanes": set(lanes(world)),
        "status": by_status(world),
        "status and workflow": by_status_and_workflow(world),
        "finished": finished(world),
        "event waits": event_waits(world),
        "event workflows": event_workflows(world),
        "owner workflows": owner_workflows(world),
        "workflows": set(world.workflows),
        "event bytes": sum(event.size for event in world.memory),
    }
