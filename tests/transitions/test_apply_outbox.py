"""apply_outbox: what the ends of runs left to be done to others is done in parts, the oldest first, and once."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import RunQuery
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Passed
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    a_claim,
    a_completion,
    claim_one,
    enqueue_one,
    everything,
    memory_is_full,
    put_in_state,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, a_wait_for, child_id

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def awaited_run(store: Store, parents: int) -> str:
    """A run in the lane of children that so many others wait for."""
    child = await enqueue_one(store, workflow=CHILD_LANE.workflow, queue=CHILD_LANE.queue)
    for _ in range(parents):
        await enqueue_one(store)
    for _ in range(0, parents, 100):
        for lease in (await store.claim(a_claim(count=100))).runs:
            await store.suspend(a_suspension(lease, a_wait_for(child)))
    return child


async def end_child(store: Store, output: bytes = b"1") -> None:
    await store.complete(a_completion(await claim_one(store, CHILD_LANE), output))


async def waiting(store: Store) -> int:
    return dict((await store.read_stats()).runs)[RunStatus.WAITING]


async def test_nothing_to_do_is_said(store: Store, redis: RedisCommand, keys: Keys) -> None:
    assert await store.apply_outbox(100) == Passed(0, None)
    assert await everything(redis, keys) == {}


# ---- runs that wait ----


async def test_a_hundred_who_wait_go_on_at_once_and_the_others_by_the_outbox(
    store: Store, keys: Keys, redis_url: str
) -> None:
    await awaited_run(store, parents=250)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await end_child(store)
        assert f"due outbox {START_MS}" in await messages.so_far()
    assert await waiting(store) == 150
    assert (await store.due(0)).outbox_at_ms == START_MS
    assert await store.apply_outbox(100) == Passed(1, START_MS)
    assert await waiting(store) == 50
    assert await store.apply_outbox(100) == Passed(1, None)
    assert await waiting(store) == 0
    assert await store.apply_outbox(100) == Passed(0, None)


async def test_each_who_waits_gets_the_value_once(store: Store) -> None:
    await awaited_run(store, parents=150)
    await end_child(store, b"[7]")
    await store.apply_outbox(100)
    claimed = await store.claim(a_claim(count=200))
    assert len(claimed.runs) == 150
    for run in claimed.runs:
        [step] = run.steps or ()
        assert (step.status, step.output) == (StepStatus.SUCCEEDED, Payload(b"[7]"))


async def test_four_mebibytes_of_values_are_written_in_one_pass(store: Store) -> None:
    await awaited_run(store, parents=10)
    await end_child(store, b"1" * MIB)
    assert await waiting(store) == 6
    assert await store.apply_outbox(100) == Passed(1, START_MS)
    assert await waiting(store) == 2
    assert await store.apply_outbox(100) == Passed(1, None)
    assert await waiting(store) == 0


async def test_who_begins_to_wait_meanwhile_has_the_value_at_once(store: Store) -> None:
    child = await awaited_run(store, parents=101)
    await end_child(store)
    lease = await start_one(store, priority=1)
    assert (await store.suspend(a_suspension(lease, a_wait_for(child)))).outcome == "resolved"
    assert await store.apply_outbox(100) == Passed(1, None)


async def test_one_that_waited_and_has_ended_since_stays_as_it_is(store: Store) -> None:
    child = await awaited_run(store, parents=150)
    await end_child(store)
    left = [run.run_id for run in (await store.list_runs(RunQuery(status=RunStatus.WAITING, limit=100))).runs]
    for run_id in left:
        await request_cancel(store, run_id)
    await store.apply_outbox(100)
    for run_id in left:
        run = await store.read_run(run_id)
        [step] = await store.read_steps(run_id, 100)
        assert (run.status, step.status, step.child_run_id) == (RunStatus.CANCELED, StepStatus.WITHDRAWN, child)


async def test_a_run_that_ended_is_kept_until_all_who_wait_have_heard_of_it(store: Store) -> None:
    child = await awaited_run(store, parents=150)
    await end_child(store)
    store.now_ms = START_MS + HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 0
    await store.apply_outbox(100)
    assert await waiting(store) == 0
    store.now_ms += HOUR_MS
    assert (await store.purge({RunStatus.SUCCEEDED: 1}, 10)).purged == 1
    assert await store.watch_run(child, "gateway-1") is None


async def test_purge_has_those_told_whom_the_outbox_has_lost(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await awaited_run(store, parents=150)
    await end_child(store)
    await redis("DEL", keys.outbox)
    store.now_ms = START_MS + HOUR_MS
    await store.purge({RunStatus.SUCCEEDED: 1}, 10)
    await store.apply_outbox(100)
    assert await waiting(store) == 0


# ---- entries that lead nowhere ----


async def test_those_who_wait_for_a_run_that_is_gone_hear_that(store: Store, redis: RedisCommand, keys: Keys) -> None:
    parent = await start_one(store)
    wait = a_wait()
    await store.suspend(a_suspension(parent, wait))
    child = child_id(wait)
    await redis("DEL", keys.run(child), keys.data(child), keys.lane("8:children:1:c"))
    await redis("ZREM", keys.lanes, "8:children:1:c")
    await redis("ZREM", keys.status(RunStatus.QUEUED), child)
    await redis("ZREM", keys.workflow_status(RunStatus.QUEUED, CHILD_LANE.workflow), child)
    await redis("ZADD", keys.outbox, START_MS, f"wake {child}")
    assert await store.apply_outbox(100) == Passed(1, None)
    [step] = await store.read_steps(parent.run_id, 1000)
    assert step.failure is not None
    assert step.failure.kind is FailureKind.RUN_NOT_FOUND


@pytest.mark.parametrize("word", ["wake", "withdraw", "close"])
@pytest.mark.parametrize("state", ["scheduled", "queued", "running", "waiting"])
async def test_an_entry_of_a_run_that_is_open_does_nothing(
    store: Store, redis: RedisCommand, keys: Keys, state: str, word: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    if state != "waiting":
        parent = await start_one(store, workflow="parent")
        await store.suspend(a_suspension(parent, a_wait_for(run_id)))
    before = await everything(redis, keys)
    await redis("ZADD", keys.outbox, START_MS, f"{word} {run_id}")
    assert await store.apply_outbox(100) == Passed(1, None)
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("state", [*sorted(["succeeded", "failed", "canceled"]), "missing"])
@pytest.mark.parametrize("word", ["wake", "cancel", "withdraw", "close", "greet"])
async def test_an_entry_of_a_run_that_has_ended_or_is_gone_is_dropped(
    store: Store, redis: RedisCommand, keys: Keys, state: str, word: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    await redis("ZADD", keys.outbox, START_MS, f"{word} {run_id}")
    assert await store.apply_outbox(100) == Passed(1, None)
    assert await everything(redis, keys) == before


# ---- bounds ----


async def test_no_more_entries_are_applied_than_asked_for_and_the_oldest_first(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    for number in range(5):
        await redis("ZADD", keys.outbox, START_MS - number, f"cancel run-{number}")
    assert await store.apply_outbox(2) == Passed(2, START_MS - 2)
    assert await redis("ZRANGE", keys.outbox, 0, -1) == ["cancel run-2", "cancel run-1", "cancel run-0"]


async def test_it_is_applied_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await awaited_run(store, parents=101)
    await end_child(store)
    async with memory_is_full(redis):
        assert await store.apply_outbox(100) == Passed(1, None)
    assert await waiting(store) == 0
