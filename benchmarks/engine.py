"""What a workload is played on: an engine, ours or a peer, as the commands that start its worker and its client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.rig import Rig
from benchmarks.usage import Process

SLOTS: Final = 64
"""How many runs a worker takes at once where a workload does not say."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine on Redis."""

    name: str
    worker: tuple[str, ...]
    """The command of a worker; {slots} in it stands for their number, which is in REDFLOW_BENCH_SLOTS too."""
    client: tuple[str, ...]
    """The command of a client (calling.py), without its arguments."""
    start_servers: Callable[[Rig], object]
    """Starts what it needs between its workers and Redis."""
    install: Callable[[], None]
    """Makes it ready to run, if it is not."""

    def start_worker(self, rig: Rig, slots: int) -> Process:
        """One worker process."""
        command = [part.replace("{slots}", str(slots)) for part in self.worker]
        return rig.start("worker", command, {"REDFLOW_BENCH_SLOTS": str(slots)})


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be done: so much, so many of it at once, on an engine."""

    n: int
    at_once: int
    engine: Engine


def our_engine(app: str, calls: str) -> Engine:
    """The gateway with a worker for these workflows and a client that makes these calls."""
    return Engine(
        name="redflow-gateway",
        worker=(sys.executable, "-m", "redflow_server.cli", "worker", "run", app, "--concurrency", "{slots}"),
        client=(sys.executable, "-m", "benchmarks.calling", calls),
        start_servers=Rig.start_gateway,
        install=_is_installed,
    )


def _is_installed() -> None:
    """It is what runs this."""


OURS: Final = our_engine("benchmarks.workflows:app", "benchmarks.our_calls")
