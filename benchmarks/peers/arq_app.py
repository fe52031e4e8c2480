"""The no-op job in arq. Its workers look for jobs each half second by default; here they look again at once."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.counter import count

SETTINGS = RedisSettings.from_dsn(os.environ["REDFLOW_BENCH_REDIS"])
AT_ONCE = 200


async def noop(ctx: dict[str, Any], number: int) -> int:  # Any: what arq puts there
    """Does nothing."""
    count()
    return number


class Worker:
    """The settings of the worker."""

    functions: ClassVar = [noop]
    redis_settings = SETTINGS
    max_jobs = int(os.environ.get("REDFLOW_BENCH_SLOTS", "64"))
    poll_delay = 0.001


async def _fill(runs: int) -> None:
    pool = await create_pool(SETTINGS)
    for start in range(0, runs, AT_ONCE):
        await asyncio.gather(*(pool.enqueue_job("noop", number) for number in range(start, min(start + AT_ONCE, runs))))
    await pool.aclose()


def fill(runs: int) -> None:
    """Queues the jobs."""
    asyncio.run(_fill(runs))
