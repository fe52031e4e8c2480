"""expire: runs that did not start in time, or are not done in time."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import LeaseEnded, Outcome, ReleaseReason, Standing, StopReason
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    DELIVERY_MS,
    GRACE_MS,
    LATER_STAMP,
    LEASE_MS,
    STAMP,
    START_MS,
    Messages,
    Places,
    a_failed_attempt,
    a_release,
    a_workflow,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    let_leases_expire,
    places,
    put_in_state,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand

START_TIMEOUT_MS: Final = 60_000
RUN_TIMEOUT_MS: Final = 300_000
LIMIT: Final = 100


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def with_start_timeout(store: Store) -> None:
    await register(store, a_workflow(start_timeout_ms=START_TIMEOUT_MS))


async def with_run_timeout(store: Store, run_timeout_ms: int = RUN_TIMEOUT_MS) -> None:
    await register(store, a_workflow(run_timeout_ms=run_timeout_ms))


async def expire_at(store: Store, at_ms: int, limit: int = LIMIT) -> int:
    """How many runs' time was up."""
    store.now_ms = at_ms
    return (await store.expire(limit)).count


async def assert_timed_out(store: Store, redis: RedisCommand, keys: Keys, run_id: str, at_ms: int) -> None:
    run = await store.read_run(run_id)
    assert (run.status, run.finished_at_ms, run.available_at_ms) == (RunStatus.FAILED, at_ms, None)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TIMEOUT
    assert await places(redis, keys, run_id) == Places((), None, None, (RunStatus.FAILED,))
    assert await redis("ZSCORE", keys.deadlines, run_id) is None


async def assert_open(store: Store, run_id: str) -> None:
    assert not (await store.read_run(run_id)).status.is_terminal


# ---- the time to start ----


