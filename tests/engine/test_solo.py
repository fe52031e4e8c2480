"""A run that its next loss would end gets a worker for itself, until it has come further or is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, RecordStep, Release, ReleaseReason, Suspend
from redflow_server.domain.session import Capacity, HeldLease, LeaseState
from redflow_server.domain.waits import TimerWait, Wait
from redflow_server.engine import solo
from redflow_server.store.store import Store
from tests.builders import LANE, a_failed_step, a_record, a_step, claim_one, enqueue_one, renew_one
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine, Stores, tell_of_lanes

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
        "1 worker serves it, and none is idle, which it needs because its next loss would end it"
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


async def test_a_worker_that_does_not_get_idle_takes_others_after_a_minute_for_a_minute(
    engine: Engine, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("redflow_server.engine.solo.time.monotonic", lambda: now[0])
    worker, busy_with = await at_work(engine, store, open_worker)
    await suspected(store)
    await engine.upkeep.look_ahead()
    waiting = await others(store, engine, 1)
    assert await assigned(worker) == [busy_with.run_id]

    now[0] += solo.KEPT_CLEAR_S
    engine.dispatcher.wake()
    assert await assigned(worker) == [busy_with.run_id, *waiting]
    waiting += await others(store, engine, 1)
    assert await assigned(worker) == [busy_with.run_id, *waiting]

    now[0] += solo.KEPT_CLEAR_S
    engine.dispatcher.wake()
    await worker.settled()
    await others(store, engine, 1)
    assert await assigned(worker) == [busy_with.run_id, *waiting], "kept clear again"


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
    await worker.settled()
    assert worker.session.slots.is_kept_clear
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
