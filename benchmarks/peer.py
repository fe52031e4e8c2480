"""The work of `backlog` in another engine: tasks queued before the worker comes, drained by one worker process."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.rig import Rig, cpu_s, rss_mb

PYTHON: Final = Path(".venv-peers/bin/python").absolute()

WORKERS: Final = {
    "celery": ("-m", "celery", "-A", "benchmarks.peers.celery_app", "worker", "-P", "threads", "-l", "WARNING"),
    "arq": ("-m", "arq", "benchmarks.peers.arq_app.Worker"),
}


def measure(engine: str, runs: int, slots: int) -> dict[str, object]:
    """One measurement; every *_us is CPU time per task."""
    with Rig() as rig:
        redis = rig.start_redis()
        began = time.monotonic()
        filling = rig.start_peer([str(PYTHON), "-m", "benchmarks.peers.fill", engine, str(runs)], slots)
        if filling.wait():
            raise subprocess.CalledProcessError(filling.returncode, filling.args)
        enqueue_per_s = runs / (time.monotonic() - began)
        before = cpu_s(redis)
        concurrency = ["-c", str(slots)] if engine == "celery" else []
        worker = rig.start_peer([str(PYTHON), *WORKERS[engine], *concurrency], slots)
        rig.wait_until_done(1)
        began, worker_before = time.monotonic(), cpu_s(worker)
        rig.wait_until_done(runs)
        seconds = time.monotonic() - began
        return {
            "n": runs,
            "concurrency": slots,
            "seconds": round(seconds, 3),
            "per_s": round(runs / seconds),
            "enqueue_per_s": round(enqueue_per_s),
            "worker_cpu_us": round(1e6 * (cpu_s(worker) - worker_before) / runs),
            "redis_us": round(1e6 * (cpu_s(redis) - before) / runs),
            "rss_mb": {"worker": round(rss_mb(worker)), "redis": round(rss_mb(redis))},
            "store": rig.redis_name,
        }
