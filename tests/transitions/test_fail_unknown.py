"""fail_unknown: runs of a workflow that nobody registered, in a queue that a worker asked for by name."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import Lane
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Unknown
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Places,
    a_release,
    a_workflow,
    an_event,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    let_leases_expire,
    places,
    put_in_state,
    register,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import a_suspension, an_event_wait

GRACE_MS: Final = 3000
LIMIT: Final = 100
LANE: Final = Lane("q", "w")


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def fail_unknown_at(
    store: Store, at_ms: int, lane: Lane = LANE, *, limit: int = LIMIT, offset: int = 0
) -> Unknown:
    store.now_ms = at_ms
    return await store.fail_unknown(lane, GRACE_MS, offset, limit)


async def test_a_run_of_an_unknown_workflow_fails_in_its_first_attempt(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store, max_attempts=5)

    assert await fail_unknown_at(store, START_MS + GRACE_MS + 1) == Unknown(failed=1, next_offset=None, is_empty=True)

    run = await store.read_run(run_id)
    assert (run.status, run.attempt, run.finished_at_ms) == (RunStatus.FAILED, 1, START_MS + GRACE_MS + 1)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.UNKNOWN_WORKFLOW
    assert "w" in run.failure.message
    assert await places(redis, keys, run_id) == Places((), None, None, (RunStatus.FAILED,))
    assert await redis("ZCARD", keys.lanes) == 0


async def test_a_run_is_left_alone_during_the_grace(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_one(store)
    before = await everything(redis, keys)
    assert await fail_unknown_at(store, START_MS + GRACE_MS - 1) == Unknown(failed=0, next_offset=None, is_empty=False)
    assert await everything(redis, keys) == before


async def test_only_those_older_than_the_grace_fail(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_one(store)
    store.now_ms = START_MS + 2000
    young = await enqueue_one(store)
    assert await fail_unknown_at(store, START_MS + GRACE_MS + 1) == Unknown(failed=1, next_offset=None, is_empty=False)
    assert await lane_of(redis, keys) == [young]


async def test_the_grace_begins_when_a_delayed_run_is_queued(store: Store) -> None:
    run_id = await enqueue_one(store, available_at_ms=START_MS + 60_000)
    store.now_ms = START_MS + 60_000
    await store.promote(LIMIT)

    assert (await fail_unknown_at(store, START_MS + 60_000 + GRACE_MS - 1)).failed == 0
    assert (await store.read_run(run_id)).status is RunStatus.QUEUED
    assert (await fail_unknown_at(store, START_MS + 60_000 + GRACE_MS + 1)).failed == 1


@pytest.mark.parametrize("how", ["woken", "handed back", "lost"])
async def test_a_run_that_a_worker_has_had_waits_for_one_that_knows_it(store: Store, how: str) -> None:
    """As when it has waited for months and another program has the queue meanwhile."""
    lease = await start_one(store)
    if how == "woken":
        await store.suspend(a_suspension(lease, an_event_wait()))
    match how:
        case "woken":
            await store.emit_event(an_event())
        case "handed back":
            await store.release(a_release(lease))
        case "lost":
            await let_leases_expire(store)
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED
    assert (await fail_unknown_at(store, START_MS + 100 * GRACE_MS)).failed == 0


async def test_a_run_whose_workflow_was_registered_when_it_was_started_waits_for_a_worker(store: Store) -> None:
    await register(store, a_workflow())
    await enqueue_one(store)
    store.now_ms = START_MS + 60_000
    await register(store, a_workflow(name="another"))
    assert await store.list_workflows() == ("another",), "it is retired"
    assert (await fail_unknown_at(store, START_MS + 100 * GRACE_MS)).failed == 0


async def test_a_registered_workflow_is_not_unknown(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(queue="elsewhere"))
    await enqueue_one(store)
    before = await everything(redis, keys)
    assert (await fail_unknown_at(store, START_MS + 10 * GRACE_MS)).failed == 0
    assert await everything(redis, keys) == before


async def test_a_run_that_was_started_through_a_definition_waits_for_its_worker(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await enqueue_one(store, is_typed=True)
    before = await everything(redis, keys)
    assert await fail_unknown_at(store, START_MS + 10 * GRACE_MS) == Unknown(failed=0, next_offset=None, is_empty=False)
    assert await everything(redis, keys) == before


async def test_runs_that_wait_for_their_worker_do_not_hide_unknown_ones_behind_them(store: Store) -> None:
    for _ in range(7):
        await enqueue_one(store, is_typed=True)
    run_id = await enqueue_one(store)
    late_ms, failed, offset = START_MS + 10 * GRACE_MS, 0, 0
    while offset is not None:
        unknown = await fail_unknown_at(store, late_ms, limit=3, offset=offset)
        failed, offset = failed + unknown.failed, unknown.next_offset
    assert failed == 1
    assert (await store.read_run(run_id)).status is RunStatus.FAILED


async def test_at_most_as_many_as_asked_for_and_those_in_front_first(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    runs = [await enqueue_one(store) for _ in range(5)]
    late_ms = START_MS + GRACE_MS + 1
    assert await fail_unknown_at(store, late_ms, limit=2) == Unknown(failed=2, next_offset=0, is_empty=False)
    assert await lane_of(redis, keys) == runs[2:]
    assert await fail_unknown_at(store, late_ms, limit=2) == Unknown(failed=2, next_offset=0, is_empty=False)
    assert await fail_unknown_at(store, late_ms, limit=2) == Unknown(failed=1, next_offset=None, is_empty=True)


@pytest.mark.parametrize(
    ("lane", "other"),
    [
        (Lane("q", "w"), Lane("q", "w2")),
        (Lane("q", "w"), Lane("q2", "w")),
        (Lane("a", "b:c"), Lane("a:b", "c")),
        (Lane("🚀", "{x}"), Lane("🚀", "x")),
    ],
)
async def test_only_the_lane_in_question_is_touched(
    store: Store, redis: RedisCommand, keys: Keys, lane: Lane, other: Lane
) -> None:
    run_id = await enqueue_one(store, queue=lane.queue, workflow=lane.workflow)
    stays = await enqueue_one(store, queue=other.queue, workflow=other.workflow)
    assert await fail_unknown_at(store, START_MS + GRACE_MS + 1, lane) == Unknown(
        failed=1, next_offset=None, is_empty=True
    )
    assert (await store.read_run(run_id)).status is RunStatus.FAILED
    assert await lane_of(redis, keys, other) == [stays]


async def test_an_empty_lane_has_no_unknown_runs(store: Store, redis: RedisCommand, keys: Keys) -> None:
    assert await fail_unknown_at(store, START_MS) == Unknown(failed=0, next_offset=None, is_empty=True)
    assert await everything(redis, keys) == {}


@pytest.mark.leaves_faults
@pytest.mark.parametrize("state", [parameters.values[0] for parameters in every_state_but(RunStatus.QUEUED)])
async def test_a_run_that_only_stands_in_the_lane_and_is_not_queued_stays_as_it_is(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    name = lane_name("q", "w")
    await redis("ZADD", keys.lane(name), 1, run_id)
    await redis("ZADD", keys.lanes, 1, name)

    assert (await fail_unknown_at(store, START_MS + GRACE_MS + 1)).failed == 0

    after = await everything(redis, keys)
    for planted in (keys.lane(name), keys.lanes):
        after.pop(planted, None)
        before.pop(planted, None)
    assert after == before
