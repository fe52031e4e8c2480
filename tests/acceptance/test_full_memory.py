"""Redis is full: runs that would start others make room for runs that end."""

from __future__ import annotations

import asyncio

from redflow_sdk import Client, Context, workflow
from tests.builders import memory_is_full
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand


async def test_a_run_that_waits_for_room_to_start_another_keeps_no_slot_from_runs_that_end(
    client: Client, start_worker: StartWorker, redis: RedisCommand
) -> None:
    may_go_on = asyncio.Event()

    @workflow(name="leaf", queue="full")
    async def leaf(ctx: Context, number: int) -> int:
        return number

    @workflow(name="parent", queue="full")
    async def parent(ctx: Context) -> int:
        await may_go_on.wait()
        return await ctx.step.run_workflow("leaf", leaf, 7)

    await start_worker(parent, leaf, queues=["full"], concurrency=1)
    waiting = await client.start(parent)
    await eventually(lambda: _has_status(client, waiting.id, "running"))
    others = [await client.start(leaf, number) for number in range(3)]

    async with memory_is_full(redis):
        may_go_on.set()
        assert [await other.result(timeout=10) for other in others] == [0, 1, 2]
        assert (await client.get_run(waiting.id)).status in ("scheduled", "queued", "running")

    assert await waiting.result(timeout=15) == 7
    assert (await client.get_run(waiting.id)).attempt == 1


async def _has_status(client: Client, run_id: str, status: str) -> bool:
    return (await client.get_run(run_id)).status == status
