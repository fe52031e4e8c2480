"""Runs that wait for runs, one after the other on a system that is idle otherwise: what a level of it costs in time."""

from __future__ import annotations

import asyncio
from statistics import median, quantiles

from benchmarks.rig import Rig
from redflow_sdk import Client

SLOTS = 8
WARM_UP = 20


def measure(runs: int, waiting: str) -> dict[str, object]:
    """One measurement; `waiting` is what REDFLOW_WAITING says to the worker."""
    with Rig() as rig:
        rig.start_redis()
        rig.start_gateway()
        rig.start_worker(SLOTS, "benchmarks.waiting_workflows:app", {"REDFLOW_WAITING": waiting})
        overheads_ms = asyncio.run(_play(rig.target, runs))
    return {
        "n": runs,
        "waiting": waiting,
        "overhead_ms": {
            "p50": round(median(overheads_ms), 2),
            "p95": round(quantiles(overheads_ms, n=20)[18], 2),
            "max": round(max(overheads_ms), 2),
        },
        "store": rig.redis_name,
    }


async def _play(target: str, runs: int) -> list[float]:
    async with Client(target) as client:
        overheads_s: list[float] = []
        for number in range(WARM_UP + runs):
            handle = await client.start("parent", number, queue="default")
            overheads_s.append(await handle.result(timeout=30))
    return [1000 * overhead_s for overhead_s in overheads_s[WARM_UP:]]
