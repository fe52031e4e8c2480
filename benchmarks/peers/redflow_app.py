"""The same work in redflow 0.1.9 from PyPI, whose workers and clients speak to Redis: its worker, and its calls.

Its client has no call for many runs at once. Its workflows run one at a time unless they say otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvloop
from redflow import StartWorkerOptions, create_client, set_default_client, start_worker, workflow
from redflow.registry import get_default_registry
from redis.asyncio import Redis

from benchmarks.calling import Calls
from benchmarks.counter import count

APP: Final = "bench"
CONNECTIONS: Final = 1000
WAIT_MS: Final = 60_000
MANY: Final = {"queue": "default", "max_concurrency": 1000}


def _redis() -> Redis:
    return Redis.from_url(os.environ["REDFLOW_BENCH_REDIS"], max_connections=CONNECTIONS)


@workflow("noop", **MANY)
async def noop(ctx: Any) -> int:  # Any: its context has no type to name
    """Does nothing."""
    count()
    return int(ctx.input)


async def _next(number: int, *, signal: object = None) -> int:
    return number + 1


@workflow("ten-steps", **MANY)
async def ten_steps(ctx: Any) -> int:  # Any: as above
    """Ten steps, one after the other."""
    number = ctx.input
    for step in range(10):
        number = await ctx.step.run(f"s{step}", _next, number)
    count()
    return int(number)


@workflow("third-of-three", **MANY)
async def third_of_three(ctx: Any) -> int:  # Any: as above
    """Has no child."""
    return int(ctx.input) + 1


@workflow("second-of-three", **MANY)
async def second_of_three(ctx: Any) -> int:  # Any: as above
    """Waits for a child that has none."""
    return int(await ctx.step.run_workflow("child", third_of_three, ctx.input)) + 1


@workflow("first-of-three", **MANY)
async def first_of_three(ctx: Any) -> int:  # Any: as above
    """Waits for a child that waits for one."""
    answer = int(await ctx.step.run_workflow("child", second_of_three, ctx.input)) + 1
    count()
    return answer


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """By kind."""
    client = create_client(app=APP, redis=_redis())
    set_default_client(client)
    # There is no worker yet that would register them.
    await client.sync_registry(get_default_registry(), app=APP)

    async def enqueue(number: int) -> None:
        await noop.run(number)

    async def roundtrip(number: int) -> None:
        assert await (await noop.run(number)).result(timeout_ms=WAIT_MS) == number

    async def steps(number: int) -> None:
        assert await (await ten_steps.run(number)).result(timeout_ms=WAIT_MS) == number + 10

    async def children(number: int) -> None:
        assert await (await first_of_three.run(number)).result(timeout_ms=WAIT_MS) == number + 3

    yield {"enqueue": enqueue, "roundtrip": roundtrip, "steps": steps, "children": children}
    await client.close()


async def _work() -> None:
    slots = int(os.environ["REDFLOW_BENCH_SLOTS"])
    await start_worker(StartWorkerOptions(app=APP, redis=_redis(), concurrency=slots))
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_work())
