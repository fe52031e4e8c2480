"""How an event reaches those that it is for: subscribers get runs, waits get it from a memory that is bounded."""

from __future__ import annotations

import hashlib

from redflow_server.domain.events import EmittedEvent, NewEvent
from redflow_server.domain.ids import counted
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.domain.waits import event_channel
from redflow_server.store import codec
from tests.oracle.model.effects import Outcome, resolve
from tests.oracle.model.starts import Origin, create, input_of, queue_for
from tests.oracle.model.world import Emitted, FanOut, Moment, Pointer, RememberedEvent, RunOnRecord

KEEP_MS = 600_000
MAX_OF_CHANNEL = 100
MAX_DROPPED = 5000
MAX_BYTES = 64 * 1024 * 1024
MAX_FORGOTTEN = 100
SLICE_RUNS, SLICE_BYTES = 100, 4 * 1024 * 1024
PAGE = 50
"""Waits that are looked up at a time: one that is withdrawn meanwhile still counts."""


# ---- waits ----


def next_event(moment: Moment, run: RunOnRecord, channel: str) -> RememberedEvent | None:
    """The oldest that the run has not had."""
    after = run.cursors.get(channel, run.event_seq or 0)
    return next((event for event in moment.world.memory if event.channel == channel and event.number > after), None)


def take_event(moment: Moment, run: RunOnRecord, name: str) -> bool:
    """Gives an open wait its event, if there is one."""
    channel = run.waits[name].target
    event = next_event(moment, run, channel)
    if event is None:
        return False
    run.cursors[channel] = event.number
    moment.count_effect(len(event.payload))
    outcome = Outcome(StepStatus.SUCCEEDED, event.payload, event.meta, f"{event.id}@{event.at}")
    resolve(moment, run, name, outcome)
    return True


def waiting_on(moment: Moment, channel: str) -> list[tuple[int, str, str]]:
    """Open waits for events of a channel: number, run and step, in the order of their registration."""
    return sorted(
        (wait.number or 0, run.id, name)
        for run in moment.world.runs.values()
        for name, wait in run.waits.items()
        if wait.kind is StepKind.EVENT and wait.target == channel
    )


def deliver(moment: Moment, number: int, channel: str, start: int) -> None:
    """Lets waits that were there before an event take their next one, as many as one script may tell."""
    while True:
        page = [one for one in waiting_on(moment, channel) if start <= one[0] < number][:PAGE]
        if not page:
            moment.world.deliveries.pop((number, channel), None)
            return
        for place, run_id, name in page:
            if moment.is_full:
                moment.world.deliveries[number, channel] = place
                return
            run = moment.run(run_id)
            is_open = run is not None and not run.has_ended and name in run.waits
            if not (run is not None and is_open and take_event(moment, run, name)):
                moment.count_effect()
            start = place + 1


# ---- the memory ----


def remember(moment: Moment, event: RememberedEvent) -> None:
    moment.world.memory.append(event)
    drop_surplus(moment, event.channel)
    forget_old(moment)


def drop_surplus(moment: Moment, channel: str) -> None:
    """A channel keeps a hundred events; one that waits are left to hear of is kept, and so are those behind it."""
    of_channel = [event for event in moment.world.memory if event.channel == channel]
    for event in of_channel[: max(0, min(len(of_channel) - MAX_OF_CHANNEL, MAX_DROPPED))]:
        if not forget(moment, event):
            return
        moment.world.events_dropped += 1


def forget(moment: Moment, event: RememberedEvent) -> bool:
    if (event.number, event.channel) in moment.world.deliveries:
        return False
    moment.world.memory.remove(event)
    return True


def forget_old(moment: Moment) -> bool:
    """Forgets what is older than ten minutes, or too much; whether there may be more."""
    world = moment.world
    for _ in range(MAX_FORGOTTEN):
        if not world.memory:
            return False
        oldest = world.memory[0]
        is_old = oldest.at + KEEP_MS <= moment.now
        is_too_much = sum(event.size for event in world.memory) > MAX_BYTES
        if not (is_old or is_too_much) or not forget(moment, oldest):
            return False
        world.events_dropped += not is_old
    return True


