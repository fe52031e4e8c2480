"""`child-overhead`: runs that wait for runs, one after the other on an idle system: what a level of it costs in time,
less what the other run's handler takes; with the waiting handler kept in memory, and without.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from benchmarks.engine import Load
from benchmarks.figures import Figures, Latency
from benchmarks.rig import Rig
from redflow_sdk import Client

SLOTS = 8
WARM_UP = 20


def measure(load: Load) -> Figures:
    """One measurement."""
    parked, suspended = _play(load.n, "park"), _play(load.n, "suspend")
    assert suspended.latency is not None
    return replace(
        parked, more={"suspended_p50_ms": suspended.latency.p50_ms, "suspended_p99_ms": suspended.latency.p99_ms}
    )


def _play(runs: int, waiting: str) -> Figures:
    """`waiting` is what REDFLOW_WAITING says to the worker."""
    with Rig() as rig:
        rig.start_redis()
        rig.start_gateway()
        rig.start_worker(SLOTS, "benchmarks.waiting_workflows:app", {"REDFLOW_WAITING": waiting})
        overheads_ms = asyncio.run(_overheads_ms(rig.target, runs))
        return Figures(n=runs, store=rig.store, concurrency=1, latency=Latency.of(overheads_ms))


async def _overheads_ms(target: str, runs: int) -> list[float]:
    async with Client(target) as client:
        overheads_s: list[float] = []
        for number in range(WARM_UP + runs):
            handle = await client.start("parent", number, queue="default")
            overheads_s.append(await handle.result(timeout=30))
    return [1000 * overhead_s for overhead_s in overheads_s[WARM_UP:]]
