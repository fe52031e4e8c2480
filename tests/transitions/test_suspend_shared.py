"""suspend: waits for runs that exist, by id or key: shared with others, large, in a circle, or with no memory left."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.leases import ClaimedRun, Lane, Outcome, Suspended
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import Wait
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    a_completion,
    a_workflow,
    claim_one,
    enqueue_one,
    everything,
    lane_of,
    memory_is_full,
    register,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, a_wait_for, child_id, some_waits

WAITING: Final = Suspended(Outcome.OK, RunStatus.WAITING)
MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def status_of(store: Store, run_id: str) -> RunStatus:
    return (await store.read_run(run_id)).status


async def suspend_one(store: Store, *waits: Wait, **run: object) -> ClaimedRun:
    """A run of lane `w` that waits."""
    lease = await start_one(store, **run)
    assert await store.suspend(a_suspension(lease, *waits)) == WAITING
    return lease


# ---- one run, awaited by several ----


async def test_a_run_wakes_all_who_wait_for_it(store: Store) -> None:
    child = await enqueue_one(store, workflow="other")
    parents = [await suspend_one(store, a_wait_for(child)) for _ in range(3)]
    lease = await claim_one(store, Lane("q", "other"))
    await store.complete(a_completion(lease, b"7"))
    for parent in parents:
        assert await status_of(store, parent.run_id) is RunStatus.QUEUED
        [step] = await store.read_steps(parent.run_id, 100)
        assert step.output == Payload(b"7")


async def test_two_steps_of_a_run_may_wait_for_the_same_run(store: Store) -> None:
    child = await enqueue_one(store, workflow="other")
    parent = await suspend_one(store, a_wait_for(child, "a"), a_wait_for(child, "b"))
    await store.cancel(child, "", "")
    statuses = [step.status for step in await store.read_steps(parent.run_id, 1000)]
    assert statuses == [StepStatus.FAILED, StepStatus.FAILED]
    assert await status_of(store, parent.run_id) is RunStatus.QUEUED


async def test_an_idempotency_key_leads_two_parents_to_one_child_which_is_of_the_first(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    first, second = a_wait(idempotency_key="key"), a_wait(idempotency_key="key")
    parent = await suspend_one(store, first)
    other = await suspend_one(store, second)
    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(first)]
    assert (await store.read_run(child_id(first))).parent_run_id == parent.run_id
    [step] = await store.read_steps(other.run_id, 100)
    assert step.child_run_id == child_id(first)


async def test_two_steps_of_one_suspension_with_one_key_start_one_child(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    waits = a_wait("a", idempotency_key="key"), a_wait("b", idempotency_key="key")
    await suspend_one(store, *waits)
    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(waits[0])]


async def test_waiting_by_a_key_lets_its_window_count_anew_and_a_closed_one_starts_another_child(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    waits = [a_wait(idempotency_key="key", idempotency_ttl_ms=HOUR_MS) for _ in range(3)]
    await suspend_one(store, waits[0])
    for wait in waits[1:]:
        store.now_ms = (store.now_ms or 0) + HOUR_MS - 1
        await suspend_one(store, wait)
    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(waits[0])]
    store.now_ms = (store.now_ms or 0) + HOUR_MS
    last = a_wait(idempotency_key="key", idempotency_ttl_ms=HOUR_MS)
    await suspend_one(store, last)
    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(waits[0]), child_id(last)]


async def test_of_large_outputs_a_suspension_takes_some_and_the_others_come_by_the_outbox(store: Store) -> None:
    waits = []
    for number in range(6):
        ended = await start_one(store)
        await store.complete(a_completion(ended, b"1" * MIB))
        waits.append(a_wait_for(ended.run_id, f"step {number}"))
    lease = await start_one(store)

    answer = await store.suspend(a_suspension(lease, *waits))

    assert (answer.outcome, len(answer.resolutions)) == (Outcome.RESOLVED, 4), "4 MiB"
    assert (await store.apply_outbox(100)).next_at_ms is None
    steps = await store.read_steps(lease.run_id, 10 * MIB)
    assert [step.output for step in steps] == [Payload(b"1" * MIB)] * 6


# ---- circles ----


def refusal(run_id: str) -> Failure:
    words = "waits for the run that would wait for it"
    return Failure("AwaitCycleError", f"run {run_id} {words}", FailureKind.AWAIT_CYCLE)


async def test_a_run_does_not_wait_for_itself(store: Store) -> None:
    lease = await start_one(store)
    answer = await store.suspend(a_suspension(lease, a_wait_for(lease.run_id)))
    assert [step.failure for step in answer.resolutions] == [refusal(lease.run_id)]


async def test_a_child_does_not_wait_for_its_parent(store: Store) -> None:
    parent = await suspend_one(store, a_wait())
    child = await claim_one(store, CHILD_LANE)
    answer = await store.suspend(a_suspension(child, a_wait_for(parent.run_id)))
    assert [step.failure for step in answer.resolutions] == [refusal(parent.run_id)]
    await store.complete(a_completion(child))
    assert await status_of(store, parent.run_id) is RunStatus.QUEUED, "the child goes on, and then its parent"


async def test_a_circle_over_a_run_that_is_shared_by_its_key_is_seen(store: Store) -> None:
    first = await suspend_one(store, a_wait(idempotency_key="shared"))
    second = await suspend_one(store, a_wait(idempotency_key="shared"), idempotency_key="second")
    shared = await claim_one(store, CHILD_LANE)
    by_key = a_wait(workflow="w", idempotency_key="second")
    answer = await store.suspend(a_suspension(shared, by_key, a_wait_for(first.run_id, "by id")))
    assert {step.failure for step in answer.resolutions} == {refusal(second.run_id), refusal(first.run_id)}


async def test_a_circle_over_many_runs_is_seen(store: Store) -> None:
    first = await start_one(store)
    last = first
    for _ in range(200):
        await store.suspend(a_suspension(last, a_wait()))
        last = await claim_one(store, CHILD_LANE)
    answer = await store.suspend(a_suspension(last, a_wait_for(first.run_id)))
    assert [step.failure for step in answer.resolutions] == [refusal(first.run_id)]


async def test_a_run_that_waits_for_hundreds_is_waited_for_like_any_other(store: Store) -> None:
    busy = await start_one(store)
    for part in range(0, 300, 100):
        await store.step_wait(some_waits(busy, *(a_wait(f"step {part + number}") for number in range(100))))
    root = await start_one(store)
    await store.suspend(a_suspension(root, a_wait("middle")))
    for _ in range(300):
        await claim_one(store, CHILD_LANE)
    middle = await claim_one(store, CHILD_LANE)
    assert await store.suspend(a_suspension(middle, a_wait_for(busy.run_id))) == WAITING


async def test_what_two_runs_share_is_no_circle(store: Store) -> None:
    shared = await enqueue_one(store, workflow="other")
    await suspend_one(store, a_wait("own"), a_wait_for(shared, "shared"))
    child = await claim_one(store, CHILD_LANE)
    assert await store.suspend(a_suspension(child, a_wait_for(shared))) == WAITING


# ---- memory ----


async def test_no_run_is_started_while_memory_is_full_and_none_is_half_registered(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(start_timeout_ms=HOUR_MS))
    existing = await enqueue_one(store, workflow="other")
    lease = await start_one(store)
    before = await everything(redis, keys)
    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await store.suspend(a_suspension(lease, a_wait_for(existing, "there"), a_wait("new")))
        with pytest.raises(StoreFull):
            await store.step_wait(some_waits(lease))
    assert await everything(redis, keys) == before


async def test_a_run_is_suspended_on_runs_that_exist_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    existing = await enqueue_one(store, workflow="other")
    keyed = await start_one(store, workflow=CHILD_LANE.workflow, idempotency_key="key")
    leases = [await start_one(store) for _ in range(4)]
    registered = a_wait()
    await store.step_wait(some_waits(leases[0], registered))
    waits = registered, a_wait_for(existing), a_wait(idempotency_key="key"), a_wait(run_id=keyed.run_id)
    async with memory_is_full(redis):
        for lease, wait in zip(leases, waits, strict=True):
            assert await store.suspend(a_suspension(lease, wait)) == WAITING


async def test_a_run_whose_end_is_decided_ends_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await register(store, a_workflow(run_timeout_ms=HOUR_MS))
    canceled, late = await start_one(store), await start_one(store)
    await store.cancel(canceled.run_id, "", "")
    async with memory_is_full(redis):
        assert (await store.suspend(a_suspension(canceled))).status is RunStatus.CANCELED
        store.now_ms = START_MS + HOUR_MS
        assert (await store.suspend(a_suspension(late))).status is RunStatus.FAILED
