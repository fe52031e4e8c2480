"""`sleepers`: thousands of runs that sleep: what they take up in the memory of their worker, and how late they wake."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from datetime import UTC, datetime, timedelta

from benchmarks.engine import SLOTS, Load
from benchmarks.figures import Figures, Latency
from benchmarks.rig import Rig
from benchmarks.starting import start_all
from benchmarks.usage import Process, rss_mb
from redflow_sdk import Client
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb

SPREAD_S = 60.0
"""Over so long they are due, one after the other."""
WINDOW_S = 10.0
"""For so long a worker keeps a handler that waits, by default."""
ROUND_TRIP_S = 0.02
"""What a sleeper costs before it sleeps, at most: until the last one does, and the window is over, none is due."""

LAST_END_S = 2.0
"""A worker gives a handler whose run has been set aside one second to end."""


def measure(load: Load) -> Figures:
    """One measurement."""
    sleepers = load.n
    with Rig() as rig:
        rig.start_redis()
        rig.start_gateway()
        worker = rig.start_worker(SLOTS, "benchmarks.waiting_workflows:app")
        # A first thousand, which do not sleep for long: then everything is there that such a process needs.
        _start(rig.target, [datetime.now(UTC)] * min(sleepers, 1000))
        rig.wait_until_done(min(sleepers, 1000))
        before = _memory(rig, worker)
        woken_before = rig.count().done
        first_due = datetime.now(UTC) + timedelta(seconds=2 * WINDOW_S + ROUND_TRIP_S * sleepers)
        dues = [first_due + timedelta(seconds=SPREAD_S * number / sleepers) for number in range(sleepers)]
        _start(rig.target, dues)
        most_mb = asyncio.run(_fall_asleep(rig, sleepers, worker))
        asleep = _memory(rig, worker)
        assert datetime.now(UTC) < first_due, "they were due before all of them slept; take fewer"
        time.sleep(max(0.0, (dues[-1] - datetime.now(UTC)).total_seconds()))
        rig.wait_until_done(woken_before + sleepers)
        late_ms = rig.lateness_ms()[woken_before:]
        return Figures(
            n=sleepers,
            store=rig.store,
            seconds=SPREAD_S,
            latency=Latency.of(late_ms),
            rss_mb=rig.meter().rss_mb(),
            more={
                "max_ms": max(late_ms),
                "worker_most_mb": most_mb,
                **{f"before_{name}": value for name, value in before.items()},
                **{f"asleep_{name}": value for name, value in asleep.items()},
            },
        )


def _start(target: str, dues: list[datetime]) -> None:
    runs = []
    for due in dues:
        run = pb.StartRunRequest(workflow="sleeper", queue="default", typed=True)
        run.input.data = json.dumps(due.isoformat()).encode()
        runs.append(run)
    start_all(target, runs)


async def _fall_asleep(rig: Rig, sleepers: int, worker: Process) -> float:
    """Returns when all of them have been set aside for a while: the most memory that the worker had until then."""
    most_mb = 0.0
    async with Client(rig.target) as client:
        while (await client.stats()).runs.get("waiting") != sleepers:
            most_mb = max(most_mb, rss_mb(worker))
            await asyncio.sleep(0.2)
    await asyncio.sleep(LAST_END_S)
    return most_mb


def _memory(rig: Rig, worker: Process) -> dict[str, float]:
    """What the worker has in memory now."""
    rig.memory_file.unlink(missing_ok=True)
    worker.send_signal(signal.SIGUSR1)
    while not rig.memory_file.exists():
        time.sleep(0.01)
    return {**json.loads(rig.memory_file.read_text()), "rss_mb": round(rss_mb(worker), 1)}
