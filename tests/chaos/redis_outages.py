"""Redis goes away in every way it can, while a run is started each second. Each has to have ended within 15 s of its
return, and no other process is started anew. Prints one JSON line; exits 1 when that is not so.

    .venv/bin/python -m tests.chaos.redis_outages
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from redis.asyncio import Redis

from redflow_sdk import Client
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos import journal
from tests.chaos.insist import insisted
from tests.chaos.stage import PASSWORD, WORKERS, Play, Stage, set_up
from tests.chaos.workflows import STEPS
from tests.eventually import eventually

PREFIX: Final = "chaos"
APP: Final = "tests.chaos.apps:starts"
DONE_WITHIN_S: Final = 15.0
AROUND_S: Final = 2.0
"""Before and after an outage."""

Outage = Callable[[Stage, float], Awaitable[None]]


@dataclass
class Report:
    """What became of the runs: how many were started around each outage, and how long after it the last one ended."""

    runs: dict[str, int] = field(default_factory=dict)
    done_after_s: dict[str, float] = field(default_factory=dict)
    moved_runs: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


async def clients_killed(stage: Stage, seconds: float) -> None:
    """It ends all connections, and those that are made anew."""
    async with stage.redis.client() as redis:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for kind in ("normal", "pubsub"):
                await redis.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            await asyncio.sleep(0.2)


async def asleep(stage: Stage, seconds: float) -> None:
    """A command of somebody takes so long."""
    async with Redis(port=stage.redis.port, password=PASSWORD, socket_timeout=seconds + 10) as redis:
        await redis.execute_command("DEBUG", "SLEEP", str(seconds))


async def stopped(stage: Stage, seconds: float) -> None:
    """An orderly end, and a start."""
    await stage.redis.stop()
    await asyncio.sleep(seconds)
    await stage.redis.start()


async def killed(stage: Stage, seconds: float) -> None:
    """kill -9, and a start with what it has written down."""
    await stage.redis.kill()
    await asyncio.sleep(seconds)
    await stage.redis.start()


async def frozen(stage: Stage, seconds: float) -> None:
    """SIGSTOP: it takes connections, and answers nobody."""
    stage.redis.freeze()
    await asyncio.sleep(seconds)
    stage.redis.thaw()


async def lines_frozen(stage: Stage, seconds: float) -> None:
    """Nothing comes through to it or back, and nobody is told."""
    for node in stage.gateways:
        for direction in node.line.directions:
            direction.passes.clear()
    await asyncio.sleep(seconds)
    for node in stage.gateways:
        node.line.let_go()


async def scripts_flushed(stage: Stage, seconds: float) -> None:
    """It forgets all scripts, every second."""
    async with stage.redis.client() as redis:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await redis.script_flush()
            await asyncio.sleep(min(1.0, seconds / 4))


@dataclass(frozen=True)
class Held:
    """An outage, and for how long."""

    name: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.name} {self.seconds:g}"


OUTAGES: Final[Mapping[str, Outage]] = MappingProxyType(
    {
        "clients_killed": clients_killed,
        "asleep": asleep,
        "stopped": stopped,
        "killed": killed,
        "frozen": frozen,
        "lines_frozen": lines_frozen,
        "scripts_flushed": scripts_flushed,
    }
)
PLAN: Final = (
    Held("clients_killed", 5),
    Held("asleep", 30),
    Held("stopped", 3),
    Held("stopped", 120),
    Held("killed", 3),
    Held("frozen", 60),
    Held("lines_frozen", 60),
    Held("scripts_flushed", 10),
)


class Outages:
    """One stage, and one outage after the other."""

    def __init__(self, plan: Sequence[Held], folder: Path, every_s: float) -> None:
        self._plan = plan
        self._every_s = every_s
        self._journal = journal.Journal(folder / "journal")
        environment = {"REDFLOW_JOURNAL": str(self._journal.path)}
        # As most are run: a crash of the process loses nothing all the same.
        self._play = Play(PREFIX, APP, environment, folder, appendfsync="everysec")
        self._report = Report()

    async def run(self) -> Report:
        """From the first start to the check."""
        began = time.monotonic()
        async with set_up(self._play) as stage, Client(f"127.0.0.1:{stage.client_line.port}") as client:
            await eventually(lambda: _workers(client), within=30, saying="not all workers are there")
            pids = [node.program.pid for node in stage.nodes]
            for held in self._plan:
                await self._outage(held, stage, client)
            for node, pid in zip(stage.nodes, pids, strict=True):
                if node.program.pid != pid or node.program.exit_code is not None:
                    self._report.violations.append(f"{node.program.name} did not live through it")
            dial = Dial(stage.redis.url)
            async with dial.client() as redis:
                found = await check(redis, Keys(PREFIX))
            await dial.close()
            self._report.violations += [f"{one.rule}: {one.subject} {one.detail}" for one in found]
        self._report.violations += journal.violations(self._journal.lines())
        self._report.moved_runs = self._journal.moved_runs()
        self._report.seconds = round(time.monotonic() - began, 1)
        return self._report

    async def _outage(self, held: Held, stage: Stage, client: Client) -> None:
        runs: list[asyncio.Task[object]] = []
        starting = asyncio.create_task(self._start_runs(str(held), client, runs))
        await asyncio.sleep(AROUND_S * self._every_s)
        await OUTAGES[held.name](stage, held.seconds)
        back = time.monotonic()
        await asyncio.sleep(AROUND_S * self._every_s)
        starting.cancel()
        done, late = await asyncio.wait(runs, timeout=back + DONE_WITHIN_S - time.monotonic())
        self._report.runs[str(held)] = len(runs)
        self._report.done_after_s[str(held)] = round(time.monotonic() - back, 1)
        for number, run in enumerate(runs):
            if run in late:
                run.cancel()
                self._report.violations.append(f"{held}: run {number} has not ended {DONE_WITHIN_S:g} s later")
            elif run.exception() is not None or run.result() != number + STEPS:
                self._report.violations.append(f"{held}: run {number} ended with {run.exception() or run.result()!r}")
        if len(done) < 2:
            self._report.violations.append(f"{held}: {len(done)} runs show nothing")

    async def _start_runs(self, name: str, client: Client, runs: list[asyncio.Task[object]]) -> None:
        while True:
            runs.append(asyncio.create_task(_count(client, len(runs), f"{name} {len(runs)}")))
            await asyncio.sleep(self._every_s)


async def _count(client: Client, number: int, key: str) -> object:
    handle = await insisted(lambda: client.start("count", number, queue="chaos", idempotency_key=key))
    return await insisted(handle.result)


async def _workers(client: Client) -> bool:
    return len(await insisted(client.list_workers)) == WORKERS


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave journal, log and data in this new folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-outages-") as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(Outages(PLAN, folder, every_s=1.0).run())
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
