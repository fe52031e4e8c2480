"""release: a lease is handed back, by the worker under its token, or by a gateway if it is still its own."""

from __future__ import annotations

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import ClaimedRun, LeaseEnded, Outcome, ReleaseReason, Stamp
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    LATER_STAMP,
    LEASE_MS,
    STAMP,
    START_MS,
    Messages,
    Places,
    a_completion,
    a_lease,
    a_record,
    a_release,
    a_step,
    a_workflow,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
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

QUEUED = LeaseEnded(Outcome.OK, RunStatus.QUEUED)
LOST_TOO_OFTEN = LeaseEnded(Outcome.OK, RunStatus.FAILED)
FREE = [reason for reason in ReleaseReason if reason not in (ReleaseReason.UNDELIVERED, ReleaseReason.VANISHED)]


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def undelivered(store: Store, times: int) -> LeaseEnded:
    """The only run of the lane is claimed so often, and its assignment never arrives; the last answer."""
    answer = LeaseEnded(Outcome.LEASE_LOST)
    for _ in range(times):
        lease = await claim_one(store)
        answer = await store.release(a_release(lease, ReleaseReason.UNDELIVERED, stamp=STAMP))
    return answer


async def lose(store: Store, lease: ClaimedRun) -> LeaseEnded:
    """The worker has not named the lease for two heartbeats."""
    return await store.release(a_release(lease, ReleaseReason.VANISHED, stamp=STAMP))


# ---- back to the lane ----


