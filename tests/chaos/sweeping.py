"""Runs that do nothing pass through a gateway while the repairs of the sweep, and the reaper, look at all open runs
without a pause. Prints one JSON line; exits 1 when they repaired or took back anything, or a run did not run once.

    .venv/bin/python -m tests.chaos.sweeping --runs 20000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.config import Config
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.embedded import EmbeddedStore
from redflow_server.engine.upkeep import SLICE, SWEPT
from redflow_server.gateway import Gateway
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial

PREFIX: Final = "chaos"
TIMING: Final = Timing(lease_ms=5000)
WORKERS: Final = 4
SLOTS: Final = 50
BATCH: Final = 500


@dataclass
class Report:
    """What happened. `looks` are calls of the sweep."""

    runs: int
    looks: int = 0
    repaired: int = 0
    taken_back: int = 0
    ran_once: int = 0
    ran_again: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


async def _sweep(store: Store, report: Report) -> None:
    """Looks at everything again and again."""
    next_seqs: dict[RunStatus, int | None] = dict.fromkeys(SWEPT)
    while True:
        for status in SWEPT:
            swept = await store.sweep(status, next_seqs[status], SLICE)
            next_seqs[status] = swept.next_seq
            report.looks += 1
            report.repaired += len(swept.repairs)
            report.violations += [f"repaired the {repair.what} of {repair.run_id}" for repair in swept.repairs]
        report.taken_back += (await store.reap(TIMING.lease_ms, TIMING.quiet_ms, SLICE)).total


async def play(url: str, prefix: str, runs: int) -> Report:
    """From the gateway's start to the check."""
    report, ran, began = Report(runs), Counter[str](), time.monotonic()

    @workflow(name="nothing", queue="chaos")
    async def nothing(ctx: Context) -> None:
        ran[ctx.run.id] += 1

    dial = Dial(url)
    pipeline = Pipeline(dial, load_scripts(), prefix)
    await pipeline.start()
    gateway = Gateway(Config(redis_url=url, prefix=prefix, port=0, timing=TIMING))
    await gateway.start()
    async with AsyncExitStack() as stack:
        target = f"127.0.0.1:{gateway.port}"
        client = await stack.enter_async_context(Client(target))
        for _ in range(WORKERS):
            await stack.enter_async_context(Worker(target, workflows=[nothing], concurrency=SLOTS))
        sweeper = asyncio.create_task(_sweep(Store(pipeline), report))
        for first in range(0, runs, BATCH):
            handles = await asyncio.gather(*(client.start(nothing) for _ in range(min(BATCH, runs - first))))
            await asyncio.gather(*(handle.result(timeout=120) for handle in handles))
        sweeper.cancel()
        await asyncio.wait([sweeper])
        if not sweeper.cancelled():
            report.violations.append(f"the sweep broke off: {sweeper.exception()!r}")
    await gateway.stop()
    async with dial.client() as redis:
        report.violations += [f"{one.rule}: {one.subject} {one.detail}" for one in await check(redis, Keys(prefix))]
    await pipeline.stop()
    await dial.close()
    report.ran_once = sum(times == 1 for times in ran.values())
    report.ran_again = sum(times > 1 for times in ran.values())
    if report.taken_back or report.ran_once != runs or report.ran_again:
        report.violations.append("a run was taken from its worker, did not run, or ran again")
    report.seconds = round(time.monotonic() - began, 1)
    return report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000, help="how many (%(default)d)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-sweeping-") as made, EmbeddedStore(Path(made) / "store") as store:
        report = asyncio.run(play(store.url, PREFIX, options.runs))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
