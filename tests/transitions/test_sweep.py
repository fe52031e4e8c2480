"""sweep: what must not be is put right from the record alone, and what is in its place is not moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.states import OPEN, TERMINAL, RunStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Swept
from redflow_server.store.store import Store
from tests.builders import (
    LEASE_MS,
    START_MS,
    Messages,
    Places,
    a_workflow,
    claim_one,
    enqueue_one,
    everything,
    lane_of,
    memory_is_full,
    places,
    put_in_state,
    register,
    renew_one,
    start_one,
)
from tests.redis_command import RedisCommand

LIMIT: Final = 25
LATER_MS: Final = START_MS + 3_600_000
NAME: Final = lane_name("q", "w")
MISTAKEN: Final = [
    (RunStatus.SCHEDULED, RunStatus.RUNNING),
    (RunStatus.QUEUED, RunStatus.SCHEDULED),
    (RunStatus.RUNNING, RunStatus.QUEUED),
    (RunStatus.RUNNING, RunStatus.SUCCEEDED),
    (RunStatus.SUCCEEDED, RunStatus.RUNNING),
    (RunStatus.FAILED, RunStatus.SUCCEEDED),
    (RunStatus.CANCELED, RunStatus.WAITING),
]
"""Statuses of runs, and in the index of which other one they are found."""


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def sweep(store: Store, status: RunStatus) -> list[str]:
    """Looks at all runs of a status once; the runs that were repaired."""
    swept = await store.sweep(status, None, LIMIT)
    assert swept.next_seq is None
    assert all(repair.what for repair in swept.repairs), "each repair says what it was"
    return [repair.run_id for repair in swept.repairs]


async def sweep_all(store: Store) -> list[str]:
    return [run_id for status in RunStatus for run_id in await sweep(store, status)]


# ---- places ----


async def test_a_queued_run_in_no_lane_is_put_into_its_lane(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    run_id = await enqueue_one(store)
    before = await everything(redis, keys)
    await redis("ZREM", keys.lane(NAME), run_id)
    await redis("ZREM", keys.lanes, NAME)

    async with Messages.on(redis_url, keys.wakeups) as messages:
        assert await sweep(store, RunStatus.QUEUED) == [run_id]
        [heard] = await messages.so_far()

    assert heard.startswith("lane ")
    assert heard.endswith(f" {NAME}")
    after = await everything(redis, keys)
    assert after[keys.lane(NAME)] == before[keys.lane(NAME)], "at its old place"
    assert (await claim_one(store)).run_id == run_id


async def test_a_queued_run_comes_back_between_its_neighbours(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first, lost, last = [await enqueue_one(store) for _ in range(3)]
    await redis("ZREM", keys.lane(NAME), lost)
    assert await sweep(store, RunStatus.QUEUED) == [lost]
    assert await lane_of(redis, keys) == [first, lost, last]


async def test_a_running_run_in_no_lease_is_soon_found_by_the_reaper(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    store.now_ms = START_MS - 10 * LEASE_MS
    await store.reap(LEASE_MS, 100 * LEASE_MS, LIMIT)
    store.now_ms = START_MS
    lease = await start_one(store)
    await redis("ZREM", keys.leases, lease.run_id)

    assert await sweep(store, RunStatus.RUNNING) == [lease.run_id]

    stands = await places(redis, keys, lease.run_id)
    assert stands.lease_until_ms is not None
    assert START_MS <= stands.lease_until_ms <= START_MS + LEASE_MS
    store.now_ms = START_MS + LEASE_MS + 1
    assert (await store.reap(LEASE_MS, 100 * LEASE_MS, LIMIT)).queued == 1


async def test_a_running_run_whose_worker_lives_goes_on_after_the_repair(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await redis("ZREM", keys.leases, lease.run_id)
    await sweep(store, RunStatus.RUNNING)
    await renew_one(store, lease)
    assert (await places(redis, keys, lease.run_id)).lease_until_ms == START_MS + LEASE_MS


async def test_a_scheduled_run_in_no_schedule_is_due_when_its_record_says(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store, available_at_ms=LATER_MS)
    await redis("ZREM", keys.scheduled, run_id)
    assert await sweep(store, RunStatus.SCHEDULED) == [run_id]
    assert await places(redis, keys, run_id) == Places((), LATER_MS, None, (RunStatus.SCHEDULED,))


async def test_a_waiting_run_without_a_wait_is_queued(store: Store, redis: RedisCommand, keys: Keys) -> None:
    run_id = await put_in_state(store, redis, keys, RunStatus.WAITING)
    [step] = await redis("HKEYS", keys.waits(run_id))
    child_id = (await store.read_steps(run_id, 100))[0].child_run_id
    await redis("DEL", keys.waits(run_id), keys.awaiters(child_id))
    await redis("HDEL", keys.steps(run_id), f"s:{step}", f"o:{step}")
    assert await sweep(store, RunStatus.WAITING) == [run_id]
    assert await places(redis, keys, run_id) == Places((NAME,), None, None, (RunStatus.QUEUED,))


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_a_run_that_retention_does_not_know_is_found_again(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    await redis("ZREM", keys.finished(status), run_id)

    assert await sweep(store, status) == [run_id]

    assert await everything(redis, keys) == before
    store.now_ms = LATER_MS
    assert (await store.purge({status: 1000}, LIMIT)).purged == 1


async def test_a_run_with_a_deadline_that_nobody_watches_is_timed_again(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(start_timeout_ms=5000))
    run_id = await enqueue_one(store)
    before = await everything(redis, keys)
    await redis("ZREM", keys.deadlines, run_id)
    assert await sweep(store, RunStatus.QUEUED) == [run_id]
    assert await everything(redis, keys) == before


# ---- listings ----


@pytest.mark.parametrize("status", RunStatus)
async def test_a_run_that_its_workflow_does_not_list_is_listed_again(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    await redis("ZREM", keys.workflow_status(status, "w"), run_id)
    assert await sweep(store, status) == [run_id]
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("status", RunStatus)
async def test_an_index_entry_without_a_record_is_removed(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    await redis("ZADD", keys.status(status), 1, "run_ghost")
    await sweep(store, status)
    assert await everything(redis, keys) == {}


@pytest.mark.parametrize(("status", "wrong"), MISTAKEN)
async def test_a_run_in_the_index_of_another_status_is_moved_to_its_own(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus, wrong: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    for index in (keys.status, lambda each: keys.workflow_status(each, "w")):
        score = await redis("ZSCORE", index(status), run_id)
        await redis("ZREM", index(status), run_id)
        await redis("ZADD", index(wrong), score, run_id)

    assert await sweep(store, wrong) == [run_id]

    assert await everything(redis, keys) == before


@pytest.mark.parametrize(("status", "wrong"), MISTAKEN)
async def test_a_run_in_a_second_index_leaves_it(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus, wrong: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    score = await redis("ZSCORE", keys.status(status), run_id)
    await redis("ZADD", keys.status(wrong), score, run_id)

    await sweep(store, wrong)

    assert await everything(redis, keys) == before


async def test_a_run_that_has_lost_all_its_places_gets_all_of_them_back(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    before = await everything(redis, keys)
    await redis("DEL", keys.lane(NAME), keys.lanes, keys.workflow_status(RunStatus.QUEUED, "w"))
    await sweep(store, RunStatus.QUEUED)
    after = await everything(redis, keys)
    for found in (before, after):
        # It fills its lane once more, under a new number.
        del found[keys.lanes], found[keys.lane_seq]
    assert after == before
    assert await sweep(store, RunStatus.QUEUED) == []
    assert await lane_of(redis, keys) == [run_id]


# ---- what is in its place ----


async def test_what_is_in_order_is_left_as_it_is(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=5000, run_timeout_ms=7000))
    for status in RunStatus:
        if status is not RunStatus.QUEUED:
            await put_in_state(store, redis, keys, status)
    for _ in range(3):
        await put_in_state(store, redis, keys, RunStatus.QUEUED)
    before = await everything(redis, keys)

    assert await sweep_all(store) == []
    store.now_ms = LATER_MS
    assert await sweep_all(store) == []

    assert await everything(redis, keys) == before


async def test_an_overdue_lease_and_an_overdue_schedule_are_not_its_business(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await start_one(store)
    await enqueue_one(store, available_at_ms=START_MS + 1)
    before = await everything(redis, keys)
    store.now_ms = LATER_MS
    assert await sweep_all(store) == []
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("status", sorted(OPEN))
async def test_a_run_in_the_wrong_index_is_not_moved_out_of_its_place(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    """The record says where it belongs, whatever an index says."""
    lease = await start_one(store)
    stood = await places(redis, keys, lease.run_id)
    await redis("ZADD", keys.status(status), 1, lease.run_id)
    await sweep(store, status)
    assert replace(await places(redis, keys, lease.run_id), statuses=()) == replace(stood, statuses=())


# ---- slices ----


async def test_slices_follow_each_other_through_all_runs(store: Store, redis: RedisCommand, keys: Keys) -> None:
    runs = [await enqueue_one(store) for _ in range(7)]
    await redis("DEL", keys.lane(NAME), keys.lanes)

    slices: list[Swept] = []
    before_seq = None
    while len(slices) < 10:
        slices.append(await store.sweep(RunStatus.QUEUED, before_seq, 3))
        before_seq = slices[-1].next_seq
        if before_seq is None:
            break

    assert all(len(each.repairs) <= 3 for each in slices)
    assert sorted(repair.run_id for each in slices for repair in each.repairs) == sorted(runs)
    assert await lane_of(redis, keys) == runs


async def test_ghosts_do_not_stop_the_slices(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lost = await enqueue_one(store)
    for number in range(7):
        await redis("ZADD", keys.status(RunStatus.QUEUED), 1000 + number, f"run_ghost{number}")
    await redis("DEL", keys.lane(NAME), keys.lanes)

    before_seq = None
    for _ in range(6):
        before_seq = (await store.sweep(RunStatus.QUEUED, before_seq, 3)).next_seq
        if before_seq is None:
            break

    assert await lane_of(redis, keys) == [lost]
    assert await redis("ZCARD", keys.status(RunStatus.QUEUED)) == 1


@pytest.mark.parametrize("status", RunStatus)
async def test_nothing_of_a_status_is_nothing_to_sweep(store: Store, status: RunStatus) -> None:
    assert await store.sweep(status, None, LIMIT) == Swept(None, ())


async def test_runs_are_put_back_while_memory_is_full(store: Store, redis: RedisCommand, keys: Keys) -> None:
    queued = await enqueue_one(store)
    leased = await start_one(store, queue="q2")
    await redis("DEL", keys.lane(NAME), keys.lanes, keys.leases)
    async with memory_is_full(redis):
        assert await sweep(store, RunStatus.QUEUED) == [queued]
        assert await sweep(store, RunStatus.RUNNING) == [leased.run_id]
    assert (await places(redis, keys, queued)).lanes == (NAME,)
    assert (await places(redis, keys, leased.run_id)).lease_until_ms == START_MS
