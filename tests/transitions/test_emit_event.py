"""emit_event: one run for each subscriber, all of them or none, and once however often it is said."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.payloads import Payload
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    START_MS,
    Messages,
    a_workflow,
    an_event,
    everything,
    memory_is_full,
    places,
    record_of,
    register,
)
from tests.redis_command import RedisCommand

DAY_MS: Final = 24 * 3600 * 1000
ODD_NAMES: Final = ("a:b", "x:workflows", "{a}", "}{", "%d", "🚀 é", 'a"b\\', "x" * 256)


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def subscribe(store: Store, *names: str, event: str = "paid", queue: str = "q") -> None:
    """Registers workflows that an event starts, all of one owner's."""
    await register(store, *(a_workflow(name=name, queue=queue, event_names=(event,)) for name in names))


async def runs_of(redis: RedisCommand, keys: Keys) -> set[str]:
    """The runs that are queued or scheduled."""
    queued = await redis("ZRANGE", keys.status("queued"), 0, -1)
    return {*queued, *await redis("ZRANGE", keys.status("scheduled"), 0, -1)}


# ---- one run for each subscriber ----


async def test_an_event_starts_one_run_of_each_subscriber_at_once_and_answers_their_ids(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a", "b", "c")
    event = an_event()

    emitted = await store.emit_event(event)

    assert (emitted.event_id, emitted.was_created) == (event.event_id, True)
    assert len(emitted.run_ids) == 3
    assert set(emitted.run_ids) == await runs_of(redis, keys)
    started = [await record_of(redis, keys, run_id) for run_id in emitted.run_ids]
    assert [(run["workflow"], run["queue"], run["status"]) for run in started] == [
        ("a", "q", "queued"),
        ("b", "q", "queued"),
        ("c", "q", "queued"),
    ]


async def test_an_event_that_nobody_listens_to_starts_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    event = an_event()
    first, again = await store.emit_event(event), await store.emit_event(event)
    assert (first.run_ids, first.was_created) == (again.run_ids, again.was_created) == ((), True)
    assert await runs_of(redis, keys) == set()


async def test_other_events_start_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, "a", event="paid")
    assert (await store.emit_event(an_event("paid.late"))).run_ids == ()
    assert await runs_of(redis, keys) == set()


