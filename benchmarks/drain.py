"""What a backlog that is being drained costs, in whatever engine: runs a second, CPU time, memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

from benchmarks.rig import Rig, cpu_s, rss_mb

Process = subprocess.Popen[bytes]


def drain(
    rig: Rig, runs: int, slots: int, others: Mapping[str, Process], start_worker: Callable[[], Process]
) -> dict[str, object]:
    """Starts the worker and measures until all runs are done; every *_us is CPU time per run.

    The worker's own start is left out. `others` are the processes that it needs, by name.
    """
    before = {name: cpu_s(process) for name, process in others.items()}
    worker = start_worker()
    rig.wait_until_done(1)
    began, worker_before = time.monotonic(), cpu_s(worker)
    rig.wait_until_done(runs)
    seconds = time.monotonic() - began
    used = {name: cpu_s(process) - before[name] for name, process in others.items()}
    used["worker"] = cpu_s(worker) - worker_before
    return {
        "n": runs,
        "concurrency": slots,
        "seconds": round(seconds, 3),
        "per_s": round(runs / seconds),
        **{f"{name}_cpu_us": round(1e6 * cpu / runs) for name, cpu in used.items()},
        "rss_mb": {name: round(rss_mb(process)) for name, process in {**others, "worker": worker}.items()},
        "store": rig.redis_name,
    }