async def test_a_run_goes_back_to_its_lane(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    assert await store.release(a_release(lease)) == QUEUED
    assert await places(redis, keys, lease.run_id) == Places(("1:q:1:w",), None, None, ("queued",))
    assert not {"leaseToken", "leaseOwner"} & (await record_of(redis, keys, lease.run_id)).keys()
    run = await store.read_run(lease.run_id)
    assert (run.status, run.session_id, run.started_at_ms) == (RunStatus.QUEUED, "", START_MS)


async def test_a_run_goes_back_to_its_old_place(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first, second = await start_one(store), await start_one(store)
    third = await enqueue_one(store)
    urgent = await enqueue_one(store, priority=1)
    await store.release(a_release(second))
    await store.release(a_release(first))
    assert await lane_of(redis, keys) == [urgent, first.run_id, second.run_id, third]


async def test_gateways_hear_of_a_lane_that_fills(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    first, second = await start_one(store), await start_one(store)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.release(a_release(first))
        number = int(await redis("ZSCORE", keys.lanes, "1:q:1:w"))
        await store.release(a_release(second))
        assert await messages.so_far() == [f"lane {number} 1:q:1:w"]


async def test_a_delayed_run_comes_back_to_its_old_place_when_it_is_due(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    other = await enqueue_one(store)

    answer = await store.release(a_release(lease, ReleaseReason.NOT_STARTED, delay_ms=1000))

    assert answer == LeaseEnded(Outcome.OK, RunStatus.SCHEDULED)
    assert await places(redis, keys, lease.run_id) == Places((), START_MS + 1000, None, ("scheduled",))
    assert (await store.read_run(lease.run_id)).available_at_ms == START_MS + 1000
    store.now_ms = START_MS + 1000
    await store.promote(10)
    assert await lane_of(redis, keys) == [lease.run_id, other]


async def test_runs_are_released_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    leases = [await start_one(store) for _ in range(3)]
    async with memory_is_full(redis):
        assert await store.release(a_release(leases[0])) == QUEUED
        assert (await store.release(a_release(leases[1], delay_ms=1000))).status is RunStatus.SCHEDULED
        assert await lose(store, leases[2]) == QUEUED


# ---- what it costs ----


@pytest.mark.parametrize("reason", FREE)
async def test_handing_a_run_back_costs_nothing(store: Store, reason: ReleaseReason) -> None:
    lease = await start_one(store, max_attempts=1)
    for delivery in range(2, 9):
        assert await store.release(a_release(lease, reason)) == QUEUED
        lease = await claim_one(store)
        assert (lease.attempt, lease.deliveries) == (1, delivery)
    run = await store.read_run(lease.run_id)
    assert (run.losses, run.failures) == (0, 0)


async def test_a_lease_that_vanished_is_a_loss_and_too_many_fail_the_run(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=9)
    for losses in (1, 2, 3):
        assert await lose(store, lease) == QUEUED
        assert (await store.read_run(lease.run_id)).losses == losses
        lease = await claim_one(store)
        assert lease.attempt == 1

    assert await lose(store, lease) == LOST_TOO_OFTEN

    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert (run.status, run.failure.kind) == (RunStatus.FAILED, FailureKind.WORKER_LOST)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))


async def test_a_run_that_makes_progress_between_losses_ends_after_50_of_them(store: Store) -> None:
    lease = await start_one(store)
    for number in range(50):
        await store.record_step(a_record(lease, a_step(f"s{number}")))
        assert await lose(store, lease) == QUEUED
        lease = await claim_one(store)
    await store.record_step(a_record(lease, a_step("one more")))
    assert await lose(store, lease) == LOST_TOO_OFTEN


async def test_five_deliveries_in_a_row_that_never_arrived_are_one_loss(store: Store) -> None:
    run_id = await enqueue_one(store)
    assert await undelivered(store, 4) == QUEUED
    assert (await store.read_run(run_id)).losses == 0
    assert await undelivered(store, 1) == QUEUED
    assert (await store.read_run(run_id)).losses == 1
    await undelivered(store, 4)
    assert (await store.read_run(run_id)).losses == 1
    await undelivered(store, 1)
    assert (await store.read_run(run_id)).losses == 2


async def test_a_delivery_that_arrives_ends_the_row(store: Store) -> None:
    run_id = await enqueue_one(store)
    await undelivered(store, 4)
    lease = await claim_one(store)
    await renew_one(store, lease)
    await store.release(a_release(lease))
    await undelivered(store, 4)
    assert (await store.read_run(run_id)).losses == 0


async def test_a_run_that_never_arrives_fails_in_the_end(store: Store) -> None:
    run_id = await enqueue_one(store)
    assert await undelivered(store, 19) == QUEUED
    assert await undelivered(store, 1) == LOST_TOO_OFTEN
    run = await store.read_run(run_id)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.WORKER_LOST


async def test_a_run_that_never_arrived_stands_where_it_stood(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first, second = await enqueue_one(store), await enqueue_one(store)
    await undelivered(store, 2)
    assert await lane_of(redis, keys) == [first, second]


async def test_a_run_that_was_not_started_still_has_to_start_in_time(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000))
    run_id = await enqueue_one(store)
    store.now_ms = START_MS + 1000
    await undelivered(store, 1)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 60_000


# ---- on the gateway's own account ----


@pytest.mark.parametrize(
    "stamp",
    [LATER_STAMP, Stamp("session-2", 1, "gateway-1"), Stamp("session-1", 1, "gateway-2")],
    ids=["another session elsewhere", "another session", "another gateway"],
)
@pytest.mark.parametrize("reason", [ReleaseReason.UNDELIVERED, ReleaseReason.VANISHED, ReleaseReason.CLOSED])
async def test_a_gateway_takes_back_only_what_carries_its_stamp(
    store: Store, redis: RedisCommand, keys: Keys, stamp: Stamp, reason: ReleaseReason
) -> None:
    await enqueue_one(store)
    lease = await claim_one(store)
    before = await everything(redis, keys)
    assert (await store.release(a_release(lease, reason, stamp=stamp))).outcome is Outcome.MOVED
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("reason", [ReleaseReason.VANISHED, ReleaseReason.CLOSED, ReleaseReason.FENCED])
async def test_a_session_that_ends_takes_nothing_from_the_next_one(
    store: Store, redis: RedisCommand, keys: Keys, reason: ReleaseReason
) -> None:
    lease = await start_one(store)
    await renew_one(store, lease, LATER_STAMP)
    before = await everything(redis, keys)
    assert (await store.release(a_release(lease, reason, stamp=STAMP))).outcome is Outcome.MOVED
    assert await everything(redis, keys) == before
    assert await store.release(a_release(lease, reason, stamp=LATER_STAMP)) == QUEUED


async def test_an_assignment_whose_receipt_came_is_not_taken_back_as_undelivered(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    before = await everything(redis, keys)
    answer = await store.release(a_release(lease, ReleaseReason.UNDELIVERED, stamp=STAMP))
    assert answer.outcome not in (Outcome.OK, Outcome.DUPLICATE)
    assert await everything(redis, keys) == before


async def test_a_worker_hands_back_what_another_session_has_stamped(store: Store) -> None:
    lease = await start_one(store)
    await renew_one(store, lease, LATER_STAMP)
    assert await store.release(a_release(lease)) == QUEUED


async def test_a_result_is_not_said_to_be_taken_when_the_gateway_has_taken_the_run_back(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await enqueue_one(store)
    lease = await claim_one(store)
    await store.release(a_release(lease, ReleaseReason.UNDELIVERED, stamp=STAMP))
    before = await everything(redis, keys)
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


# ---- cancel wins, then the run's time-out ----


@pytest.mark.parametrize("delay_ms", [0, 1000])
@pytest.mark.parametrize("reason", [ReleaseReason.SHUTDOWN, ReleaseReason.VANISHED, ReleaseReason.CANCEL_IGNORED])
async def test_a_run_with_a_cancel_request_ends_as_canceled(
    store: Store, redis: RedisCommand, keys: Keys, reason: ReleaseReason, delay_ms: int
) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id, "enough")
    answer = await store.release(a_release(lease, reason, delay_ms=delay_ms))
    assert answer == LeaseEnded(Outcome.OK, RunStatus.CANCELED)
    assert (await store.read_run(lease.run_id)).cancel_reason == "enough"
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("canceled",))


async def test_a_run_whose_time_is_over_fails(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(run_timeout_ms=60_000))
    lease = await start_one(store)
    store.now_ms = START_MS + 60_000
    assert await store.release(a_release(lease)) == LeaseEnded(Outcome.OK, RunStatus.FAILED)
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TIMEOUT
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))


