"""cancel: whoever is not leased ends at once; a leased run carries the request until its lease ends."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.errors import RunNotFound
from redflow_server.domain.leases import Lane, ReleaseReason
from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    HALF_WRITTEN,
    LATER_STAMP,
    MISSING,
    STAMP,
    START_MS,
    Messages,
    a_claim,
    a_completion,
    a_failed_attempt,
    a_release,
    a_workflow,
    an_abort,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    memory_is_full,
    places,
    put_in_state,
    record_of,
    register,
    renew_one,
    start_one,
)
from tests.redis_command import RedisCommand

LATER_MS: Final = START_MS + 5000


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


# ---- runs that nobody holds ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING, *TERMINAL, MISSING, HALF_WRITTEN))
async def test_a_run_that_is_not_leased_is_canceled_at_once(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    store.now_ms = LATER_MS

    assert await store.cancel(run_id, "changed my mind", "request-1")

    run = await store.read_run(run_id)
    assert run.status is RunStatus.CANCELED
    assert (run.cancel_requested_at_ms, run.cancel_reason) == (LATER_MS, "changed my mind")
    assert run.finished_at_ms == LATER_MS
    assert run.available_at_ms is None
    stands = await places(redis, keys, run_id)
    assert (stands.lanes, stands.scheduled_at_ms, stands.lease_until_ms) == ((), None, None)
    assert stands.statuses == (RunStatus.CANCELED,)


async def test_a_lane_that_a_cancel_empties_is_no_longer_among_the_lanes(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    first, second = await enqueue_one(store), await enqueue_one(store)
    await store.cancel(first, "", "request-1")
    assert await redis("ZCARD", keys.lanes) == 1
    await store.cancel(second, "", "request-2")
    assert await redis("ZCARD", keys.lanes) == 0


@pytest.mark.parametrize("available_at_ms", [None, START_MS + 1000])
async def test_a_canceled_run_never_starts(store: Store, available_at_ms: int | None) -> None:
    canceled = await enqueue_one(store, available_at_ms=available_at_ms)
    other = await enqueue_one(store)
    await store.cancel(canceled, "", "request-1")

    store.now_ms = LATER_MS
    assert (await store.promote(100)).count == 0
    claimed = await store.claim(a_claim())

    assert [run.run_id for run in claimed.runs] == [other]
    assert (await store.read_run(canceled)).attempt == 0


async def test_a_canceled_run_that_stands_in_its_lane_again_does_not_start(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    [lane] = await redis("ZRANGE", keys.lanes, 0, -1)
    await store.cancel(run_id, "", "request-1")
    await redis("ZADD", keys.lane(lane), 1, run_id)
    await redis("ZADD", keys.lanes, 1, lane)

    claimed = await store.claim(a_claim())

    assert claimed.runs == ()
    assert claimed.emptied == (Lane("q", "w"),)
    assert (await store.read_run(run_id)).status is RunStatus.CANCELED


async def test_a_cancel_ends_the_wait_for_the_next_attempt_and_keeps_the_last_failure(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.fail(a_failed_attempt(lease))
    assert (await store.read_run(lease.run_id)).status is RunStatus.SCHEDULED

    assert await store.cancel(lease.run_id, "enough", "request-1")

    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt) == (RunStatus.CANCELED, 1)
    assert run.failure is not None
    assert run.failure.message == "no luck"


async def test_a_canceled_run_has_no_deadline(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=1000))
    run_id = await enqueue_one(store)
    await store.cancel(run_id, "", "request-1")
    assert await redis("ZCARD", keys.deadlines) == 0
    store.now_ms = LATER_MS
    assert (await store.expire(100)).count == 0


# ---- runs that a worker holds ----


async def test_a_leased_run_is_flagged_and_its_holder_told_to_stop(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    lease = await start_one(store)
    stood = await places(redis, keys, lease.run_id)

    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        store.now_ms = LATER_MS
        assert await store.cancel(lease.run_id, "no longer needed: a b 🚀", "request-1")
        assert await messages.so_far() == [f"stop {lease.lease_token} user no longer needed: a b 🚀"]

    run = await store.read_run(lease.run_id)
    assert run.status is RunStatus.RUNNING
    assert (run.cancel_requested_at_ms, run.cancel_reason) == (LATER_MS, "no longer needed: a b 🚀")
    assert run.finished_at_ms is None
    assert await places(redis, keys, lease.run_id) == stood


async def test_an_assignment_on_its_way_is_flagged_too(store: Store, keys: Keys, redis_url: str) -> None:
    await enqueue_one(store)
    lease = await claim_one(store)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await store.cancel(lease.run_id, "", "request-1")
        assert await messages.so_far() == [f"stop {lease.lease_token} user "]
    assert (await store.read_run(lease.run_id)).status is RunStatus.RUNNING


async def test_the_order_goes_to_the_gateway_where_the_lease_is_now(store: Store, keys: Keys, redis_url: str) -> None:
    lease = await start_one(store)
    await renew_one(store, lease, LATER_STAMP)

    async with (
        Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as before,
        Messages.on(redis_url, keys.gateway(LATER_STAMP.gateway_id)) as now,
    ):
        await store.cancel(lease.run_id, "why", "request-1")
        assert await now.so_far() == [f"stop {lease.lease_token} user why"]
        assert await before.so_far() == []


async def test_the_first_reason_and_time_stay(store: Store) -> None:
    lease = await start_one(store)
    await store.cancel(lease.run_id, "first", "request-1")

    store.now_ms = LATER_MS
    assert await store.cancel(lease.run_id, "second", "request-2"), "it is being canceled, as asked"

    run = await store.read_run(lease.run_id)
    assert (run.cancel_requested_at_ms, run.cancel_reason) == (START_MS, "first")


async def test_cancel_wins_over_the_result_of_the_handler(store: Store) -> None:
    lease = await start_one(store)
    await store.cancel(lease.run_id, "too late", "request-1")
    await store.complete(a_completion(lease))

    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "too late")


@pytest.mark.parametrize("reason", [ReleaseReason.SHUTDOWN, ReleaseReason.NOT_STARTED, ReleaseReason.OVERLOADED])
async def test_a_flagged_run_that_is_handed_back_is_canceled_and_never_queued(
    store: Store, redis: RedisCommand, keys: Keys, reason: ReleaseReason
) -> None:
    lease = await start_one(store)
    await store.cancel(lease.run_id, "", "request-1")
    await store.release(a_release(lease, reason))
    assert (await places(redis, keys, lease.run_id)).statuses == (RunStatus.CANCELED,)
    assert await lane_of(redis, keys) == []


async def test_runs_are_canceled_when_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    queued = await enqueue_one(store)
    scheduled = await enqueue_one(store, available_at_ms=LATER_MS)
    async with memory_is_full(redis):
        for run_id in (lease.run_id, queued, scheduled):
            assert await store.cancel(run_id, "", "request-1")
    statuses = [(await store.read_run(run_id)).status.value for run_id in (lease.run_id, queued, scheduled)]
    assert statuses == ["running", "canceled", "canceled"]


# ---- requests that come again ----


async def test_a_request_that_is_repeated_is_accepted_again_after_it_had_its_effect(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    await store.cancel(run_id, "why", "request-1")
    before = await everything(redis, keys)

    store.now_ms = LATER_MS
    assert await store.cancel(run_id, "why", "request-1")
    assert not await store.cancel(run_id, "why", "request-2"), "another one comes too late"

    assert await everything(redis, keys) == before


async def test_a_request_to_a_holder_is_accepted_again_after_the_run_was_canceled(store: Store) -> None:
    lease = await start_one(store)
    await store.cancel(lease.run_id, "why", "request-1")
    await store.complete(a_completion(lease))
    assert await store.cancel(lease.run_id, "why", "request-1")
    assert not await store.cancel(lease.run_id, "why", "request-2")


async def test_a_request_that_is_repeated_while_its_run_is_leased_changes_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.cancel(lease.run_id, "why", "request-1")
    before = await everything(redis, keys)
    for _ in range(200):
        assert await store.cancel(lease.run_id, "why", "request-1")
    assert await everything(redis, keys) == before, "there is still room for the requests of others"


async def test_requests_without_an_id_are_not_taken_for_repeats(store: Store) -> None:
    run_id = await enqueue_one(store)
    assert await store.cancel(run_id, "", "")
    assert not await store.cancel(run_id, "", "")


async def test_a_run_that_ended_as_canceled_without_a_request_is_not_canceled_by_one_without_an_id(
    store: Store,
) -> None:
    lease = await start_one(store)
    await store.abort(an_abort(lease))
    assert (await store.read_run(lease.run_id)).status is RunStatus.CANCELED
    assert not await store.cancel(lease.run_id, "", "")


# ---- runs that cannot be canceled ----


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_a_run_that_has_ended_stays_as_it_is(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    store.now_ms = LATER_MS

    assert not await store.cancel(run_id, "too late", "request-9")

    assert await everything(redis, keys) == before
    assert (await record_of(redis, keys, run_id)).get("cancelReason", "") != "too late"


async def test_a_run_that_was_canceled_keeps_who_asked_first(store: Store) -> None:
    run_id = await enqueue_one(store)
    await store.cancel(run_id, "first", "request-1")
    store.now_ms = LATER_MS
    assert not await store.cancel(run_id, "second", "request-2")
    run = await store.read_run(run_id)
    assert (run.cancel_requested_at_ms, run.cancel_reason, run.finished_at_ms) == (START_MS, "first", START_MS)


async def test_a_run_that_does_not_exist_cannot_be_canceled(store: Store, redis: RedisCommand, keys: Keys) -> None:
    with pytest.raises(RunNotFound):
        await store.cancel("run_nowhere", "", "request-1")
    assert await everything(redis, keys) == {}
