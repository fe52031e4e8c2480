"""The account of a session: what it holds and what is claimed for it, so that no slot is ever lost or given twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.leases import (
    AbortRun,
    ClaimedRun,
    CompleteRun,
    FailAttempt,
    Lane,
    ListedLease,
    Release,
    ReleaseReason,
)
from redflow_server.domain.payloads import Payload
from redflow_server.domain.session import Capacity, Heartbeat, HeldLease, LeaseState, Receipt, RejectReason
from redflow_server.domain.timing import Timing
from redflow_server.engine.slots import Slots
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import LANE, a_failure, a_lease, a_run, request_cancel
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.line import Line

# ---- the account by itself ----


@pytest.mark.parametrize("seed", range(10))
def test_free_slots_follow_from_what_is_held_and_claimed_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    slots = Slots(limit=10)
    held: dict[str, ClaimedRun] = {}
    parked: set[str] = set()
    claims: list[int] = []
    for number in range(2000):
        runs = list(held.values())
        match chance.randrange(9):
            case 0 if slots.free:
                claims.append(chance.randint(1, slots.free))
                slots.claiming += claims[-1]
            case 1 if claims:
                count = claims.pop(chance.randrange(len(claims)))
                for _ in range(chance.randint(0, count)):
                    run = a_lease(f"run_{number}_{chance.random()}".replace(".", "_"))
                    slots.deliver(run, claimed_at=number)
                    held[run.lease_token] = run
                slots.claiming -= count
            case 2 if runs:
                token = chance.choice(runs).lease_token
                slots.receive(token)
                assert slots.held[token].is_received
            case 3 if runs:
                token = chance.choice(runs).lease_token
                assert slots.drop(token) is not None
                assert slots.drop(token) is None
                del held[token]
                parked.discard(token)
            case 4:
                slots.limit = chance.randint(0, 20)
            case 5:
                brought = a_lease(f"brought_{number}")
                slots.adopt(brought.lease_token, brought.run_id, at=number)
                slots.adopt(brought.lease_token, "another", at=number)
                held[brought.lease_token] = brought
            case 6:
                slots.receive("nobody's")
                slots.park("nobody's")
                slots.unpark("nobody's")
            case 7 if runs:
                token = chance.choice(runs).lease_token
                slots.park(token)
                parked.add(token)
            case 8 if runs:
                token = chance.choice(runs).lease_token
                slots.unpark(token)
                parked.discard(token)
        assert slots.held.keys() == held.keys()
        assert slots.claiming == sum(claims)
        assert slots.parked == len(parked)
        assert slots.free == max(0, slots.limit - len(held) + len(parked) - sum(claims))
        assert all(slots.is_parked(token) == (token in parked) for token in held)
        assert all(slots.held[token].run_id == run.run_id for token, run in held.items())


def test_what_was_not_received_in_time_is_overdue_and_what_was_is_not() -> None:
    slots = Slots(limit=10)
    early, late, received = a_lease("early"), a_lease("late"), a_lease("received")
    slots.deliver(early, claimed_at=10.0)
    slots.deliver(received, claimed_at=10.0)
    slots.deliver(late, claimed_at=20.0)
    slots.receive(received.lease_token)

    assert slots.overdue(before=10.0) == []
    assert slots.overdue(before=15.0) == [early.lease_token]
    slots.held[received.lease_token].open_waits.add("sleep")
    assert slots.unstored_receipts() == [ListedLease(received.lease_token, ("sleep",))]
    slots.held[received.lease_token].receipt_is_stored = True
    assert slots.unstored_receipts() == []


def test_a_lease_that_ends_while_the_store_is_asked_about_it_does_not_take_up_a_slot_again() -> None:
    slots = Slots(1)
    slots.adopt("token", "run_1", at=1.0)
    slots.asked()
    slots.drop("token")
    slots.adopt("token", "run_1", at=2.0)
    slots.answered()
    assert slots.free == 1


def test_a_lease_that_came_with_its_worker_is_received_and_its_receipt_is_on_record() -> None:
    slots = Slots(limit=1)
    slots.adopt("token", "run_1", at=1.0)
    assert (slots.free, slots.overdue(before=9.0), slots.unstored_receipts()) == (0, [], [])


# ---- the account in the engine ----

LANES = (LANE, *(Lane("q", f"w{number}") for number in range(20)))
"""Enough of them: a lane of which a worker has rejected a run is left out for it."""


class Player:
    """A worker that does anything a worker may do, at random."""

    def __init__(self, worker: EngineWorker, store: Store, chance: random.Random) -> None:
        self.worker = worker
        self._store = store
        self._chance = chance
        self._moves: tuple[Callable[[ClaimedRun], Awaitable[None]], ...] = (
            *(self._completes, self._completes, self._fails, self._stops, self._hands_back, self._is_canceled),
            *(self._rejects, self._repeats, self._forgets),
        )

    async def move(self) -> None:
        """Does something with one of its runs, or with itself."""
        worker, chance = self.worker, self._chance
        held = list(worker.held.values())
        if held and chance.random() < 0.8:
            await chance.choice(self._moves)(chance.choice(held))
        elif chance.random() < 0.5:
            worker.say(capacity=Capacity(chance.randint(0, 6), is_paused=chance.random() < 0.2))
        else:
            await self._beats()

    async def _beats(self) -> None:
        listed = [HeldLease(token, LeaseState.RUNNING) for token in self.worker.held]
        self.worker.say(heartbeat=Heartbeat(0, tuple(listed)))

    async def _completes(self, run: ClaimedRun) -> None:
        await self.worker.do(CompleteRun(run.run_id, run.lease_token, 0, Payload(b"1")))

    async def _fails(self, run: ClaimedRun) -> None:
        failure = a_failure(next_retry_delay_ms=0)
        await self.worker.do(FailAttempt(run.run_id, run.lease_token, 0, failure, jitter=0.0))

    async def _stops(self, run: ClaimedRun) -> None:
        await self.worker.do(AbortRun(run.run_id, run.lease_token, 0, True, "stopped", a_failure()))

    async def _hands_back(self, run: ClaimedRun) -> None:
        await self.worker.do(Release(run.run_id, run.lease_token, ReleaseReason.OVERLOADED))

    async def _is_canceled(self, run: ClaimedRun) -> None:
        await request_cancel(self._store, run.run_id)

    async def _rejects(self, run: ClaimedRun) -> None:
        self.worker.held.pop(run.lease_token, None)
        self.worker.say(receipts=(Receipt(run.lease_token, RejectReason.OVERLOADED),))

    async def _repeats(self, run: ClaimedRun) -> None:
        for _ in range(2):
            await self._completes(run)

    async def _forgets(self, run: ClaimedRun) -> None:
        self.worker.held.pop(run.lease_token, None)
        for _ in range(2):
            await self._beats()


@pytest.mark.parametrize("seed", range(4))
async def test_after_anything_that_workers_may_do_every_slot_is_free_again(
    engine: Engine, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker, seed: int
) -> None:
    chance = random.Random(seed)
    async with engine.listening(redis_url, keys):
        players = [Player(await open_worker(engine, *LANES, slot_limit=3), store, chance) for _ in range(3)]
        for _ in range(300):
            lane = chance.choice(LANES)
            await store.enqueue(a_run(workflow=lane.workflow, max_attempts=2))
            if chance.random() < 0.2:
                await engine.upkeep.promote()
                await engine.sessions.tick()
            await chance.choice(players).move()
            for player in players:
                slots = player.worker.session.slots
                assert slots.claiming >= 0
        await hand_everything_back([player.worker for player in players])

    assert sum(len(player.worker.assignments) for player in players) > 100
    assert engine.telemetry.counters["faults"] == 0


async def hand_everything_back(workers: list[EngineWorker]) -> None:
    """Workers take nothing more and give back what they hold; asserts that no slot stays taken."""
    for worker in workers:
        worker.say(capacity=Capacity(0, is_paused=False))
    for worker in workers:
        await worker.settled()
        for run in list(worker.held.values()):
            await worker.do(Release(run.run_id, run.lease_token, ReleaseReason.SHUTDOWN))
        for _ in range(2):
            await worker.beat()
    for worker in workers:
        await worker.settled()
        slots = worker.session.slots
        assert (slots.held, slots.claiming) == ({}, 0)
        slots.limit = 3
        assert slots.free == 3


async def test_when_the_line_to_redis_breaks_again_and_again_no_slot_is_lost(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    timing = Timing(lease_ms=1000)
    engine = Engine(far_store, timing)
    worker = await open_worker(engine, *LANES, slot_limit=5)
    finished: list[str] = []

    async def tend() -> bool:
        """What the timers of a gateway do, and a worker that completes what it has."""
        with suppress(StoreUnavailable):
            await engine.upkeep.look_ahead()
            await engine.sessions.tick()
        await store.reap(timing.lease_ms, 5000, 100)
        worker.say(heartbeat=Heartbeat(0, tuple(HeldLease(token, LeaseState.RUNNING) for token in worker.held)))
        return len(finished) >= len(run_ids)

    async def complete(run: ClaimedRun) -> None:
        while True:
            answer = await worker.do(CompleteRun(run.run_id, run.lease_token, 0, Payload(b"1")))
            if answer.status != "unavailable":
                break
            await asyncio.sleep(0.05)
        if answer.status in ("ok", "duplicate"):
            finished.append(run.run_id)

    tasks: list[asyncio.Task[None]] = []
    worker.on_assignment = lambda run: tasks.append(asyncio.create_task(complete(run)))
    run_ids = []
    for number in range(40):
        run_ids.append((await store.enqueue(a_run(workflow=LANES[number % len(LANES)].workflow))).run_id)
        await tend()
        if number % 5 == 0:
            line.cut()
    await eventually(tend, within=10, every=0.05)
    await asyncio.gather(*tasks)

    assert sorted(finished) == sorted(run_ids)
    await worker.settled()
    slots = worker.session.slots
    assert (slots.held, slots.claiming, slots.free) == ({}, 0, 5)
