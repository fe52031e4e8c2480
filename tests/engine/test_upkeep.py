"""The passes of upkeep: each is bounded, says whether more is to be done, and repairs what it finds broken."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from redflow_server.domain.leases import Lane
from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.engine.upkeep import SLICE, SWEEP_SLICE, UpkeepSettings
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Unknown
from redflow_server.store.store import Store
from tests.builders import (
    LANE,
    STAMP,
    START_MS,
    a_listing,
    a_workflow,
    enqueue_one,
    lane_of,
    register,
    request_cancel,
    start_one,
)
from tests.conftest import StartGateway
from tests.engine.conftest import OpenWorker
from tests.engine.parts import Engine, Stores
from tests.eventually import eventually
from tests.redis_command import RedisCommand

MORE = SLICE + 50


# ---- bounded passes ----


async def test_due_runs_are_promoted_slice_by_slice(engine: Engine, store: Store) -> None:
    store.now_ms = START_MS
    await asyncio.gather(*(enqueue_one(store, available_at_ms=START_MS + 10) for _ in range(MORE)))
    later_ms = START_MS + 5000
    await enqueue_one(store, available_at_ms=later_ms)
    store.now_ms = START_MS + 10

    passes = [await engine.upkeep.promote() for _ in range(3)]

    assert [passed.count for passed in passes] == [SLICE, MORE - SLICE, 0]
    assert [passed.next_at_ms for passed in passes] == [START_MS + 10, later_ms, later_ms]
    [lane] = (await store.read_stats()).lanes
    assert lane.depth == MORE
    assert engine.telemetry.counters["runs.promoted"] == MORE


async def test_expired_leases_are_taken_back_slice_by_slice(engine: Engine, store: Store) -> None:
    store.now_ms = START_MS
    await engine.upkeep.reap()
    for _ in range(MORE):
        await start_one(store)
    store.now_ms += 4000
    await engine.upkeep.reap()
    for _ in range(7):  # gateways look once a second, at most five seconds apart: else nobody could have renewed
        store.now_ms += 4000
        has_more = await engine.upkeep.reap()
        if engine.telemetry.counters["leases.expired"]:
            break

    assert has_more
    assert engine.telemetry.counters["leases.expired"] == SLICE
    assert not await engine.upkeep.reap()
    assert engine.telemetry.counters["leases.expired"] == MORE
    assert not await engine.upkeep.reap()


async def test_runs_past_their_retention_are_removed_slice_by_slice_and_others_stay(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    keep_ms = 1000
    engine = Engine(store, settings=UpkeepSettings(retention_ms=dict.fromkeys(sorted(TERMINAL), keep_ms)))
    store.now_ms = START_MS
    for _ in range(MORE):
        await store.cancel(await enqueue_one(store), "", "")
    store.now_ms += keep_ms
    stays = await enqueue_one(store)
    await store.cancel(stays, "", "")

    assert await engine.upkeep.purge()
    assert not await engine.upkeep.purge()

    assert engine.telemetry.counters["runs.purged"] == MORE
    assert await redis("ZRANGE", keys.status("canceled"), 0, -1) == [stays]


async def test_runs_whose_time_is_up_are_ended_in_one_pass_as_far_as_it_goes(
    engine: Engine, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "redflow")
    store.now_ms = START_MS
    await register(store, a_workflow(start_timeout_ms=100))
    await asyncio.gather(*(enqueue_one(store) for _ in range(MORE)))
    store.now_ms += 100

    passes = [await engine.upkeep.expire() for _ in range(3)]

    assert [passed.count for passed in passes] == [SLICE, MORE - SLICE, 0]
    assert engine.telemetry.counters["runs.timed_out"] == MORE
    told = [record.getMessage() for record in caplog.records if "time-out" in record.getMessage()]
    assert told == [f"ended because a time-out of theirs has passed: {count} runs" for count in (SLICE, MORE - SLICE)]


# ---- outages ----


@pytest.mark.parametrize(("lease_ms", "outage_ms"), [(2000, 4000), (1000, 500), (6000, 3000), (30_000, 60_000)])
async def test_after_an_outage_a_lease_however_short_is_taken_only_when_it_could_have_been_renewed(
    store: Store, lease_ms: int, outage_ms: int
) -> None:
    engine = Engine(store, Timing(lease_ms))
    store.now_ms = START_MS
    await engine.upkeep.reap()
    leases = [await start_one(store) for _ in range(2)]
    listed = [a_listing(lease) for lease in leases]
    await store.renew(STAMP, listed, lease_ms - outage_ms // 2, 0)  # just not long enough for the outage

    async def statuses_after(pass_ms: int) -> list[str]:
        for _ in range(0, pass_ms, engine.timing.reap_ms):
            assert store.now_ms is not None
            store.now_ms += engine.timing.reap_ms
            await engine.upkeep.reap()
        return [(await store.read_run(lease.run_id)).status.value for lease in leases]

    store.now_ms += max(outage_ms, lease_ms - outage_ms // 2 + 1)
    await engine.upkeep.reap()
    assert await statuses_after(lease_ms - 2 * engine.timing.reap_ms) == ["running"] * 2
    await store.renew(STAMP, listed[:1], lease_ms, 0)
    assert await statuses_after(4 * engine.timing.reap_ms) == ["running", "queued"]


# ---- sweep ----


async def test_a_gateway_repairs_a_run_that_stands_in_no_lane_when_it_starts(
    store: Store, redis: RedisCommand, keys: Keys, start_gateway: StartGateway
) -> None:
    run_id = await enqueue_one(store)
    await redis("DEL", keys.lane(lane_name(LANE.queue, LANE.workflow)))
    await redis("DEL", keys.lanes)

    gateway: Gateway = await start_gateway()

    await eventually(lambda: lane_of(redis, keys))
    assert await lane_of(redis, keys) == [run_id]
    assert gateway.telemetry.counters["repaired.lane"] == 1


async def test_sweeping_gets_to_every_run_slice_by_slice_and_begins_again_then(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_ids = [await enqueue_one(store) for _ in range(2 * SWEEP_SLICE + 10)]
    oldest = run_ids[0]
    lane = keys.lane(lane_name(LANE.queue, LANE.workflow))

    for _ in range(2):
        await redis("ZREM", lane, oldest)
        passes = 0
        while await redis("ZSCORE", lane, oldest) is None:
            await engine.upkeep.sweep()
            passes += 1
            assert passes <= 4
        assert passes >= 3, "the newest come first"

    assert engine.telemetry.counters == Counter({"repaired.lane": 2})


async def test_sweeping_what_is_well_repairs_nothing(engine: Engine, store: Store) -> None:
    await enqueue_one(store)
    await enqueue_one(store, available_at_ms=int(time.time() * 1000) + 60_000)
    lease = await start_one(store, queue="q2", workflow="w2")
    await request_cancel(store, lease.run_id)
    for _ in range(3):
        assert not await engine.upkeep.sweep()
    assert not engine.telemetry.counters


# ---- unknown workflows ----

BRIEF = UpkeepSettings(unknown_grace_ms=100)
EXPLICIT = {"queues": (LANE.queue,)}


async def fail_unknown(engine: Engine, *run_ids: str) -> None:
    """Does passes until these runs have failed."""

    async def have_failed() -> bool:
        await engine.upkeep.look_ahead()
        await engine.upkeep.fail_unknown()
        runs = await asyncio.gather(*map(engine.store.read_run, run_ids))
        return all(run.status is RunStatus.FAILED for run in runs)

    await eventually(have_failed, within=2)


@pytest.fixture
def brief(store: Store) -> Engine:
    """An engine that waits a tenth of a second for the worker of a workflow that nobody knows."""
    return Engine(store, settings=BRIEF)


@pytest.mark.parametrize("order", ["the run came first", "the worker came first"])
async def test_a_run_of_a_workflow_that_nobody_knows_fails_whoever_came_first(
    brief: Engine, store: Store, open_worker: OpenWorker, order: str
) -> None:
    if order == "the worker came first":
        await open_worker(brief, LANE, **EXPLICIT)
    run_id = await enqueue_one(store, workflow="nobody")
    if order == "the run came first":
        await open_worker(brief, LANE, **EXPLICIT)

    await fail_unknown(brief, run_id)

    run = await store.read_run(run_id)
    assert run.failure is not None
    assert (run.failure.kind, run.attempt) == ("unknown_workflow", 1)


async def test_where_no_worker_asked_for_the_queue_by_name_a_run_waits_for_its_worker(
    brief: Engine, store: Store, open_worker: OpenWorker
) -> None:
    explicit = await open_worker(brief, Lane("other", "other"), queues=("other",))
    await open_worker(brief, LANE)
    waits = await enqueue_one(store, workflow="nobody")
    fails = await enqueue_one(store, workflow="nobody", queue="other")

    await fail_unknown(brief, fails)
    assert (await store.read_run(waits)).status is RunStatus.QUEUED

    await explicit.close()
    also_waits = await enqueue_one(store, workflow="nobody", queue="other")
    await asyncio.sleep(0.2)  # twice the grace
    await brief.upkeep.look_ahead()
    await brief.upkeep.fail_unknown()
    assert (await store.read_run(also_waits)).status is RunStatus.QUEUED


async def test_a_workflow_that_comes_within_the_grace_gets_its_run(
    brief: Engine, store: Store, open_worker: OpenWorker
) -> None:
    await open_worker(brief, LANE, **EXPLICIT)
    run_id = await enqueue_one(store, workflow="late")
    await brief.upkeep.look_ahead()
    await brief.upkeep.fail_unknown()

    late = await open_worker(brief, Lane(LANE.queue, "late"), owner="owner-2")

    assert (await late.assignment()).run_id == run_id
    await asyncio.sleep(0.2)  # twice the grace
    await brief.upkeep.fail_unknown()
    assert (await store.read_run(run_id)).status is RunStatus.RUNNING


async def lanes_asked_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Lane]:
    """The lanes that the store is asked about in the next pass but one."""
    await engine.upkeep.fail_unknown()
    asked: list[Lane] = []
    ask = engine.store.fail_unknown

    def noted(lane: Lane, grace_ms: int, offset: int, limit: int) -> asyncio.Future[Unknown]:
        asked.append(lane)
        return ask(lane, grace_ms, offset, limit)

    with monkeypatch.context() as watched:
        watched.setattr(engine.store, "fail_unknown", noted)
        await engine.upkeep.fail_unknown()
    return asked


async def test_a_lane_of_unknown_runs_costs_nothing_any_more_when_they_have_failed(
    brief: Engine, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_worker(brief, LANE, **EXPLICIT)
    run_ids = [await enqueue_one(store, workflow=f"nobody{number}") for number in range(20)]
    await fail_unknown(brief, *run_ids)

    assert await lanes_asked_for(brief, monkeypatch) == []

    again = await enqueue_one(store, workflow="nobody0")
    await fail_unknown(brief, again)


async def test_a_lane_that_workers_of_another_gateway_have_emptied_costs_nothing(
    brief: Engine, store: Store, stores: Stores, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_worker(brief, LANE, **EXPLICIT)
    other = Engine(await stores.open(), settings=BRIEF)
    there = await open_worker(other, Lane(LANE.queue, "there"), owner="owner-2", **EXPLICIT)
    await enqueue_one(store, workflow="there")
    for engine in (brief, other):
        await engine.upkeep.look_ahead()
    await there.complete(await there.assignment())
    await asyncio.sleep(0.15)  # longer than the grace

    assert await lanes_asked_for(brief, monkeypatch) == []


async def test_however_many_unknown_workflows_there_were_the_next_one_fails_too(
    brief: Engine, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.dispatcher.MAX_UNSERVED", 3)
    await open_worker(brief, LANE, **EXPLICIT)
    first = [await enqueue_one(store, workflow=f"nobody{number}") for number in range(3)]
    await fail_unknown(brief, *first)

    next_one = await enqueue_one(store, workflow="nobody3")

    await fail_unknown(brief, next_one)


async def test_a_lane_longer_than_a_slice_is_failed_to_its_end(
    brief: Engine, store: Store, open_worker: OpenWorker
) -> None:
    await open_worker(brief, LANE, **EXPLICIT)
    run_ids = await asyncio.gather(
        *(enqueue_one(store, workflow="nobody", is_typed=number % 3 == 0) for number in range(MORE))
    )
    untyped = [run_id for number, run_id in enumerate(run_ids) if number % 3]

    await fail_unknown(brief, *untyped)

    assert brief.telemetry.counters["runs.unknown_workflow"] == len(untyped)
    typed = await asyncio.gather(*(store.read_run(run_id) for run_id in run_ids[::3]))
    assert {run.status for run in typed} == {RunStatus.QUEUED}
