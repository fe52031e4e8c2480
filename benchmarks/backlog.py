"""`backlog`: runs that are queued before the worker comes, drained by one worker."""

from __future__ import annotations

from benchmarks.caller import Caller
from benchmarks.calling import FILL
from benchmarks.engine import Load
from benchmarks.figures import Figures
from benchmarks.rig import Rig

WARM_UP = 1000
"""So many runs stand before those that are measured: the worker is connected and warm when these are its turn."""
AT_ONCE_TO_FILL = 64


def measure(load: Load) -> Figures:
    """One measurement."""
    with Rig() as rig:
        rig.start_redis()
        load.engine.start_servers(rig)
        fill(rig, load)
        return drain(rig, load)


def fill(rig: Rig, load: Load) -> None:
    """Queues the runs, and those to warm up with."""
    caller = Caller(rig, Load(load.n, AT_ONCE_TO_FILL, load.engine), FILL, WARM_UP)
    caller.go()
    caller.end()


def drain(rig: Rig, load: Load) -> Figures:
    """Starts the worker and counts its runs until so many are done, between the ends of the first and the last one."""
    load.engine.start_worker(rig, load.at_once)
    first = rig.wait_until_done(WARM_UP)
    meter = rig.meter()
    last = rig.wait_until_done(WARM_UP + load.n)
    done, seconds = last.done - first.done, last.at_s - first.at_s
    return Figures(
        n=load.n,
        store=rig.store,
        concurrency=load.at_once,
        seconds=seconds,
        per_s=done / seconds,
        cost=meter.cost(done),
        rss_mb=meter.rss_mb(),
    )