# ---- subscribers ----


def subscriber_id(event_id: str, workflow: str) -> str:
    """The run that an event starts of a workflow."""
    digest = hashlib.sha1((counted(event_id) + workflow).encode(), usedforsecurity=False).hexdigest()
    return f"run_{digest[:22]}"


def subscribers(moment: Moment, event_name: str) -> list[str]:
    listening = (name for name, one in moment.world.workflows.items() if event_name in one.definition.event_names)
    return sorted(listening, key=str.encode)


def start_subscriber(moment: Moment, event_id: str, workflow: str, event: FanOut, queue: str | None = None) -> None:
    start = NewRun(
        run_id=subscriber_id(event_id, workflow),
        workflow=workflow,
        input=input_of(event.payload, event.meta),
        queue=queue,
        available_at_ms=event.available_at,
    )
    if moment.run(start.run_id) is None and queue_for(moment, start) is not None:
        create(moment, start, Origin(event_seq=event.number))


def known_emission(moment: Moment, event: NewEvent) -> str | None:
    """The event that its key, or else its id, named before."""
    pointer = moment.world.event_keys.get((event.name, event.idempotency_key)) if event.idempotency_key else None
    known = pointer.target if pointer else event.event_id
    emitted = moment.world.emitted.get(known)
    return known if emitted is not None and emitted.expires_at > moment.now else None


def keep(moment: Moment, event: NewEvent, event_id: str) -> None:
    """Its window counts anew."""
    emitted = moment.world.emitted[event_id]
    emitted.expires_at = moment.now + event.idempotency_ttl_ms
    if event_id not in moment.world.fan_outs:
        emitted.expiry = moment.expiry(event.idempotency_ttl_ms)
    if event.idempotency_key:
        expiry = moment.expiry(event.idempotency_ttl_ms)
        moment.world.event_keys[event.name, event.idempotency_key] = Pointer(event_id, expiry)


def emit(moment: Moment, event: NewEvent, available_at: int | None) -> EmittedEvent:
    """Subscribers are started, waits hear of it unless it is for later; a repeat is answered."""
    world = moment.world
    if known := known_emission(moment, event):
        keep(moment, event, known)
        return EmittedEvent(known, world.emitted[known].run_ids, known == event.event_id)
    is_due = (available_at or 0) <= moment.now
    number = None
    if is_due:
        number = world.event_seq = (world.event_seq or 0) + 1
    workflows = subscribers(moment, event.name)
    run_ids = tuple(subscriber_id(event.event_id, workflow) for workflow in workflows)
    meta, digest = codec.encode_meta(event.payload), event.payload.digest
    size = max(1, min(SLICE_RUNS, SLICE_BYTES // (len(event.payload.data) + 1)))
    parts = [workflows[at : at + size] for at in range(0, len(workflows), size)]
    fan_out = FanOut(event.payload.data, meta, digest, available_at, number, parts)
    emitted = world.emitted.setdefault(event.event_id, Emitted(event.name, run_ids, 0))
    emitted.name, emitted.run_ids = event.name, run_ids
    if len(parts) <= 1:
        for workflow in workflows:
            start_subscriber(moment, event.event_id, workflow, fan_out)
    else:
        emitted.fan_out, emitted.expiry = fan_out, None
        world.fan_outs[event.event_id] = moment.now
    keep(moment, event, event.event_id)
    if number is not None:
        channel = event_channel(event.name, event.key)
        remember(moment, RememberedEvent(number, channel, event.event_id, moment.now, event.payload.data, meta))
        deliver(moment, number, channel, 0)
    return EmittedEvent(event.event_id, run_ids, was_created=True)
