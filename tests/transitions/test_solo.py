"""A run that its next loss would end stands apart: it is delivered to a worker alone, so that the loss is its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import BeginWaits, ClaimedRun, Lane, ReleaseReason
from redflow_server.domain.states import RunStatus
from redflow_server.domain.waits import TimerWait, Wait
from redflow_server.store.keys import SOLO, Keys, lane_name
from redflow_server.store.store import Store
from tests.builders import (
    LANE,
    STAMP,
    START_MS,
    Messages,
    a_claim,
    a_failed_attempt,
    a_failure,
    a_record,
    a_release,
    a_step,
    claim_one,
    enqueue_one,
    lane_of,
    places,
    record_of,
    renew_one,
    start_one,
)
from tests.redis_command import RedisCommand

SOLO_LANE: Final = replace(LANE, is_solo=True)
NAME: Final = SOLO + lane_name(LANE.queue, LANE.workflow)
MAX_LOSSES: Final = 3
MAX_FRUITLESS: Final = 100


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def start_again(store: Store, lane: Lane = LANE) -> ClaimedRun:
    """The only run is delivered to a worker that acknowledges it."""
    lease = await claim_one(store, lane)
    await renew_one(store, lease)
    return lease


async def lose(store: Store, lease: ClaimedRun) -> None:
    await store.release(a_release(lease, ReleaseReason.VANISHED, stamp=STAMP))


async def suspected(store: Store, losses: int = MAX_LOSSES) -> ClaimedRun:
    """The last lease of a run that was lost so often, and stands in its lane."""
    lease = await start_one(store, max_attempts=5)
    await lose(store, lease)
    for _ in range(losses - 1):
        lease = await start_again(store)
        await lose(store, lease)
    return lease


# ---- where it stands ----


async def test_it_stands_apart_only_when_its_next_loss_would_end_it(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await suspected(store, MAX_LOSSES - 1)
    assert (await places(redis, keys, lease.run_id)).lanes == (lane_name(LANE.queue, LANE.workflow),)
    await lose(store, await start_again(store))
    assert (await places(redis, keys, lease.run_id)).lanes == (NAME,)


async def test_it_is_not_leased_with_others_nor_others_with_it(store: Store) -> None:
    lease = await suspected(store)
    other = await enqueue_one(store)
    assert [run.run_id for run in (await store.claim(a_claim(LANE, count=10))).runs] == [other]
    claimed = await store.claim(a_claim(SOLO_LANE, count=10))
    assert [(run.run_id, run.lane) for run in claimed.runs] == [(lease.run_id, SOLO_LANE)]
    assert claimed.emptied == (SOLO_LANE,)


async def test_gateways_hear_of_it_by_a_lane_of_its_own(store: Store, keys: Keys, redis_url: str) -> None:
    await suspected(store, MAX_LOSSES - 1)
    lease = await start_again(store)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await lose(store, lease)
        [message] = [said for said in await messages.so_far() if said.startswith("lane ")]
    assert message.endswith(f" {NAME}")
    assert NAME in dict((await store.due(0)).lanes)


async def test_counts_of_a_lane_have_it(store: Store) -> None:
    await suspected(store)
    await enqueue_one(store)
    stats = await store.read_stats()
    assert [(lane.queue, lane.workflow, lane.depth) for lane in stats.lanes] == [(LANE.queue, LANE.workflow, 2)]
    assert stats.lane_count == 1


async def test_the_loss_that_ends_it_is_the_next_one(store: Store) -> None:
    lease = await suspected(store)
    await lose(store, await start_again(store, SOLO_LANE))
    run = await store.read_run(lease.run_id)
    assert run.status is RunStatus.FAILED
    assert run.failure is not None and run.failure.kind is FailureKind.WORKER_LOST


async def test_a_cancel_takes_it_out(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await suspected(store)
    await store.cancel(lease.run_id, "", "cancel-1")
    assert (await store.read_run(lease.run_id)).status is RunStatus.CANCELED
    assert (await places(redis, keys, lease.run_id)).lanes == ()


async def test_it_goes_back_to_where_it_stood_when_its_entry_was_lost(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await suspected(store)
    await redis("DEL", keys.lane(NAME))
    await redis("ZREM", keys.lanes, NAME)
    await store.sweep(RunStatus.QUEUED, None, 100)
    assert (await places(redis, keys, lease.run_id)).lanes == (NAME,)


# ---- progress ----


async def test_a_step_that_succeeds_brings_it_back_among_the_others(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await suspected(store)
    lease = await start_again(store, SOLO_LANE)
    await store.record_step(a_record(lease, a_step()))
    await store.release(a_release(lease, steps_recorded=1))
    assert await lane_of(redis, keys) == [lease.run_id]


async def test_so_does_another_attempt(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await suspected(store)
    lease = await start_again(store, SOLO_LANE)
    await store.fail(a_failed_attempt(lease, a_failure(next_retry_delay_ms=0)))
    assert await lane_of(redis, keys) == [lease.run_id]


async def test_being_handed_back_does_not(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await suspected(store)
    lease = await start_again(store, SOLO_LANE)
    await store.release(a_release(lease, ReleaseReason.SHUTDOWN))
    assert (await places(redis, keys, lease.run_id)).lanes == (NAME,)


async def test_a_wait_that_ends_while_it_stands_apart_leaves_it_there(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    wait = Wait(name="nap", seq=1, target=TimerWait(START_MS + 10))
    await store.step_wait(BeginWaits(lease.run_id, lease.lease_token, 0, (wait,)))
    await lose(store, lease)
    for _ in range(MAX_LOSSES - 1):
        await lose(store, await start_again(store))
    store.now_ms = START_MS + 20
    await store.fire_timers(100)
    assert (await places(redis, keys, lease.run_id)).lanes == (NAME,)
    assert (await claim_one(store, SOLO_LANE)).run_id == lease.run_id


async def test_a_renewal_tells_whether_others_may_be_beside_it(store: Store) -> None:
    await suspected(store)
    lease = await start_again(store, SOLO_LANE)
    assert (await renew_one(store, lease)).is_solo
    await store.record_step(a_record(lease, a_step()))
    assert not (await renew_one(store, lease)).is_solo


async def test_nothing_of_it_stays_with_a_run_that_has_ended(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await suspected(store)
    await lose(store, lease := await start_again(store, SOLO_LANE))
    assert not {"solo", "fruitful", "losses"} & (await record_of(redis, keys, lease.run_id)).keys()


# ---- deliveries that come to nothing ----


async def deliver(store: Store, reason: ReleaseReason, times: int) -> str:
    """The only run is delivered, and handed back, so often; where it then is."""
    status = None
    for _ in range(times):
        status = (await store.release(a_release(await start_again(store), reason))).status
    return str(status)


async def test_a_run_that_is_handed_back_for_ever_ends(store: Store, redis: RedisCommand, keys: Keys) -> None:
    """It may be what ends its worker each time, in a way that leaves the worker time to say so."""
    run_id = await enqueue_one(store)
    assert await deliver(store, ReleaseReason.SHUTDOWN, MAX_FRUITLESS - 1) == "queued"
    assert await lane_of(redis, keys) == [run_id]
    assert await deliver(store, ReleaseReason.SHUTDOWN, 1) == "queued"
    assert (await places(redis, keys, run_id)).lanes == (NAME,)
    assert await deliver(store, ReleaseReason.SHUTDOWN, 1) == "failed"
    run = await store.read_run(run_id)
    assert run.failure is not None and run.failure.kind is FailureKind.WORKER_LOST
    assert (run.losses, run.deliveries) == (0, MAX_FRUITLESS + 1)


async def test_progress_in_between_starts_the_count_of_deliveries_anew(store: Store) -> None:
    run_id = await enqueue_one(store)
    await deliver(store, ReleaseReason.SHUTDOWN, MAX_FRUITLESS)
    lease = await start_again(store)
    await store.record_step(a_record(lease, a_step()))
    await store.release(a_release(lease, steps_recorded=1))
    for _ in range(MAX_FRUITLESS):
        await store.release(a_release(await start_again(store), steps_recorded=1))
    assert (await store.read_run(run_id)).status is RunStatus.QUEUED


@pytest.mark.parametrize("reason", [ReleaseReason.NOT_STARTED, ReleaseReason.OVERLOADED])
async def test_a_delivery_that_was_rejected_does_not_count(
    store: Store, redis: RedisCommand, keys: Keys, reason: ReleaseReason
) -> None:
    run_id = await enqueue_one(store)
    assert await deliver(store, reason, MAX_FRUITLESS + 1) == "queued"
    assert await lane_of(redis, keys) == [run_id]


async def test_without_losses_allowed_none_stands_apart(
    store: Store, redis: RedisCommand, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_max_losses", 0)
    lease = await start_one(store)
    await store.release(a_release(lease, ReleaseReason.SHUTDOWN))
    assert await lane_of(redis, keys) == [lease.run_id]
    await lose(store, await start_again(store))
    assert (await store.read_run(lease.run_id)).status is RunStatus.FAILED
