"""Events: those that start runs, those that waits get, and those that are remembered for waits to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from redflow_sdk import converter
from redflow_sdk._messages import EventTarget, RunStart
from redflow_sdk.records import Payload
from redflow_sdk.testing._clock import milliseconds
from redflow_sdk.testing._ends import Outcome, resolve
from redflow_sdk.testing._starts import start_run
from redflow_sdk.testing._world import DEFAULT_KEY_TTL_S, EmittedEvent, Remembered, RunRecord, World

REMEMBERED_MS: Final = 600_000
REMEMBERED_OF_ONE_KEY: Final = 100


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to emit. `available_ms` is when the runs of its subscribers begin; None is at once."""

    name: str
    key: str | None
    payload: Payload
    available_ms: int | None = None
    idempotency_key: str | None = None
    idempotency_ttl: float | None = None


def emit(world: World, event: NewEvent) -> EmittedEvent:
    """Starts a run of every subscriber, and tells waits; a repeat by its idempotency key does neither."""
    key = (event.name, event.idempotency_key or "")
    before, until_ms = world.event_keys.get(key, (None, 0))
    if before is None or until_ms <= world.now_ms or not event.idempotency_key:
        before = _emit_first(world, event)
    if event.idempotency_key:
        ttl = DEFAULT_KEY_TTL_S if event.idempotency_ttl is None else event.idempotency_ttl
        world.event_keys[key] = (before, world.now_ms + milliseconds(ttl))
    return before


def _emit_first(world: World, event: NewEvent) -> EmittedEvent:
    is_due = event.available_ms is None or event.available_ms <= world.now_ms
    world.last_event += is_due
    runs = [
        start_run(world, RunStart(name, event.payload), holder, available_ms=event.available_ms)
        for name, holder in sorted(world.holders.items())
        if event.name in holder.workflow.events
    ]
    if is_due:
        _remember(world, event)
        _deliver(world, (event.name, event.key))
    return EmittedEvent(
        name=event.name,
        payload=converter.decode(event.payload.data),
        key=event.key,
        time=world.clock.time_of(world.now_ms),
        available_at=None if event.available_ms is None else world.clock.time_of(event.available_ms),
        started=tuple(run.id for run in runs),
    )


def _remember(world: World, event: NewEvent) -> None:
    kept = world.memory.setdefault((event.name, event.key), [])
    kept.append(Remembered(world.last_event, f"evt_{world.last_event}", world.now_ms, event.payload))
    del kept[:-REMEMBERED_OF_ONE_KEY]


def _deliver(world: World, channel: tuple[str, str | None]) -> None:
    waits = [
        (run, open_wait)
        for run in world.runs.values()
        for open_wait in run.waits.values()
        if channel_of(open_wait.wait.target) == channel
    ]
    for run, open_wait in sorted(waits, key=lambda each: each[1].number):
        if open_wait.wait.name in run.waits:  # an event that another one of its race has got has withdrawn it
            take_event(world, run, open_wait.wait.name, channel)


def channel_of(target: object) -> tuple[str, str | None] | None:
    """What events and the waits for them meet on; None for what is no wait for an event."""
    return (target.event, target.key) if isinstance(target, EventTarget) else None


def take_event(world: World, run: RunRecord, name: str, channel: tuple[str, str | None]) -> None:
    """Gives a wait the oldest event that its run has not had, if there is one."""
    had = run.cursors.get(channel, run.number_of_last_event)
    for event in world.memory.get(channel, []):
        if event.number > had and event.at_ms > world.now_ms - REMEMBERED_MS:
            run.cursors[channel] = event.number
            time = world.clock.time_of(event.at_ms)
            resolve(world, run, name, Outcome(event.payload, event_id=event.id, event_time=time))
            return
