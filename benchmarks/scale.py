"""`scale`: whether what a run and a page of a listing cost depends on how many runs there are.

Half of these are queued, in the lane that is drained; half are finished, of another workflow.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from benchmarks import backlog, memory
from benchmarks.engine import SLOTS, Load
from benchmarks.figures import Figures, Latency
from benchmarks.rig import Rig
from benchmarks.workflows import noop
from redflow_sdk import Client
from redflow_sdk.records import RunStatus
from redflow_server.domain.payloads import Payload
from redflow_server.store.keys import DEFAULT_PREFIX
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial

SIZES: Final = (1_000, 100_000)
"""Measured too, as far as they are smaller than the one that is asked for."""
DRAINED: Final = 5_000
PAGE_RUNS: Final = 50
PAGES: Final = 200


def measure(load: Load) -> Figures:
    """One measurement: the figures are those of the largest size, and each size's cost is in `more`."""
    if load.n < 2 * PAGE_RUNS:
        raise SystemExit(f"scale needs at least {2 * PAGE_RUNS} runs, two pages of them; got {load.n}")
    more: dict[str, float] = {}
    for size in sorted({load.n, *(size for size in SIZES if size < load.n)}):
        with Rig() as rig:
            rig.start_redis()
            rig.start_gateway()
            asyncio.run(_finish(rig.redis_url, size // 2))
            queued = size - size // 2
            drained = min(DRAINED, load.n)
            backlog.fill(rig, Load(max(queued, drained), SLOTS, load.engine))
            for name, latency in asyncio.run(_pages(rig.target)).items():
                more[f"{name}_page_p50_ms_at_{size}"] = latency.p50_ms
            figures = backlog.drain(rig, Load(drained, SLOTS, load.engine))
        cost = figures.cost
        assert figures.per_s is not None and cost.redis_us is not None and cost.gateway_cpu_us is not None
        more[f"per_s_at_{size}"] = figures.per_s
        more[f"redis_us_at_{size}"], more[f"gateway_cpu_us_at_{size}"] = cost.redis_us, cost.gateway_cpu_us
    return Figures(
        n=load.n,
        store=figures.store,
        concurrency=SLOTS,
        seconds=figures.seconds,
        per_s=figures.per_s,
        cost=figures.cost,
        rss_mb=figures.rss_mb,
        more=more,
    )


async def _finish(url: str, runs: int) -> None:
    """Runs that have ended, by the gateway's scripts, which is faster than by a worker."""
    dial = Dial(url)
    pipeline = Pipeline(dial, load_scripts(), DEFAULT_PREFIX)
    await pipeline.start()
    store, payload = Store(pipeline), Payload(b"1")
    await memory.start_runs(store, runs, payload)
    await memory.finish_runs(store, runs, 0, payload)
    await pipeline.stop()
    await dial.close()


async def _pages(target: str) -> dict[str, Latency]:
    """A page of the newest runs of one workflow in one status."""
    filters: dict[str, tuple[str, RunStatus]] = {
        "queued": (noop.name, "queued"),
        "finished": (memory.LANE.workflow, "succeeded"),
    }
    latencies: dict[str, Latency] = {}
    async with Client(target) as client:
        for name, (workflow, status) in filters.items():
            took_ms: list[float] = []
            for _ in range(PAGES):
                began = time.perf_counter()
                page = await client.list_runs(workflow=workflow, status=status).page(PAGE_RUNS)
                took_ms.append(1000 * (time.perf_counter() - began))
                assert len(page) == PAGE_RUNS
            latencies[name] = Latency.of(took_ms)
    return latencies
