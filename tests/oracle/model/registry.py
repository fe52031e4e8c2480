"""Verbs about the registry, the sessions of workers, and the prefix itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from redflow_server.domain.errors import PrefixTaken
from redflow_server.domain.leases import Lane
from redflow_server.domain.registry import (
    FAILURE_HANDLER_MS,
    Assertion,
    Registration,
    RegistrationResult,
    RegistrationStatus,
    Workflow,
    WorkflowDefinition,
)
from redflow_server.domain.registry import Registered as Answer
from redflow_server.domain.runs import LaneDepth, Stats
from redflow_server.domain.states import RunStatus
from redflow_server.domain.workers import Worker
from redflow_server.store import codec_registry
from redflow_server.store.calls.registry import STALE_MS
from tests.oracle.model.places import earliest, lanes
from tests.oracle.model.world import Announced, CronOnRecord, Moment, Registered

MAX_FORMER = 8
MAX_BUILDS = 100
DAY_MS = 24 * 3600 * 1000
FAN_OUTS_TOLD = 100
LISTED_SESSIONS = 1000
LISTED_LANES = 500


# ---- definitions ----


def is_fresh(moment: Moment, known: Registered) -> bool:
    return moment.now - known.updated_at < STALE_MS


def first_seen(moment: Moment, owner: str, build: str) -> int:
    return moment.world.builds.get(owner, {}).get(build, 0)


def kept_by(moment: Moment, request: Registration, definition: WorkflowDefinition, seen_at: int) -> str | None:
    """Why the definition on record stays: it is in use, and another owner's or a later build's."""
    known = moment.world.workflows.get(definition.name)
    if known is None or not is_fresh(moment, known):
        return None
    if known.owner != request.owner:
        return "foreign_owner"
    is_other = known.definition.digest != definition.digest
    is_later = first_seen(moment, request.owner, known.build) > seen_at
    return "superseded" if is_other and is_later else None


def register(moment: Moment, request: Registration) -> Answer:
    world, owner = moment.world, request.owner
    builds = world.builds.setdefault(owner, {})
    seen_at = builds.setdefault(request.build_id, moment.now)
    if len(builds) > MAX_BUILDS:
        del builds[moment.luck.pick("build", [name for name, at in builds.items() if at == min(builds.values())])]
    results = []
    for definition in request.workflows:
        kept = kept_by(moment, request, definition, seen_at)
        known = world.workflows.get(definition.name)
        queue = known.definition.queue if kept and known else definition.queue
        former = former_queues(moment, known, queue)
        if not kept:
            _write(moment, request, definition, former)
        names = tuple(name for name, _ in former)
        results.append(RegistrationResult(definition.name, RegistrationStatus(kept or "registered"), "", names))
    named = {definition.name for definition in request.workflows}
    mine = [name for name, known in world.workflows.items() if known.owner == owner]
    retired = [name for name in mine if name not in named and not is_fresh(moment, world.workflows[name])]
    for name in retired:
        for schedule_id in world.workflows[name].cron_ids:
            world.crons.pop(schedule_id)
        _forget(moment, name, None)
    _forget_idle(moment, owner)
    return Answer(tuple(results), tuple(sorted(retired)))


def former_queues(moment: Moment, known: Registered | None, queue: str) -> list[tuple[str, int]]:
    """Where runs of it may still wait: the last eight, each until its lane is empty and a day has passed."""
    if known is None:
        return []
    before = list(known.former_queues)
    if known.definition.queue != queue:
        before.insert(0, (known.definition.queue, moment.now))
    filled = lanes(moment.world).keys()
    needed = [
        (name, at)
        for name, at in before
        if name != queue and (moment.now - at < DAY_MS or filled & _lanes_of(name, known))
    ]
    return needed[:MAX_FORMER]


def _lanes_of(queue: str, known: Registered) -> set[Lane]:
    return {Lane(queue, known.definition.name, is_solo) for is_solo in (False, True)}


def _write(
    moment: Moment, request: Registration, definition: WorkflowDefinition, former: list[tuple[str, int]]
) -> None:
    world, before = moment.world, moment.world.workflows.get(definition.name)
    cron_ids = _write_schedules(moment, request, definition, before)
    if before is not None:
        _forget(moment, definition.name, definition.queue)
        if before.owner != request.owner:
            _forget_idle(moment, before.owner)
    handler_ms = definition.failure_handler_timeout_ms or FAILURE_HANDLER_MS
    world.workflows[definition.name] = Registered(
        definition=definition,
        owner=request.owner,
        build=request.build_id,
        updated_at=moment.now,
        cron_ids=cron_ids,
        former_queues=former,
        retry_policy=codec_registry.encode_retry_policy(definition.retry_policy),
        handler_ms=handler_ms if definition.has_failure_handler else None,
    )


def _write_schedules(
    moment: Moment, request: Registration, definition: WorkflowDefinition, before: Registered | None
) -> list[str]:
    """A schedule whose timing stays keeps its next occurrence."""
    crons, ids = moment.world.crons, []
    for schedule_id, timing, next_at, document in _planned(request, definition):
        stored = crons.get(schedule_id)
        is_same = stored is not None and json.loads(stored.document)["timing"] == timing
        cron = crons.setdefault(schedule_id, CronOnRecord(b""))
        cron.document = document.encode()
        if not is_same or cron.next_at is None:
            cron.next_at, cron.problem = int(next_at), ""
        if schedule_id not in ids:
            ids.append(schedule_id)
    for schedule_id in before.cron_ids if before else ():
        if schedule_id not in ids:
            crons.pop(schedule_id, None)
    return ids


def _planned(request: Registration, definition: WorkflowDefinition) -> list[list[str]]:
    """Id, timing, next occurrence and document of each schedule, as the codec writes them."""
    encoded = codec_registry.encode_registration(definition, request.schedules)[9]
    assert isinstance(encoded, bytes)
    found: list[list[str]] = json.loads(encoded)
    return found


def _forget(moment: Moment, name: str, next_queue: str | None) -> None:
    """Subscribers that are still to be started go to the queue that was in force when the event was emitted."""
    known = moment.world.workflows.pop(name)
    if known.definition.queue != next_queue:
        for _, event_id in earliest(moment.world.fan_outs)[:FAN_OUTS_TOLD]:
            moment.world.emitted[event_id].queues.setdefault(name, known.definition.queue)


def _forget_idle(moment: Moment, owner: str) -> None:
    if not any(known.owner == owner for known in moment.world.workflows.values()):
        moment.world.builds.pop(owner, None)


def assert_registry(moment: Moment, assertions: Iterable[Assertion]) -> tuple[bool, ...]:
    world = moment.world
    for schedule_id, last in list(world.cron_last.items()):
        if last <= moment.now - DAY_MS and schedule_id not in world.crons:
            del world.cron_last[schedule_id]
    return tuple(_is_needed(moment, one) for one in assertions)


def _is_needed(moment: Moment, one: Assertion) -> bool:
    known = moment.world.workflows.get(one.name)
    if known is None:
        return True
    is_mine, is_same = known.owner == one.owner, known.definition.digest == one.digest
    if is_mine:
        moment.world.builds.setdefault(one.owner, {}).setdefault(one.build_id, moment.now)
    if not is_fresh(moment, known):
        return True
    seen_at = first_seen(moment, one.owner, one.build_id)
    if is_mine and not is_same and seen_at > first_seen(moment, one.owner, known.build):
        return True
    if is_mine and is_same:
        known.updated_at = moment.now
    return False


def read_workflows(moment: Moment, names: Sequence[str]) -> tuple[Workflow | None, ...]:
    found = (moment.world.workflows.get(name) for name in names)
    return tuple(one and Workflow(one.definition, one.owner, one.build, one.updated_at) for one in found)


def list_workflows(moment: Moment) -> tuple[str, ...]:
    return tuple(sorted(moment.world.workflows))


# ---- sessions ----


def announce_sessions(moment: Moment, workers: Iterable[Worker], keep_ms: int) -> int:
    world = moment.world
    world.sessions = {name: at for name, at in world.sessions.items() if at > moment.now}
    for worker in workers:
        world.sessions[worker.session_id] = moment.now + keep_ms
        world.session_documents[worker.session_id] = Announced(worker, moment.plain_expiry(keep_ms))
    return len(world.sessions)


def forget_session(moment: Moment, session_id: str) -> None:
    moment.world.sessions.pop(session_id, None)
    moment.world.session_documents.pop(session_id, None)


def read_sessions(moment: Moment) -> tuple[Worker, ...]:
    live = [name for at, name in earliest(moment.world.sessions) if at >= moment.now]
    return tuple(moment.world.session_documents[name].worker for name in live[:LISTED_SESSIONS])


# ---- the prefix ----


def claim_prefix(moment: Moment) -> None:
    if not moment.world.is_ours and moment.world.workflows:
        raise PrefixTaken
    moment.world.is_ours = True


def try_write(moment: Moment) -> None:
    pass


def read_stats(moment: Moment) -> Stats:
    world = moment.world
    counts = Counter(run.status for run in world.runs.values())
    filled = lanes(world)
    depths = Counter[tuple[str, str]]()
    for lane in sorted(filled, key=lambda lane: -world.lane_changes[lane])[:LISTED_LANES]:
        depths[lane.queue, lane.workflow] += len(filled[lane])
    return Stats(
        tuple((status, counts[status]) for status in RunStatus),
        tuple(LaneDepth(*where, depth) for where, depth in depths.items()),
        len(depths),
        len(world.memory),
        world.events_dropped,
    )
