"""Parent-close policy: what becomes of the runs that a run has started, and does not wait for, when it ends."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, ClosePolicy, Outcome, StartStep, StopReason
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Passed
from redflow_server.store.store import Store
from tests.builders import (
    STAMP,
    START_MS,
    Changes,
    Messages,
    a_completion,
    a_failed_attempt,
    an_abort,
    claim_one,
    enqueue_one,
    everything,
    lane_of,
    let_leases_expire,
    memory_is_full,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import CHILD_LANE, a_child, a_start, a_suspension, a_wait, a_wait_for, child_id

HOUR_MS: Final = 3_600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def status_of(store: Store, run_id: str) -> RunStatus:
    return (await store.read_run(run_id)).status


def ending_with_it(
    lease: ClaimedRun, name: str = "start", start: NewRun | None = None, **changes: Changes
) -> StartStep:
    """A step that starts a run which is to end with this one."""
    return a_start(lease, name, start, close_policy=ClosePolicy.CANCEL, **changes)


@pytest.mark.parametrize("end", ["succeeded", "failed", "canceled"])
async def test_whatever_its_end_a_run_abandons_or_cancels_those_that_it_has_started_as_it_was_told(
    store: Store, redis: RedisCommand, keys: Keys, end: str
) -> None:
    lease = await start_one(store)
    abandoned, canceled = a_child(), a_child()
    await store.step_start(a_start(lease, "a", abandoned))
    await store.step_start(ending_with_it(lease, "b", canceled))
    match end:
        case "succeeded":
            await store.complete(a_completion(lease))
        case "failed":
            await store.fail(a_failed_attempt(lease))
        case "canceled":
            await store.abort(an_abort(lease))

    assert await status_of(store, lease.run_id) == end
    assert await status_of(store, abandoned.run_id) is RunStatus.QUEUED
    run = await store.read_run(canceled.run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "no run needs it any more")
    assert await redis("EXISTS", keys.children(lease.run_id)) == 0


async def test_while_its_parent_is_open_it_goes_on_through_attempts_and_lost_workers(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    step = ending_with_it(lease)
    await store.step_start(step)
    await store.fail(a_failed_attempt(lease, steps_recorded=1))
    store.now_ms = START_MS + 1000
    await store.promote(10)
    again = await claim_one(store)
    await renew_one(store, again)
    await let_leases_expire(store)
    assert await status_of(store, step.start.run_id) is RunStatus.QUEUED
    await store.complete(a_completion(await claim_one(store)))
    assert await status_of(store, step.start.run_id) is RunStatus.CANCELED


async def test_one_that_a_worker_has_is_told_to_stop(store: Store, keys: Keys, redis_url: str) -> None:
    lease = await start_one(store)
    await store.step_start(ending_with_it(lease))
    child = await claim_one(store, CHILD_LANE)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await store.complete(a_completion(lease))
        [order] = await messages.so_far()
    assert order.startswith(f"stop {child.lease_token} {StopReason.PARENT} ")
    assert (await store.abort(an_abort(child))).status is RunStatus.CANCELED


async def test_one_that_has_ended_stays_as_it_is(store: Store) -> None:
    lease = await start_one(store)
    step = ending_with_it(lease)
    await store.step_start(step)
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    await store.complete(a_completion(lease))
    assert await status_of(store, step.start.run_id) is RunStatus.SUCCEEDED


async def test_one_that_another_run_waits_for_goes_on(store: Store) -> None:
    lease, other = await start_one(store), await start_one(store)
    step = ending_with_it(lease)
    await store.step_start(step)
    await store.suspend(a_suspension(other, a_wait_for(step.start.run_id)))
    await store.complete(a_completion(lease))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    assert await status_of(store, other.run_id) is RunStatus.QUEUED


async def test_its_own_children_end_with_it(store: Store) -> None:
    lease = await start_one(store)
    await store.step_start(ending_with_it(lease))
    child, wait = await claim_one(store, CHILD_LANE), a_wait(queue="grandchildren")
    grandchild = a_child(queue="grandchildren")
    await store.step_start(ending_with_it(child, "start", grandchild))
    await store.suspend(a_suspension(child, wait, steps_recorded=1))
    await store.complete(a_completion(lease))
    for run_id in (child.run_id, child_id(wait), grandchild.run_id):
        assert await status_of(store, run_id) is RunStatus.CANCELED


async def test_of_many_a_hundred_end_at_once_and_the_others_by_the_outbox(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    steps = [ending_with_it(lease, f"step {number}") for number in range(250)]
    for started in [store.step_start(step) for step in steps]:
        await started

    async def queued() -> int:
        return len(await lane_of(redis, keys, CHILD_LANE))

    await store.complete(a_completion(lease))
    assert await queued() == 150
    assert await store.apply_outbox(100) == Passed(1, START_MS)
    assert await queued() == 50
    assert await store.apply_outbox(100) == Passed(1, None)
    assert await queued() == 0


async def test_a_run_that_has_ended_is_kept_until_those_that_end_with_it_have(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    for started in [store.step_start(ending_with_it(lease, f"step {number}")) for number in range(150)]:
        await started
    await store.complete(a_completion(lease))
    await redis("DEL", keys.outbox)
    store.now_ms = START_MS + HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 0
    assert (await store.apply_outbox(100)).count == 1
    assert await lane_of(redis, keys, CHILD_LANE) == []
    store.now_ms += HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 1


async def test_an_entry_of_a_run_that_is_open_ends_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.step_start(ending_with_it(lease))
    before = await everything(redis, keys)
    await redis("ZADD", keys.outbox, START_MS, f"close {lease.run_id}")
    assert await store.apply_outbox(100) == Passed(1, None)
    assert await everything(redis, keys) == before


async def test_they_end_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    step = ending_with_it(lease)
    await store.step_start(step)
    async with memory_is_full(redis):
        await store.complete(a_completion(lease, None))
    assert await status_of(store, step.start.run_id) is RunStatus.CANCELED


async def test_a_key_leads_to_the_run_that_it_names_which_is_not_of_this_one(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    keyed = await enqueue_one(store, workflow="c", queue="children", idempotency_key="key")
    lease = await start_one(store)
    step = ending_with_it(lease, start=a_child(idempotency_key="key"))

    answer = await store.step_start(step)

    assert answer.stored is not None
    assert answer.stored.child_run_id == keyed
    assert await lane_of(redis, keys, CHILD_LANE) == [keyed]
    await store.complete(a_completion(lease))
    assert await status_of(store, keyed) is RunStatus.QUEUED


async def test_a_run_that_is_to_be_canceled_hears_so_and_its_child_ends_with_it(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    step = ending_with_it(lease)
    answer = await store.step_start(step)
    assert (answer.outcome, answer.cancel_requested) == (Outcome.OK, True)
    await store.abort(an_abort(lease))
    assert await status_of(store, step.start.run_id) is RunStatus.CANCELED
