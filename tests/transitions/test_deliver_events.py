"""deliver_events: an event that many wait for is told to some in its own script, and to the others by whoever comes."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import event_channel
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    a_claim,
    an_event,
    enqueue_one,
    everything,
    memory_is_full,
    request_cancel,
    start_one,
)
from tests.engine.conftest import stores  # noqa: F401  # a fixture
from tests.engine.parts import Stores
from tests.redis_command import RedisCommand
from tests.wait_builders import a_suspension, an_event_wait, in_race, read_step, some_waits

MIB: Final = 1024 * 1024
KEEP_MS: Final = 600_000
CHANNEL: Final = event_channel("paid", None)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def waiting_runs(store: Store, count: int, *steps: str) -> list[ClaimedRun]:
    """So many runs of lane `w` that wait for the event `paid`, in these steps."""
    waits = [an_event_wait(step) for step in steps or ("event",)]
    for _ in range(count):
        await enqueue_one(store)
    leases: list[ClaimedRun] = []
    while len(leases) < count:
        leases += (await store.claim(a_claim(count=count))).runs
    for lease in leases:
        await store.suspend(a_suspension(lease, *waits))
    return leases


async def deliver_all(*gateways: Store) -> int:
    """Goes on, at each gateway in turn, until nothing is left; how many passes it took."""
    passes = 0
    while await gateways[passes % len(gateways)].deliver_events():
        passes += 1
    return passes + 1


async def waiting(store: Store) -> int:
    return dict((await store.read_stats()).runs)[RunStatus.WAITING]


async def got(store: Store, lease: ClaimedRun, step: str = "event") -> bytes | None:
    output = (await read_step(store, lease.run_id, step)).output
    return output.data if output else None


async def test_nothing_to_deliver_is_said_so(store: Store, redis: RedisCommand, keys: Keys) -> None:
    assert await store.deliver_events() is False
    assert await everything(redis, keys) == {}


async def test_a_hundred_who_wait_hear_of_it_at_once_and_the_others_by_the_loop(
    store: Store, keys: Keys, redis_url: str
) -> None:
    leases = await waiting_runs(store, 250)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.emit_event(an_event(data=b"7"))
        assert f"due outbox {START_MS}" in await messages.so_far()
    assert await waiting(store) == 150
    assert (await store.due(0)).outbox_at_ms == START_MS

    assert await store.deliver_events() is True
    assert await waiting(store) == 50
    assert await store.deliver_events() is False

    assert {await got(store, lease) for lease in leases} == {b"7"}
    assert (await store.due(0)).outbox_at_ms is None


async def test_those_who_began_to_wait_first_hear_of_it_first(store: Store) -> None:
    leases = await waiting_runs(store, 150)
    await store.emit_event(an_event())
    heard = [await got(store, lease) is not None for lease in leases]
    assert heard == [True] * 100 + [False] * 50
    await deliver_all(store)


async def test_exactly_a_hundred_who_wait_leave_nothing_to_do(store: Store) -> None:
    await waiting_runs(store, 100)
    await store.emit_event(an_event())
    assert await waiting(store) == 0
    await deliver_all(store)
    assert (await store.due(0)).outbox_at_ms is None


async def test_one_script_writes_four_mebibytes_of_values(store: Store) -> None:
    await waiting_runs(store, 10)
    await store.emit_event(an_event(data=b"1" * MIB))
    assert await waiting(store) == 6
    assert await store.deliver_events() is True
    assert await waiting(store) == 2
    assert await store.deliver_events() is False
    assert await waiting(store) == 0


# ---- several events at once ----


async def test_two_events_that_reach_the_waits_in_parts_reach_each_run_in_their_order(store: Store) -> None:
    leases = await waiting_runs(store, 150, "a", "b")
    for data in (b"1", b"2"):
        await store.emit_event(an_event(data=data))
    await deliver_all(store)
    for lease in leases:
        assert [await got(store, lease, "a"), await got(store, lease, "b")] == [b"1", b"2"]


async def test_a_wait_that_has_lost_its_race_to_another_on_the_same_page_takes_no_event(store: Store) -> None:
    """Two events are told together, because the first one was put off."""
    await waiting_runs(store, 150)
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *in_race(an_event_wait("a"), an_event_wait("b"))))
    for data in (b"1", b"2"):
        await store.emit_event(an_event(data=data))
    await deliver_all(store)
    assert await got(store, lease, "a") == b"1"
    assert (await read_step(store, lease.run_id, "b")).status is StepStatus.WITHDRAWN

    [again] = [run for run in (await store.claim(a_claim(count=300))).runs if run.run_id == lease.run_id]
    [step] = (await store.step_wait(some_waits(again, an_event_wait("next"), steps_recorded=1))).resolutions
    assert step.output == Payload(b"2")


async def test_waits_that_take_nothing_are_passed_by_in_parts_too(store: Store) -> None:
    """Many of one run wait for the same event, of which the first takes it."""
    await waiting_runs(store, 1, *(f"step {number}" for number in range(100)))
    await waiting_runs(store, 1, *(f"step {number}" for number in range(100)))
    [last] = await waiting_runs(store, 1)

    await store.emit_event(an_event(data=b"1"))

    assert await got(store, last) is None, "a hundred were looked at"
    assert await deliver_all(store) > 1
    assert await got(store, last) == b"1"


async def test_a_run_that_goes_on_between_the_parts_misses_no_event_and_gets_none_twice(store: Store) -> None:
    await waiting_runs(store, 220)
    [last] = await waiting_runs(store, 1)
    for data in (b"1", b"2"):
        await store.emit_event(an_event(data=data))
    assert await got(store, last) is None

    assert await store.deliver_events() is True, "the other event is still to be told"
    assert await got(store, last) == b"1"
    [again] = [run for run in (await store.claim(a_claim(count=300))).runs if run.run_id == last.run_id]
    waits = an_event_wait("next"), an_event_wait("after that")
    answer = await store.suspend(a_suspension(again, *waits, steps_recorded=1))
    assert [(step.name, step.output) for step in answer.resolutions] == [("next", Payload(b"2"))]
    await deliver_all(store)

    assert await got(store, last, "after that") is None


async def test_waits_that_begin_while_it_is_under_way_have_seen_it_in_the_memory(store: Store) -> None:
    leases = await waiting_runs(store, 150)
    early = await start_one(store)
    await store.emit_event(an_event(data=b"1"))
    [step] = (await store.step_wait(some_waits(early, an_event_wait("a")))).resolutions
    assert step.output == Payload(b"1")
    assert (await store.step_wait(some_waits(early, an_event_wait("b")))).resolutions == ()

    await deliver_all(store)

    assert await got(store, early, "b") is None
    assert {await got(store, lease) for lease in leases} == {b"1"}


async def test_events_of_several_channels_are_delivered_beside_each_other(store: Store) -> None:
    leases = []
    for _ in range(150):
        leases.append(await start_one(store))
        await store.suspend(a_suspension(leases[-1], an_event_wait("a"), an_event_wait("b", key="k")))
    await store.emit_event(an_event(data=b"plain"))
    await store.emit_event(an_event(data=b"keyed", key="k"))
    await deliver_all(store)
    for lease in leases:
        assert [await got(store, lease, "a"), await got(store, lease, "b")] == [b"plain", b"keyed"]


# ---- whoever comes ----


async def test_another_gateway_goes_on_where_one_has_died(
    store: Store,
    stores: Stores,  # noqa: F811  # the fixture
) -> None:
    leases = await waiting_runs(store, 250)
    await store.emit_event(an_event(data=b"1"))
    other = await stores.open()
    other.now_ms = START_MS
    assert await deliver_all(other) == 2
    assert {await got(store, lease) for lease in leases} == {b"1"}


async def test_several_gateways_at_once_tell_each_run_once(
    store: Store,
    stores: Stores,  # noqa: F811  # the fixture
) -> None:
    gateways = [store, *[await stores.open() for _ in range(2)]]
    for gateway in gateways:
        gateway.now_ms = START_MS
    leases = await waiting_runs(store, 350, "a", "b", "c")
    for data in (b"1", b"2"):
        await store.emit_event(an_event(data=data))

    await asyncio.gather(*(deliver_all(gateway) for gateway in gateways))
    await deliver_all(store)

    for lease in leases:
        assert [await got(store, lease, step) for step in "abc"] == [b"1", b"2", None]


# ---- what is left meanwhile ----


async def test_runs_that_end_before_they_have_heard_of_it_get_nothing(store: Store) -> None:
    leases = await waiting_runs(store, 150)
    await store.emit_event(an_event())
    for lease in leases[100:]:
        await request_cancel(store, lease.run_id)
    await deliver_all(store)
    found = {(await read_step(store, lease.run_id, "event")).status for lease in leases[100:]}
    assert found == {StepStatus.WITHDRAWN}


async def test_an_event_is_kept_for_those_who_have_not_heard_of_it_however_old_it_is(store: Store) -> None:
    leases = await waiting_runs(store, 150)
    await store.emit_event(an_event(data=b"1"))
    store.now_ms = START_MS + 2 * KEEP_MS
    assert await store.forget_events() is False
    assert (await store.read_stats()).events_remembered == 1

    await deliver_all(store)

    assert {await got(store, lease) for lease in leases} == {b"1"}
    await store.forget_events()
    assert (await store.read_stats()).events_remembered == 0


async def test_also_when_a_hundred_newer_ones_have_come(store: Store) -> None:
    leases = await waiting_runs(store, 150)
    for number in range(110):
        await store.emit_event(an_event(data=b"%d" % number))
    assert (await store.read_stats()).events_remembered == 110

    await deliver_all(store)

    assert {await got(store, lease) for lease in leases} == {b"0"}
    await store.emit_event(an_event())
    assert (await store.read_stats()).events_remembered == 100


async def test_an_entry_whose_event_is_gone_is_dropped_and_those_who_wait_wait_on(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await waiting_runs(store, 3)
    before = await everything(redis, keys)
    await redis("ZADD", keys.deliveries, 1, f"9 {CHANNEL}")
    assert await store.deliver_events() is False
    assert await everything(redis, keys) == before


async def test_an_event_is_delivered_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await waiting_runs(store, 250)
    await store.emit_event(an_event())
    async with memory_is_full(redis):
        assert await deliver_all(store) == 2
    assert await waiting(store) == 0
