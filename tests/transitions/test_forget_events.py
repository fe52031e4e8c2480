"""forget_events: what is remembered of events, and for how long: by time, by number and by bytes."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun
from redflow_server.domain.payloads import Payload
from redflow_server.domain.waits import event_channel
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, Changes, an_event, everything, memory_is_full, start_one
from tests.redis_command import RedisCommand
from tests.wait_builders import a_suspension, an_event_wait, some_waits

KEEP_MS: Final = 600_000
MAX_OF_CHANNEL: Final = 100
MAX_BYTES: Final = 64 * 1024 * 1024
MIB: Final = 1024 * 1024


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def emit(store: Store, data: bytes = b"1", **changes: Changes) -> None:
    await store.emit_event(an_event(data=data, **changes))


async def counts(store: Store) -> tuple[int, int]:
    """How many events are remembered, and how many were forgotten early."""
    stats = await store.read_stats()
    return stats.events_remembered, stats.events_dropped


async def seen_by(store: Store, lease: ClaimedRun, **wait: Changes) -> list[bytes]:
    """All that is remembered for a run on a channel."""
    waits = [an_event_wait(f"step {number}", **wait) for number in range(MAX_OF_CHANNEL + 10)]
    steps = (await store.step_wait(some_waits(lease, *waits))).resolutions
    return [step.output.data for step in steps if step.output]


async def test_nothing_to_forget_is_said_so(store: Store, redis: RedisCommand, keys: Keys) -> None:
    assert await store.forget_events() is False
    assert await everything(redis, keys) == {}


# ---- time ----


async def test_an_event_is_remembered_for_ten_minutes_and_leaves_nothing_then(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await emit(store)
    store.now_ms = START_MS + KEEP_MS - 1
    before = await everything(redis, keys)
    assert await store.forget_events() is False
    assert await everything(redis, keys) == before
    assert await counts(store) == (1, 0)

    store.now_ms = START_MS + KEEP_MS
    await store.forget_events()

    assert await redis("EXISTS", keys.event_memory, keys.event_log(event_channel("paid", None))) == 0
    assert await redis("GET", keys.event_bytes) == "0"
    assert await counts(store) == (0, 0), "none was forgotten early"


async def test_a_wait_sees_what_is_remembered_and_not_what_is_forgotten(store: Store) -> None:
    lease, other = await start_one(store), await start_one(store)
    await emit(store, b"old")
    store.now_ms = START_MS + KEEP_MS // 2
    await emit(store, b"new")
    store.now_ms = START_MS + KEEP_MS - 1
    await store.forget_events()
    assert await seen_by(store, lease) == [b"old", b"new"]
    store.now_ms = START_MS + KEEP_MS
    await store.forget_events()
    assert await seen_by(store, other) == [b"new"]


async def test_an_emission_forgets_what_is_old_too(store: Store) -> None:
    await emit(store, key="a")
    await emit(store, key="b")
    store.now_ms = START_MS + KEEP_MS
    await emit(store, key="c")
    assert await counts(store) == (1, 0)


async def test_a_hundred_are_forgotten_in_one_pass_and_it_says_that_there_may_be_more(store: Store) -> None:
    for number in range(150):
        await emit(store, key=f"k{number % 2}")
    store.now_ms = START_MS + KEEP_MS
    assert await store.forget_events() is True
    assert await counts(store) == (50, 0)
    assert await store.forget_events() is False
    assert await counts(store) == (0, 0)


async def test_a_run_that_waits_got_its_event_whatever_becomes_of_the_memory(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, an_event_wait()))
    await emit(store, b"7")
    store.now_ms = START_MS + KEEP_MS
    await store.forget_events()
    [step] = await store.read_steps(lease.run_id, 100)
    assert step.output == Payload(b"7")


# ---- number ----


async def test_of_each_channel_the_last_hundred_are_remembered_and_the_others_counted(store: Store) -> None:
    lease = await start_one(store)
    await emit(store, b"other", key="k")
    for number in range(MAX_OF_CHANNEL + 3):
        await emit(store, b"%d" % number)
    assert await counts(store) == (MAX_OF_CHANNEL + 1, 3)
    assert await seen_by(store, lease) == [b"%d" % number for number in range(3, MAX_OF_CHANNEL + 3)]
    assert await seen_by(store, await start_one(store), key="k") == [], "it was created later"


async def test_a_full_channel_takes_nothing_from_another(store: Store) -> None:
    lease = await start_one(store)
    await emit(store, b"first", key="k")
    for _ in range(MAX_OF_CHANNEL + 3):
        await emit(store)
    assert await seen_by(store, lease, key="k") == [b"first"]


# ---- bytes ----


async def test_of_all_channels_64_mebibytes_are_remembered_and_the_oldest_go_first(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease, size = await start_one(store), 4 * MIB
    for number in range(17):
        await emit(store, b"%02d" % number + b"x" * (size - 2), key=f"k{number % 3}")
    assert await counts(store) == (15, 2), "sixteen are just too much, with what goes with them"
    assert size * 15 < int(await redis("GET", keys.event_bytes)) <= MAX_BYTES

    found = [output[:2] for key in ("k0", "k1", "k2") for output in await first_of(store, lease, key)]

    assert found == [b"03", b"04", b"02"]


async def first_of(store: Store, lease: ClaimedRun, key: str) -> list[bytes]:
    """The oldest event of a channel that is remembered."""
    answer = await store.step_wait(some_waits(lease, an_event_wait(f"of {key}", key=key)))
    assert len(answer.resolutions) == 1
    [step] = await store.read_steps(lease.run_id, 8 * MIB, [f"of {key}"])
    return [step.output.data] if step.output else []


async def test_events_are_forgotten_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await emit(store)
    store.now_ms = START_MS + KEEP_MS
    async with memory_is_full(redis):
        await store.forget_events()
    assert await counts(store) == (0, 0)
