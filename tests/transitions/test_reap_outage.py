"""reap, when nobody could renew or the clock was set back: no healthy worker loses its runs, and no run hangs."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import Standing
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Reaped
from redflow_server.store.store import Store
from tests.builders import (
    LEASE_MS,
    START_MS,
    places,
    renew_one,
    start_one,
)
from tests.redis_command import RedisCommand

QUIET_MS: Final = 5000
NEVER_QUIET_MS: Final = 10**12
LIMIT: Final = 100


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


async def look_often(store: Store, from_ms: int, until_ms: int) -> list[Reaped]:
    """Looks as a gateway does, well within what counts as quiet; what was found, where anything was."""
    found = []
    for at_ms in (*range(from_ms, until_ms, QUIET_MS - 1000), until_ms):
        store.now_ms = at_ms
        found.append(await store.reap(LEASE_MS, QUIET_MS, LIMIT))
    return [reaped for reaped in found if reaped.total]


# ---- when nobody could renew ----


async def test_nothing_is_taken_within_a_lease_after_nobody_looked(store: Store) -> None:
    lease = await start_one(store)
    assert await look_often(store, START_MS, START_MS + 20_000) == []

    back_ms = START_MS + 60_000
    assert await look_often(store, back_ms, back_ms + LEASE_MS - 1) == []
    store.now_ms = back_ms + LEASE_MS - 1
    assert (await renew_one(store, lease)).standing is Standing.HELD, "its worker was healthy and goes on"
    assert (await store.read_run(lease.run_id)).losses == 0


async def test_what_is_not_renewed_after_an_outage_is_taken_a_lease_later(store: Store) -> None:
    lease = await start_one(store)
    await look_often(store, START_MS, START_MS + 20_000)

    back_ms = START_MS + 60_000
    assert await look_often(store, back_ms, back_ms + LEASE_MS + 1) == [
        Reaped(queued=1, waiting=0, failed=0, canceled=0)
    ]
    assert (await store.read_run(lease.run_id)).losses == 1


async def test_looks_that_follow_each_other_are_no_outage(store: Store) -> None:
    await start_one(store)
    assert await look_often(store, START_MS, START_MS + LEASE_MS + 1) == [
        Reaped(queued=1, waiting=0, failed=0, canceled=0)
    ]


async def test_a_second_outage_puts_it_off_again(store: Store) -> None:
    await start_one(store)
    await look_often(store, START_MS, START_MS + 20_000)
    await look_often(store, START_MS + 60_000, START_MS + 70_000)

    back_ms = START_MS + 100_000
    assert await look_often(store, back_ms, back_ms + LEASE_MS - 1) == []
    assert len(await look_often(store, back_ms + LEASE_MS, back_ms + LEASE_MS + 1)) == 1


# ---- when the clock was set back ----


async def test_a_lease_that_ends_later_than_a_new_one_could_is_cut(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await look_often(store, START_MS, START_MS + 1000)

    set_back_ms = START_MS - 3_600_000
    assert await look_often(store, set_back_ms, set_back_ms) == []
    assert (await places(redis, keys, lease.run_id)).lease_until_ms == set_back_ms + LEASE_MS
    assert await look_often(store, set_back_ms, set_back_ms + LEASE_MS + 1) == [Reaped(1, 0, 0, 0)]


async def test_a_lease_that_could_be_a_new_one_is_not_cut(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await reap_at(store, START_MS)
    assert (await places(redis, keys, lease.run_id)).lease_until_ms == START_MS + LEASE_MS


async def test_at_most_as_many_as_asked_for_are_cut(store: Store, redis: RedisCommand, keys: Keys) -> None:
    leases = [await start_one(store) for _ in range(5)]
    set_back_ms = START_MS - 3_600_000
    await reap_at(store, set_back_ms, limit=3)
    ends = [(await places(redis, keys, lease.run_id)).lease_until_ms for lease in leases]
    assert sorted(end or 0 for end in ends) == [set_back_ms + LEASE_MS] * 3 + [START_MS + LEASE_MS] * 2


async def test_a_pause_after_an_outage_does_not_outlast_a_clock_that_was_set_back(store: Store) -> None:
    await start_one(store)
    await look_often(store, START_MS, START_MS + 20_000)
    await look_often(store, START_MS + 60_000, START_MS + 61_000)

    set_back_ms = START_MS - 3_600_000
    assert await look_often(store, set_back_ms, set_back_ms + 2 * LEASE_MS) == [Reaped(1, 0, 0, 0)]
