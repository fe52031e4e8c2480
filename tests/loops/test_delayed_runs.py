"""Delayed runs start in time: not before it, and hardly after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import uvloop

from redflow_sdk import Client, Context, workflow
from redflow_sdk.records import Run
from redflow_server.loops.duties import Duties
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.builders import enqueue_one
from tests.conftest import StartWorker
from tests.engine.parts import Engine, Stores
from tests.eventually import eventually
from tests.redis_command import RedisCommand

APART_MS = 100
LATE_MS = 50
ROUNDS = 3
"""A busy machine may hold up one round. An alarm that does not come holds up each: the next look is a second off."""


def late_ms(run: Run, due_at: datetime) -> float:
    """By how much it started after its time, by Redis' clock."""
    assert run.started_at is not None
    return (run.started_at - due_at) / timedelta(milliseconds=1)


async def in_time(lateness: Callable[[], Awaitable[list[float]]]) -> None:
    """Asserts that what is due starts within 50 ms, and never before its time."""
    found = []
    for _ in range(ROUNDS):
        found.append(await lateness())
        assert min(found[-1]) >= 0, found
        if max(found[-1]) <= LATE_MS:
            return
    raise AssertionError(f"late, in ms: {found}")


async def test_two_delayed_runs_shortly_one_after_the_other_both_start_in_time(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="delayed")
    async def delayed(ctx: Context) -> None:
        pass

    await start_worker(delayed)
    await client.execute(delayed, timeout=5)

    async def lateness() -> list[float]:
        now = datetime.now(UTC)
        first_at = now.replace(microsecond=now.microsecond // 1000 * 1000) + timedelta(milliseconds=300)
        due = [first_at + timedelta(milliseconds=after_ms) for after_ms in (0, APART_MS)]
        handles = [await client.start(delayed, available_at=at) for at in due]
        for handle in handles:
            await handle.result(timeout=5)
        runs = [await handle.get() for handle in handles]
        return [late_ms(run, at) for run, at in zip(runs, due, strict=True)]

    await in_time(lateness)


def test_the_timetable_works_on_the_event_loop_of_the_server_command_too(redis_url: str, prefix: str) -> None:
    async def scenario() -> None:
        stores = Stores(redis_url, prefix)
        store = await stores.open()
        dial = Dial(redis_url)
        redis_client = dial.client()
        redis = RedisCommand(redis_client)
        engine = Engine(store)
        parts = (engine.upkeep, engine.schedules, engine.sessions, engine.waiters)
        duties = Duties(*parts, timing=engine.timing, telemetry=engine.telemetry)

        async def lateness() -> list[float]:
            now_ms = (await store.due(0)).now_ms
            due_ms = [now_ms + 200, now_ms + 200 + APART_MS]
            # The later one first: the earlier one has to take its place.
            run_ids = [await enqueue_one(store, available_at_ms=at_ms) for at_ms in reversed(due_ms)]
            for at_ms in reversed(due_ms):
                duties.timetable.due("scheduled", at_ms)
            queued = [await queued_at_ms(run_id) for run_id in reversed(run_ids)]
            return [at_ms - due_at_ms for at_ms, due_at_ms in zip(queued, due_ms, strict=True)]

        async def queued_at_ms(run_id: str) -> int:
            return int(await eventually(lambda: redis("HGET", Keys(prefix).run(run_id), "placedAt"), every=0.01))

        duties.start()
        try:
            await in_time(lateness)
            assert duties.dead == ()
        finally:
            await duties.stop()
            await stores.close()
            await redis_client.aclose()
            await dial.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
