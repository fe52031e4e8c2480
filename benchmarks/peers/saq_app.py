"""The no-op job in saq: its worker, and the calls of its client, which look every 10 ms instead of every 500.

Its client has no call for many jobs at once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvloop
from redis.asyncio import from_url
from saq import Worker
from saq.queue.redis import RedisQueue

from benchmarks.calling import Calls
from benchmarks.counter import count

POLL_S: Final = 0.01
WAIT_S: Final = 60
KEPT_S: Final = 3600
OPS: Final = 64


def _queue() -> RedisQueue:
    return RedisQueue(from_url(os.environ["REDFLOW_BENCH_REDIS"]), max_concurrent_ops=OPS)


async def noop(ctx: Any, *, number: int) -> int:  # Any: what saq puts there
    """Does nothing."""
    count()
    return number


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """By kind."""
    queue = _queue()
    await queue.connect()

    async def enqueue(number: int) -> None:
        await queue.enqueue("noop", number=number, ttl=KEPT_S)

    async def roundtrip(number: int) -> None:
        assert await queue.apply("noop", number=number, timeout=WAIT_S, poll_interval=POLL_S) == number

    yield {"enqueue": enqueue, "roundtrip": roundtrip}
    await queue.disconnect()


async def _work() -> None:
    queue = _queue()
    await queue.connect()
    await Worker(queue, functions=[noop], concurrency=int(os.environ["REDFLOW_BENCH_SLOTS"])).start()


if __name__ == "__main__":
    uvloop.run(_work())