# ---- only under the current lease, and once ----


@pytest.mark.parametrize("stamp", [None, STAMP], ids=["by the worker", "by the gateway"])
@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_is_released(
    store: Store, redis: RedisCommand, keys: Keys, state: str, stamp: Stamp | None
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    answer = await store.release(a_release(a_lease(run_id), stamp=stamp))
    assert answer == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_releases_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await let_leases_expire(store)
    later = await claim_one(store)
    before = await everything(redis, keys)
    assert await store.release(a_release(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert (await lose(store, lease)).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before
    assert await store.release(a_release(later)) == QUEUED


async def test_a_lease_that_is_overdue_but_not_reaped_is_released(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 10 * LEASE_MS
    assert await store.release(a_release(lease)) == QUEUED


async def test_a_repeated_release_gets_the_same_answer(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.release(a_release(lease))
    for _ in ("in its lane", "under its next lease"):
        before = await everything(redis, keys)
        assert await store.release(a_release(lease)) == LeaseEnded(Outcome.DUPLICATE, RunStatus.QUEUED)
        assert await everything(redis, keys) == before
        if await lane_of(redis, keys):
            await claim_one(store)


async def test_a_repeated_release_by_a_gateway_is_one_loss(store: Store) -> None:
    lease = await start_one(store)
    await lose(store, lease)
    assert (await lose(store, lease)).outcome is not Outcome.OK
    assert (await store.read_run(lease.run_id)).losses == 1


async def test_a_store_with_fewer_steps_than_were_answered_keeps_the_lease(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    before = await everything(redis, keys)
    assert (await store.release(a_release(lease, steps_recorded=2))).outcome is Outcome.STEPS_MISSING
    assert await everything(redis, keys) == before
    assert await store.release(a_release(lease, steps_recorded=1)) == QUEUED
