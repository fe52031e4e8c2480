"""Calls of one kind to an engine that runs, and what they and the work they started took."""

from __future__ import annotations

from benchmarks.caller import Caller
from benchmarks.engine import SLOTS, Load
from benchmarks.figures import Figures, Latency
from benchmarks.rig import Rig


def play(load: Load, kind: str, slots: int = SLOTS, runs_per_call: int = 1) -> Figures:
    """Every call is answered when its run has ended; the worker has to have counted all of them."""
    with Rig() as rig:
        rig.start_redis()
        load.engine.start_servers(rig)
        load.engine.start_worker(rig, slots)
        warm_up = 2 * load.at_once + min(100, load.n // 5)
        caller = Caller(rig, load, kind, warm_up)
        meter = rig.meter()
        called = caller.go()
        cost, rss_mb = meter.cost(load.n, called.cpu_s), meter.rss_mb()
        rig.wait_until_done((warm_up + load.n) * runs_per_call)
        return Figures(
            n=load.n,
            store=rig.store,
            concurrency=load.at_once,
            seconds=called.seconds,
            per_s=load.n / called.seconds,
            latency=Latency.of(called.took_ms),
            cost=cost,
            rss_mb=rss_mb,
        )
