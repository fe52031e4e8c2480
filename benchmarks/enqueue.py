"""`enqueue`: runs that are started and not waited for, by single calls and by batches, with no worker."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.caller import Caller
from benchmarks.calling import FILL
from benchmarks.engine import Load
from benchmarks.figures import Figures, Latency
from benchmarks.rig import Rig

WARM_UP = 500


def measure(load: Load) -> Figures:
    """One measurement."""
    singles, batches = _play(load, "enqueue"), _play(load, FILL)
    assert batches.per_s is not None
    return replace(singles, more={"batch_per_s": batches.per_s, "batch_redis_us": batches.cost.redis_us or 0.0})


def _play(load: Load, kind: str) -> Figures:
    with Rig() as rig:
        rig.start_redis()
        load.engine.start_servers(rig)
        caller = Caller(rig, load, kind, WARM_UP)
        meter = rig.meter()
        called = caller.go()
        return Figures(
            n=load.n,
            store=rig.store,
            concurrency=load.at_once,
            seconds=called.seconds,
            per_s=load.n / called.seconds,
            latency=Latency.of(called.took_ms) if called.took_ms else None,
            cost=meter.cost(load.n, called.cpu_s),
            rss_mb=meter.rss_mb(),
        )
