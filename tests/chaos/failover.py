"""Fail-overs under load: the primary of a Redis that sentinels watch is killed, stands still and comes back, or is
replaced by order. Prints one JSON line; exits 1 on a violation.

    .venv/bin/python -m tests.chaos.failover --rounds 20 --seed 7

Replication is asynchronous, so what was acknowledged in the last moment may be lost: how much is in the report. Nothing
else may be, and what the new primary has keeps its invariants.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from redflow_sdk import Client, RedflowError, RunFailedError, RunNotFoundError
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.at_work import all_are_at_work
from tests.chaos.insist import insisted
from tests.chaos.journal import Journal
from tests.chaos.plan import Plan, Start
from tests.chaos.processes import Program, quiet_port
from tests.chaos.rounds import leaves
from tests.chaos.sentinels import SERVICE, Replicated, replicated
from tests.eventually import eventually

PREFIX: Final = "chaos"
LEASE_S: Final = 3
GATEWAYS: Final = 2
WORKERS: Final = 3
LOST_AT_MOST_S: Final = 3.0
"""A start that was acknowledged so long before its primary was struck is with its replicas; or so long after, when the
old primary does not know yet that it is none.
"""
WHOLE_WITHIN_S: Final = 60.0
END_S: Final = 60.0
WORKFLOWS: Final = ("count", "stumble", "delegate", "announce", "fail")
"""Those whose end does not depend on what was told to a primary that is gone, such as a cancel."""

Fault = Callable[[Replicated], AbstractAsyncContextManager[None]]


@dataclass
class Report:
    """What happened. `lost_runs` were acknowledged, and are not with the new primary."""

    seed: int
    rounds: int
    runs: int = 0
    lost_runs: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    recovery_s: dict[str, float] = field(default_factory=dict)
    checks: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def _has_moved(them: Replicated, port: int) -> bool:
    return (await them.primary()).port != port


@asynccontextmanager
async def killed(them: Replicated) -> AsyncIterator[None]:
    """kill -9 of the primary, which comes back when another one has its place."""
    primary = await them.primary()
    await primary.kill()
    yield
    await primary.start()


@asynccontextmanager
async def frozen(them: Replicated) -> AsyncIterator[None]:
    """SIGSTOP of the primary: it comes back as one that does not know that it is none any more."""
    primary = await them.primary()
    primary.freeze()
    yield
    primary.thaw()


@asynccontextmanager
async def ordered(them: Replicated) -> AsyncIterator[None]:
    """Somebody tells the sentinels to put another one in its place, which they refuse for a while after the last."""

    async def is_ordered() -> bool:
        async with them.sentinels[0].client() as sentinel:
            return bool(await sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE))

    await is_ordered()
    yield


FAULTS: Final[Mapping[str, Fault]] = MappingProxyType({"killed": killed, "frozen": frozen, "ordered": ordered})


class Failovers:
    """The processes, the load and the rounds."""

    def __init__(self, seed: int, rounds: int, folder: Path) -> None:
        self._report = Report(seed, rounds)
        self._random = Random(f"{seed} failover")
        self._plan = Plan(seed, rounds)
        self._folder = folder
        self._journal = Journal(folder / "journal")
        self._acknowledged: dict[str, tuple[Start, float]] = {}
        self._struck: list[tuple[str, float, float]] = []
        self._workers: list[Program] = []

    async def run(self) -> Report:
        """Everything, from start to check."""
        began = time.monotonic()
        log = self._folder / "log"
        try:
            async with replicated(self._folder, log) as them, self._processes(them.url, log) as target:
                async with Client(target) as client:
                    for number in range(self._report.rounds):
                        await self._round(number, them, client)
                    await self._check_ends(client)
                await self._check_store(them, "at the end")
        except* (AssertionError, RedflowError, TimeoutError) as broken:
            self._report.violations += [f"broke off: {error!r}" for error in leaves(broken)]
        self._report.seconds = round(time.monotonic() - began, 1)
        return self._report

    @asynccontextmanager
    async def _processes(self, url: str, log: Path) -> AsyncIterator[str]:
        targets = [f"127.0.0.1:{quiet_port()}" for _ in range(GATEWAYS)]
        gateways = [
            Program(
                f"gateway {target}",
                *("server", "--prefix", PREFIX, "--port", target.rpartition(":")[2], "--lease", str(LEASE_S)),
                log=log,
                environment={"REDFLOW_REDIS_URL": url},
            )
            for target in targets
        ]
        self._workers = [
            Program(
                f"worker {number}",
                *("worker", "run", "tests.chaos.workflows:app", "--target", targets[number % GATEWAYS]),
                *("--name", f"worker {number}", "--concurrency", "8", "--drain-grace", "5"),
                log=log,
                environment={"REDFLOW_JOURNAL": str(self._journal.path)},
            )
            for number in range(WORKERS)
        ]
        async with AsyncExitStack() as stack:
            for program in (*gateways, *self._workers):
                await program.start()
                stack.push_async_callback(self._stop, program)
            yield targets[0]

    async def _stop(self, program: Program) -> None:
        if program.exit_code is not None:
            self._report.violations.append(f"{program.name} has ended by itself with {program.exit_code}")
        elif code := await program.stop():
            self._report.violations.append(f"{program.name} stopped with code {code}")

    async def _round(self, number: int, them: Replicated, client: Client) -> None:
        kind = tuple(FAULTS)[number % len(FAULTS)]
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._start_runs(number, client, over))
            try:
                await all_are_at_work(self._workers, self._journal, f"before round {number}")
                port = (await them.primary()).port
                struck = time.monotonic()
                async with FAULTS[kind](them):
                    await eventually(lambda: _has_moved(them, port), within=WHOLE_WITHIN_S, saying="no new primary")
                    await all_are_at_work(self._workers, self._journal, f"after {kind} of round {number}")
                    took_s = round(time.monotonic() - struck, 1)
                    self._report.recovery_s[kind] = max(took_s, self._report.recovery_s.get(kind, 0.0))
                await asyncio.sleep(self._random.uniform(0.0, 2.0))
                await eventually(them.is_whole, within=WHOLE_WITHIN_S, every=0.2, saying=f"not whole after {number}")
                self._struck.append((kind, struck, time.monotonic()))
            finally:
                over.set()
        self._report.faults[kind] = self._report.faults.get(kind, 0) + 1
        await self._check_store(them, f"after {kind} of round {number}")

    async def _start_runs(self, number: int, client: Client, over: asyncio.Event) -> None:
        for index in count():
            if over.is_set():
                return
            start = self._plan.start(number, index)
            if start.workflow in WORKFLOWS:
                key = f"{number}-{index}"
                handle = await insisted(
                    lambda start=start, key=key: client.start(
                        start.workflow, start.number, queue="chaos", max_attempts=3, idempotency_key=key
                    )
                )
                self._acknowledged[handle.id] = (start, time.monotonic())
                self._report.runs += 1
            await asyncio.sleep(start.pause_s)

    async def _check_ends(self, client: Client) -> None:
        """Each run that the primary knows ends as its workflow says."""
        deadline = time.monotonic() + END_S
        for run_id, (start, at) in self._acknowledged.items():
            try:
                end: object = await client.handle(run_id).result(timeout=max(deadline - time.monotonic(), 0.0))
            except RunFailedError as error:
                end = error.failure.type if error.failure else "failed"
            except RunNotFoundError:
                self._lost(run_id, at)
                continue
            except (TimeoutError, RedflowError) as error:
                end = repr(error)
            if end != start.end:
                self._report.violations.append(f"{start.workflow} {run_id} ended with {end!r} instead of {start.end!r}")

    def _lost(self, run_id: str, at: float) -> None:
        kinds = [kind for kind, struck, whole in self._struck if struck - LOST_AT_MOST_S <= at <= whole]
        if kinds:
            self._report.lost_runs[kinds[0]] = self._report.lost_runs.get(kinds[0], 0) + 1
        else:
            self._report.violations.append(f"{run_id} is gone, and was started long before a fail-over")

    async def _check_store(self, them: Replicated, when: str) -> None:
        dial = Dial(them.url)
        async with dial.client() as redis:
            found = await check(redis, Keys(PREFIX))
        await dial.close()
        self._report.checks += 1
        self._report.violations += [f"{one.rule}: {one.subject} {one.detail} ({when})" for one in found]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how many fail-overs (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    parser.add_argument("--keep", type=Path, help="an empty folder for journal, log and data")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(Failovers(options.seed, options.rounds, folder).run())
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
