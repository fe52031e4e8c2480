"""Behaviours of the original engine's suite: workers that die, leases, and entries that should not be there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.domain.timing import Timing
from redflow_server.store.keys import Keys, lane_name
from tests.acceptance.processes import worker_crash, worker_recover
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand


def spawn(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments])


async def test_crash_recovery_a_run_of_a_killed_worker_goes_on_elsewhere_and_cached_steps_are_not_run_again(
    client: Client, target: str, tmp_path: Path, redis: RedisCommand, keys: Keys
) -> None:
    counts = tmp_path / "counts"
    counts.touch()
    crash = spawn(worker_crash.__name__, target, str(counts))
    try:
        await eventually(lambda: redis("EXISTS", keys.workflow(worker_crash.WORKFLOW)), within=10)
        handle = await client.start(worker_crash.WORKFLOW, {"ok": True}, queue=worker_crash.QUEUE)
        await eventually(lambda: "step2 begins" in counts.read_text(), within=10)
    finally:
        crash.kill()
        crash.wait()
    [step] = await client.get_run_steps(handle.id)
    assert (step.name, step.status) == ("step1", "succeeded")

    recover = spawn(worker_recover.__name__, target, str(counts), handle.id)
    try:
        assert await asyncio.to_thread(recover.wait, 20) == 0
    finally:
        recover.kill()

    run = await handle.get()
    assert (run.status, run.attempt, run.delivery_count) == ("succeeded", 1, 2)
    assert counts.read_text().splitlines() == ["step1", "step2 begins", "step2"]


async def test_a_finished_run_that_is_queued_again_is_ignored(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    calls: list[str] = []

    @workflow(name="term-wf", queue="q13")
    async def term_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("do", calls.append, "do")
        return {"ok": True}

    await start_worker(term_wf, queues=["q13"], concurrency=2)
    handle = await client.start(term_wf)
    assert await handle.result(timeout=4) == {"ok": True}
    before = await handle.get()

    lane = lane_name("q13", "term-wf")
    change = await redis("INCR", keys.lane_seq)
    await redis("ZADD", keys.lane(lane), 0, handle.id)
    await redis("ZADD", keys.lanes, change, lane)
    await redis("PUBLISH", keys.wakeups, f"lane {change} {lane}")

    await eventually(lambda: is_gone(redis, keys.lane(lane), handle.id), saying="the entry is looked at")
    # A run queued behind it shows that nothing came of it.
    await client.execute(term_wf, timeout=4)
    assert calls == ["do", "do"]
    assert await handle.get() == before
    assert (before.status, before.attempt) == ("succeeded", 1)


async def is_gone(redis: RedisCommand, key: str, member: str) -> bool:
    return await redis("ZSCORE", key, member) is None


async def test_a_stale_scheduled_entry_does_not_resurrect_a_finished_run(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    calls: list[str] = []

    @workflow(name="sched-guard", queue="q_sched_guard")
    async def sched_guard(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("once", calls.append, "once")
        return {"ok": True}

    await start_worker(sched_guard, queues=["q_sched_guard"])
    handle = await client.start(sched_guard)
    assert await handle.result(timeout=5) == {"ok": True}
    before = await handle.get()
    assert (before.status, before.attempt) == ("succeeded", 1)

    await redis("ZADD", keys.scheduled, round(time.time() * 1000) - 1, handle.id)

    await eventually(lambda: is_gone(redis, keys.scheduled, handle.id), saying="the entry is looked at")
    assert await redis("EXISTS", keys.lane(lane_name("q_sched_guard", "sched-guard"))) == 0
    await client.execute(sched_guard, timeout=4)
    assert calls == ["once", "once"]
    assert await handle.get() == before


async def test_a_long_step_outlives_its_first_lease_and_is_not_duplicated(start_gateway: StartGateway) -> None:
    begun: list[int] = []

    async def long() -> bool:
        begun.append(1)
        await asyncio.sleep(0.7)
        return True

    @workflow(name="lease-wf", queue="q14")
    async def lease_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("long", long)
        return {"ok": True}

    gateway = await start_gateway(timing=Timing(lease_ms=200))
    target = f"127.0.0.1:{gateway.port}"
    worker = Worker(target, workflows=[lease_wf], queues=["q14"], concurrency=2)
    async with worker, Client(target) as client:
        handle = await client.start(lease_wf)

        assert await handle.result(timeout=8) == {"ok": True}
        assert begun == [1]
        run = await handle.get()
        assert (run.attempt, run.delivery_count, run.losses) == (1, 1, 0)