@pytest.mark.parametrize("available_in_ms", [None, START_TIMEOUT_MS // 2, 2 * START_TIMEOUT_MS])
async def test_a_run_that_does_not_start_in_time_fails_whether_queued_or_scheduled(
    store: Store, redis: RedisCommand, keys: Keys, available_in_ms: int | None
) -> None:
    await with_start_timeout(store)
    available_at_ms = None if available_in_ms is None else START_MS + available_in_ms
    run_id = await enqueue_one(store, available_at_ms=available_at_ms, max_attempts=5)

    due_ms = START_MS + (available_in_ms or 0)
    assert await expire_at(store, due_ms + START_TIMEOUT_MS - 1) == 0
    await assert_open(store, run_id)
    assert await expire_at(store, due_ms + START_TIMEOUT_MS + 1) == 1

    await assert_timed_out(store, redis, keys, run_id, due_ms + START_TIMEOUT_MS + 1)


async def test_being_promoted_does_not_give_more_time_to_start(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await with_start_timeout(store)
    run_id = await enqueue_one(store, available_at_ms=START_MS + 1000)
    store.now_ms = START_MS + 2000
    await store.promote(LIMIT)
    assert await expire_at(store, START_MS + 1000 + START_TIMEOUT_MS) == 1
    await assert_timed_out(store, redis, keys, run_id, START_MS + 1000 + START_TIMEOUT_MS)


async def test_a_run_has_started_in_time_once_its_worker_has_it(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await with_start_timeout(store)
    lease = await start_one(store)
    assert await redis("ZCARD", keys.deadlines) == 0
    assert await expire_at(store, START_MS + START_TIMEOUT_MS + 1) == 0
    await assert_open(store, lease.run_id)


async def test_a_run_that_has_started_once_is_not_late_after_its_worker_was_lost(store: Store) -> None:
    await with_start_timeout(store)
    lease = await start_one(store)
    await store.reap(LEASE_MS, 10 * LEASE_MS, LIMIT)
    await let_leases_expire(store)
    assert await expire_at(store, START_MS + 10 * START_TIMEOUT_MS) == 0
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED


async def test_a_run_that_is_handed_back_unstarted_has_no_more_time_to_start(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_start_timeout(store)
    run_id = await enqueue_one(store)
    lease = await claim_one(store)
    await store.release(a_release(lease, ReleaseReason.NOT_STARTED))
    assert await expire_at(store, START_MS + START_TIMEOUT_MS + 1) == 1
    await assert_timed_out(store, redis, keys, run_id, START_MS + START_TIMEOUT_MS + 1)


async def test_an_assignment_that_never_arrived_is_no_start(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await with_start_timeout(store)
    run_id = await enqueue_one(store)
    await claim_one(store)
    await let_leases_expire(store)
    assert (await store.read_run(run_id)).status is RunStatus.QUEUED
    await expire_at(store, START_MS + 3 * START_TIMEOUT_MS)
    await assert_timed_out(store, redis, keys, run_id, START_MS + 3 * START_TIMEOUT_MS)


async def test_an_assignment_on_its_way_when_the_time_is_up_does_not_hang(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    """Whether it counts as started or not, it is decided when its lease has ended."""
    await with_start_timeout(store)
    store.now_ms = START_MS
    await store.reap(LEASE_MS, 10 * LEASE_MS, LIMIT)
    run_id = await enqueue_one(store)
    store.now_ms = START_MS + START_TIMEOUT_MS - 1000
    await claim_one(store)
    await expire_at(store, START_MS + START_TIMEOUT_MS + 1)

    store.now_ms = START_MS + START_TIMEOUT_MS + DELIVERY_MS + 1
    await store.reap(LEASE_MS, 10 * LEASE_MS, LIMIT)
    await expire_at(store, START_MS + START_TIMEOUT_MS + DELIVERY_MS + 2000)

    run = await store.read_run(run_id)
    assert run.status is RunStatus.FAILED
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TIMEOUT


# ---- the time to be done ----


async def test_the_holder_is_told_to_stop_when_the_time_is_up(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    await with_run_timeout(store)
    lease = await start_one(store)
    await renew_one(store, lease, LATER_STAMP)
    stood = await places(redis, keys, lease.run_id)

    async with (
        Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as before,
        Messages.on(redis_url, keys.gateway(LATER_STAMP.gateway_id)) as now,
    ):
        assert await expire_at(store, START_MS + RUN_TIMEOUT_MS - 1) == 0
        assert await now.so_far() == []
        assert await expire_at(store, START_MS + RUN_TIMEOUT_MS + 1) == 1
        [order] = await now.so_far()
        assert await before.so_far() == []

    assert order.startswith(f"stop {lease.lease_token} timeout ")
    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_requested_at_ms, run.finished_at_ms) == (RunStatus.RUNNING, None, None)
    assert await places(redis, keys, lease.run_id) == stood


async def test_the_order_is_given_once_and_the_heartbeat_repeats_it(store: Store, keys: Keys, redis_url: str) -> None:
    await with_run_timeout(store)
    lease = await start_one(store)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await expire_at(store, START_MS + RUN_TIMEOUT_MS)
        assert len(await messages.so_far()) == 1
        assert await expire_at(store, START_MS + RUN_TIMEOUT_MS + 1) == 0
        assert await messages.so_far() == []

    assert (await store.due(0)).deadline_at_ms is None, "nothing more to look for"
    standing = await renew_one(store, lease)
    assert standing.standing is Standing.HELD
    assert standing.stop is not None
    assert standing.stop.reason is StopReason.TIMEOUT


async def test_a_run_whose_time_is_up_fails_when_its_lease_ends(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await with_run_timeout(store)
    lease = await start_one(store, max_attempts=5)
    await expire_at(store, START_MS + RUN_TIMEOUT_MS)

    reaped = await let_leases_expire(store)

    assert (reaped.queued, reaped.failed) == (0, 1)
    await assert_timed_out(store, redis, keys, lease.run_id, store.now_ms or 0)


async def test_a_holder_that_does_not_stop_loses_the_lease_after_the_grace(store: Store) -> None:
    await with_run_timeout(store)
    lease = await start_one(store)
    await expire_at(store, START_MS + RUN_TIMEOUT_MS)
    end_ms = START_MS + RUN_TIMEOUT_MS + GRACE_MS + 2 * LEASE_MS
    for at_ms in range(START_MS + RUN_TIMEOUT_MS, end_ms, 10_000):
        store.now_ms = at_ms
        await renew_one(store, lease)
        await store.reap(LEASE_MS, 10 * LEASE_MS, LIMIT)
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TIMEOUT


async def test_an_attempt_that_fails_after_the_time_is_up_is_not_retried(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_run_timeout(store)
    lease = await start_one(store, max_attempts=5)
    await expire_at(store, START_MS + RUN_TIMEOUT_MS)
    assert await store.fail(a_failed_attempt(lease)) == LeaseEnded(Outcome.OK, RunStatus.FAILED)
    await assert_timed_out(store, redis, keys, lease.run_id, START_MS + RUN_TIMEOUT_MS)


async def test_a_run_that_is_handed_back_after_the_time_is_up_is_not_queued(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_run_timeout(store)
    lease = await start_one(store)
    await expire_at(store, START_MS + RUN_TIMEOUT_MS)
    await store.release(a_release(lease, ReleaseReason.SHUTDOWN))
    await assert_timed_out(store, redis, keys, lease.run_id, START_MS + RUN_TIMEOUT_MS)


async def test_cancel_wins_over_the_time_out(store: Store) -> None:
    await with_run_timeout(store)
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    await expire_at(store, START_MS + RUN_TIMEOUT_MS)
    await store.release(a_release(lease))
    assert (await store.read_run(lease.run_id)).status is RunStatus.CANCELED


async def test_a_run_that_waits_for_its_next_attempt_fails_when_the_time_is_up(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_run_timeout(store, run_timeout_ms=100)
    lease = await start_one(store, max_attempts=5)
    await store.fail(a_failed_attempt(lease))
    assert (await store.read_run(lease.run_id)).status is RunStatus.SCHEDULED
    assert await expire_at(store, START_MS + 99) == 0
    assert await expire_at(store, START_MS + 101) == 1
    await assert_timed_out(store, redis, keys, lease.run_id, START_MS + 101)


async def test_a_run_that_is_queued_again_fails_when_the_time_is_up(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_run_timeout(store)
    lease = await start_one(store)
    store.now_ms = START_MS + 1000
    await store.release(a_release(lease))
    assert await expire_at(store, START_MS + RUN_TIMEOUT_MS - 1) == 0
    assert await expire_at(store, START_MS + RUN_TIMEOUT_MS + 1) == 1
    await assert_timed_out(store, redis, keys, lease.run_id, START_MS + RUN_TIMEOUT_MS + 1)


async def test_the_time_runs_from_the_first_claim_and_not_before(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await with_run_timeout(store)
    run_id = await enqueue_one(store)
    assert await expire_at(store, START_MS + 10 * RUN_TIMEOUT_MS) == 0
    assert (await store.read_run(run_id)).status is RunStatus.QUEUED

    claimed_ms = store.now_ms or 0
    lease = await claim_one(store)
    store.now_ms = claimed_ms + 1000
    await store.release(a_release(lease))
    await claim_one(store)
    assert await redis("ZSCORE", keys.deadlines, run_id) == claimed_ms + RUN_TIMEOUT_MS


async def test_the_earlier_of_both_times_counts(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=START_TIMEOUT_MS, run_timeout_ms=1000))
    run_id = await enqueue_one(store)
    lease = await claim_one(store)
    await store.release(a_release(lease, ReleaseReason.NOT_STARTED))
    assert await expire_at(store, START_MS + 1001) == 1
    await assert_timed_out(store, redis, keys, run_id, START_MS + 1001)


# ---- a pass ----


async def test_at_most_as_many_as_asked_for_and_the_earliest_first(store: Store) -> None:
    await with_start_timeout(store)
    runs = []
    for number in range(5):
        store.now_ms = START_MS + number
        runs.append(await enqueue_one(store))
    store.now_ms = late_ms = START_MS + 2 * START_TIMEOUT_MS

    first = await store.expire(2)

    assert (first.count, first.next_at_ms) == (2, START_MS + 2 + START_TIMEOUT_MS)
    statuses = [(await store.read_run(run_id)).status.value for run_id in runs]
    assert statuses == ["failed", "failed", "queued", "queued", "queued"]
    assert [await expire_at(store, late_ms, limit=2) for _ in range(3)] == [2, 1, 0]


async def test_the_answer_says_when_the_next_time_is_up(store: Store) -> None:
    await with_start_timeout(store)
    assert (await store.expire(LIMIT)).next_at_ms is None
    await enqueue_one(store)
    passed = await store.expire(LIMIT)
    assert (passed.count, passed.next_at_ms) == (0, START_MS + START_TIMEOUT_MS)


@pytest.mark.parametrize("state", every_state_but())
async def test_an_entry_that_is_no_deadline_of_its_run_is_dropped_and_ends_nothing(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    await redis("ZADD", keys.deadlines, START_MS - 1, run_id)

    assert await expire_at(store, START_MS) == 0

    assert await everything(redis, keys) == before


async def test_an_entry_that_is_too_early_ends_nothing_and_is_put_right(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_start_timeout(store)
    run_id = await enqueue_one(store)
    await redis("ZADD", keys.deadlines, START_MS - 1, run_id)
    assert await expire_at(store, START_MS) == 0
    await assert_open(store, run_id)
    assert await expire_at(store, START_MS + START_TIMEOUT_MS + 1) == 1


@pytest.mark.leaves_faults
async def test_an_entry_whose_record_is_something_else_is_dropped_and_holds_nobody_up(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await with_start_timeout(store)
    await redis("SET", keys.run("run_odd"), "not a record")
    await redis("ZADD", keys.deadlines, START_MS - 1, "run_odd")
    run_id = await enqueue_one(store)
    assert await expire_at(store, START_MS + START_TIMEOUT_MS + 1) == 1
    assert (await store.read_run(run_id)).status is RunStatus.FAILED
    assert await redis("ZCARD", keys.deadlines) == 0