async def test_a_subscribers_run_has_what_its_workflow_says(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(
        store, a_workflow(queue="slow", max_attempts=4, start_timeout_ms=5_000, event_names=("paid", "sent"))
    )
    [run_id] = (await store.emit_event(an_event("sent"))).run_ids
    run = await record_of(redis, keys, run_id)
    assert (run["queue"], run["maxAttempts"]) == ("slow", "4")
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 5_000


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_names_are_only_data(store: Store, redis: RedisCommand, keys: Keys, name: str) -> None:
    await subscribe(store, name, event=name, queue=name)
    event = an_event(name, idempotency_key=name, idempotency_ttl_ms=DAY_MS)
    [run_id] = (await store.emit_event(event)).run_ids
    assert (await record_of(redis, keys, run_id))["workflow"] == name
    again = await store.emit_event(an_event(name, idempotency_key=name, idempotency_ttl_ms=DAY_MS))
    assert (again.event_id, again.run_ids, again.was_created) == (event.event_id, (run_id,), False)


@pytest.mark.parametrize("kind", AWKWARD_BYTES)
async def test_the_payload_reaches_each_subscriber_byte_for_byte_with_what_goes_with_it(
    store: Store, kind: str
) -> None:
    await subscribe(store, "a", "b")
    payload = Payload(AWKWARD_BYTES[kind], "application/x-odd", (("encoding", "none"), ("é", "🚀")))
    emitted = await store.emit_event(an_event(payload=payload))
    for run_id in emitted.run_ids:
        found = await store.read_run(run_id)
        assert found is not None
        assert found.input == payload


async def test_a_filled_lane_is_made_known(store: Store, redis_url: str, keys: Keys) -> None:
    await subscribe(store, "a", "b")
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.emit_event(an_event())
        assert [message.split()[2] for message in await messages.so_far()] == ["1:q:1:a", "1:q:1:b"]


# ---- later ----


async def test_an_event_for_later_makes_its_runs_now_and_they_are_due_then(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a", "b")
    emitted = await store.emit_event(an_event(available_at_ms=START_MS + 60_000))

    for run_id in emitted.run_ids:
        found = await places(redis, keys, run_id)
        assert (found.scheduled_at_ms, found.statuses, found.lanes) == (START_MS + 60_000, ("scheduled",), ())

    store.now_ms = START_MS + 60_000
    assert (await store.promote(10)).count == 2


@pytest.mark.parametrize("at_ms", [START_MS, START_MS - 1, 0])
async def test_an_event_for_a_time_that_has_come_is_for_now(
    store: Store, redis: RedisCommand, keys: Keys, at_ms: int
) -> None:
    await subscribe(store, "a")
    [run_id] = (await store.emit_event(an_event(available_at_ms=at_ms))).run_ids
    assert (await places(redis, keys, run_id)).statuses == ("queued",)


# ---- who has gone ----


async def test_a_subscriber_that_is_no_longer_registered_is_skipped_and_removed(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a", "deleted by hand")
    await redis("SADD", keys.event_workflows("paid"), "gone")
    await redis("DEL", keys.workflow("deleted by hand"))

    emitted = await store.emit_event(an_event())

    await redis("SREM", keys.workflows, "deleted by hand")
    await redis("SREM", keys.owner_workflows("owner-1"), "deleted by hand")
    [run_id] = emitted.run_ids
    assert (await record_of(redis, keys, run_id))["workflow"] == "a"
    assert await redis("SMEMBERS", keys.event_workflows("paid")) in (["a"], {"a"})


# ---- once ----


async def test_the_same_event_again_starts_nothing_and_answers_the_same_runs(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a", "b")
    event = an_event()
    first = await store.emit_event(event)
    again = await store.emit_event(event)
    assert again == first, "its caller lost the answer, and has created it"
    assert await runs_of(redis, keys) == set(first.run_ids)


async def test_another_event_under_the_same_key_is_answered_with_the_first_and_says_so(store: Store) -> None:
    await subscribe(store, "a")
    first = await store.emit_event(an_event(idempotency_key="k"))
    other = await store.emit_event(an_event(idempotency_key="k", data=b"another"))
    assert (other.event_id, other.run_ids, other.was_created) == (first.event_id, first.run_ids, False)


async def test_a_repeat_answers_the_runs_of_its_time_whoever_has_subscribed_since(store: Store) -> None:
    await subscribe(store, "a")
    event = an_event()
    first = await store.emit_event(event)
    await subscribe(store, "a", "b")
    assert (await store.emit_event(event)).run_ids == first.run_ids


async def test_many_repeats_of_one_key_at_once_are_one_event(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, "a", "b")
    emitted = await asyncio.gather(*(store.emit_event(an_event(idempotency_key="k")) for _ in range(50)))
    assert [one.was_created for one in emitted].count(True) == 1
    assert len({one.event_id for one in emitted}) == 1
    assert await runs_of(redis, keys) == set(emitted[0].run_ids)


async def test_one_key_of_two_events_names_two(store: Store) -> None:
    await subscribe(store, "a", event="paid")
    paid = await store.emit_event(an_event("paid", idempotency_key="k"))
    sent = await store.emit_event(an_event("sent", idempotency_key="k"))
    assert paid.was_created and sent.was_created
    assert paid.event_id != sent.event_id


async def test_events_and_keys_that_read_the_same_in_a_row_are_told_apart(store: Store) -> None:
    first = await store.emit_event(an_event("a:1", idempotency_key="b"))
    second = await store.emit_event(an_event("a", idempotency_key="1:b"))
    assert first.was_created and second.was_created


async def test_a_key_names_its_event_until_its_window_has_passed(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, "a")

    async def emit_at(at_ms: int) -> bool:
        store.now_ms = at_ms
        event = an_event(idempotency_key="k", idempotency_ttl_ms=DAY_MS)
        return (await store.emit_event(event)).was_created

    assert await emit_at(START_MS)
    assert not await emit_at(START_MS + DAY_MS - 1)
    # The window counted anew from there.
    assert not await emit_at(START_MS + 2 * DAY_MS - 2)
    assert await emit_at(START_MS + 3 * DAY_MS - 2)
    assert len(await runs_of(redis, keys)) == 2


async def test_an_event_without_a_key_is_known_by_its_id_for_its_window(store: Store) -> None:
    await subscribe(store, "a")
    event = an_event(idempotency_ttl_ms=1000)
    first = await store.emit_event(event)
    await subscribe(store, "a", "b")
    store.now_ms = START_MS + 999
    assert await store.emit_event(event) == first
    store.now_ms = START_MS + 1999
    assert len((await store.emit_event(event)).run_ids) == 2


async def test_a_repeat_after_its_window_makes_no_second_run_while_the_first_is_kept(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a")
    event = an_event(idempotency_ttl_ms=1000)
    first = await store.emit_event(event)
    store.now_ms = START_MS + 1000
    again = await store.emit_event(event)
    assert again.run_ids == first.run_ids
    assert await runs_of(redis, keys) == set(first.run_ids)


async def test_what_is_kept_of_an_event_ends_by_itself(store: Store, redis: RedisCommand, keys: Keys) -> None:
    event = an_event(idempotency_key="k", idempotency_ttl_ms=1000)
    await store.emit_event(event)
    for key in (keys.emitted(event.event_id), keys.event_key("paid", "k")):
        assert 1000 < await redis("PTTL", key) <= 61_000


# ---- all or nothing ----


@pytest.mark.parametrize("count", [3, 101])
async def test_when_memory_is_full_nothing_of_an_event_is_stored(
    store: Store, redis: RedisCommand, keys: Keys, count: int
) -> None:
    await subscribe(store, *(f"w{number}" for number in range(count)))
    before = await everything(redis, keys)
    event = an_event(idempotency_key="k")

    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await store.emit_event(event)

    assert await everything(redis, keys) == before
    emitted = await store.emit_event(event)
    assert emitted.was_created
    assert len(emitted.run_ids) == count


async def test_an_event_that_cannot_be_stored_spoils_none_that_is_emitted_at_the_same_moment(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a")
    bad = an_event()
    await redis("SET", keys.emitted(bad.event_id), "not a hash")
    good = [an_event() for _ in range(5)]

    outcomes = await asyncio.gather(
        *(store.emit_event(event) for event in (*good[:2], bad, *good[2:])), return_exceptions=True
    )

    assert isinstance(outcomes.pop(2), Exception)
    assert len(await runs_of(redis, keys)) == 5
    await redis("DEL", keys.emitted(bad.event_id))
