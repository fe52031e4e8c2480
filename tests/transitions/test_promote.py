"""promote: scheduled runs whose time has come go to their lanes."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import Lane, ReleaseReason
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Passed
from redflow_server.store.store import Store
from tests.builders import (
    HALF_WRITTEN,
    START_MS,
    Messages,
    Places,
    a_claim,
    a_failed_attempt,
    a_release,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    places,
    put_in_state,
    record_of,
    start_one,
)
from tests.redis_command import RedisCommand

DUE_MS: Final = START_MS + 10_000
LIMIT: Final = 100
NAME: Final = lane_name("q", "w")


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def promote_at(store: Store, at_ms: int, limit: int = LIMIT) -> Passed:
    store.now_ms = at_ms
    return await store.promote(limit)


# ---- due ----


@pytest.mark.parametrize("late_by_ms", [0, 1, 3_600_000])
async def test_a_run_that_is_due_goes_to_its_lane(
    store: Store, redis: RedisCommand, keys: Keys, late_by_ms: int
) -> None:
    run_id = await enqueue_one(store, available_at_ms=DUE_MS)

    assert await promote_at(store, DUE_MS + late_by_ms) == Passed(count=1, next_at_ms=None)

    assert await places(redis, keys, run_id) == Places((NAME,), None, None, (RunStatus.QUEUED,))
    run = await store.read_run(run_id)
    assert (run.status, run.available_at_ms, run.attempt) == (RunStatus.QUEUED, None, 0)
    assert await redis("ZSCORE", keys.workflow_status(RunStatus.SCHEDULED, "w"), run_id) is None
    assert await redis("ZSCORE", keys.workflow_status(RunStatus.QUEUED, "w"), run_id) is not None
    assert (await claim_one(store)).run_id == run_id


async def test_a_run_that_is_not_due_stays_where_it_is(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_one(store, available_at_ms=DUE_MS)
    before = await everything(redis, keys)
    assert await promote_at(store, DUE_MS - 1) == Passed(count=0, next_at_ms=DUE_MS)
    assert await everything(redis, keys) == before


async def test_nothing_scheduled_is_nothing_promoted(store: Store, redis: RedisCommand, keys: Keys) -> None:
    assert await promote_at(store, DUE_MS) == Passed(count=0, next_at_ms=None)
    assert await everything(redis, keys) == {}


async def test_runs_that_became_due_earlier_are_claimed_earlier(store: Store, redis: RedisCommand, keys: Keys) -> None:
    last = await enqueue_one(store, available_at_ms=DUE_MS + 2)
    first = await enqueue_one(store, available_at_ms=DUE_MS)
    second = await enqueue_one(store, available_at_ms=DUE_MS + 1)
    await promote_at(store, DUE_MS + 10)
    assert await lane_of(redis, keys) == [first, second, last]


async def test_a_promoted_run_stands_behind_those_that_wait_already_and_before_later_ones(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    promoted = await enqueue_one(store, available_at_ms=DUE_MS)
    earlier = await enqueue_one(store)
    await promote_at(store, DUE_MS)
    later = await enqueue_one(store)
    assert await lane_of(redis, keys) == [earlier, promoted, later]


async def test_priority_counts_in_the_lane(store: Store, redis: RedisCommand, keys: Keys) -> None:
    waiting = await enqueue_one(store)
    low = await enqueue_one(store, available_at_ms=DUE_MS, priority=-1)
    high = await enqueue_one(store, available_at_ms=DUE_MS + 1, priority=1)
    await promote_at(store, DUE_MS + 1)
    assert await lane_of(redis, keys) == [high, waiting, low]


async def test_each_run_goes_to_its_own_lane(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lanes = [Lane("q1", "a"), Lane("q1", "b"), Lane("a:b", "c"), Lane("a", "b:c")]
    runs = [
        await enqueue_one(store, queue=lane.queue, workflow=lane.workflow, available_at_ms=DUE_MS) for lane in lanes
    ]
    assert (await promote_at(store, DUE_MS)).count == 4
    assert [await lane_of(redis, keys, lane) for lane in lanes] == [[run_id] for run_id in runs]


async def test_at_most_as_many_as_asked_for_and_the_earliest_first(store: Store) -> None:
    runs = [await enqueue_one(store, available_at_ms=DUE_MS + number) for number in reversed(range(5))][::-1]

    assert await promote_at(store, DUE_MS + 100, limit=2) == Passed(count=2, next_at_ms=DUE_MS + 2)

    statuses = [(await store.read_run(run_id)).status.value for run_id in runs]
    assert statuses == ["queued", "queued", "scheduled", "scheduled", "scheduled"]
    assert (await promote_at(store, DUE_MS + 100, limit=2)).count == 2
    assert await promote_at(store, DUE_MS + 100, limit=2) == Passed(count=1, next_at_ms=None)


async def test_a_run_that_is_to_be_retried_is_promoted_too(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.fail(a_failed_attempt(lease))
    due_ms = (await store.read_run(lease.run_id)).available_at_ms
    assert due_ms is not None

    assert (await promote_at(store, due_ms - 1)).count == 0
    assert (await promote_at(store, due_ms)).count == 1

    assert await lane_of(redis, keys) == [lease.run_id]
    assert (await claim_one(store)).attempt == 2


# ---- messages ----


async def test_gateways_hear_once_of_a_lane_that_fills(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    for _ in range(3):
        await enqueue_one(store, available_at_ms=DUE_MS)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await promote_at(store, DUE_MS)
        change = int(float(await redis("ZSCORE", keys.lanes, NAME)))
        assert await messages.so_far() == [f"lane {change} {NAME}"]


async def test_a_lane_that_has_runs_already_is_not_told_again(store: Store, keys: Keys, redis_url: str) -> None:
    await enqueue_one(store)
    await enqueue_one(store, available_at_ms=DUE_MS)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await promote_at(store, DUE_MS)
        assert await messages.so_far() == []


async def test_gateways_hear_of_a_due_time_only_when_it_is_the_earliest(
    store: Store, keys: Keys, redis_url: str
) -> None:
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await enqueue_one(store, available_at_ms=DUE_MS)
        assert await messages.so_far() == [f"due scheduled {DUE_MS}"]
        await enqueue_one(store, available_at_ms=DUE_MS + 1)
        assert await messages.so_far() == []
        await enqueue_one(store, available_at_ms=DUE_MS - 1)
        assert await messages.so_far() == [f"due scheduled {DUE_MS - 1}"]


async def test_gateways_hear_of_a_retry_and_of_a_delayed_hand_back_that_are_due_first(
    store: Store, keys: Keys, redis_url: str
) -> None:
    retried = await start_one(store, max_attempts=2)
    handed_back = await start_one(store)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.fail(a_failed_attempt(retried))
        due_ms = (await store.read_run(retried.run_id)).available_at_ms
        assert await messages.so_far() == [f"due scheduled {due_ms}"]
        await store.release(a_release(handed_back, ReleaseReason.OVERLOADED, delay_ms=100))
        assert await messages.so_far() == [f"due scheduled {START_MS + 100}"]


# ---- runs that must not move ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.SCHEDULED))
async def test_an_entry_of_a_run_that_is_not_scheduled_is_dropped_and_moves_nothing(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    await redis("ZADD", keys.scheduled, DUE_MS, run_id)

    await promote_at(store, DUE_MS)

    assert await everything(redis, keys) == before
    if state not in (RunStatus.QUEUED, HALF_WRITTEN):
        assert (await store.claim(a_claim())).runs == ()


@pytest.mark.leaves_faults
async def test_an_entry_whose_record_is_something_else_is_dropped_and_holds_nobody_up(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await redis("SET", keys.run("run_odd"), "not a record")
    await redis("ZADD", keys.scheduled, DUE_MS - 1, "run_odd")
    run_id = await enqueue_one(store, available_at_ms=DUE_MS)

    await promote_at(store, DUE_MS)

    assert (await store.read_run(run_id)).status is RunStatus.QUEUED
    assert await redis("ZCARD", keys.scheduled) == 0


async def test_entries_of_nobody_do_not_starve_those_behind_them(store: Store, redis: RedisCommand, keys: Keys) -> None:
    for number in range(7):
        await redis("ZADD", keys.scheduled, DUE_MS - 1, f"run_ghost{number}")
    run_id = await enqueue_one(store, available_at_ms=DUE_MS)
    for _ in range(4):
        await promote_at(store, DUE_MS, limit=3)
    assert (await store.read_run(run_id)).status is RunStatus.QUEUED


async def test_a_scheduled_run_that_carries_a_cancel_is_canceled_when_it_is_due(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store, available_at_ms=DUE_MS)
    await redis("HSET", keys.run(run_id), "cancelRequestedAt", START_MS, "cancelReason", "why")

    await promote_at(store, DUE_MS)

    assert (await store.read_run(run_id)).status is RunStatus.CANCELED
    assert "availableAt" not in await record_of(redis, keys, run_id)
