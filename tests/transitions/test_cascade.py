"""The end of a run ends the children that it still waits for, if it started them and nobody else waits for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, StopReason
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import Wait, event_channel
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    LANE,
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
    everything,
    let_leases_expire,
    memory_is_full,
    places,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    a_sleep,
    a_suspension,
    a_token_wait,
    a_wait,
    a_wait_for,
    an_event_wait,
    child_id,
    some_waits,
    with_timeout,
)

RUN_TIMEOUT_MS: Final = 600_000
HOUR_MS: Final = 3_600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def status_of(store: Store, run_id: str) -> RunStatus:
    return (await store.read_run(run_id)).status


async def waiting_parent(store: Store, *waits: Wait) -> ClaimedRun:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *waits))
    return lease


# ---- which children ----


@pytest.mark.parametrize("state", ["queued", "scheduled", "waiting"])
async def test_a_child_that_no_worker_has_ends_with_its_parent(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    wait = a_wait(max_attempts=2)
    parent = await waiting_parent(store, wait)
    if state != "queued":
        child = await claim_one(store, CHILD_LANE)
        if state == "scheduled":
            await store.fail(a_failed_attempt(child))
        else:
            await store.suspend(a_suspension(child, a_wait(workflow="grandchild")))
    assert await status_of(store, child_id(wait)) == state

    await request_cancel(store, parent.run_id)

    ended = await store.read_run(child_id(wait))
    assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELED, "no run needs it any more")
    assert (await places(redis, keys, ended.run_id)).statuses == ("canceled",)


async def test_a_child_that_a_worker_has_is_told_to_stop_and_ends_when_it_does(
    store: Store, keys: Keys, redis_url: str
) -> None:
    parent = await waiting_parent(store)
    child = await claim_one(store, CHILD_LANE)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await request_cancel(store, parent.run_id)
        [order] = await messages.so_far()
    assert order.startswith(f"stop {child.lease_token} {StopReason.PARENT} ")
    assert await status_of(store, child.run_id) is RunStatus.RUNNING
    await store.complete(a_completion(child))
    assert await status_of(store, child.run_id) is RunStatus.CANCELED


async def test_the_waits_of_a_run_that_has_ended_are_withdrawn(store: Store) -> None:
    parent = await waiting_parent(store)
    await request_cancel(store, parent.run_id)
    [step] = await store.read_steps(parent.run_id, 100)
    assert (step.status, step.finished_at_ms) == (StepStatus.WITHDRAWN, START_MS)
    assert (await store.read_run(parent.run_id)).waiting_for == ()


async def test_also_those_for_times_events_and_tokens_of_which_nothing_is_left(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    waits = a_sleep("timer"), with_timeout(an_event_wait("event")), a_token_wait(lease, "token")
    await store.suspend(a_suspension(lease, *waits))
    await request_cancel(store, lease.run_id)
    statuses = {step.name: step.status for step in await store.read_steps(lease.run_id, 100)}
    assert statuses == dict.fromkeys(("timer", "event", "token"), StepStatus.WITHDRAWN)
    assert await redis("EXISTS", keys.timers, keys.event_waits(event_channel("paid", None))) == 0


async def test_a_child_that_another_run_waits_for_goes_on_until_the_last_of_them_has_ended(store: Store) -> None:
    wait = a_wait()
    parent = await waiting_parent(store, wait)
    other = await waiting_parent(store, a_wait_for(child_id(wait)))
    await request_cancel(store, parent.run_id)
    assert await status_of(store, child_id(wait)) is RunStatus.QUEUED
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    assert await status_of(store, other.run_id) is RunStatus.QUEUED


async def test_a_run_that_it_did_not_start_goes_on(store: Store) -> None:
    others = await enqueue_one(store, workflow="other")
    keyed = await enqueue_one(store, workflow=CHILD_LANE.workflow, idempotency_key="key")
    parent = await waiting_parent(store, a_wait_for(others, "by id"), a_wait("by key", idempotency_key="key"))
    await request_cancel(store, parent.run_id)
    assert [await status_of(store, run_id) for run_id in (others, keyed)] == [RunStatus.QUEUED] * 2


async def test_a_child_that_has_ended_stays_as_it_is(store: Store) -> None:
    wait = a_wait("step")
    parent = await waiting_parent(store, wait, a_wait("other"))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    await request_cancel(store, parent.run_id)
    assert await status_of(store, child_id(wait)) is RunStatus.SUCCEEDED
    statuses = {step.name: step.status for step in await store.read_steps(parent.run_id, 100)}
    assert statuses == {"step": StepStatus.SUCCEEDED, "other": StepStatus.WITHDRAWN}


async def test_a_request_to_cancel_a_run_that_a_worker_has_leaves_its_children_until_it_has_ended(store: Store) -> None:
    lease, wait = await start_one(store), a_wait()
    await store.step_wait(some_waits(lease, wait))
    await request_cancel(store, lease.run_id)
    assert await status_of(store, child_id(wait)) is RunStatus.QUEUED
    await store.release(a_release(lease))
    assert await status_of(store, child_id(wait)) is RunStatus.CANCELED


async def test_a_child_that_ends_after_its_parent_was_purged_brings_nothing_of_it_back(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    parent = await waiting_parent(store)
    child = await claim_one(store, CHILD_LANE)
    await request_cancel(store, parent.run_id)
    store.now_ms = START_MS + HOUR_MS
    assert (await store.purge({RunStatus.CANCELED: 1}, 10)).purged == 1
    await store.complete(a_completion(child))
    assert [name for name in await everything(redis, keys) if parent.run_id in name] == []


async def test_what_a_child_returned_is_kept_when_the_child_is_purged(store: Store) -> None:
    parent, wait = await start_one(store), a_wait()
    await store.step_wait(some_waits(parent, wait))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE), b"7"))
    store.now_ms = START_MS + 31 * 24 * HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 1
    answer = await store.suspend(a_suspension(parent, wait))
    assert [step.output for step in answer.resolutions] == [Payload(b"7")]


# ---- whatever the end ----


async def lose_too_often(store: Store, lease: ClaimedRun) -> None:
    for _ in range(4):
        await renew_one(store, lease)
        await let_leases_expire(store)
        if await status_of(store, lease.run_id) is RunStatus.QUEUED:
            lease = await claim_one(store)


async def let_time_pass(store: Store, lease: ClaimedRun) -> None:
    await store.suspend(a_suspension(lease, a_wait("more")))
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    await store.expire(10)


async def find_late_at_claim(store: Store, lease: ClaimedRun) -> None:
    await store.release(a_release(lease))
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    await store.claim(a_claim())


async def find_late_when_due(store: Store, lease: ClaimedRun) -> None:
    await store.release(a_release(lease, delay_ms=RUN_TIMEOUT_MS))
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    await store.promote(10)


ENDS: Final[dict[str, Callable[[Store, ClaimedRun], Awaitable[object]]]] = {
    "completed": lambda store, lease: store.complete(a_completion(lease)),
    "failed": lambda store, lease: store.fail(a_failed_attempt(lease)),
    "aborted": lambda store, lease: store.abort(an_abort(lease)),
    "lost too often": lose_too_often,
    "too late while waiting": let_time_pass,
    "found late at a claim": find_late_at_claim,
    "found late when due": find_late_when_due,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_children_end_however_their_parent_ends(
    store: Store, end: Callable[[Store, ClaimedRun], Awaitable[object]]
) -> None:
    await register(store, a_workflow(run_timeout_ms=RUN_TIMEOUT_MS))
    lease, wait = await start_one(store), a_wait()
    await store.step_wait(some_waits(lease, wait))

    await end(store, lease)

    assert (await store.read_run(lease.run_id)).status.is_terminal
    assert await status_of(store, child_id(wait)) is RunStatus.CANCELED


async def test_a_run_in_the_same_lane_that_ends_during_a_claim_is_not_leased(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    """A workflow that calls itself: parent and child stand in one lane, the child before its parent."""
    await register(store, a_workflow(run_timeout_ms=RUN_TIMEOUT_MS))
    lease = await start_one(store)
    wait = a_wait(workflow=LANE.workflow, queue=LANE.queue, priority=1)
    await store.step_wait(some_waits(lease, wait))
    await store.release(a_release(lease))
    store.now_ms = START_MS + RUN_TIMEOUT_MS

    claimed = await store.claim(a_claim())

    assert await status_of(store, lease.run_id) is RunStatus.FAILED
    child = child_id(wait)
    assert [run.run_id for run in claimed.runs] == [child]
    assert (await places(redis, keys, child)).statuses == ("running",)
    assert (await store.read_run(child)).cancel_requested_at_ms == store.now_ms, "its holder is told to stop"


async def test_it_goes_on_down_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    wait = a_wait()
    parent = await waiting_parent(store, wait)
    async with memory_is_full(redis):
        await request_cancel(store, parent.run_id)
    assert await status_of(store, child_id(wait)) is RunStatus.CANCELED


# ---- many and deep ----


async def drain_outbox(store: Store) -> int:
    """Applies the outbox until it is empty; in how many passes."""
    passes = 0
    while (await store.apply_outbox(100)).next_at_ms is not None:
        passes += 1
        assert passes < 100
    return passes


async def test_a_chain_of_runs_is_canceled_in_parts_of_at_most_a_hundred(store: Store) -> None:
    first = last = await start_one(store)
    for _ in range(150):
        await store.suspend(a_suspension(last, a_wait()))
        last = await claim_one(store, CHILD_LANE)
    await store.release(a_release(last))

    await request_cancel(store, first.run_id)

    canceled = dict((await store.read_stats()).runs)[RunStatus.CANCELED]
    assert 1 < canceled <= 101
    assert await drain_outbox(store) > 0
    assert dict((await store.read_stats()).runs)[RunStatus.CANCELED] == 151


@pytest.mark.parametrize("count", [50, 51, 250])
async def test_hundreds_of_children_are_canceled_by_the_outbox(store: Store, count: int) -> None:
    parent = await start_one(store)
    for first in range(0, count, 100):
        waits = (a_wait(f"step {number}") for number in range(first, min(first + 100, count)))
        await store.step_wait(some_waits(parent, *waits))
    await store.complete(a_completion(parent))
    stats = dict((await store.read_stats()).runs)
    assert stats[RunStatus.CANCELED] <= 100
    await drain_outbox(store)
    stats = dict((await store.read_stats()).runs)
    assert (stats[RunStatus.CANCELED], stats[RunStatus.QUEUED]) == (count, 0)
    statuses = {step.status for step in await store.read_steps(parent.run_id, 10_000)}
    assert statuses == {StepStatus.WITHDRAWN}


async def test_a_run_that_ended_is_kept_until_its_waits_are_withdrawn(store: Store) -> None:
    parent = await start_one(store)
    for first in (0, 100):
        await store.step_wait(some_waits(parent, *(a_wait(f"step {first + number}") for number in range(100))))
    await store.complete(a_completion(parent))
    store.now_ms = START_MS + HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 0
    await drain_outbox(store)
    store.now_ms += HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 1
    assert dict((await store.read_stats()).runs)[RunStatus.QUEUED] == 0


async def test_a_child_that_somebody_began_to_wait_for_meanwhile_is_left(store: Store) -> None:
    parent = await start_one(store)
    waits = [a_wait(f"step {number}") for number in range(100)]
    await store.step_wait(some_waits(parent, *waits))
    await store.complete(a_completion(parent))
    left = [wait for wait in waits if await status_of(store, child_id(wait)) is RunStatus.QUEUED]
    assert left
    await waiting_parent(store, a_wait_for(child_id(left[0])))
    await drain_outbox(store)
    queued = [wait for wait in waits if await status_of(store, child_id(wait)) is RunStatus.QUEUED]
    assert queued == left[:1]
