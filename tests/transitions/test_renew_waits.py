"""renew: of the waits that a worker takes to be open it hears which are over, and which the store has lost."""

from __future__ import annotations

import pytest

from redflow_server.domain.leases import ClaimedRun, LeaseStanding, Standing
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    GRACE_MS,
    LATER_STAMP,
    LEASE_MS,
    STAMP,
    START_MS,
    a_completion,
    a_lease,
    a_listing,
    an_event,
    claim_one,
    every_state_but,
    everything,
    let_leases_expire,
    memory_is_full,
    put_in_state,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    SLEEP_MS,
    a_completed_token,
    a_parking,
    a_sleep,
    a_token_wait,
    a_wait,
    an_event_wait,
    in_race,
    some_waits,
    token_of,
)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def parked_one(store: Store) -> ClaimedRun:
    """A parked run that waits for a sleep, an event, a child and a token."""
    lease = await start_one(store)
    waits = a_sleep("timer"), an_event_wait("event"), a_wait("child"), a_token_wait(lease, "token")
    await store.suspend(a_parking(lease, *waits))
    return lease


async def waits_of(store: Store, lease: ClaimedRun, *names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which of these are over, and which are unknown."""
    standing = await renew_one(store, lease, open_waits=names)
    assert standing.standing is Standing.HELD
    return standing.waits_over, standing.waits_unknown


async def test_waits_that_are_open_are_not_spoken_of(store: Store) -> None:
    lease = await parked_one(store)
    standing = await renew_one(store, lease, open_waits=("timer", "event", "child", "token"))
    assert standing == LeaseStanding(lease.lease_token, Standing.HELD)


async def test_those_that_are_over_are_named_in_the_order_of_the_question_each_time(store: Store) -> None:
    lease = await start_one(store)
    token = a_token_wait(lease, "token")
    await store.suspend(a_parking(lease, a_sleep("timer"), an_event_wait("event"), a_wait("child"), token))
    names = "child", "token", "timer", "event"

    await store.emit_event(an_event())
    assert await waits_of(store, lease, *names) == (("event",), ())
    await store.complete_token(a_completed_token(token_of(token)))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    assert await waits_of(store, lease, *names) == (("child", "token", "event"), ())
    store.now_ms = START_MS + SLEEP_MS
    await store.fire_timers(100)

    for _ in range(2):
        assert await waits_of(store, lease, *names) == (names, ()), "a message may be lost, so it is said again"


async def test_only_those_that_were_asked_for_are_named(store: Store) -> None:
    lease = await parked_one(store)
    await store.emit_event(an_event())
    assert await waits_of(store, lease, "timer") == ((), ())
    assert await waits_of(store, lease) == ((), ())


async def test_one_that_has_lost_its_race_is_over(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_parking(lease, *in_race(an_event_wait("event"), a_sleep("timer"))))
    await store.emit_event(an_event())
    assert await waits_of(store, lease, "event", "timer") == (("event", "timer"), ())


async def test_one_that_the_store_has_lost_is_unknown(store: Store) -> None:
    lease = await parked_one(store)
    assert await waits_of(store, lease, "timer", "lost", "event", "s:timer") == ((), ("lost", "s:timer"))


async def test_a_session_that_takes_the_lease_over_hears_the_same(store: Store) -> None:
    lease = await parked_one(store)
    await store.emit_event(an_event())
    standing = await renew_one(store, lease, LATER_STAMP, open_waits=("event", "timer", "lost"))
    assert (standing.standing, standing.waits_over) == (Standing.HELD, ("event",))
    assert standing.waits_unknown == ("lost",)
    old = await renew_one(store, lease, STAMP, open_waits=("event",))
    assert old == LeaseStanding(lease.lease_token, Standing.MOVED)


async def test_each_lease_hears_of_its_own_waits(store: Store) -> None:
    first, second, third = await parked_one(store), await start_one(store), await start_one(store)
    await store.step_wait(some_waits(third, a_sleep("timer", 0)))
    listed = [
        a_listing(first, "event", "gone"),
        a_listing(second),
        a_listing(third, "timer"),
        a_listing(a_lease("run_nowhere"), "timer", "event"),
        a_listing(first, "timer"),
    ]
    found = await store.renew(STAMP, listed, LEASE_MS, GRACE_MS)
    assert [(standing.standing, standing.waits_over, standing.waits_unknown) for standing in found] == [
        (Standing.HELD, (), ("gone",)),
        (Standing.HELD, (), ()),
        (Standing.HELD, ("timer",), ()),
        (Standing.LOST, (), ()),
        (Standing.HELD, (), ()),
    ]


async def test_a_run_that_is_to_stop_hears_of_both(store: Store) -> None:
    lease = await parked_one(store)
    await request_cancel(store, lease.run_id, "enough")
    await store.emit_event(an_event())
    standing = await renew_one(store, lease, open_waits=("event", "timer"))
    assert standing.stop is not None
    assert (standing.stop.message, standing.waits_over) == ("enough", ("event",))


async def test_a_heartbeat_leaves_a_parked_run_parked(store: Store) -> None:
    lease = await parked_one(store)
    await renew_one(store, lease, open_waits=("event",))
    assert (await let_leases_expire(store)).waiting == 1


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_of_a_run_that_is_not_leased_nothing_is_said(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    lease = a_lease(await put_in_state(store, redis, keys, state))
    before = await everything(redis, keys)
    standing = await renew_one(store, lease, open_waits=("child", "other"))
    assert standing == LeaseStanding(lease.lease_token, Standing.LOST)
    assert await everything(redis, keys) == before


async def test_it_is_said_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await parked_one(store)
    async with memory_is_full(redis):
        assert await waits_of(store, lease, "lost") == ((), ("lost",))
