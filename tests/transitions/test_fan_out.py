"""fan_out: an event with more subscribers than one script starts is gone on with by whoever comes, to its end."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import Registration
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    a_workflow,
    an_event,
    everything,
    memory_is_full,
    record_of,
    register,
)
from tests.engine.conftest import stores  # noqa: F401  # a fixture
from tests.engine.parts import Stores
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def subscribe(store: Store, count: int, queue: str = "q", owner: str = "owner-1") -> None:
    """Registers so many workflows that the event `paid` starts."""
    names = [f"{owner}-{number:05}" for number in range(count)]
    await register(store, *(a_workflow(name=name, queue=queue, event_names=("paid",)) for name in names), owner=owner)


async def fan_out_all(*gateways: Store) -> list[int]:
    """Goes on, at each gateway in turn, until nothing is left; how many each pass has started."""
    counts: list[int] = []
    while True:
        passed = await gateways[len(counts) % len(gateways)].fan_out()
        counts.append(passed.count)
        if not passed.has_more:
            return counts


async def queued(redis: RedisCommand, keys: Keys) -> list[str]:
    found: list[str] = await redis("ZRANGE", keys.status("queued"), 0, -1)
    return found


@pytest.mark.parametrize(
    ("count", "slices"), [(101, [100, 1]), (250, [100, 100, 50]), (1_037, [*[100] * 10, 37]), (200, [100, 100])]
)
async def test_many_subscribers_are_started_a_hundred_at_a_time_and_all_ids_are_answered_at_once(
    store: Store, redis: RedisCommand, keys: Keys, count: int, slices: list[int]
) -> None:
    await subscribe(store, count)
    emitted = await store.emit_event(an_event())
    assert len(set(emitted.run_ids)) == count
    assert await queued(redis, keys) == []

    assert await fan_out_all(store) == slices

    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_an_event_that_comes_again_after_its_window_is_kept_until_all_have_started(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    event = an_event(idempotency_ttl_ms=1000)
    await store.emit_event(event)
    assert int(await redis("PTTL", keys.emitted(event.event_id))) > 0
    await subscribe(store, 101)
    store.now_ms = START_MS + 1000
    await store.emit_event(event)
    assert int(await redis("PTTL", keys.emitted(event.event_id))) == -1

    assert await fan_out_all(store) == [100, 1]
    assert int(await redis("PTTL", keys.emitted(event.event_id))) > 0


async def test_a_hundred_subscribers_take_one_script(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, 100)
    emitted = await store.emit_event(an_event())
    assert await queued(redis, keys) == list(emitted.run_ids)
    assert (await store.fan_out()).count == 0


async def test_slices_are_bounded_in_bytes_too_and_each_run_has_the_whole_payload(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 50)
    payload = Payload(b"\x00\xff" * (512 * 1024), "x/y", (("k", "v"),))
    emitted = await store.emit_event(an_event(payload=payload))

    assert await fan_out_all(store) == [3] * 16 + [2]

    assert await queued(redis, keys) == list(emitted.run_ids)
    for run_id in (emitted.run_ids[0], emitted.run_ids[-1]):
        run = await store.read_run(run_id)
        assert run is not None
        assert run.input == payload


async def test_a_few_subscribers_of_a_large_payload_take_one_script(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 3)
    emitted = await store.emit_event(an_event(data=b"x" * 1024 * 1024))
    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_another_gateway_goes_on_where_one_has_died(
    store: Store,
    redis: RedisCommand,
    keys: Keys,
    stores: Stores,  # noqa: F811  # the fixture
) -> None:
    await subscribe(store, 250)
    emitted = await store.emit_event(an_event())
    assert (await store.fan_out()).count == 100

    other = await stores.open()
    other.now_ms = START_MS
    assert await fan_out_all(other) == [100, 50]

    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_several_gateways_at_once_start_each_subscriber_once(
    store: Store,
    redis: RedisCommand,
    keys: Keys,
    stores: Stores,  # noqa: F811  # the fixture
) -> None:
    gateways = [store, *[await stores.open() for _ in range(3)]]
    for gateway in gateways:
        gateway.now_ms = START_MS
    await subscribe(store, 1_000)
    emitted = [await store.emit_event(an_event()) for _ in range(2)]

    counts = await asyncio.gather(*(fan_out_all(gateway) for gateway in gateways))

    assert sum(map(sum, counts)) == 2_000
    assert sorted(await queued(redis, keys)) == sorted(run_id for one in emitted for run_id in one.run_ids)


async def test_a_slice_that_is_done_again_starts_nothing_twice(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, 250)
    event = an_event()
    emitted = await store.emit_event(event)
    part = await redis("HGET", keys.emitted(event.event_id), "part:1")
    await store.fan_out()
    before = [await record_of(redis, keys, run_id) for run_id in emitted.run_ids[:100]]

    await redis("HSET", keys.emitted(event.event_id), "part", "1", "part:1", part)
    assert await fan_out_all(store) == [100, 100, 50]

    assert [await record_of(redis, keys, run_id) for run_id in emitted.run_ids[:100]] == before
    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_a_repeat_of_the_event_meanwhile_answers_the_same_and_does_not_disturb(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 250)
    event = an_event(idempotency_key="k")
    emitted = await store.emit_event(event)
    await store.fan_out()

    for repeat in (event, an_event(idempotency_key="k")):
        again = await store.emit_event(repeat)
        assert (again.event_id, again.run_ids) == (event.event_id, emitted.run_ids)

    assert await redis("TTL", keys.emitted(event.event_id)) == -1, "it is needed until all are started"
    assert await fan_out_all(store) == [100, 50]
    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_events_are_worked_off_in_their_order(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, 150)
    first = await store.emit_event(an_event())
    store.now_ms = START_MS + 1
    second = await store.emit_event(an_event())
    assert await fan_out_all(store) == [100, 50, 100, 50]
    assert await queued(redis, keys) == [*first.run_ids, *second.run_ids]


async def test_who_subscribes_between_emission_and_start_is_not_started(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 150)
    emitted = await store.emit_event(an_event())
    await subscribe(store, 1, owner="owner-2")
    await fan_out_all(store)
    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_a_run_that_was_answered_is_started_in_the_queue_of_the_emission_whatever_became_of_its_workflow(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 150)
    emitted = await store.emit_event(an_event())
    # The owner's next build has another set: all but one are retired, and that one has moved.
    store.now_ms = START_MS + 30_000
    moved = a_workflow(name="owner-1-00000", queue="elsewhere", event_names=("paid",))
    await store.register(Registration("owner-1", "build-2", (moved,)))

    await fan_out_all(store)

    assert await queued(redis, keys) == list(emitted.run_ids)
    assert {(await record_of(redis, keys, run_id))["queue"] for run_id in emitted.run_ids} == {"q"}


async def test_runs_for_later_are_scheduled_and_those_whose_time_has_come_meanwhile_are_queued(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 150)
    emitted = await store.emit_event(an_event(available_at_ms=START_MS + 1000))
    await store.fan_out()
    store.now_ms = START_MS + 1000
    await store.fan_out()
    assert await redis("ZRANGE", keys.status("scheduled"), 0, -1) == list(emitted.run_ids[:100])
    assert await queued(redis, keys) == list(emitted.run_ids[100:])


async def test_when_memory_is_full_nothing_is_started_and_nothing_is_lost(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 250)
    emitted = await store.emit_event(an_event())
    await store.fan_out()
    before = await everything(redis, keys)

    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await store.fan_out()

    assert await everything(redis, keys) == before
    assert await fan_out_all(store) == [100, 50]
    assert await queued(redis, keys) == list(emitted.run_ids)


async def test_what_is_left_to_be_done_is_made_known_and_is_what_is_due_next(
    store: Store, redis_url: str, keys: Keys
) -> None:
    await subscribe(store, 101)
    assert (await store.due(0)).outbox_at_ms is None
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.emit_event(an_event())
        assert await messages.so_far() == [f"due outbox {START_MS}"]
    assert (await store.due(0)).outbox_at_ms == START_MS
    await fan_out_all(store)
    assert (await store.due(0)).outbox_at_ms is None


async def test_of_an_event_that_is_done_only_what_a_repeat_needs_is_kept_and_ends_by_itself(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 101)
    event = an_event(idempotency_ttl_ms=1000)
    await store.emit_event(event)
    await fan_out_all(store)
    assert set(await redis("HKEYS", keys.emitted(event.event_id))) == {"name", "runIds", "expiresAt"}
    assert 1000 < await redis("PTTL", keys.emitted(event.event_id)) <= 61_000
    assert await redis("EXISTS", keys.fan_outs) == 0


async def test_nothing_to_do_is_said_so(store: Store) -> None:
    passed = await store.fan_out()
    assert (passed.count, passed.has_more) == (0, False)


async def test_an_event_that_somebody_deleted_keeps_no_other_from_being_worked_off(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, 101)
    gone = an_event()
    await store.emit_event(gone)
    await redis("DEL", keys.emitted(gone.event_id))
    emitted = await store.emit_event(an_event())
    await fan_out_all(store)
    assert await queued(redis, keys) == list(emitted.run_ids)
