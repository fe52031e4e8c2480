"""A run that its next loss would end gets a worker for itself, until it has come further or is gone."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from redflow_server.domain.leases import ClaimedRun, RecordStep, Release, ReleaseReason, Suspend
from redflow_server.domain.runs import Step
from redflow_server.domain.session import Capacity, HeldLease, LeaseState
from redflow_server.domain.waits import TimerWait, Wait
from redflow_server.store.store import Store
from tests.builders import LANE, a_failed_step, a_record, a_step, claim_one, enqueue_one, renew_one
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine, Stores, tell_of_lanes
from tests.eventually import eventually

MAX_LOSSES: Final = 3
SOLO_LANE: Final = replace(LANE, is_solo=True)


async def suspected(store: Store) -> str:
    """A run that was lost as often as may be, before anybody here serves its lane; its id."""
    run_id = await enqueue_one(store)
    for _ in range(MAX_LOSSES):
        lease = await claim_one(store)
        await renew_one(store, lease)
        await store.release(Release(run_id, lease.lease_token, ReleaseReason.VANISHED))
    return run_id


async def others(store: Store, engine: Engine, count: int = 2) -> list[str]:
    run_ids = [await enqueue_one(store) for _ in range(count)]
    await tell_of_lanes(store, engine)
    return run_ids


async def assigned(worker: EngineWorker) -> list[str]:
    """The runs that it has got until now."""
    await worker.settled()
    return [run.run_id for run in worker.assignments]


async def alone(engine: Engine, store: Store, worker: EngineWorker, run_id: str) -> ClaimedRun:
    """The worker has got the suspected run."""
    await engine.upkeep.look_ahead()
    run = await worker.assignment()
    assert (run.run_id, run.lane) == (run_id, SOLO_LANE)
    return run


# ---- alone ----


async def test_a_worker_that_has_one_gets_nothing_else_until_it_has_ended(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    run_id = await suspected(store)
    worker = await open_worker(engine, slot_limit=10)
    run = await alone(engine, store, worker, run_id)
    waiting = await others(store, engine)
    assert await assigned(worker) == [run_id]

    await worker.complete(run)

    assert await assigned(worker) == [run_id, *waiting]


async def test_others_come_beside_it_as_soon_as_it_has_recorded_a_step(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    run_id = await suspected(store)
    worker = await open_worker(engine, slot_limit=10)
    run = await alone(engine, store, worker, run_id)
    waiting = await others(store, engine)

    await worker.do(a_record(run, a_failed_step("a")))
    assert await assigned(worker) == [run_id], "a step that failed is no progress"
    record: RecordStep = a_record(run, a_step("b", seq=2), steps_recorded=1)
    await worker.do(record)

    assert await assigned(worker) == [run_id, *waiting]


async def test_others_come_while_it_waits_in_memory(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    run_id = await suspected(store)
    worker = await open_worker(engine, slot_limit=10)
    run = await alone(engine, store, worker, run_id)
    waiting = await others(store, engine)
    nap = Wait(name="nap", seq=1, target=TimerWait(10**14))
    await worker.do(Suspend(run.run_id, run.lease_token, 0, (nap,), parks=True))
    assert await assigned(worker) == [run_id, *waiting]


async def test_each_of_several_has_the_worker_for_itself(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    run_ids = [await suspected(store) for _ in range(3)]
    worker = await open_worker(engine, slot_limit=10)
    for number, run_id in enumerate(run_ids, 1):
        run = await alone(engine, store, worker, run_id)
        assert len(await assigned(worker)) == number
        await worker.complete(run)


async def test_other_workers_go_on_as_ever(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    run_id = await suspected(store)
    first = await open_worker(engine, slot_limit=10)
    await alone(engine, store, first, run_id)
    second = await open_worker(engine, slot_limit=10)
    waiting = await others(store, engine)
    assert await assigned(second) == waiting
    assert await assigned(first) == [run_id]


async def test_who_asks_is_told_why_it_waits(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    run_id = await suspected(store)
    await open_worker(engine, slot_limit=0)
    await engine.sessions.announce()
    run = await engine.runs.get(run_id)
    assert [waiting_for.detail for waiting_for in run.waiting_for] == [
        "1 worker serves it, and none is idle; it needs one for itself, because its next loss would end it"
    ]


# ---- making room ----


async def at_work(engine: Engine, store: Store, open_worker: OpenWorker) -> tuple[EngineWorker, ClaimedRun]:
    """A worker that has a run, and the run."""
    worker = await open_worker(engine, slot_limit=10)
    await others(store, engine, 1)
    return worker, await worker.assignment()


async def test_a_worker_that_is_busy_gets_nothing_new_until_it_is_idle_and_then_that_one(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker, busy_with = await at_work(engine, store, open_worker)
    run_id = await suspected(store)
    await engine.upkeep.look_ahead()
    waiting = await others(store, engine)
    assert await assigned(worker) == [busy_with.run_id]

    await worker.complete(busy_with)

    run = await alone(engine, store, worker, run_id)
    assert await assigned(worker) == [busy_with.run_id, run_id]
    await worker.complete(run)
    assert await assigned(worker) == [busy_with.run_id, run_id, *waiting]


async def test_the_least_busy_of_several_makes_room(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    worker, busy_with = await at_work(engine, store, open_worker)
    busier = await open_worker(engine, slot_limit=10)
    worker.session.slots.limit = 1
    await others(store, engine, 2)
    assert len(await assigned(busier)) == 2
    worker.session.slots.limit = 10

    run_id = await suspected(store)
    await engine.upkeep.look_ahead()
    await others(store, engine, 3)
    assert (len(await assigned(busier)), len(await assigned(worker))) == (5, 1)
    await worker.complete(busy_with)
    await alone(engine, store, worker, run_id)


async def looked(engine: Engine, what: Callable[[], bool], saying: str) -> None:
    """Has the dispatcher look again and again until something holds."""

    def holds() -> bool:
        engine.dispatcher.wake()
        return what()

    await eventually(holds, saying=saying)


async def test_a_worker_that_does_not_get_idle_takes_others_after_a_while_for_as_long(
    engine: Engine, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.solo.TAKEN_UP_S", 0.3)
    worker, busy_with = await at_work(engine, store, open_worker)
    await suspected(store)
    await engine.upkeep.look_ahead()
    waiting = await others(store, engine, 1)
    assert await assigned(worker) == [busy_with.run_id]

    await looked(engine, lambda: len(worker.assignments) == 2, "it takes others")
    assert await assigned(worker) == [busy_with.run_id, *waiting]
    waiting += await others(store, engine, 1)
    assert await assigned(worker) == [busy_with.run_id, *waiting]

    await looked(engine, lambda: worker.session.slots.is_kept_clear, "it is kept clear again")


async def test_others_have_their_turn_between_them(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    for _ in range(3):
        await suspected(store)
    worker = await open_worker(engine, slot_limit=1)
    await engine.upkeep.look_ahead()
    order = []
    run = await worker.assignment()
    await others(store, engine, 3)
    for _ in range(6):
        order.append(run.lane.is_solo)
        await worker.settled()
        await worker.complete(run)
        if len(order) < 6:
            run = await worker.assignment()
    assert order[:2] == [True, False]
    assert sorted(order) == [False] * 3 + [True] * 3


async def test_half_of_the_workers_are_left_to_others(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    for _ in range(4):
        await suspected(store)
    workers = [await open_worker(engine, slot_limit=10) for _ in range(4)]
    await engine.upkeep.look_ahead()
    for worker in workers:
        await worker.settled()
    # One after the other, since they share a lane: each is asked for when the one before has come.
    await looked(engine, lambda: sum(worker.session.slots.has_solo for worker in workers) == 2, "half of them have one")
    for worker in workers:
        await worker.settled()
    assert sum(worker.session.slots.has_solo for worker in workers) == 2


async def test_one_without_slots_is_not_kept_clear(engine: Engine, store: Store, open_worker: OpenWorker) -> None:
    none = await open_worker(engine, slot_limit=0)
    worker, _ = await at_work(engine, store, open_worker)
    await suspected(store)
    await engine.upkeep.look_ahead()
    await looked(engine, lambda: worker.session.slots.is_kept_clear, "it is kept clear")
    assert not none.session.slots.is_kept_clear


class ReadStore(Store):
    """The store itself; `on_read` is called when the steps of a run are asked for."""

    on_read: Callable[[], None]

    def read_steps(self, *arguments: Any, **settings: Any) -> Future[tuple[Step, ...]]:  # Any: those of the store
        self.on_read()
        return super().read_steps(*arguments, **settings)


async def test_one_with_many_steps_is_alone_while_these_are_read(
    stores: Stores, store: Store, open_worker: OpenWorker
) -> None:
    run_id = await enqueue_one(store)
    lease = await claim_one(store)
    await renew_one(store, lease)
    for number in range(70):
        await store.record_step(a_record(lease, a_step(f"s{number}", seq=number), steps_recorded=number))
    for losses in range(MAX_LOSSES):
        if losses:
            lease = await claim_one(store)
            await renew_one(store, lease)
        await store.release(Release(run_id, lease.lease_token, ReleaseReason.VANISHED, steps_recorded=70))
    reading = await stores.open(ReadStore)
    assert isinstance(reading, ReadStore)
    engine = Engine(reading)
    free = []
    reading.on_read = lambda: free.append(worker.session.free_slots)
    worker = await open_worker(engine, slot_limit=10)
    run = await alone(engine, store, worker, run_id)
    assert len(run.steps or ()) == 70
    assert free == [0]


@pytest.mark.parametrize("how", ["canceled", "taken by another gateway"])
async def test_no_room_is_made_any_longer_for_one_that_is_gone(
    engine: Engine, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("redflow_server.engine.solo.LOOK_S", 0.1)
    worker, _ = await at_work(engine, store, open_worker)
    run_id = await suspected(store)
    await engine.upkeep.look_ahead()
    await looked(engine, lambda: worker.session.slots.is_kept_clear, "it is kept clear")

    if how == "canceled":
        await store.cancel(run_id, "", "cancel-1")
    else:
        await claim_one(store, SOLO_LANE)

    await looked(engine, lambda: not worker.session.slots.is_kept_clear, "it takes others")


async def test_no_room_is_made_any_longer_when_another_gateway_had_some(
    stores: Stores, store: Store, open_worker: OpenWorker
) -> None:
    one, other = Engine(await stores.open()), Engine(await stores.open())
    worker, busy_with = await at_work(one, store, open_worker)
    run_id = await suspected(store)
    await one.upkeep.look_ahead()
    idle = await open_worker(other, slot_limit=10)
    await alone(other, store, idle, run_id)

    await worker.complete(busy_with)
    waiting = await others(store, one)
    assert await assigned(worker) == [busy_with.run_id, *waiting]


@pytest.mark.parametrize("how", ["drain", "pause", "close"])
async def test_room_is_made_at_another_worker_when_the_first_takes_none_any_more(
    engine: Engine, store: Store, open_worker: OpenWorker, how: str
) -> None:
    worker, _ = await at_work(engine, store, open_worker)
    run_id = await suspected(store)
    await engine.upkeep.look_ahead()
    await looked(engine, lambda: worker.session.slots.is_kept_clear, "it is kept clear")
    if how == "drain":
        worker.say(drains=True)
    elif how == "pause":
        worker.say(capacity=Capacity(10, is_paused=True))
    else:
        await worker.close()
    second = await open_worker(engine, slot_limit=10)
    await alone(engine, store, second, run_id)
    assert not worker.session.slots.is_kept_clear


# ---- a worker that comes back with it ----


async def test_a_worker_that_comes_back_with_it_has_still_nothing_beside_it(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    run_id = await suspected(store)
    first = await open_worker(engine, slot_limit=10)
    run = await alone(engine, store, first, run_id)
    await first.close()
    second = await open_worker(engine, slot_limit=0, instance_id=first.opening.instance_id, session_number=2)
    await second.beat_with(HeldLease(run.lease_token, LeaseState.RUNNING))
    second.session.slots.limit = 10
    waiting = await others(store, engine)
    assert await assigned(second) == []

    await second.complete(run)
    assert await assigned(second) == waiting
