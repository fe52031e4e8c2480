"""How a dispatcher knows that a lane has filled: by starts, by messages, by looking ahead; and what of it is news."""

from __future__ import annotations

from redflow_server.domain.leases import Lane
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.store import Store
from tests.builders import LANE, a_run, enqueue_one
from tests.engine.conftest import OpenWorker
from tests.engine.parts import Engine, Stores, tell_of_lanes
from tests.engine.watched_store import WatchedStore
from tests.redis_command import RedisCommand


async def test_a_run_that_is_started_here_is_claimed_without_a_message(engine: Engine, open_worker: OpenWorker) -> None:
    other = Lane("other", LANE.workflow)
    worker = await open_worker(engine, LANE, other, slot_limit=5)
    await worker.settled()
    for queue in (LANE.queue, other.queue):
        run = await engine.runs.start(a_run(queue=queue))
        assert (await worker.assignment()).run_id == run.run_id


async def test_a_delayed_run_is_not_looked_for_when_it_is_started(stores: Stores, open_worker: OpenWorker) -> None:
    store = await stores.open(WatchedStore)
    assert isinstance(store, WatchedStore)
    engine = Engine(store)
    worker = await open_worker(engine)
    await worker.settled()
    await engine.runs.start(a_run(available_at_ms=(await store.due(0)).now_ms + 60_000))
    await worker.settled()
    assert len(store.claims) == 1


async def test_a_message_that_comes_after_the_claim_of_what_it_tells_of_is_no_news(
    stores: Stores, open_worker: OpenWorker
) -> None:
    store = await stores.open(WatchedStore)
    assert isinstance(store, WatchedStore)
    engine = Engine(store)
    worker = await open_worker(engine, slot_limit=5)
    await worker.settled()
    await engine.runs.start(a_run())
    lanes = (await store.due(0)).lanes
    await worker.assignment()
    await worker.settled()
    claims = len(store.claims)

    engine.lane_filled(lane_name(*_parts(LANE)), (await store.due(0)).lane_change)
    await worker.settled()

    assert (lanes, len(store.claims)) == ((), claims)


async def test_a_lost_message_is_made_up_for_by_the_next_look_ahead(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    other = Lane("other", "other")
    worker = await open_worker(engine, LANE, other, slot_limit=5)
    await worker.settled()
    lost = await enqueue_one(store)
    heard = await enqueue_one(store, queue=other.queue, workflow=other.workflow)
    lanes = dict((await store.due(0)).lanes)
    # The later message came, the earlier one did not: what was heard says nothing about what was not.
    engine.lane_filled(lane_name(*_parts(other)), lanes[lane_name(*_parts(other))])
    assert (await worker.assignment()).run_id == heard
    await worker.settled()
    assert len(worker.assignments) == 1

    await engine.upkeep.look_ahead()

    assert (await worker.assignment()).run_id == lost


def _parts(lane: Lane) -> tuple[str, str]:
    return lane.queue, lane.workflow


async def test_when_redis_has_lost_its_last_changes_lost_messages_are_made_up_for_all_the_same(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    await redis("SET", keys.lane_seq, 1_000_000)
    worker = await open_worker(engine, slot_limit=5)
    await enqueue_one(store)
    await engine.upkeep.look_ahead()
    await worker.complete(await worker.assignment())
    await worker.settled()

    await redis("SET", keys.lane_seq, 5)  # as before the changes that were not flushed
    engine.may_have_missed()
    await worker.settled()
    run_id = await enqueue_one(store)
    await engine.upkeep.look_ahead()

    assert (await worker.assignment()).run_id == run_id


async def test_when_redis_was_emptied_its_new_numbers_count_although_they_are_lower(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    await redis("SET", keys.lane_seq, 1_000_000)
    worker = await open_worker(engine, slot_limit=5)
    await engine.runs.start(a_run())
    await worker.complete(await worker.assignment())
    await worker.settled()

    await redis("SET", keys.lane_seq, 5)
    run_id = await enqueue_one(store)
    await tell_of_lanes(store, engine)
    await worker.settled()
    assert len(worker.assignments) == 1, "its number is that of a change before the last claim"
    await engine.upkeep.look_ahead()

    assert (await worker.assignment()).run_id == run_id
