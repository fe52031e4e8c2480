"""The no-op job in arq: its worker, and the calls of its client. Both look every 10 ms instead of every 500.

Its client has no call for many jobs at once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvloop
from arq import Worker, create_pool
from arq.connections import RedisSettings

from benchmarks.calling import Calls
from benchmarks.counter import count

POLL_S: Final = 0.01
WAIT_S: Final = 60
CONNECTIONS: Final = 500


def _settings() -> RedisSettings:
    settings = RedisSettings.from_dsn(os.environ["REDFLOW_BENCH_REDIS"])
    settings.max_connections = CONNECTIONS
    return settings


async def noop(ctx: dict[str, Any], number: int) -> int:  # Any: what arq puts there
    """Does nothing."""
    count()
    return number


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """By kind."""
    pool = await create_pool(_settings())

    async def enqueue(number: int) -> None:
        await pool.enqueue_job("noop", number)

    async def roundtrip(number: int) -> None:
        job = await pool.enqueue_job("noop", number)
        assert job is not None
        assert await job.result(timeout=WAIT_S, poll_delay=POLL_S) == number

    yield {"enqueue": enqueue, "roundtrip": roundtrip}
    await pool.aclose()


async def _work() -> None:
    slots = int(os.environ["REDFLOW_BENCH_SLOTS"])
    worker = Worker([noop], redis_settings=_settings(), max_jobs=slots, poll_delay=POLL_S, handle_signals=False)
    await worker.async_run()


if __name__ == "__main__":
    uvloop.run(_work())
