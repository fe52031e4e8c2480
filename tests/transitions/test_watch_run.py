"""watch_run: how a run stands, and the promise that a gateway hears of its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest

from redflow_server.domain.leases import Lane
from redflow_server.domain.states import OPEN, TERMINAL, RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    HALF_WRITTEN,
    LEASE_MS,
    MISSING,
    START_MS,
    Messages,
    a_completion,
    a_failed_attempt,
    a_release,
    a_workflow,
    an_abort,
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

MAX_WATCHERS: Final = 32


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


# ---- the answer ----


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_a_run_that_has_ended_is_answered_and_not_watched(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    assert await store.watch_run(run_id, "g1") is status
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("state", every_state_but(*TERMINAL, MISSING, HALF_WRITTEN))
async def test_an_open_run_is_answered_as_it_stands(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    assert state in OPEN
    assert await store.watch_run(run_id, "g1") == state


async def test_a_run_that_does_not_exist_is_none_and_leaves_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    assert await store.watch_run("run_nowhere", "g1") is None
    assert await everything(redis, keys) == {}


# ---- every end is told ----


async def _complete(store: Store) -> str:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "g1")
    await store.complete(a_completion(lease))
    return lease.run_id


async def _fail(store: Store) -> str:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "g1")
    await store.fail(a_failed_attempt(lease))
    return lease.run_id


async def _abort(store: Store) -> str:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "g1")
    await store.abort(an_abort(lease))
    return lease.run_id


async def _cancel_queued(store: Store) -> str:
    run_id = await enqueue_one(store)
    await store.watch_run(run_id, "g1")
    await request_cancel(store, run_id)
    return run_id


async def _cancel_scheduled(store: Store) -> str:
    run_id = await enqueue_one(store, available_at_ms=START_MS + 1000)
    await store.watch_run(run_id, "g1")
    await request_cancel(store, run_id)
    return run_id


async def _release_with_a_cancel(store: Store) -> str:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "g1")
    await request_cancel(store, lease.run_id)
    await store.release(a_release(lease))
    return lease.run_id


async def _reap_with_a_cancel(store: Store) -> str:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "g1")
    await request_cancel(store, lease.run_id)
    await let_leases_expire(store)
    return lease.run_id


async def _be_lost_too_often(store: Store) -> str:
    run_id = await enqueue_one(store)
    await store.watch_run(run_id, "g1")
    while (await store.read_run(run_id)).status is RunStatus.QUEUED:
        await claim_one(store)
        await let_leases_expire(store)
    return run_id


async def _expire(store: Store) -> str:
    await register(store, a_workflow(start_timeout_ms=1000))
    run_id = await enqueue_one(store)
    await store.watch_run(run_id, "g1")
    store.now_ms = START_MS + 1001
    await store.expire(100)
    return run_id


async def _be_unknown(store: Store) -> str:
    run_id = await enqueue_one(store)
    await store.watch_run(run_id, "g1")
    store.now_ms = START_MS + 10_000
    await store.fail_unknown(Lane("q", "w"), 3000, 0, 100)
    return run_id


ENDS: Final = (
    *(_complete, _fail, _abort, _cancel_queued, _cancel_scheduled, _release_with_a_cancel, _reap_with_a_cancel),
    *(_be_lost_too_often, _expire, _be_unknown),
)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.strip("_"))
async def test_the_watcher_hears_of_each_way_to_end_once(
    store: Store, keys: Keys, redis_url: str, end: Callable[[Store], Awaitable[str]]
) -> None:
    async with Messages.on(redis_url, keys.gateway("g1")) as messages:
        run_id = await end(store)
        heard = [message for message in await messages.so_far() if not message.startswith("stop ")]
    assert (await store.read_run(run_id)).status.is_terminal
    assert heard == [f"finished {run_id}"]


async def test_what_is_no_end_is_not_told(store: Store, keys: Keys, redis_url: str) -> None:
    async with Messages.on(redis_url, keys.gateway("g1")) as messages:
        run_id = await enqueue_one(store, available_at_ms=START_MS + 10, max_attempts=2)
        await store.watch_run(run_id, "g1")
        store.now_ms = START_MS + 10
        await store.promote(100)
        await store.release(a_release(await claim_one(store)))
        await store.fail(a_failed_attempt(await claim_one(store)))
        assert (await store.read_run(run_id)).status is RunStatus.SCHEDULED
        assert await messages.so_far() == []


async def test_a_watch_lasts_through_retries_and_lost_leases(store: Store, keys: Keys, redis_url: str) -> None:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "g1")
    await store.reap(LEASE_MS, 10 * LEASE_MS, 100)
    await let_leases_expire(store)
    async with Messages.on(redis_url, keys.gateway("g1")) as messages:
        await store.complete(a_completion(await claim_one(store)))
        assert await messages.so_far() == [f"finished {lease.run_id}"]


# ---- who hears it ----


async def test_exactly_those_who_watch_hear_of_it(store: Store, keys: Keys, redis_url: str) -> None:
    run_id, other = await enqueue_one(store), await enqueue_one(store)
    await store.watch_run(run_id, "g1")
    await store.watch_run(run_id, "g2")
    await store.watch_run(other, "g3")

    async with AsyncExitStack() as stack:
        channels = (keys.gateway("g1"), keys.gateway("g2"), keys.gateway("g3"), keys.wakeups)
        subscriptions = [await stack.enter_async_context(Messages.on(redis_url, name)) for name in channels]
        await request_cancel(store, run_id)
        heard = [await messages.so_far() for messages in subscriptions]

    told = [f"finished {run_id}"]
    assert heard == [told, told, [], []]


async def test_a_gateway_that_watches_twice_hears_of_it_once(store: Store, keys: Keys, redis_url: str) -> None:
    run_id = await enqueue_one(store)
    for _ in range(3):
        await store.watch_run(run_id, "g1")
    async with Messages.on(redis_url, keys.gateway("g1")) as messages:
        await request_cancel(store, run_id)
        assert await messages.so_far() == [f"finished {run_id}"]


async def test_watching_again_changes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    run_id = await enqueue_one(store)
    await store.watch_run(run_id, "g1")
    before = await everything(redis, keys)
    await store.watch_run(run_id, "g1")
    assert await everything(redis, keys) == before


async def test_at_most_32_gateways_watch_a_run_and_the_oldest_goes_first(
    store: Store, keys: Keys, redis_url: str
) -> None:
    run_id = await enqueue_one(store)
    gateways = [f"gateway-{number}" for number in range(MAX_WATCHERS + 3)]
    for gateway_id in gateways:
        await store.watch_run(run_id, gateway_id)

    async with (
        Messages.on(redis_url, *map(keys.gateway, gateways[:3])) as oldest,
        Messages.on(redis_url, *map(keys.gateway, gateways[3:])) as others,
    ):
        await request_cancel(store, run_id)
        assert await oldest.so_far() == []
        assert await others.so_far() == [f"finished {run_id}"] * MAX_WATCHERS


async def test_the_end_of_a_run_leaves_no_watchers_behind(store: Store, redis: RedisCommand, keys: Keys) -> None:
    watched, unwatched = await enqueue_one(store), await enqueue_one(store)
    await store.watch_run(watched, "g1")
    for run_id in (watched, unwatched):
        await request_cancel(store, run_id)
    found = await everything(redis, keys)
    assert found[keys.run(watched)].keys() == found[keys.run(unwatched)].keys()
    assert {name for name in found if watched in name} == {keys.run(watched), keys.data(watched)}


async def test_runs_are_watched_and_their_ends_told_while_memory_is_full(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    run_id = await enqueue_one(store)
    async with memory_is_full(redis), Messages.on(redis_url, keys.gateway("g1")) as messages:
        assert await store.watch_run(run_id, "g1") is RunStatus.QUEUED
        await request_cancel(store, run_id)
        assert await messages.so_far() == [f"finished {run_id}"]
