"""Waits end in time: not before it, hardly after it, and all of them however many are due at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from redflow_server.config import Config
from redflow_server.domain.states import RunStatus
from redflow_server.engine.upkeep import SLICE
from redflow_server.gateway import Gateway
from redflow_server.loops.duties import Duties
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry
from tests.builders import START_MS, an_event, start_one
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.loops.test_delayed_runs import in_time
from tests.redis_command import RedisCommand
from tests.wait_builders import a_completed_token, a_sleep, a_suspension, a_token_wait, an_event_wait, token_of

MANY = SLICE + 50
DEAF_MS = 1600
"""A second until the next look, up to a tenth of it as jitter, and what a busy machine needs."""


class DeafGateway(Gateway):
    """A gateway to which nobody says when something is due."""

    def due(self, kind: str, at_ms: int) -> None:
        """It finds out by itself."""


@pytest_asyncio.fixture
async def deaf(config: Config, store: Store) -> AsyncIterator[DeafGateway]:
    gateway = DeafGateway(config)
    await gateway.start()
    yield gateway
    await gateway.stop()


async def late_ms(store: Store, redis: RedisCommand, keys: Keys, *lengths_ms: int) -> list[float]:
    """By how much runs that were set aside for these times came back after them, by Redis' clock."""
    leases = [await start_one(store, queue=f"sleeps {number}") for number in range(len(lengths_ms))]
    for lease, length_ms in zip(leases, lengths_ms, strict=True):
        await store.suspend(a_suspension(lease, a_sleep(ms=length_ms)))
    due_ms = [(await store.read_run(lease.run_id)).waiting_for[0].until_ms for lease in leases]
    found = []
    for lease, at_ms in zip(leases, due_ms, strict=True):
        placed = await eventually(lambda lease=lease: _placed_ms(store, redis, keys, lease.run_id), every=0.01)  # type: ignore[misc]  # bound early
        found.append(placed - (at_ms or 0))
    return found


async def _placed_ms(store: Store, redis: RedisCommand, keys: Keys, run_id: str) -> int:
    """When the run came into its lane; 0 while it waits."""
    if (await store.read_run(run_id)).status is RunStatus.WAITING:
        return 0
    return int(await redis("HGET", keys.run(run_id), "placedAt"))


def fired(gateway: Gateway) -> int:
    """How many waits the gateway has ended because their time had come."""
    return gateway.telemetry.counters["waits.timers_fired"]


async def test_sleeps_shortly_one_after_the_other_are_over_in_time(
    gateway: Gateway, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await in_time(lambda: late_ms(store, redis, keys, 400, 300, 350))
    await eventually(lambda: fired(gateway) >= 3)


async def test_a_sleep_is_over_within_about_a_second_of_its_time_when_no_message_says_when_that_is(
    deaf: DeafGateway, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    [late] = await late_ms(store, redis, keys, 300)
    assert 0 <= late <= DEAF_MS


async def test_a_token_and_an_event_that_come_in_time_leave_no_alarm_that_ends_them_again(
    gateway: Gateway, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    event, token = await start_one(store, queue="event"), await start_one(store, queue="token")
    waiting = a_token_wait(token, timeout_ms=300)
    await store.suspend(a_suspension(event, an_event_wait(timeout_ms=300)))
    await store.suspend(a_suspension(token, waiting))

    await store.emit_event(an_event("paid"))
    await store.complete_token(a_completed_token(token_of(waiting)))

    assert await redis("ZCARD", keys.timers) == 0
    # A sleep that is over later: by then the others would have been, too.
    await late_ms(store, redis, keys, 400)
    await eventually(lambda: fired(gateway))
    assert fired(gateway) == 1


async def test_thousands_of_waits_that_end_at_once_all_do(gateway: Gateway, store: Store) -> None:
    leases = await asyncio.gather(*(start_one(store, queue=f"q{number}") for number in range(MANY)))
    await asyncio.gather(*(store.suspend(a_suspension(lease, a_sleep(ms=200))) for lease in leases))

    async def are_all_over() -> bool:
        counts = dict((await store.read_stats()).runs)
        return counts[RunStatus.QUEUED] == MANY

    await eventually(are_all_over)
    await eventually(lambda: fired(gateway) == MANY)


async def end_many_waits_by_an_event(store: Store) -> None:
    """More of them than one script may end; returns when all have ended."""
    leases = await asyncio.gather(*(start_one(store, queue=f"q{number}") for number in range(MANY)))
    await asyncio.gather(*(store.suspend(a_suspension(lease, an_event_wait())) for lease in leases))

    await store.emit_event(an_event("paid"))

    async def are_all_over() -> bool:
        return dict((await store.read_stats()).runs)[RunStatus.QUEUED] == MANY

    await eventually(are_all_over)


async def test_an_event_ends_more_waits_than_one_script_may(
    gateway: Gateway, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await end_many_waits_by_an_event(store)
    assert await redis("EXISTS", keys.deliveries) == 0
    assert gateway.telemetry.counters["faults"] == 0


async def test_an_event_ends_more_waits_than_one_script_may_when_no_message_says_that_some_are_left(
    deaf: DeafGateway, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await end_many_waits_by_an_event(store)
    assert await redis("EXISTS", keys.deliveries) == 0
    assert deaf.telemetry.counters["faults"] == 0


async def test_events_are_forgotten_when_no_wait_is_to_see_them_any_more(store: Store) -> None:
    engine = Engine(store)
    telemetry = Telemetry()
    duties = Duties(
        *(engine.upkeep, engine.schedules, engine.sessions, engine.waiters),
        timing=engine.timing,
        telemetry=telemetry,
    )
    store.now_ms = START_MS
    for _ in range(3):
        await store.emit_event(an_event("paid"))
    store.now_ms += 599_000
    await store.emit_event(an_event("paid"))
    store.now_ms += 1_000
    duties.event_memory.start()

    async def remembered() -> int:
        return (await store.read_stats()).events_remembered

    async def is_forgotten() -> bool:
        return await remembered() == 1

    await eventually(is_forgotten)
    store.now_ms += 599_000
    duties.event_memory.wake()

    async def are_all_forgotten() -> bool:
        return await remembered() == 0

    await eventually(are_all_forgotten)
    await duties.stop()
    assert (await store.read_stats()).events_dropped == 0, "they had their time"
    assert telemetry.counters["faults"] == 0
