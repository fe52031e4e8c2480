"""The work of `backlog` in another engine: tasks queued before the worker comes, drained by one worker process."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.drain import drain
from benchmarks.rig import Rig

PYTHON: Final = Path(".venv-peers/bin/python").absolute()

WORKERS: Final = {
    "celery": ("-m", "celery", "-A", "benchmarks.peers.celery_app", "worker", "-P", "threads", "-l", "WARNING"),
    "arq": ("-m", "arq", "benchmarks.peers.arq_app.Worker"),
}


def measure(engine: str, runs: int, slots: int) -> dict[str, object]:
    """One measurement."""
    with Rig() as rig:
        others = {"redis": rig.start_redis()}
        began = time.monotonic()
        filling = rig.start_peer([str(PYTHON), "-m", "benchmarks.peers.fill", engine, str(runs)], slots)
        if filling.wait():
            raise subprocess.CalledProcessError(filling.returncode, filling.args)
        enqueue_per_s = runs / (time.monotonic() - began)
        concurrency = ["-c", str(slots)] if engine == "celery" else []
        command = [str(PYTHON), *WORKERS[engine], *concurrency]
        drained = drain(rig, runs, slots, others, lambda: rig.start_peer(command, slots))
        return {**drained, "enqueue_per_s": round(enqueue_per_s)}
