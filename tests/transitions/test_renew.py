"""renew: how each lease stands that a worker names, in a receipt, a heartbeat or the opening of a new session."""

from __future__ import annotations

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import (
    ClaimedRun,
    LeaseStanding,
    LeaseToRenew,
    ListedLease,
    Outcome,
    ReleaseReason,
    Stamp,
    Standing,
    Stop,
    StopReason,
)
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
    a_completion,
    a_failed_attempt,
    a_failure,
    a_lease,
    a_listing,
    a_record,
    a_release,
    a_workflow,
    an_abort,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    let_leases_expire,
    memory_is_full,
    places,
    put_in_state,
    record_of,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def lease_until(redis: RedisCommand, keys: Keys, lease: ClaimedRun) -> int | None:
    return (await places(redis, keys, lease.run_id)).lease_until_ms


def held(lease: ClaimedRun, stop: Stop | None = None) -> LeaseStanding:
    return LeaseStanding(lease.lease_token, Standing.HELD, stop)


# ---- a lease that is held ----


async def test_a_lease_lasts_from_its_renewal(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 9000
    assert await renew_one(store, lease) == held(lease)
    assert await lease_until(redis, keys, lease) == START_MS + 9000 + LEASE_MS


async def test_a_receipt_turns_the_short_lease_of_a_delivery_into_a_full_one(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await enqueue_one(store)
    lease = await claim_one(store)
    assert await lease_until(redis, keys, lease) == START_MS + DELIVERY_MS
    assert "acked" not in await record_of(redis, keys, lease.run_id)

    store.now_ms = START_MS + 100
    await renew_one(store, lease)

    assert await lease_until(redis, keys, lease) == START_MS + 100 + LEASE_MS
    assert (await record_of(redis, keys, lease.run_id))["acked"] == "1"


async def test_a_lease_that_is_overdue_but_not_reaped_is_renewed(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 10 * LEASE_MS
    assert await renew_one(store, lease) == held(lease)
    assert await lease_until(redis, keys, lease) == START_MS + 11 * LEASE_MS


async def test_each_lease_is_answered_in_its_place(store: Store, redis: RedisCommand, keys: Keys) -> None:
    mine, done, moved = await start_one(store), await start_one(store), await start_one(store)
    await store.complete(a_completion(done))
    await renew_one(store, moved, LATER_STAMP)
    unknown = a_lease("run_nowhere")
    leases = [unknown, done, moved, mine, mine]

    found = await store.renew(STAMP, [a_listing(lease) for lease in leases], LEASE_MS, GRACE_MS)

    assert [(standing.lease_token, standing.standing) for standing in found] == [
        (unknown.lease_token, Standing.LOST),
        (done.lease_token, Standing.FINISHED),
        (moved.lease_token, Standing.MOVED),
        (mine.lease_token, Standing.HELD),
        (mine.lease_token, Standing.HELD),
    ]


async def test_a_heartbeat_without_leases_is_answered(store: Store) -> None:
    assert await store.renew(STAMP, [], LEASE_MS, GRACE_MS) == ()


async def test_a_heartbeat_of_many_leases_renews_each(store: Store, redis: RedisCommand, keys: Keys) -> None:
    leases = [await start_one(store) for _ in range(300)]
    store.now_ms = START_MS + 5000
    listed = [a_listing(lease) for lease in leases]
    assert await store.renew(STAMP, listed, LEASE_MS, GRACE_MS) == tuple(held(lease) for lease in leases)
    assert await redis("ZCOUNT", keys.leases, START_MS + 5000 + LEASE_MS, "+inf") == 300


async def test_leases_are_renewed_while_memory_is_full(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_one(store)
    lease = await claim_one(store)
    async with memory_is_full(redis):
        assert await renew_one(store, lease, LATER_STAMP) == held(lease)
    assert await lease_until(redis, keys, lease) == START_MS + LEASE_MS
    assert (await store.read_run(lease.run_id)).session_id == LATER_STAMP.session_id


# ---- a lease that is not ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_a_run_that_is_not_leased_has_no_lease_to_renew(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    lease = a_lease(run_id)
    before = await everything(redis, keys)
    assert await renew_one(store, lease) == LeaseStanding(lease.lease_token, Standing.LOST)
    assert await everything(redis, keys) == before


async def test_a_wrong_token_renews_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 1000
    before = await everything(redis, keys)
    for token in (a_lease(lease.run_id).lease_token, "", lease.lease_token[:-1]):
        [standing] = await store.renew(STAMP, [LeaseToRenew(lease.run_id, ListedLease(token))], LEASE_MS, GRACE_MS)
        assert standing == LeaseStanding(token, Standing.LOST)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_is_lost(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await let_leases_expire(store)
    lost = LeaseStanding(lease.lease_token, Standing.LOST)
    assert await renew_one(store, lease) == lost
    await claim_one(store)
    before = await everything(redis, keys)
    assert await renew_one(store, lease, LATER_STAMP) == lost
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("end", ["complete", "fail", "abort"])
async def test_a_lease_that_ended_its_run_is_finished(store: Store, redis: RedisCommand, keys: Keys, end: str) -> None:
    lease = await start_one(store)
    match end:
        case "complete":
            await store.complete(a_completion(lease))
        case "fail":
            await store.fail(a_failed_attempt(lease))
        case "abort":
            await store.abort(an_abort(lease))
    before = await everything(redis, keys)
    assert await renew_one(store, lease) == LeaseStanding(lease.lease_token, Standing.FINISHED)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_handed_on_does_not_renew_the_next_one(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.fail(a_failed_attempt(lease, a_failure(next_retry_delay_ms=0)))
    await claim_one(store)
    before = await everything(redis, keys)
    assert (await renew_one(store, lease)).standing in (Standing.FINISHED, Standing.LOST)
    assert await everything(redis, keys) == before


# ---- moving between sessions ----


async def test_a_later_session_takes_the_lease_with_it(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 1000
    assert await renew_one(store, lease, LATER_STAMP) == held(lease)
    assert (await record_of(redis, keys, lease.run_id))["leaseOwner"] == "session-2 2 gateway-2"
    assert await lease_until(redis, keys, lease) == START_MS + 1000 + LEASE_MS


@pytest.mark.parametrize(
    "stamp",
    [STAMP, Stamp("session-3", 2, "gateway-1"), Stamp("session-2", 1, "gateway-2")],
    ids=["an earlier session", "another of the same number", "an earlier one of the same id"],
)
async def test_a_lease_that_moved_is_not_renewed_for(
    store: Store, redis: RedisCommand, keys: Keys, stamp: Stamp
) -> None:
    lease = await start_one(store)
    await renew_one(store, lease, LATER_STAMP)
    store.now_ms = START_MS + 1000
    before = await everything(redis, keys)
    assert await renew_one(store, lease, stamp) == LeaseStanding(lease.lease_token, Standing.MOVED)
    assert await everything(redis, keys) == before


async def test_epochs_are_numbers_and_not_text(store: Store) -> None:
    lease = await start_one(store)
    assert await renew_one(store, lease, Stamp("session-9", 9, "gateway-1")) == held(lease)
    assert await renew_one(store, lease, Stamp("session-10", 10, "gateway-1")) == held(lease)
    assert (await renew_one(store, lease, Stamp("session-9", 9, "gateway-1"))).standing is Standing.MOVED


async def test_orders_to_stop_go_to_the_gateway_that_has_the_lease_now(
    store: Store, redis_url: str, keys: Keys
) -> None:
    lease = await start_one(store)
    await renew_one(store, lease, LATER_STAMP)
    async with (
        Messages.on(redis_url, keys.gateway("gateway-1")) as earlier,
        Messages.on(redis_url, keys.gateway("gateway-2")) as later,
    ):
        await request_cancel(store, lease.run_id, "enough is enough")
        assert await earlier.so_far() == []
        assert await later.so_far() == [f"stop {lease.lease_token} user enough is enough"]


# ---- orders to stop ----


async def test_a_cancel_request_is_repeated_with_every_renewal(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id, "changed my mind")
    stop = Stop(lease.lease_token, StopReason.USER, "changed my mind")
    assert await renew_one(store, lease) == held(lease, stop)
    assert await renew_one(store, lease, LATER_STAMP) == held(lease, stop)


async def test_a_lease_with_a_cancel_request_is_renewed_during_the_grace_and_not_after(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    store.now_ms = START_MS + GRACE_MS
    await renew_one(store, lease)
    assert await lease_until(redis, keys, lease) == START_MS + GRACE_MS + LEASE_MS

    store.now_ms = START_MS + GRACE_MS + 1
    await renew_one(store, lease)
    assert await lease_until(redis, keys, lease) == START_MS + GRACE_MS + LEASE_MS


async def test_a_worker_deaf_to_the_cancel_loses_the_run_which_ends_as_canceled(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=5)
    await request_cancel(store, lease.run_id, "enough")
    for beat in range(1, 9):
        store.now_ms = START_MS + beat * (LEASE_MS // 3)
        await renew_one(store, lease)
        await store.reap(LEASE_MS, 10 * LEASE_MS, 10)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("canceled",))


async def test_a_run_whose_time_is_over_is_stopped_and_then_fails(store: Store) -> None:
    await register(store, a_workflow(max_attempts=5, run_timeout_ms=60_000))
    lease = await start_one(store)
    store.now_ms = START_MS + 60_000
    await renew_one(store, lease)
    await store.expire(10)

    standing = await renew_one(store, lease)
    assert standing.standing is Standing.HELD
    assert standing.stop is not None
    assert standing.stop.reason is StopReason.TIMEOUT

    for beat in range(1, 9):
        store.now_ms = START_MS + 60_000 + beat * (LEASE_MS // 3)
        await renew_one(store, lease)
        await store.reap(LEASE_MS, 10 * LEASE_MS, 10)
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert (run.status, run.failure.kind) == (RunStatus.FAILED, FailureKind.TIMEOUT)


# ---- the time to start ----


async def test_the_time_to_start_ends_with_the_first_receipt(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000))
    run_id = await enqueue_one(store)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 60_000
    lease = await claim_one(store)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 60_000

    await renew_one(store, lease)

    assert await redis("ZSCORE", keys.deadlines, run_id) is None
    store.now_ms = START_MS + 61_000
    await store.expire(10)
    assert (await store.read_run(run_id)).status is RunStatus.RUNNING


async def test_a_run_that_has_started_once_need_not_start_again_in_time(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000))
    lease = await start_one(store)
    await store.release(a_release(lease, ReleaseReason.VANISHED))
    store.now_ms = START_MS + 61_000
    await store.expire(10)
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED
    assert (await store.record_step(a_record(await claim_one(store)))).outcome is Outcome.OK


async def test_after_the_receipt_the_time_of_the_run_counts(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000, run_timeout_ms=90_000))
    run_id = await enqueue_one(store)
    store.now_ms = START_MS + 1000
    lease = await claim_one(store)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 60_000, "the earlier of the two"
    store.now_ms = START_MS + 2000
    await renew_one(store, lease)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 1000 + 90_000, "from the first claim"
