"""`idle`: a gateway that has nothing to do, with four queues and a hundred workers: what it asks of Redis, and CPU.

Also the process that holds these workers: `python -m benchmarks.idle N`, each with a channel of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import redis

from benchmarks.engine import Load
from benchmarks.figures import Figures
from benchmarks.rig import PATIENCE_S, Rig
from redflow_sdk import Client, Context, Worker, Workflow, workflow

QUEUES: Final = 4
SETTLE_S: Final = 5.0
WINDOW_S: Final = 30.0


def measure(load: Load) -> Figures:
    """One measurement; a hundred is the number of workers."""
    with Rig() as rig:
        rig.start_redis()
        rig.start_gateway()
        rig.start("worker", [sys.executable, "-m", "benchmarks.idle", str(load.n)])
        asyncio.run(_wait_for_workers(rig, load.n))
        time.sleep(SETTLE_S)
        with redis.Redis(port=rig.redis_port) as asked:
            commands, scripts = _counts(asked)
            meter, began = rig.meter(), time.monotonic()
            time.sleep(WINDOW_S)
            seconds, used_s = time.monotonic() - began, meter.used_s()
            commands_after, scripts_after = _counts(asked)
        more = {f"{name}_cpu_ms_per_s": 1000 * cpu_s / seconds for name, cpu_s in used_s.items()}
        more["redis_commands_per_s"] = (commands_after - commands) / seconds
        more["redis_scripts_per_s"] = (scripts_after - scripts) / seconds
        return Figures(n=load.n, store=rig.store, seconds=seconds, rss_mb=meter.rss_mb(), more=more)


async def _wait_for_workers(rig: Rig, workers: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    async with Client(rig.target) as client:
        while len(await client.list_workers()) < workers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {workers} workers connected\n{rig.log()}")
            await asyncio.sleep(0.2)


def _counts(asked: redis.Redis) -> tuple[int, int]:
    """Commands, those within scripts included, and calls of scripts until now; asking for them is left out."""
    stats: Any = asked.info("commandstats")  # Any: as redis-py types it
    counts = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
    return sum(calls for name, calls in counts.items() if name != "info"), counts.get("evalsha", 0)


# ---- the workers ----


def _workflow(number: int) -> Workflow[None, None]:
    @workflow(name=f"idle-{number}", queue=f"queue-{number}")
    async def idle(ctx: Context) -> None:
        """Is never called."""

    return idle


async def _hold(workers: int) -> None:
    workflows = [_workflow(number) for number in range(QUEUES)]
    async with AsyncExitStack() as stack:
        for number in range(workers):
            await stack.enter_async_context(Worker(workflows=workflows, name=f"idle-{number}", drain_grace=0.0))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_hold(int(sys.argv[1])))
