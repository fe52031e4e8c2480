"""A schedule of every second with three gateways, of which one is frozen for a third of the time and another is killed
and started again. Prints one JSON line; exits 1 when an occurrence has no run, or two.

    .venv/bin/python -m tests.chaos.schedule_outage --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from redflow_sdk import Client
from redflow_sdk.records import Run
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.beside import PULSE
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

PREFIX = "chaos"


@dataclass(frozen=True)
class Report:
    """What the schedule did: occurrences from the first to the last, and those of them without a run or with two."""

    occurrences: int
    runs: int
    skipped: int
    late_by_most_ms: int
    twice: list[int]
    missing: list[int]
    violations: list[str]


async def play(url: str, folder: Path, seconds: float) -> Report:
    """From the first gateway to the check."""
    targets = [f"127.0.0.1:{quiet_port()}" for _ in range(3)]
    store, log = ("--redis", url, "--prefix", PREFIX), folder / "log"
    gateways = [
        Program(f"gateway {at}", "server", *store, "--port", target.rpartition(":")[2], log=log)
        for at, target in enumerate(targets)
    ]
    worker = Program("worker", "worker", "run", "tests.chaos.beside:pulse", "--target", targets[2], log=log)
    for program in (*gateways, worker):
        await program.start()
    try:
        async with Client(targets[2]) as client:
            await eventually(lambda: _has_runs(client), within=30, saying="the schedule has not begun")
            await asyncio.sleep(seconds / 6)
            os.kill(gateways[0].pid, signal.SIGSTOP)
            await asyncio.sleep(seconds / 6)
            await gateways[1].kill()
            await asyncio.sleep(seconds / 6)
            os.kill(gateways[0].pid, signal.SIGCONT)
            await gateways[1].start()
            await asyncio.sleep(seconds / 2)
            runs = [run async for run in client.list_runs(workflow=PULSE)]
            (schedule,) = await client.list_schedules(workflow=PULSE)
    finally:
        for program in (worker, *gateways):
            await program.stop()
    dial = Dial(url)
    async with dial.client() as redis:
        found = [f"{one.rule}: {one.subject} {one.detail}" for one in await check(redis, Keys(PREFIX))]
    await dial.close()
    return _report(runs, schedule.skipped, found)


async def _has_runs(client: Client) -> bool:
    return bool(await client.list_runs(workflow=PULSE).page(1))


def _report(runs: list[Run], skipped: int, violations: list[str]) -> Report:
    """A run belongs to the second in which it was made; one that is late would be seen as the next one's twin."""
    made_ms = sorted(round(run.created_at.timestamp() * 1000) for run in runs)
    slots = Counter(at // 1000 for at in made_ms)
    expected = range(min(slots), max(slots) + 1)
    return Report(
        occurrences=len(expected),
        runs=len(runs),
        skipped=skipped,
        late_by_most_ms=max(at % 1000 for at in made_ms),
        twice=[slot for slot, times in slots.items() if times > 1],
        missing=[slot for slot in expected if not slots[slot]],
        violations=violations,
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (%(default)g)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-schedule-") as made, EmbeddedStore(Path(made) / "store") as store:
        report = asyncio.run(play(store.url, Path(made), options.seconds))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.twice or report.violations or len(report.missing) != report.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
