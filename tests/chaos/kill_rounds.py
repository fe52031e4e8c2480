"""Rounds of kill -9 of the gateway, of a worker, or of both, under load. Prints one JSON line; exits 1 on a violation.

Checked at the end: every run ended as it should, no recorded step ran again, one run for each key, and the store keeps
its invariants.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from redflow_sdk import CanceledError, Client, RedflowError, RunFailedError
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.processes import Program, free_port
from tests.chaos.workflows import STEPS

LEASE_S = 2
RUNS_PER_ROUND = 20
PREFIX = "chaos"


@dataclass
class Report:
    """What happened."""

    seed: int
    rounds: int
    runs: int = 0
    kills: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    recovery_s: float = 0.0


class KillRounds:
    """The processes, the load, and the faults."""

    def __init__(self, rounds: int, seed: int, folder: Path) -> None:
        self._random = random.Random(seed)
        self._report = Report(seed, rounds)
        self._folder = folder
        self._journal = folder / "journal"
        self._journal.touch()
        self._port = free_port()
        self._handles: dict[str, tuple[str, int]] = {}

    async def run(self) -> Report:
        """Everything, from start to check."""
        began = time.monotonic()
        with EmbeddedStore(self._folder / "store") as store:
            gateway, workers = self._programs(store.url)
            for program in (gateway, *workers):
                await program.start()
            async with Client(f"127.0.0.1:{self._port}") as client:
                try:
                    for number in range(self._report.rounds):
                        await self._round(number, client, gateway, workers)
                    await self._check_ends(client)
                finally:
                    await asyncio.gather(*(worker.stop() for worker in workers))
                    await gateway.stop()
            await self._check_store(store.url)
        self._report.violations += check_journal(self._journal)
        self._report.seconds = round(time.monotonic() - began, 1)
        return self._report

    def _programs(self, url: str) -> tuple[Program, list[Program]]:
        log = self._folder / "log"
        server = ("server", "--redis", url, "--port", str(self._port), "--prefix", PREFIX, "--lease", str(LEASE_S))
        gateway = Program("gateway", *server, log=log)
        worker = ("worker", "run", "tests.chaos.workflows:app", "--target", f"127.0.0.1:{self._port}")
        environment = {"REDFLOW_JOURNAL": str(self._journal)}
        return gateway, [Program(f"worker {n}", *worker, log=log, environment=environment) for n in (1, 2)]

    async def _round(self, number: int, client: Client, gateway: Program, workers: list[Program]) -> None:
        starting = asyncio.create_task(self._start_runs(number, client))
        victims = self._random.choice(
            ([gateway], [workers[0]], [workers[1]], [gateway, workers[0]], [gateway, *workers])
        )
        await asyncio.sleep(self._random.uniform(0.05, 0.8))
        for victim in victims:
            await victim.kill()
            self._report.kills += 1
        await asyncio.sleep(self._random.uniform(0.0, 0.3))
        for victim in victims:
            await victim.start()
        await starting

    async def _start_runs(self, number: int, client: Client) -> None:
        for index in range(RUNS_PER_ROUND):
            key = f"{number}-{index}"
            name = self._random.choice(("count", "count", "stumble", "fail"))
            handle = await client.start(name, index, queue="chaos", idempotency_key=key, max_attempts=3)
            again = await client.start(name, index, queue="chaos", idempotency_key=key, max_attempts=3)
            if again.id != handle.id:
                self._report.violations.append(f"key {key} has two runs: {handle.id} and {again.id}")
            self._handles[handle.id] = (name, index)
            self._report.runs += 1
            await asyncio.sleep(self._random.uniform(0, 0.03))

    async def _check_ends(self, client: Client) -> None:
        began = time.monotonic()
        for run_id, (name, start) in self._handles.items():
            expected: object = {"count": start + STEPS, "stumble": start + 2, "fail": "ValueError"}[name]
            try:
                ended: object = await client.handle(run_id).result(timeout=60)
            except RunFailedError as error:
                ended = error.failure.type if error.failure else "failed"
            except (CanceledError, TimeoutError, RedflowError) as error:
                ended = repr(error)
            if ended != expected:
                self._report.violations.append(f"{name} {run_id} ended with {ended!r} instead of {expected!r}")
        self._report.recovery_s = round(time.monotonic() - began, 1)

    async def _check_store(self, url: str) -> None:
        dial = Dial(url)
        async with dial.client() as redis:
            self._report.violations += [str(violation) for violation in await check(redis, Keys(PREFIX))]
        await dial.close()


def check_journal(journal: Path) -> list[str]:
    """The steps that ran after they had been passed."""
    return list(_repeated(journal.read_text().splitlines()))


def _repeated(lines: list[str]) -> Iterator[str]:
    passed: set[tuple[str, str]] = set()
    for line in lines:
        event, run_id, step, pid = line.split()
        if event == "passed":
            passed.add((run_id, step))
        elif (run_id, step) in passed:
            yield f"step {step} of {run_id} ran again in process {pid} after it was recorded"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", type=Path, help="folder for the journal, the log and the store's data")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(KillRounds(options.rounds, options.seed, folder).run())
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
