"""sweep: a run that waits for what will never be told goes on, and a wait that nobody knows of is made known."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import ClaimedRun
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus
from redflow_server.domain.waits import Wait, event_channel
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Repair, Swept
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    Places,
    a_completion,
    a_workflow,
    an_event,
    claim_one,
    everything,
    memory_is_full,
    places,
    register,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    SLEEP_MS,
    a_sleep,
    a_suspension,
    a_token_wait,
    a_wait,
    an_event_wait,
    child_id,
    some_waits,
    with_timeout,
)

CHILDREN: Final = lane_name(CHILD_LANE.queue, CHILD_LANE.workflow)
NAME: Final = lane_name("q", "w")
RUN_TIMEOUT_MS: Final = 600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def sweep(store: Store) -> tuple[Repair, ...]:
    """Looks at the waiting runs once: what was repaired, by run."""
    swept = await store.sweep(RunStatus.WAITING, None, 25)
    assert swept.next_seq is None
    return swept.repairs


async def waiting_one(store: Store, *waits: Wait) -> ClaimedRun:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *waits))
    return lease


async def remove(redis: RedisCommand, keys: Keys, run_id: str) -> None:
    """Takes a queued child away, as a Redis that has lost its last second does, and all it knew."""
    await redis("DEL", keys.run(run_id), keys.data(run_id), keys.awaiters(run_id))
    for key in (keys.lane(CHILDREN), keys.status("queued"), keys.workflow_status("queued", CHILD_LANE.workflow)):
        await redis("ZREM", key, run_id)
    await redis("ZREM", keys.lanes, CHILDREN)


async def test_a_run_whose_waits_are_open_waits_on(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    waits = a_wait("a"), a_wait("b"), a_sleep(), with_timeout(an_event_wait()), a_token_wait(lease)
    await store.suspend(a_suspension(lease, *waits))
    before = await everything(redis, keys)
    assert await sweep(store) == ()
    assert await everything(redis, keys) == before


async def test_a_wait_for_a_run_that_is_gone_fails_by_the_outbox(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    wait = a_wait()
    parent = await waiting_one(store, wait)
    await remove(redis, keys, child_id(wait))
    async with Messages.on(redis_url, keys.wakeups) as messages:
        assert await sweep(store) == (Repair(parent.run_id, "wait"),)
        assert await messages.so_far() == [f"due outbox {START_MS}"]
    assert await sweep(store) == (), "it is on its way"

    await store.apply_outbox(100)

    [step] = await store.read_steps(parent.run_id, 1000)
    assert step.failure is not None
    assert step.failure.kind is FailureKind.RUN_NOT_FOUND
    assert await places(redis, keys, parent.run_id) == Places((NAME,), None, None, ("queued",))


async def test_a_run_whose_child_ended_unheard_gets_its_value(store: Store, redis: RedisCommand, keys: Keys) -> None:
    wait = a_wait()
    parent = await waiting_one(store, wait)
    await redis("DEL", keys.awaiters(child_id(wait)))
    await redis("HDEL", keys.run(child_id(wait)), "awaited")
    await store.complete(a_completion(await claim_one(store, CHILD_LANE), b"7"))
    assert (await store.read_run(parent.run_id)).status is RunStatus.WAITING

    assert await sweep(store) == (Repair(parent.run_id, "wait"),)
    await store.apply_outbox(100)

    [step] = await store.read_steps(parent.run_id, 1000)
    assert step.output == Payload(b"7")


@pytest.mark.parametrize("lost", ["awaiters", "awaited"])
async def test_a_child_that_does_not_know_who_waits_for_it_is_told(
    store: Store, redis: RedisCommand, keys: Keys, lost: str
) -> None:
    wait = a_wait()
    parent = await waiting_one(store, wait)
    before = await everything(redis, keys)
    if lost == "awaiters":
        await redis("DEL", keys.awaiters(child_id(wait)))
    else:
        await redis("HDEL", keys.run(child_id(wait)), "awaited")
    assert await sweep(store) == (Repair(parent.run_id, "awaiter"),)
    assert await everything(redis, keys) == before


async def test_a_wait_that_has_lost_its_time_is_over_then_all_the_same(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    parent = await waiting_one(store, a_sleep(), with_timeout(a_wait(), 2 * SLEEP_MS))
    before = await everything(redis, keys)
    await redis("DEL", keys.timers)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        assert await sweep(store) == (Repair(parent.run_id, "timer"),)
        assert f"due timers {START_MS + SLEEP_MS}" in await messages.so_far()
    assert await everything(redis, keys) == before


async def test_a_wait_that_its_channel_does_not_know_hears_of_the_next_event(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    parent = await waiting_one(store, an_event_wait())
    await redis("DEL", keys.event_waits(event_channel("paid", None)))
    assert await sweep(store) == (Repair(parent.run_id, "event wait"),)
    assert await sweep(store) == ()
    await store.emit_event(an_event(data=b"7"))
    [step] = await store.read_steps(parent.run_id, 100)
    assert step.output == Payload(b"7")


async def test_open_waits_that_are_miscounted_are_counted_again(store: Store, redis: RedisCommand, keys: Keys) -> None:
    parent = await waiting_one(store, a_wait("a"), a_wait("b"))
    before = await everything(redis, keys)
    for wrong in ("1", "3"):
        await redis("HSET", keys.run(parent.run_id), "openWaits", wrong)
        assert await sweep(store) == (Repair(parent.run_id, "waits"),)
        assert await everything(redis, keys) == before
    await redis("HDEL", keys.run(parent.run_id), "openWaits")
    assert await sweep(store) == (Repair(parent.run_id, "waits"),)
    assert await everything(redis, keys) == before


async def test_a_waiting_run_keeps_its_listing_and_its_deadline(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(run_timeout_ms=RUN_TIMEOUT_MS))
    parent = await waiting_one(store)
    before = await everything(redis, keys)
    await redis("DEL", keys.deadlines)
    await redis("ZREM", keys.workflow_status("waiting", "w"), parent.run_id)
    assert [repair.run_id for repair in await sweep(store)] == [parent.run_id]
    assert await everything(redis, keys) == before


async def test_of_many_waits_each_pass_looks_at_a_hundred(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    waits = [a_wait(f"step {number}") for number in range(300)]
    for first in range(0, 300, 100):
        await store.step_wait(some_waits(lease, *waits[first : first + 100]))
    await store.suspend(a_suspension(lease, waits[0]))
    for wait in waits:
        await redis("DEL", keys.awaiters(child_id(wait)))

    async def told() -> int:
        return sum([await redis("EXISTS", keys.awaiters(child_id(wait))) for wait in waits])

    assert await sweep(store) == (Repair(lease.run_id, "awaiter"),)
    assert await told() == 100
    for _ in range(100):
        await sweep(store)
    assert await told() == 300


async def test_waits_are_mended_while_memory_is_full(store: Store, redis: RedisCommand, keys: Keys) -> None:
    wait = a_wait()
    parent = await waiting_one(store, wait)
    await redis("DEL", keys.awaiters(child_id(wait)))
    async with memory_is_full(redis):
        assert await store.sweep(RunStatus.WAITING, None, 25) == Swept(None, (Repair(parent.run_id, "awaiter"),))
