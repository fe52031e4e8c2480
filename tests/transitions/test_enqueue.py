"""enqueue: a run is created, and stands in its lane or waits for its time. What keys do is in another file."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.domain.errors import StoreFull, WorkflowNotFound
from redflow_server.domain.ids import new_run_id
from redflow_server.domain.leases import Lane
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import StartedRun
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    HALF_WRITTEN,
    LEASE_MS,
    MISSING,
    START_MS,
    Messages,
    Places,
    a_run,
    a_workflow,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    memory_is_full,
    places,
    put_in_state,
    register,
    renew_one,
    start_one,
)
from tests.redis_command import RedisCommand

YEAR_9999_MS = 253_402_300_799_999


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


# ---- a new run ----


async def test_a_run_is_queued(store: Store, redis: RedisCommand, keys: Keys) -> None:
    run = a_run(max_attempts=4, priority=7, input=Payload(b"[1]", "text/x", (("k", "v"),)))

    assert await store.enqueue(run) == StartedRun(run.run_id, was_created=True)

    stored = await store.read_run(run.run_id)
    assert (stored.workflow, stored.queue, stored.status) == ("w", "q", RunStatus.QUEUED)
    assert (stored.attempt, stored.max_attempts, stored.priority) == (0, 4, 7)
    assert (stored.input, stored.output, stored.failure) == (run.input, None, None)
    assert (stored.created_at_ms, stored.started_at_ms, stored.available_at_ms) == (START_MS, None, None)
    assert await places(redis, keys, run.run_id) == Places(("1:q:1:w",), None, None, ("queued",))
    assert await redis("ZSCORE", keys.workflow_status("queued", "w"), run.run_id) is not None


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES)
async def test_an_input_comes_back_as_it_was(store: Store, data: bytes) -> None:
    payload = Payload(data, "x/y; z=é", (("", "|"), ("codec", "[]")))
    run_id = await enqueue_one(store, input=payload)
    assert (await store.read_run(run_id)).input == payload


@pytest.mark.parametrize("name", ["a:b", "1:q", "{x}", "with space", "步骤 🌀", "x" * 256, "runs:status:queued", "*"])
async def test_names_are_data(store: Store, redis: RedisCommand, keys: Keys, name: str) -> None:
    await register(store, a_workflow(name=name, queue=name))
    run_id = await enqueue_one(store, workflow=name, queue=None)
    assert (await store.read_run(run_id)).queue == name
    assert await lane_of(redis, keys, Lane(name, name)) == [run_id]
    assert (await claim_one(store, Lane(name, name))).run_id == run_id


async def test_gateways_hear_of_a_lane_that_fills_and_not_of_each_run(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await enqueue_one(store)
        await enqueue_one(store)
        await enqueue_one(store, queue="r")
        first, other = [int(await redis("ZSCORE", keys.lanes, name)) for name in ("1:q:1:w", "1:r:1:w")]
        assert await messages.so_far() == [f"lane {first} 1:q:1:w", f"lane {other} 1:r:1:w"]
        assert other > first


# ---- what the registry says ----


async def test_a_run_takes_queue_and_attempts_of_its_workflow(store: Store) -> None:
    await register(store, a_workflow(queue="registered", max_attempts=5))
    run = await store.read_run(await enqueue_one(store, queue=None))
    assert (run.queue, run.max_attempts) == ("registered", 5)


async def test_what_the_request_names_stands_instead(store: Store) -> None:
    await register(store, a_workflow(queue="registered", max_attempts=5))
    run = await store.read_run(await enqueue_one(store, queue="named", max_attempts=2))
    assert (run.queue, run.max_attempts) == ("named", 2)


async def test_an_unknown_workflow_needs_a_queue(store: Store, redis: RedisCommand, keys: Keys) -> None:
    with pytest.raises(WorkflowNotFound):
        await store.enqueue(a_run(queue=None, idempotency_key="k"))
    assert await everything(redis, keys) == {}
    assert (await store.read_run(await enqueue_one(store, queue="named"))).max_attempts == 1


async def test_a_run_has_to_start_in_the_time_of_its_workflow(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000))
    run_id = await enqueue_one(store)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 60_000


async def test_a_run_for_later_has_to_start_in_time_once_it_is_due(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000))
    run_id = await enqueue_one(store, available_at_ms=START_MS + 3_600_000)
    assert await redis("ZSCORE", keys.deadlines, run_id) == START_MS + 3_600_000 + 60_000


# ---- a run for later ----


@pytest.mark.parametrize("at_ms", [START_MS + 1, START_MS + 1200, YEAR_9999_MS])
async def test_a_run_for_later_is_scheduled(store: Store, redis: RedisCommand, keys: Keys, at_ms: int) -> None:
    run_id = await enqueue_one(store, available_at_ms=at_ms)
    run = await store.read_run(run_id)
    assert (run.status, run.available_at_ms, run.attempt) == (RunStatus.SCHEDULED, at_ms, 0)
    assert await places(redis, keys, run_id) == Places((), at_ms, None, ("scheduled",))


@pytest.mark.parametrize("at_ms", [START_MS, START_MS - 1, 0, -1])
async def test_a_run_whose_time_has_come_is_queued(store: Store, redis: RedisCommand, keys: Keys, at_ms: int) -> None:
    run_id = await enqueue_one(store, available_at_ms=at_ms)
    run = await store.read_run(run_id)
    assert (run.status, run.available_at_ms) == (RunStatus.QUEUED, None)
    assert await places(redis, keys, run_id) == Places(("1:q:1:w",), None, None, ("queued",))


async def test_gateways_hear_of_a_run_that_is_due_before_all_others(store: Store, keys: Keys, redis_url: str) -> None:
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await enqueue_one(store, available_at_ms=START_MS + 5000)
        await enqueue_one(store, available_at_ms=START_MS + 9000)
        await enqueue_one(store, available_at_ms=START_MS + 1000)
        assert await messages.so_far() == [f"due scheduled {START_MS + 5000}", f"due scheduled {START_MS + 1000}"]


# ---- the same request again ----


@pytest.mark.parametrize("state", every_state_but(MISSING, HALF_WRITTEN))
async def test_a_repeated_request_creates_nothing(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    store.now_ms = START_MS + 1000
    repeated = a_run(run_id=run_id, input=Payload(b"other"), priority=9, available_at_ms=START_MS + 9000)
    assert await store.enqueue(repeated) == StartedRun(run_id, was_created=True, is_repeat=True)
    assert await everything(redis, keys) == before


async def test_a_request_repeated_at_the_same_moment_creates_one_run(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run = a_run(idempotency_key="k")
    answers = await asyncio.gather(*(store.enqueue(run) for _ in range(5)))
    assert answers == [StartedRun(run.run_id, was_created=True, is_repeat=number > 0) for number in range(5)]
    assert await lane_of(redis, keys) == [run.run_id]


async def test_a_repeated_request_that_found_another_run_finds_it_again(store: Store) -> None:
    existing = await enqueue_one(store, idempotency_key="k")
    request = a_run(idempotency_key="k")
    for _ in range(2):
        assert await store.enqueue(request) == StartedRun(existing, was_created=False)


async def test_a_request_with_the_id_of_a_half_written_run_makes_it_whole(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await put_in_state(store, redis, keys, HALF_WRITTEN)
    assert (await store.enqueue(a_run(run_id=run_id))).run_id == run_id
    assert (await claim_one(store)).run_id == run_id


# ---- when memory is full ----


async def test_no_run_is_created_while_memory_is_full(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store)
    before = await everything(redis, keys)
    async with memory_is_full(redis):
        for changes in ({}, {"available_at_ms": START_MS + 1000}, {"idempotency_key": "k"}):
            with pytest.raises(StoreFull):
                await enqueue_one(store, **changes)
        assert await everything(redis, keys) == before
    await enqueue_one(store)


async def test_runs_are_canceled_promoted_and_reaped_while_memory_is_full(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    queued, delayed = await enqueue_one(store), await enqueue_one(store, available_at_ms=START_MS + 1000)
    await store.cancel(queued, "", "first-cancel")
    leased, lost = await start_one(store), await start_one(store)
    other = await enqueue_one(store)
    await store.reap(LEASE_MS, 10 * LEASE_MS, 10)
    async with memory_is_full(redis):
        assert await store.cancel(other, "", "second-cancel")
        assert await store.cancel(leased.run_id, "", "third-cancel")
        store.now_ms = START_MS + 1000
        await store.promote(10)
        for beat in range(1, 5):
            store.now_ms = START_MS + beat * LEASE_MS // 2
            await renew_one(store, leased)
            await store.reap(LEASE_MS, 10 * LEASE_MS, 10)
    assert (await places(redis, keys, other)).statuses == ("canceled",)
    assert (await store.read_run(leased.run_id)).cancel_requested_at_ms == START_MS
    assert await lane_of(redis, keys) == [lost.run_id, delayed]


async def test_ids_may_be_as_long_as_the_rule_allows(store: Store) -> None:
    run_id = "x" * 64
    assert await enqueue_one(store, run_id=run_id) == run_id
    assert (await claim_one(store)).run_id == run_id
    assert new_run_id() != new_run_id()
