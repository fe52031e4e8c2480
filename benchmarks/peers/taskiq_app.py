"""The no-op task in taskiq on a Redis stream, which acknowledges: its broker, and the calls of its client, which look
every 10 ms instead of every 200.

Its client has no call for many tasks at once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.calling import Calls
from benchmarks.counter import count

POLL_S: Final = 0.01
WAIT_S: Final = 60
KEPT_S: Final = 3600
CONNECTIONS: Final = 200
URL: Final = os.environ["REDFLOW_BENCH_REDIS"]

results = RedisAsyncResultBackend(URL, result_ex_time=KEPT_S, max_connection_pool_size=CONNECTIONS)
# From the stream's beginning: what was queued before its worker came is work too.
broker = RedisStreamBroker(URL, max_connection_pool_size=CONNECTIONS, consumer_id="0").with_result_backend(results)


@broker.task(task_name="noop")
async def noop(number: int) -> int:
    """Does nothing."""
    count()
    return number


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """By kind."""
    await broker.startup()

    async def enqueue(number: int) -> None:
        await noop.kiq(number)

    async def roundtrip(number: int) -> None:
        result = await (await noop.kiq(number)).wait_result(check_interval=POLL_S, timeout=WAIT_S)
        assert result.return_value == number

    yield {"enqueue": enqueue, "roundtrip": roundtrip}
    await broker.shutdown()
