"""reap: a lease that nobody renewed is taken away, and the run goes where it belongs then."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.errors import RunNotFound
from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import ClaimedRun, Outcome, Standing
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Reaped
from redflow_server.store.store import Store
from tests.builders import (
    DELIVERY_MS,
    LEASE_MS,
    START_MS,
    Messages,
    a_completion,
    a_failed_step,
    a_record,
    a_step,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    memory_is_full,
    places,
    put_in_state,
    record_of,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand

NEVER_QUIET_MS: Final = 10**12
LIMIT: Final = 100
MAX_LOSSES: Final = 3


@pytest.fixture(autouse=True)
async def _somebody_has_looked(store: Store) -> None:
    """Long enough ago that no outage of before matters."""
    store.now_ms = START_MS - 10 * LEASE_MS
    await store.reap(LEASE_MS, NEVER_QUIET_MS, LIMIT)
    store.now_ms = START_MS


async def reap_at(store: Store, at_ms: int, limit: int = LIMIT) -> Reaped:
    """Looks as if somebody had looked all the time."""
    store.now_ms = at_ms
    return await store.reap(LEASE_MS, NEVER_QUIET_MS, limit)


async def lose(store: Store, lease: ClaimedRun) -> Reaped:
    """Lets an acknowledged lease end."""
    return await reap_at(store, (store.now_ms or 0) + LEASE_MS + 1)


async def claim_and_start(store: Store) -> ClaimedRun:
    lease = await claim_one(store)
    await renew_one(store, lease)
    return lease


# ---- a lease that ended ----


async def test_a_run_whose_lease_ended_is_queued_again_and_that_counts_as_a_loss(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)

    assert await reap_at(store, START_MS + LEASE_MS + 1) == Reaped(queued=1, waiting=0, failed=0, canceled=0)

    stands = await places(redis, keys, lease.run_id)
    assert (stands.lanes, stands.lease_until_ms, stands.statuses) == ((lane_name("q", "w"),), None, ("queued",))
    run = await store.read_run(lease.run_id)
    assert (run.losses, run.failures, run.attempt, run.session_id) == (1, 0, 1, "")
    assert (await claim_one(store)).attempt == 1, "a lost lease costs no attempt"


async def test_a_lease_is_left_alone_until_it_ends(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    before = await places(redis, keys, lease.run_id)
    assert (await reap_at(store, START_MS + LEASE_MS - 1)).total == 0
    assert await places(redis, keys, lease.run_id) == before


async def test_a_lease_that_was_renewed_after_its_end_is_left_alone(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + LEASE_MS + 1000
    assert (await renew_one(store, lease)).standing is Standing.HELD
    assert (await reap_at(store, START_MS + LEASE_MS + 2000)).total == 0


async def test_whoever_held_the_lease_has_lost_it(store: Store) -> None:
    lease = await start_one(store)
    await reap_at(store, START_MS + LEASE_MS + 1)

    assert (await renew_one(store, lease)).standing is Standing.LOST
    assert (await store.record_step(a_record(lease))).outcome is Outcome.LEASE_LOST
    assert (await store.complete(a_completion(lease))).outcome is Outcome.LEASE_LOST
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED


async def test_a_run_keeps_its_steps_and_its_place_in_the_lane(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a", b"1")))
    later = await enqueue_one(store)
    urgent = await enqueue_one(store, priority=5)

    await reap_at(store, START_MS + LEASE_MS + 1)

    assert await lane_of(redis, keys) == [urgent, lease.run_id, later]
    [step] = await store.read_steps(lease.run_id, 1000)
    assert (step.name, step.output and step.output.data) == ("a", b"1")


async def test_runs_that_come_back_stand_in_their_old_order(store: Store, redis: RedisCommand, keys: Keys) -> None:
    runs = [await enqueue_one(store) for _ in range(4)]
    leases = [await claim_one(store) for _ in runs]
    for lease in reversed(leases):
        await renew_one(store, lease)
    await reap_at(store, START_MS + LEASE_MS + 1)
    assert await lane_of(redis, keys) == runs


async def test_gateways_hear_of_the_lane_that_fills_once(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    for _ in range(2):
        await enqueue_one(store)
    await claim_one(store)
    await claim_one(store)
    assert await redis("ZCARD", keys.lanes) == 0

    async with Messages.on(redis_url, keys.wakeups) as messages:
        await reap_at(store, START_MS + DELIVERY_MS + 1)
        [heard] = await messages.so_far()

    name = lane_name("q", "w")
    assert heard == f"lane {int(float(await redis('ZSCORE', keys.lanes, name)))} {name}"


async def test_at_most_as_many_as_asked_for_and_the_longest_ended_first(store: Store) -> None:
    leases = []
    for number in range(5):
        store.now_ms = START_MS + number
        leases.append(await start_one(store))

    assert (await reap_at(store, START_MS + 2 * LEASE_MS, limit=2)).total == 2
    statuses = [(await store.read_run(lease.run_id)).status.value for lease in leases]
    assert statuses == ["queued", "queued", "running", "running", "running"]
    assert (await reap_at(store, START_MS + 2 * LEASE_MS, limit=2)).total == 2
    assert (await reap_at(store, START_MS + 2 * LEASE_MS, limit=2)).total == 1
    assert (await reap_at(store, START_MS + 2 * LEASE_MS, limit=2)).total == 0


# ---- losses ----


async def test_a_run_that_is_lost_too_often_fails_as_that(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=5)
    for losses in range(1, MAX_LOSSES + 1):
        assert await lose(store, lease) == Reaped(queued=1, waiting=0, failed=0, canceled=0)
        assert (await store.read_run(lease.run_id)).losses == losses
        lease = await claim_and_start(store)

    assert await lose(store, lease) == Reaped(queued=0, waiting=0, failed=1, canceled=0)

    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.finished_at_ms) == (RunStatus.FAILED, 1, store.now_ms)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.WORKER_LOST
    assert (await places(redis, keys, lease.run_id)).statuses == (RunStatus.FAILED,)


async def test_a_step_recorded_in_between_starts_the_count_anew(store: Store) -> None:
    lease = await start_one(store)
    for _ in range(MAX_LOSSES):
        await lose(store, lease)
        lease = await claim_and_start(store)

    await store.record_step(a_record(lease, a_step("progress")))
    await lose(store, lease)

    run = await store.read_run(lease.run_id)
    assert (run.status, run.losses) == (RunStatus.QUEUED, 1)


async def test_a_failed_step_is_no_progress(store: Store) -> None:
    lease = await start_one(store)
    for _ in range(MAX_LOSSES):
        await store.record_step(a_record(lease, a_failed_step("a"), steps_recorded=len(lease.steps or ())))
        await lose(store, lease)
        lease = await claim_and_start(store)
    await store.record_step(a_record(lease, a_failed_step("a"), steps_recorded=len(lease.steps or ())))
    await lose(store, lease)
    assert (await store.read_run(lease.run_id)).status is RunStatus.FAILED


async def test_progress_does_not_save_a_run_that_is_lost_again_and_again(store: Store) -> None:
    """Step names that differ each time look like progress for ever."""
    lease = await start_one(store)
    lost = 0
    while (await store.read_run(lease.run_id)).status is RunStatus.RUNNING:
        assert lost <= 60, "lost 60 times and still going"
        await store.record_step(a_record(lease, a_step(f"step-{lost}", seq=lost), steps_recorded=lost))
        reaped = await lose(store, lease)
        lost += 1
        if reaped.queued:
            lease = await claim_and_start(store)

    run = await store.read_run(lease.run_id)
    assert lost == 51
    assert run.failure is not None
    assert run.failure.kind is FailureKind.WORKER_LOST


# ---- assignments that never arrived ----


async def test_an_assignment_that_nobody_acknowledged_is_no_loss(store: Store) -> None:
    run_id = await enqueue_one(store)
    await claim_one(store)
    assert (await reap_at(store, START_MS + DELIVERY_MS - 1)).total == 0
    assert await reap_at(store, START_MS + DELIVERY_MS + 1) == Reaped(queued=1, waiting=0, failed=0, canceled=0)
    run = await store.read_run(run_id)
    assert (run.status, run.losses) == (RunStatus.QUEUED, 0)


async def fail_to_deliver(store: Store, times: int) -> Reaped:
    reaped = Reaped(0, 0, 0, 0)
    for _ in range(times):
        await claim_one(store)
        reaped = await reap_at(store, (store.now_ms or 0) + DELIVERY_MS + 1)
    return reaped


async def test_five_in_a_row_count_as_one_loss(store: Store) -> None:
    run_id = await enqueue_one(store)
    await fail_to_deliver(store, 4)
    assert (await store.read_run(run_id)).losses == 0
    await fail_to_deliver(store, 1)
    assert (await store.read_run(run_id)).losses == 1
    await fail_to_deliver(store, 5)
    assert (await store.read_run(run_id)).losses == 2


async def test_an_acknowledged_one_ends_the_row(store: Store) -> None:
    run_id = await enqueue_one(store)
    await fail_to_deliver(store, 4)
    await lose(store, await claim_and_start(store))
    assert (await store.read_run(run_id)).losses == 1
    await fail_to_deliver(store, 4)
    assert (await store.read_run(run_id)).losses == 1
    await fail_to_deliver(store, 1)
    assert (await store.read_run(run_id)).losses == 2


async def test_a_run_that_can_never_be_delivered_ends(store: Store) -> None:
    """Its input may kill whoever receives it."""
    run_id = await enqueue_one(store)
    assert (await fail_to_deliver(store, 5 * MAX_LOSSES + 4)).queued == 1
    assert (await fail_to_deliver(store, 1)).failed == 1
    run = await store.read_run(run_id)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.WORKER_LOST


async def test_a_step_under_a_lease_shows_that_it_arrived(store: Store) -> None:
    run_id = await enqueue_one(store)
    lease = await claim_one(store)
    await store.record_step(a_record(lease, a_failed_step()))
    await lose(store, lease)
    assert (await store.read_run(run_id)).losses == 1


# ---- cancel ----


async def test_a_run_that_was_to_be_canceled_is_canceled(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id, "why")

    assert await reap_at(store, START_MS + LEASE_MS + 1) == Reaped(queued=0, waiting=0, failed=0, canceled=1)

    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason, run.cancel_requested_at_ms) == (RunStatus.CANCELED, "why", START_MS)
    stands = await places(redis, keys, lease.run_id)
    assert (stands.lanes, stands.statuses) == ((), (RunStatus.CANCELED,))


async def test_cancel_wins_over_a_loss_too_many(store: Store) -> None:
    lease = await start_one(store)
    for _ in range(MAX_LOSSES):
        await lose(store, lease)
        lease = await claim_and_start(store)
    await request_cancel(store, lease.run_id)
    assert await lose(store, lease) == Reaped(queued=0, waiting=0, failed=0, canceled=1)


# ---- entries that belong to nobody ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_an_entry_of_a_run_that_is_not_running_is_dropped_and_moves_nothing(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    await reap_at(store, START_MS)
    before = await everything(redis, keys)
    await redis("ZADD", keys.leases, START_MS - 1, run_id)

    assert (await reap_at(store, START_MS)).total == 0

    assert await everything(redis, keys) == before


@pytest.mark.leaves_faults
async def test_an_entry_whose_record_is_something_else_is_dropped_and_holds_nobody_up(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await redis("SET", keys.run("run_odd"), "not a record")
    await redis("ZADD", keys.leases, START_MS - 1, "run_odd")

    assert (await reap_at(store, START_MS + LEASE_MS + 1)).queued == 1

    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED
    assert await redis("ZCARD", keys.leases) == 0
    assert await redis("GET", keys.run("run_odd")) == "not a record"


async def test_entries_of_nobody_do_not_starve_those_behind_them(store: Store, redis: RedisCommand, keys: Keys) -> None:
    for number in range(7):
        await redis("ZADD", keys.leases, START_MS - 1, f"run_ghost{number}")
    lease = await start_one(store)
    for _ in range(4):
        await reap_at(store, START_MS + LEASE_MS + 1, limit=3)
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED
    with pytest.raises(RunNotFound):
        await store.read_run("run_ghost0")


async def test_leases_are_taken_when_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    to_be_canceled = await start_one(store)
    await request_cancel(store, to_be_canceled.run_id)
    async with memory_is_full(redis):
        assert await reap_at(store, START_MS + LEASE_MS + 1) == Reaped(queued=1, waiting=0, failed=0, canceled=1)
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED


async def test_nothing_leased_is_nothing_reaped(store: Store) -> None:
    assert await reap_at(store, START_MS) == Reaped(0, 0, 0, 0)


async def test_a_lost_lease_leaves_no_token_behind(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await reap_at(store, START_MS + LEASE_MS + 1)
    record = await record_of(redis, keys, lease.run_id)
    assert record.keys().isdisjoint({"leaseToken", "leaseOwner", "endedToken", "endedAs", "acked"})
