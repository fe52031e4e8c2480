"""Whatever happens, in whatever order: no worker has more handlers at work than slots, and no slot is ever lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pytest

from redflow_server.domain.leases import (
    AbortRun,
    BeginWaits,
    ClaimedRun,
    CompleteRun,
    RecordStep,
    StopReason,
    Suspend,
)
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.session import (
    Effect,
    GatewayMessage,
    Heartbeat,
    HeldLease,
    ItemAnswer,
    ItemStatus,
    LeaseState,
)
from redflow_server.domain.states import TERMINAL, StepStatus
from redflow_server.domain.waits import Wait
from redflow_server.engine import resolutions
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import a_failure, a_step, an_event, enqueue_one, request_cancel
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.wait_builders import an_event_wait

SLOTS: Final = 3
EVENTS: Final = tuple(f"e{number}" for number in range(40))
FINISHED: Final = (StepStatus.SUCCEEDED, StepStatus.FAILED)
ENDED: Final = (ItemStatus.OK, ItemStatus.DUPLICATE, ItemStatus.SUSPENDED, ItemStatus.CANCELED, ItemStatus.LEASE_LOST)


@dataclass
class Handler:
    """A handler as its worker knows it."""

    run: ClaimedRun
    is_parked: bool = False
    is_asking: bool = False
    is_to_stop: bool = False
    done: set[str] = field(default_factory=set)
    waits: set[str] = field(default_factory=set)
    """Its open waits: `<event> <number>`."""


class KeepingWorker:
    """A worker that keeps handlers in memory while they wait, and does anything that a worker may do."""

    def __init__(self, worker: EngineWorker, chance: random.Random) -> None:
        self.worker = worker
        self.handlers: dict[str, Handler] = {}
        self.seen: Counter[str] = Counter()
        self.most_at_work = 0
        self.odd: list[ItemAnswer] = []
        """Answers that none of its items may get."""
        self._chance = chance
        self._asked: dict[int, tuple[str, Effect]] = {}
        self._steps = 0
        worker.on_message = self._hear

    # ---- hearing ----

    def _hear(self, message: GatewayMessage) -> None:
        for token in message.heartbeat_reply.lost_tokens if message.heartbeat_reply else ():
            self.handlers.pop(token, None)
        for answer in message.answers:
            self._hear_answer(answer)
        for stop in message.stops:
            self.seen[stop.reason] += 1
            if stop.reason is StopReason.USER and stop.lease_token in self.handlers:
                self.handlers[stop.lease_token].is_to_stop = True
            else:
                self.handlers.pop(stop.lease_token, None)
        for resolution in message.resolutions:
            handler = self.handlers.get(resolution.lease_token)
            if handler is not None and resolution.step is not None:
                self.seen["told while parked" if handler.is_parked else "told at work"] += 1
                self._note(handler, [resolution.step])
                handler.is_parked = False
        for run in message.assignments:
            handler = Handler(run)
            self._note(handler, run.steps or ())
            self.handlers[run.lease_token] = handler
        at_work = sum(not handler.is_parked for handler in self.handlers.values())
        self.most_at_work = max(self.most_at_work, at_work)

    def _hear_answer(self, answer: ItemAnswer) -> None:
        token, effect = self._asked.pop(answer.request_id)
        handler = self.handlers.get(token)
        if handler is None:
            return
        handler.is_asking = False
        self.seen[f"{type(effect).__name__} {answer.status}"] += 1
        ends = isinstance(effect, (AbortRun, CompleteRun, Suspend)) and answer.status in ENDED
        if ends or answer.status is ItemStatus.LEASE_LOST:
            del self.handlers[token]
        elif isinstance(effect, RecordStep) and answer.status is ItemStatus.OK:
            handler.done.add(effect.step.name)
        elif isinstance(effect, Suspend) and answer.status in (ItemStatus.PARKED, ItemStatus.RESOLVED):
            handler.is_parked = answer.status is ItemStatus.PARKED
        elif not isinstance(effect, BeginWaits) or answer.status not in (ItemStatus.OK, ItemStatus.RESOLVED):
            self.odd.append(answer)
        self._note(handler, answer.resolutions)

    def _note(self, handler: Handler, steps: Iterable[Step]) -> None:
        for step in steps:
            if step.status in FINISHED:
                handler.done.add(step.name)
                handler.waits.discard(step.name)
            elif step.status is StepStatus.WAITING:
                handler.waits.add(step.name)

    # ---- doing ----

    def move(self) -> None:
        """Does something with one of its handlers, or with itself."""
        idle = [handler for handler in self.handlers.values() if not handler.is_asking]
        if not idle or self._chance.random() < 0.1:
            self.beat()
            return
        handler = self._chance.choice(idle)
        if handler.is_to_stop:
            self._ask(handler, AbortRun(*self._under(handler), False, "canceled", a_failure()))
        elif handler.is_parked:
            if self._chance.random() < 0.2:
                self._suspend(handler, parks=0)
        else:
            self._go_on(handler)

    def _go_on(self, handler: Handler) -> None:
        match self._chance.randrange(8):
            case 0:
                self.complete(handler)
            case 1:
                self._steps += 1
                self._ask(handler, RecordStep(*self._under(handler), a_step(f"step {self._steps}")))
            case 2:
                self._ask(handler, BeginWaits(*self._under(handler), (self._new_wait(handler),)))
            case choice:
                if not handler.waits or self._chance.random() < 0.5:
                    self._new_wait(handler)
                self._suspend(handler, parks=choice - 3)

    def _new_wait(self, handler: Handler) -> Wait:
        self._steps += 1
        name = f"{self._chance.choice(EVENTS)} {self._steps}"
        handler.waits.add(name)
        return a_wait_of(name)

    def _suspend(self, handler: Handler, parks: int) -> None:
        waits = tuple(a_wait_of(name) for name in sorted(handler.waits))
        self._ask(handler, Suspend(*self._under(handler), waits, bool(parks)))

    def complete(self, handler: Handler) -> None:
        """The handler has returned."""
        self._ask(handler, CompleteRun(*self._under(handler), Payload(b"1")))

    def beat(self) -> None:
        """Lists every lease, with the waits that it takes to be open."""
        state = {True: LeaseState.PARKED, False: LeaseState.RUNNING}
        leases = (HeldLease(token, state[it.is_parked], tuple(it.waits)) for token, it in self.handlers.items())
        self.worker.say(heartbeat=Heartbeat(1, tuple(leases)))

    def _under(self, handler: Handler) -> tuple[str, str, int]:
        return handler.run.run_id, handler.run.lease_token, len(handler.done)

    def _ask(self, handler: Handler, effect: Effect) -> None:
        handler.is_asking = True
        request_id = self.worker.send(effect)
        self._asked[request_id] = (handler.run.lease_token, effect)


def a_wait_of(step: str) -> Wait:
    """The wait of a step, which says what it waits for."""
    return an_event_wait(step, event=step.partition(" ")[0])


async def open_runs(store: Store) -> int:
    """How many runs have not ended."""
    return sum(count for status, count in (await store.read_stats()).runs if status not in TERMINAL)


async def play(engine: Engine, store: Store, worker: KeepingWorker, chance: random.Random) -> None:
    """Runs are started, events come, orders to stop and all that a worker does, and now and then messages are lost."""
    for _ in range(1200):
        match chance.randrange(14):
            case 0:
                await enqueue_one(store)
            case 1 if waits := [wait for handler in worker.handlers.values() for wait in sorted(handler.waits)]:
                await store.emit_event(an_event(chance.choice(waits).partition(" ")[0]))
            case 2:
                engine.deaf_to = {"resolved"} if chance.random() < 0.3 else set()
            case 3 if worker.handlers and chance.random() < 0.2:
                await request_cancel(store, chance.choice(list(worker.handlers.values())).run.run_id)
            case 4:
                await engine.sessions.tick()
            case 5 | 6:
                await worker.worker.settled()
            case _:
                worker.move()
        await asyncio.sleep(0)
        assert worker.worker.session.slots.claiming >= 0


async def bring_to_an_end(engine: Engine, store: Store, worker: KeepingWorker) -> None:
    """Every run ends: events come until no handler waits for any more."""

    async def have_all_ended() -> bool:
        for event in EVENTS:
            await store.emit_event(an_event(event))
        worker.beat()
        for handler in list(worker.handlers.values()):
            if not (handler.is_asking or handler.is_parked):
                worker.complete(handler)
        await engine.sessions.tick()
        await worker.worker.settled()
        return await open_runs(store) == 0

    await eventually(have_all_ended, within=15)


@pytest.mark.parametrize("slot_wait_s", [1.0, 0.01], ids=["patient", "impatient"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_more_handlers_are_at_work_than_slots_and_in_the_end_every_slot_is_free(
    engine: Engine,
    store: Store,
    redis_url: str,
    keys: Keys,
    open_worker: OpenWorker,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    slot_wait_s: float,
) -> None:
    monkeypatch.setattr(resolutions, "SLOT_WAIT_S", slot_wait_s)
    chance = random.Random(seed)
    async with engine.listening(redis_url, keys):
        worker = KeepingWorker(await open_worker(engine, slot_limit=SLOTS), chance)
        await play(engine, store, worker, chance)
        await bring_to_an_end(engine, store, worker)
        worker.beat()
        await worker.worker.settled()

    assert worker.most_at_work == SLOTS
    assert worker.odd == []
    assert {"Suspend parked", "Suspend resolved", "Suspend suspended", "told while parked"} <= worker.seen.keys()
    session = worker.worker.session
    assert (session.slots.held, session.slots.claiming, session.slots.parked) == ({}, 0, 0)
    assert (session.free_slots, len(session._resolutions)) == (SLOTS, 0)
    assert engine.telemetry.counters["faults"] == 0
