"""Runs and sessions come together: whatever is ready is claimed as soon as somebody has room for it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from redflow_server.domain.clock import now_s
from redflow_server.domain.ids import new_run_id
from redflow_server.domain.leases import Claim, ClaimedRun, Lane
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun
from redflow_server.domain.session import Capacity
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import LANE, a_run, enqueue_one
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine, Stores, tell_of_lanes
from tests.engine.watched_store import WatchedStore
from tests.eventually import eventually
from tests.line import Line
from tests.redis_command import RedisCommand

CLAIM = load_scripts()["claim"].sha


async def open_with_held_claim(engine: Engine, line: Line, open_worker: OpenWorker) -> EngineWorker:
    """A worker with one slot, for which a claim is under way: Redis has executed it, and the answer is held."""
    worker = await open_worker(engine, slot_limit=0)
    line.hold_replies_from(CLAIM)
    worker.say(capacity=Capacity(1, is_paused=False))
    await line.holding.wait()
    return worker


# ---- no run is left lying ----


async def test_the_first_session_of_a_lane_gets_what_was_there_before_it(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    run_id = await enqueue_one(store)
    worker = await open_worker(engine)
    assert (await worker.assignment()).run_id == run_id


async def test_a_session_gets_what_came_to_its_lane_while_nobody_served_it(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    first = await open_worker(engine)
    await first.settled()
    await first.close()
    run_id = await enqueue_one(store)
    await tell_of_lanes(store, engine)

    second = await open_worker(engine)

    assert (await second.assignment()).run_id == run_id


async def test_a_run_that_comes_while_an_empty_claim_is_under_way_is_claimed_by_the_next_one(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    worker = await open_with_held_claim(engine, line, open_worker)

    run_id = await enqueue_one(store)
    await tell_of_lanes(store, engine)
    await asyncio.sleep(0)
    assert worker.assignments == []
    line.let_go()

    assert (await worker.assignment()).run_id == run_id


async def test_a_lane_that_a_claim_left_empty_is_not_asked_again_until_it_fills(
    stores: Stores, open_worker: OpenWorker
) -> None:
    store = await stores.open(WatchedStore)
    assert isinstance(store, WatchedStore)
    engine = Engine(store)
    worker = await open_worker(engine, slot_limit=5)
    await worker.settled()
    assert len(store.claims) == 1

    await worker.beat()
    await engine.upkeep.look_ahead()
    await worker.settled()
    assert len(store.claims) == 1

    await enqueue_one(store)
    await engine.upkeep.look_ahead()
    await worker.assignment()
    await worker.settled()
    assert len(store.claims) == 2


async def test_entries_without_a_run_do_not_hide_the_run_behind_them(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    run_id = await enqueue_one(store)
    lane = keys.lane(lane_name(LANE.queue, LANE.workflow))
    for number in range(500):
        await redis("ZADD", lane, -number - 1, new_run_id())

    worker = await open_worker(engine)

    assert (await worker.assignment()).run_id == run_id


async def test_a_lane_stays_worth_a_look_for_a_gateway_whose_workers_were_all_busy_when_it_filled(
    stores: Stores, store: Store, open_worker: OpenWorker
) -> None:
    one, other = Engine(await stores.open()), Engine(await stores.open())
    busy = await open_worker(one)
    blocker = await enqueue_one(store)
    await one.upkeep.look_ahead()
    at_work = await busy.assignment()
    assert at_work.run_id == blocker
    idle = await open_worker(other)
    await idle.settled()

    run_ids = [await enqueue_one(store) for _ in range(3)]
    for engine in (one, other):
        await tell_of_lanes(store, engine)
    assert (await idle.assignment()).run_id == run_ids[0]
    await busy.settled()
    assert len(busy.assignments) == 1, "it has no room"

    await busy.complete(at_work)

    assert (await busy.assignment()).run_id == run_ids[1]


@pytest.mark.parametrize("before", [Capacity(0, is_paused=False), Capacity(1, is_paused=True)], ids=["full", "paused"])
async def test_a_session_that_gets_room_is_looked_at_at_once(
    engine: Engine, store: Store, open_worker: OpenWorker, before: Capacity
) -> None:
    worker = await open_worker(engine, slot_limit=0)
    worker.say(capacity=before)
    run_id = await enqueue_one(store)
    await engine.upkeep.look_ahead()
    await worker.settled()
    assert worker.assignments == []

    worker.say(capacity=Capacity(1, is_paused=False))

    assert (await worker.assignment()).run_id == run_id


# ---- claims under way ----


@pytest.mark.parametrize(("slots", "sizes"), [(10, [10]), (64, [32, 32]), (100, [50, 50]), (300, [128, 128, 44])])
async def test_a_worker_with_many_slots_gets_its_runs_in_parts_so_that_it_works_on_one_while_the_next_is_on_its_way(
    slots: int, sizes: list[int], stores: Stores, open_worker: OpenWorker
) -> None:
    store = await stores.open(WatchedStore)
    assert isinstance(store, WatchedStore)
    await asyncio.gather(*(enqueue_one(store) for _ in range(slots + 50)))
    worker = await open_worker(Engine(store), slot_limit=slots)
    await eventually(lambda: len(worker.session.slots.held) == slots)
    assert [claim.count for claim in store.claims] == sizes


async def test_many_sessions_on_many_lanes_get_every_run_once_and_never_more_than_they_have_slots_for(
    stores: Stores, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    chance = random.Random(7)
    store = await stores.open(WatchedStore)
    assert isinstance(store, WatchedStore)
    engine = Engine(store)
    lanes = [Lane(f"q{number % 3}", f"w{number}") for number in range(12)]
    workers: dict[str, EngineWorker] = {}
    executed: Counter[str] = Counter()

    def check(claim: Claim) -> None:
        slots = workers[claim.stamp.session_id].session.slots if claim.stamp.session_id in workers else None
        if slots is not None:
            assert len(slots.held) + slots.claiming <= slots.limit

    async def work(worker: EngineWorker, run: ClaimedRun) -> None:
        executed[run.run_id] += 1
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        await worker.complete(run)

    async def serve(number: int) -> None:
        served = [lane for at, lane in enumerate(lanes) if at % 4 == number % 4 or chance.random() < 0.3]
        worker = await open_worker(engine, *served, slot_limit=1 + number % 5)
        workers[worker.session.session_id] = worker
        worker.on_assignment = lambda run: working.append(asyncio.create_task(work(worker, run)))

    working: list[asyncio.Task[None]] = []
    store.on_claim = check
    async with engine.listening(redis_url, keys):
        for number in range(8):
            await serve(number)
        run_ids = []
        for _ in range(40):
            burst = [chance.choice(lanes) for _ in range(chance.randrange(20))]
            started = [
                store.enqueue(NewRun(new_run_id(), lane.workflow, Payload(b"1"), queue=lane.queue)) for lane in burst
            ]
            run_ids += [run.run_id for run in await asyncio.gather(*started)]
            if chance.random() < 0.3:
                await asyncio.sleep(0.002)
        await eventually(lambda: len(executed) == len(run_ids), within=15)
        await asyncio.gather(*working)

    assert executed == Counter(run_ids)
    assert store.met == [], "one claim at a time names a lane"
    assert len(store.claims) > 40
    assert all(worker.most_held <= worker.opening.slot_limit for worker in workers.values())
    assert all(worker.assignments for worker in workers.values())
    for worker in workers.values():
        await worker.settled()
        slots = worker.session.slots
        assert (slots.held, slots.claiming, slots.free) == ({}, 0, slots.limit)


async def test_workers_have_their_turn_under_a_load_that_one_could_carry(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    workers = [await open_worker(engine, slot_limit=8) for _ in range(3)]
    for number in range(1, 10):
        await enqueue_one(store)
        await tell_of_lanes(store, engine)
        await eventually(lambda number=number: sum(len(worker.assignments) for worker in workers) == number)
    assert [len(worker.assignments) for worker in workers] == [3, 3, 3]


@pytest.mark.parametrize(("lane_count", "slots"), [(2, 1), (5, 3), (64, 1), (100, 1), (100, 30)])
async def test_lanes_have_their_turn_so_that_a_full_one_does_not_keep_others_waiting(
    engine: Engine, store: Store, open_worker: OpenWorker, lane_count: int, slots: int
) -> None:
    lanes = [Lane("q", f"w{number}") for number in range(lane_count)]
    await asyncio.gather(*(store.enqueue(a_run(workflow=lane.workflow)) for lane in lanes for _ in range(4)))
    worker = await open_worker(engine, *lanes, slot_limit=slots)

    served: Counter[Lane] = Counter()
    while served.total() < 2 * lane_count:
        run = await worker.assignment()
        served[run.lane] += 1
        await worker.complete(run)

    assert served.keys() == set(lanes), "none is passed over while another has a third turn"


async def test_an_answer_that_comes_later_than_the_leases_in_it_last_is_dropped(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    timing = Timing(lease_ms=400)
    engine = Engine(far_store, timing)
    run_id = await enqueue_one(store)
    worker = await open_with_held_claim(engine, line, open_worker)
    await asyncio.sleep(timing.delivery_ms / 1000)  # the slowness of the line

    line.let_go()
    await worker.settled()

    assert worker.assignments == []
    assert (worker.session.slots.claiming, worker.session.free_slots) == (0, 1)

    async def is_taken_back() -> bool:
        await store.reap(timing.lease_ms, 5000, 100)
        return (await store.read_run(run_id)).status is RunStatus.QUEUED

    await eventually(is_taken_back)
    await engine.upkeep.look_ahead()
    run = await worker.assignment()
    assert (run.run_id, run.deliveries) == (run_id, 2)
    assert (await store.read_run(run_id)).losses == 0


async def test_what_a_claim_brought_before_the_machine_was_suspended_is_dropped(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(far_store)
    await enqueue_one(store)
    worker = await open_with_held_claim(engine, line, open_worker)
    awake_s = now_s()
    monkeypatch.setattr("redflow_server.engine.dispatcher.now_s", lambda: awake_s + engine.timing.delivery_ms / 1000)

    line.let_go()
    await worker.settled()

    assert worker.assignments == []
    assert worker.session.free_slots == 1


async def test_a_claim_whose_answer_was_lost_keeps_no_slot_and_its_lanes_are_looked_at_again(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    lost = await enqueue_one(store)
    worker = await open_with_held_claim(engine, line, open_worker)
    assert (await store.read_run(lost)).status is RunStatus.RUNNING

    line.cut()
    await eventually(lambda: worker.session.slots.claiming == 0)
    assert worker.session.free_slots == 1
    run_id = await enqueue_one(store)
    await worker.beat()

    assert (await worker.assignment()).run_id == run_id


async def test_what_was_claimed_for_a_session_that_has_closed_goes_back_at_no_cost(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    run_id = await enqueue_one(store)
    worker = await open_with_held_claim(engine, line, open_worker)
    await worker.close()

    line.let_go()

    async def is_back() -> bool:
        return (await store.read_run(run_id)).status is RunStatus.QUEUED

    await eventually(is_back)
    assert worker.assignments == []
    run = await store.read_run(run_id)
    assert (run.losses, run.deliveries) == (0, 1)


async def test_a_worker_that_drains_is_told_so_after_the_last_run_that_was_claimed_for_it(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    await enqueue_one(store)
    await enqueue_one(store)
    worker = await open_with_held_claim(engine, line, open_worker)

    worker.say(drains=True)
    await asyncio.sleep(0)
    assert worker.order == []
    line.let_go()

    run = await worker.assignment()
    await worker.until(lambda: "drained" in worker.order, "not told")
    assert worker.order == [run.lease_token, "drained"]
    await worker.complete(run)
    await worker.settled()
    assert worker.order == [run.lease_token, "drained"], "nothing follows"
