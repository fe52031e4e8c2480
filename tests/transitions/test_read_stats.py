"""read_stats: counts of runs by status, and how deep the lanes are."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from redflow_server.domain.leases import Lane
from redflow_server.domain.runs import LaneDepth, RunQuery, Stats
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    a_run,
    an_event,
    claim_one,
    enqueue_one,
    everything,
    lane_of,
    put_in_state,
    request_cancel,
)
from tests.redis_command import RedisCommand

TOLD_LANES: Final = 500


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def test_an_empty_store_has_no_runs_in_any_status(store: Store) -> None:
    assert await store.read_stats() == Stats(tuple((status, 0) for status in RunStatus), (), 0)


async def test_counts_are_those_of_the_listings(store: Store, redis: RedisCommand, keys: Keys) -> None:
    for status in RunStatus:
        if status not in (RunStatus.WAITING, RunStatus.QUEUED):
            await put_in_state(store, redis, keys, status)
    for _ in range(3):
        await put_in_state(store, redis, keys, RunStatus.QUEUED)
    await put_in_state(store, redis, keys, RunStatus.SCHEDULED)

    counts = dict((await store.read_stats()).runs)

    for status in RunStatus:
        page = await store.list_runs(RunQuery(status=status, limit=100))
        assert counts[status] == len(page.runs), status
    everyone = await store.list_runs(RunQuery(limit=100))
    assert counts == dict.fromkeys(RunStatus, 0) | Counter(run.status for run in everyone.runs)
    assert counts[RunStatus.QUEUED] == 3


async def test_a_lane_is_as_deep_as_it_has_runs(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lanes = [Lane("q1", "a"), Lane("q1", "b:c"), Lane("🚀", "{x}"), Lane("a:b", "c")]
    for depth, lane in enumerate(lanes, start=1):
        for _ in range(depth):
            await enqueue_one(store, queue=lane.queue, workflow=lane.workflow)

    stats = await store.read_stats()

    assert set(stats.lanes) == {LaneDepth(lane.queue, lane.workflow, depth) for depth, lane in enumerate(lanes, 1)}
    assert stats.lane_count == 4
    for found in stats.lanes:
        assert found.depth == len(await lane_of(redis, keys, Lane(found.queue, found.workflow)))


async def test_empty_lanes_are_not_told(store: Store) -> None:
    await enqueue_one(store)
    canceled = await enqueue_one(store, queue="q2")
    await claim_one(store)
    await request_cancel(store, canceled)
    stats = await store.read_stats()
    assert (stats.lanes, stats.lane_count) == ((), 0)


async def test_of_very_many_lanes_the_last_to_change_are_told(store: Store) -> None:
    queues = [f"q{number}" for number in range(TOLD_LANES + 20)]
    for started in [store.enqueue(a_run(queue=queue)) for queue in queues]:
        await started

    stats = await store.read_stats()

    assert stats.lane_count == TOLD_LANES + 20
    assert {lane.queue for lane in stats.lanes} == set(queues[20:])
    assert dict(stats.runs)[RunStatus.QUEUED] == TOLD_LANES + 20


async def test_remembered_events_are_counted_and_those_that_were_dropped(store: Store) -> None:
    for number in range(103):
        await store.emit_event(an_event(key=None if number else "k"))
    stats = await store.read_stats()
    assert (stats.events_remembered, stats.events_dropped) == (101, 2)


async def test_reading_writes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await enqueue_one(store)
    before = await everything(redis, keys)
    await store.read_stats()
    assert await everything(redis, keys) == before
