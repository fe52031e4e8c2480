"""due: when the next thing of each kind is due, and which lanes have filled since."""

from __future__ import annotations

import time
from typing import Final

import pytest

from redflow_server.domain.leases import Lane
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Due
from redflow_server.store.store import Store
from tests.builders import START_MS, a_run, a_workflow, claim_one, enqueue_one, everything, register, start_one
from tests.redis_command import RedisCommand
from tests.wait_builders import a_sleep, an_event_wait, some_waits

LATER_MS: Final = START_MS + 60_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def enqueue_in(store: Store, *queues: str) -> None:
    for queue in queues:
        await enqueue_one(store, queue=queue)


def names(due: Due) -> list[str]:
    return [name for name, _ in due.lanes]


async def test_nothing_is_due_in_an_empty_store(store: Store) -> None:
    assert await store.due(0) == Due(START_MS, scheduled_at_ms=None, deadline_at_ms=None, lanes=(), lane_change=0)


async def test_time_is_the_clock_of_redis_unless_a_test_says_otherwise(store: Store) -> None:
    store.now_ms = None
    now_ms = (await store.due(0)).now_ms
    assert abs(now_ms - time.time() * 1000) < 60_000, "the same machine, in milliseconds since 1970"


async def test_the_earliest_scheduled_run_counts_and_late_ones_too(store: Store) -> None:
    await enqueue_one(store, available_at_ms=LATER_MS)
    assert (await store.due(0)).scheduled_at_ms == LATER_MS
    await enqueue_one(store, available_at_ms=LATER_MS + 1)
    assert (await store.due(0)).scheduled_at_ms == LATER_MS
    await enqueue_one(store, available_at_ms=START_MS + 1)
    assert (await store.due(0)).scheduled_at_ms == START_MS + 1

    store.now_ms = START_MS + 2
    assert (await store.due(0)).scheduled_at_ms == START_MS + 1
    await store.promote(100)
    assert (await store.due(0)).scheduled_at_ms == LATER_MS


async def test_the_earliest_deadline_counts(store: Store) -> None:
    await register(store, a_workflow(start_timeout_ms=5000, run_timeout_ms=2000))
    await enqueue_one(store)
    assert (await store.due(0)).deadline_at_ms == START_MS + 5000
    store.now_ms = START_MS + 1000
    await enqueue_one(store)
    assert (await store.due(0)).deadline_at_ms == START_MS + 5000


async def test_a_started_run_is_due_when_it_has_to_be_done(store: Store) -> None:
    await register(store, a_workflow(start_timeout_ms=5000, run_timeout_ms=9000))
    await start_one(store)
    assert (await store.due(0)).deadline_at_ms == START_MS + 9000


async def test_the_earliest_time_of_a_wait_counts(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, a_sleep("later", 2000), a_sleep("first", 1000), an_event_wait()))
    assert (await store.due(0)).timer_at_ms == START_MS + 1000
    store.now_ms = START_MS + 1500
    assert (await store.due(0)).timer_at_ms == START_MS + 1000
    await store.fire_timers(100)
    assert (await store.due(0)).timer_at_ms == START_MS + 2000


async def test_lanes_are_told_with_the_number_of_their_change(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_in(store, "q1", "q2")
    lanes = (await store.due(0)).lanes
    assert {name for name, _ in lanes} == {lane_name("q1", "w"), lane_name("q2", "w")}
    for name, change in lanes:
        assert change == int(float(await redis("ZSCORE", keys.lanes, name)))
        assert change > 0


async def test_only_lanes_that_filled_after_a_change_are_told(store: Store) -> None:
    await enqueue_in(store, "q1")
    [(_, seen)] = (await store.due(0)).lanes
    assert (await store.due(seen)).lanes == ()

    await enqueue_in(store, "q2", "q1")
    assert names(await store.due(seen)) == [lane_name("q2", "w")], "a lane that was not empty has not changed"
    assert len((await store.due(0)).lanes) == 2


async def test_a_lane_that_was_emptied_and_filled_again_is_told_again(store: Store) -> None:
    await enqueue_in(store, "q1")
    [(name, seen)] = (await store.due(0)).lanes

    await claim_one(store, Lane("q1", "w"))
    assert (await store.due(0)).lanes == ()
    await enqueue_in(store, "q1")

    [(again, change)] = (await store.due(seen)).lanes
    assert (again, change > seen) == (name, True)


async def test_lanes_come_in_the_order_of_their_changes(store: Store) -> None:
    queues = [f"q{number}" for number in (3, 1, 2)]
    await enqueue_in(store, *queues)
    due = await store.due(0)
    assert names(due) == [lane_name(queue, "w") for queue in queues]
    assert [change for _, change in due.lanes] == sorted(change for _, change in due.lanes)


async def test_following_the_highest_number_misses_no_lane_of_thousands(store: Store) -> None:
    queues = [f"q{number}" for number in range(2500)]
    for started in [store.enqueue(run) for run in (a_run(queue=queue) for queue in queues)]:
        await started

    found: list[str] = []
    change = 0
    for _ in range(4):
        due = await store.due(change)
        found += names(due)
        assert len(due.lanes) <= 1000, "one answer stays small"
        change = max([change, *(number for _, number in due.lanes)])
    assert sorted(found) == sorted(lane_name(queue, "w") for queue in queues)


async def test_looking_writes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_in(store, "q1")
    await enqueue_one(store, available_at_ms=LATER_MS)
    before = await everything(redis, keys)
    await store.due(0)
    assert await everything(redis, keys) == before


@pytest.mark.leaves_faults
async def test_in_a_store_that_was_emptied_the_numbers_go_on_from_the_time(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await enqueue_in(store, *(f"q{number}" for number in range(20)))
    last = (await store.due(0)).lane_change
    await redis("DEL", keys.lane_seq, keys.lanes)

    store.now_ms = START_MS + 1
    await enqueue_in(store, "q")

    assert (await store.due(0)).lane_change > last
