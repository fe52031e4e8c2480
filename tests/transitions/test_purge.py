"""purge: runs that were kept long enough go with every trace of them, and no others."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.errors import RunNotFound
from redflow_server.domain.ids import counted
from redflow_server.domain.leases import Outcome
from redflow_server.domain.runs import RunPage, RunQuery
from redflow_server.domain.states import OPEN, RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Purged
from redflow_server.store.store import Store
from tests.builders import (
    LEASE_MS,
    MISSING,
    START_MS,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_record,
    a_run,
    a_step,
    a_workflow,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    let_leases_expire,
    memory_is_full,
    put_in_state,
    register,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, child_id

KEEP_MS: Final = {RunStatus.SUCCEEDED: 1000, RunStatus.FAILED: 2000, RunStatus.CANCELED: 3000}
LONG_MS: Final = 10_000_000
WINDOW_MS: Final = 500_000
LIMIT: Final = 100


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def purge_at(store: Store, at_ms: int, limit: int = LIMIT) -> Purged:
    store.now_ms = at_ms
    return await store.purge(KEEP_MS, limit)


async def finish_one(store: Store, idempotency_key: str | None = None) -> str:
    """A run that succeeds now. Its key, if it has one, is good for `WINDOW_MS` from now."""
    lease = await start_one(store, idempotency_key=idempotency_key, idempotency_ttl_ms=WINDOW_MS)
    await store.complete(a_completion(lease))
    return lease.run_id


async def exists(store: Store, run_id: str) -> bool:
    try:
        await store.read_run(run_id)
    except RunNotFound:
        return False
    return True


# ---- when ----


@pytest.mark.parametrize("status", KEEP_MS)
async def test_each_status_is_kept_for_its_own_time(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    assert (await purge_at(store, START_MS + KEEP_MS[status] - 1)).purged == 0
    assert await exists(store, run_id)
    assert await purge_at(store, START_MS + KEEP_MS[status] + 1) == Purged(purged=1, seen=1)
    assert not await exists(store, run_id)


async def test_exactly_those_past_their_time_go(store: Store, redis: RedisCommand, keys: Keys) -> None:
    runs = {status: await put_in_state(store, redis, keys, status) for status in KEEP_MS}
    store.now_ms = START_MS + 2000
    later = {status: await put_in_state(store, redis, keys, status) for status in KEEP_MS}

    assert (await purge_at(store, START_MS + 2500)).purged == 2

    assert [await exists(store, run_id) for run_id in runs.values()] == [False, False, True]
    assert [await exists(store, run_id) for run_id in later.values()] == [True, True, True]


async def test_time_counts_from_the_end_of_a_run_and_not_from_its_start(store: Store) -> None:
    run_id = await enqueue_one(store)
    store.now_ms = START_MS + LONG_MS
    await store.complete(a_completion(await claim_one(store)))
    assert (await purge_at(store, START_MS + LONG_MS + 999)).purged == 0
    assert await exists(store, run_id)


async def test_a_status_that_is_not_named_is_kept(store: Store) -> None:
    run_id = await finish_one(store)
    store.now_ms = START_MS + LONG_MS
    assert await store.purge({RunStatus.FAILED: 0}, LIMIT) == Purged(0, 0)
    assert await exists(store, run_id)


async def test_a_retention_of_nothing_removes_at_once(store: Store) -> None:
    run_id = await finish_one(store)
    assert (await store.purge({RunStatus.SUCCEEDED: 0}, LIMIT)).purged == 1
    assert not await exists(store, run_id)


@pytest.mark.parametrize("status", sorted(OPEN - {RunStatus.WAITING}))
async def test_a_run_that_has_not_ended_is_never_removed(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    assert (await purge_at(store, START_MS + LONG_MS)).purged == 0
    assert await everything(redis, keys) == before
    assert await exists(store, run_id)


# ---- every trace ----


async def live_through_much(store: Store, keys_at: int) -> None:
    """Runs that use everything a run can leave behind, and have all ended by `store.now_ms`."""
    await store.reap(LEASE_MS, 10 * LEASE_MS, LIMIT)
    lease = await start_one(store, max_attempts=3, priority=9, idempotency_key="k", idempotency_ttl_ms=1000)
    await store.watch_run(lease.run_id, "g1")
    await store.record_step(a_record(lease, a_step("a:b", b"x" * 1000)))
    await store.record_step(a_record(lease, a_failed_step("c"), steps_recorded=1))
    await store.fail(a_failed_attempt(lease, steps_recorded=2))
    store.now_ms = keys_at + 60_000
    await store.promote(LIMIT)
    await claim_one(store)
    await let_leases_expire(store)
    again = await claim_one(store)
    assert again.run_id == lease.run_id
    await store.complete(a_completion(again, steps_recorded=len(again.steps or ())))

    failed = await start_one(store)
    await store.fail(a_failed_attempt(failed))
    for run in (a_run(), a_run(available_at_ms=keys_at + LONG_MS), a_run(queue="q2", workflow="a:b🚀")):
        await store.enqueue(run)
        await request_cancel(store, run.run_id)
    await enqueue_one(store)
    store.now_ms += LONG_MS
    await store.expire(LIMIT)


async def test_every_trace_of_every_run_goes(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=LONG_MS - 1000, run_timeout_ms=LONG_MS))
    await live_through_much(store, START_MS)
    await purge_at(store, START_MS + 3 * LONG_MS)
    baseline = set(await everything(redis, keys))

    store.now_ms = START_MS + 4 * LONG_MS
    await live_through_much(store, START_MS + 4 * LONG_MS)
    assert len(await everything(redis, keys)) > len(baseline)
    await purge_at(store, START_MS + 7 * LONG_MS)

    assert set(await everything(redis, keys)) == baseline
    assert not [name for name in baseline if ":run:" in name or "idempotency" in name]
    assert await store.list_runs(RunQuery()) == RunPage((), None)
    assert sum(count for _, count in (await store.read_stats()).runs) == 0


async def test_other_runs_keep_every_trace_of_theirs(store: Store, redis: RedisCommand, keys: Keys) -> None:
    """Also one whose id begins with that of the run that goes."""
    await put_in_state(store, redis, keys, RunStatus.QUEUED)
    kept = await start_one(store, run_id="run_a1", queue="q2")
    await store.record_step(a_record(kept))
    before = await everything(redis, keys)

    store.now_ms = START_MS + 1
    lease = await start_one(store, run_id="run_a", queue="q3")
    await store.record_step(a_record(lease))
    await store.complete(a_completion(lease, steps_recorded=1))
    assert (await purge_at(store, START_MS + LONG_MS)).purged == 1

    after = await everything(redis, keys)
    for counter in (keys.run_seq, keys.lane_seq):
        before.pop(counter), after.pop(counter)
    assert after == before


async def test_a_run_that_is_gone_is_gone_for_everybody(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.complete(a_completion(lease))
    await purge_at(store, START_MS + LONG_MS)
    before = await everything(redis, keys)

    assert await store.watch_run(lease.run_id, "g1") is None
    with pytest.raises(RunNotFound):
        await store.cancel(lease.run_id, "", "request-1")
    assert (await store.record_step(a_record(lease))).outcome is Outcome.LEASE_LOST
    assert (await store.complete(a_completion(lease))).outcome is Outcome.LEASE_LOST

    assert await everything(redis, keys) == before, "a late report must not bring a piece of it back"


# ---- idempotency keys ----


async def test_a_run_whose_key_is_in_its_window_stays_and_goes_when_the_window_has_closed(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await finish_one(store, "k")

    assert (await purge_at(store, START_MS + WINDOW_MS - 1)).purged == 0
    again = await store.enqueue(a_run(idempotency_key="k", idempotency_ttl_ms=WINDOW_MS))
    assert (again.run_id, again.was_created) == (run_id, False), "and is found by its key"

    closed_ms = START_MS + WINDOW_MS - 1 + WINDOW_MS
    assert (await purge_at(store, closed_ms - 1)).purged == 0, "the start in between has opened it anew"
    assert (await purge_at(store, closed_ms + 1)).purged == 1
    assert await redis("EXISTS", keys.idempotency("w", "k")) == 0


async def test_after_a_purge_the_key_starts_a_new_run(store: Store) -> None:
    run_id = await finish_one(store, "k")
    await purge_at(store, START_MS + WINDOW_MS + 1)
    started = await store.enqueue(a_run(idempotency_key="k"))
    assert started.was_created
    assert started.run_id != run_id


async def test_a_key_that_leads_to_a_newer_run_stays(store: Store, redis: RedisCommand, keys: Keys) -> None:
    older = await finish_one(store, "k")
    store.now_ms = START_MS + WINDOW_MS + 1
    newer = await enqueue_one(store, idempotency_key="k", idempotency_ttl_ms=WINDOW_MS)

    assert (await purge_at(store, START_MS + WINDOW_MS + 2)).purged == 1

    assert not await exists(store, older)
    assert await redis("EXISTS", keys.idempotency("w", "k")) == 1
    again = await store.enqueue(a_run(idempotency_key="k"))
    assert (again.run_id, again.was_created) == (newer, False)


async def test_a_key_of_the_same_name_of_another_workflow_stays(store: Store) -> None:
    await finish_one(store, "k")
    other = await enqueue_one(store, workflow="w2", idempotency_key="k")
    assert (await purge_at(store, START_MS + WINDOW_MS + 1)).purged == 1
    assert (await store.enqueue(a_run(workflow="w2", idempotency_key="k"))).run_id == other


async def test_a_run_is_kept_for_its_time_when_its_window_closes_first(store: Store) -> None:
    lease = await start_one(store, idempotency_key="k", idempotency_ttl_ms=10)
    await store.complete(a_completion(lease))
    assert (await purge_at(store, START_MS + 999)).purged == 0
    assert (await purge_at(store, START_MS + 1001)).purged == 1


# ---- slices ----


async def test_at_most_as_many_as_asked_for_and_the_first_to_end_go_first(store: Store) -> None:
    runs = []
    for number in range(5):
        store.now_ms = START_MS + number
        runs.append(await finish_one(store))

    assert await purge_at(store, START_MS + LONG_MS, limit=2) == Purged(purged=2, seen=2)
    assert [await exists(store, run_id) for run_id in runs] == [False, False, True, True, True]
    assert [(await purge_at(store, START_MS + LONG_MS, limit=2)).purged for _ in range(3)] == [2, 1, 0]


async def test_the_limit_is_for_all_statuses_together(store: Store, redis: RedisCommand, keys: Keys) -> None:
    for status in KEEP_MS:
        for _ in range(3):
            await put_in_state(store, redis, keys, status)
    slices = [await purge_at(store, START_MS + LONG_MS, limit=4) for _ in range(4)]
    assert max(each.purged for each in slices) <= 4
    assert sum(each.purged for each in slices) == 9


async def test_runs_with_open_windows_do_not_hold_up_those_behind_them(store: Store) -> None:
    held = [await finish_one(store, f"k{number}") for number in range(12)]
    store.now_ms = START_MS + 1
    free = [await finish_one(store) for _ in range(3)]

    slices = [await purge_at(store, START_MS + 5000, limit=5) for _ in range(4)]

    assert [await exists(store, run_id) for run_id in free] == [False] * 3
    assert all([await exists(store, run_id) for run_id in held])
    assert slices[-1].seen == 0, "and they are not looked at again before their windows close"
    assert (await purge_at(store, START_MS + WINDOW_MS + 1)).purged == 12


async def test_nothing_to_do_is_said(store: Store) -> None:
    assert await purge_at(store, START_MS) == Purged(0, 0)


async def test_runs_are_removed_when_memory_is_full(store: Store, redis: RedisCommand) -> None:
    plain, with_key = await finish_one(store), await finish_one(store, "k")
    async with memory_is_full(redis):
        assert (await purge_at(store, START_MS + WINDOW_MS + 1)).purged == 2
    assert [await exists(store, run_id) for run_id in (plain, with_key)] == [False, False]


# ---- entries that lead nowhere ----


async def test_an_entry_of_a_run_that_does_not_exist_is_dropped(store: Store, redis: RedisCommand, keys: Keys) -> None:
    run_id = await put_in_state(store, redis, keys, MISSING)
    await redis("ZADD", keys.finished(RunStatus.SUCCEEDED), START_MS, run_id)
    assert (await purge_at(store, START_MS + LONG_MS)).purged == 0
    assert await everything(redis, keys) == {}


@pytest.mark.parametrize("state", every_state_but(RunStatus.SUCCEEDED, MISSING))
async def test_an_entry_of_a_run_that_ended_otherwise_or_not_at_all_removes_nothing(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    await redis("ZADD", keys.finished(RunStatus.SUCCEEDED), START_MS - 1, run_id)

    assert (await purge_at(store, START_MS + 1001)).purged == 0

    assert await everything(redis, keys) == before


async def test_entries_that_lead_nowhere_do_not_hold_up_those_behind_them(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    for number in range(7):
        await redis("ZADD", keys.finished(RunStatus.SUCCEEDED), START_MS - 1, f"run_ghost{number}")
    run_id = await finish_one(store)
    for _ in range(4):
        await purge_at(store, START_MS + LONG_MS, limit=3)
    assert not await exists(store, run_id)


async def test_a_child_is_kept_no_longer_for_the_key_that_was_made_for_its_step(store: Store) -> None:
    lease = await start_one(store)
    key = f"stepwf:{counted(lease.run_id)}:{counted('child')}:{counted('c')}"
    own, given = (
        a_wait(idempotency_key=key, idempotency_ttl_ms=WINDOW_MS),
        a_wait("other", idempotency_key="given", idempotency_ttl_ms=WINDOW_MS),
    )
    await store.suspend(a_suspension(lease, own, given))
    for _ in range(2):
        await store.complete(a_completion(await claim_one(store, CHILD_LANE)))

    await purge_at(store, START_MS + KEEP_MS[RunStatus.SUCCEEDED] + 1)

    assert [await exists(store, child_id(wait)) for wait in (own, given)] == [False, True]
