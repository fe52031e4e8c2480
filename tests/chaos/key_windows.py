"""A run is started with an idempotency key, and then its worker and gateway are killed, round after round with the same
key. Prints one JSON line; exits 1 when the key named another run within its window, or the same one after it.

    .venv/bin/python -m tests.chaos.key_windows --rounds 100 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from redflow_sdk import Client, JsonValue, RunHandle
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.insist import insisted
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

PREFIX: Final = "chaos"
KEY: Final = "the one"
LONG_S: Final = 300.0
SHORT_S: Final = 0.5
MOMENT_S: Final = 0.01
READY_S: Final = 60.0
LEASE_S: Final = 1


@dataclass
class Report:
    """What happened. `at_work` are kills while the run that held the key was running."""

    seed: int
    rounds: int
    at_work: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Windows:
    """A gateway, a worker, and a key."""

    def __init__(self, url: str, folder: Path, report: Report) -> None:
        self._report = report
        self._dial = Dial(url)
        self.target = f"127.0.0.1:{(port := quiet_port())}"
        store = ("--redis", url, "--prefix", PREFIX, "--port", str(port), "--lease", str(LEASE_S))
        log = folder / "log"
        work = ("worker", "run", "tests.chaos.workflows:app", "--target", self.target)
        self.programs = (Program("gateway", "server", *store, log=log), Program("worker", *work, log=log))

    async def round(self, number: int, client: Client) -> None:
        """Opens a window, kills both while the run is at work, and looks that the window is as long as was said. In
        every other round it ends while nobody is there.
        """
        drawn = Random(f"{self._report.seed} {number}")
        window_s = SHORT_S if number % 2 else LONG_S
        first = await self._start(client, window_s)
        self._expect(first.created, f"the key names {first.id} after its window", number)
        ends = time.monotonic() + window_s
        await eventually(lambda: self._has_begun(first), within=READY_S, saying=f"{first.id} does not begin")
        await asyncio.sleep(drawn.uniform(0.0, 0.2))
        self._report.at_work += (await first.get()).status == "running"
        for program in self.programs:
            await program.kill()
        await self._check(number)
        await asyncio.sleep(max(0.0, ends - time.monotonic()) if window_s == SHORT_S else 0.0)
        for program in self.programs:
            await program.start()
        again = await self._start(client, MOMENT_S)
        if window_s == SHORT_S:
            self._expect(again.id != first.id, f"the key names {first.id} after its window", number)
        else:
            self._expect(again.id == first.id, f"the key names {again.id} in the window of {first.id}", number)
        # Its answer came after the last window was opened.
        await asyncio.sleep(MOMENT_S)
        await first.result(timeout=READY_S)

    async def _has_begun(self, run: RunHandle[JsonValue]) -> bool:
        return (await run.get()).started_at is not None

    def _expect(self, holds: bool, otherwise: str, number: int) -> None:
        if not holds:
            self._report.violations.append(f"{otherwise} (round {number})")

    async def _start(self, client: Client, window_s: float) -> RunHandle[JsonValue]:
        async def start() -> RunHandle[JsonValue]:
            return await client.start("count", 1, queue="chaos", idempotency_key=KEY, idempotency_ttl=window_s)

        return await insisted(start)

    async def _check(self, number: int) -> None:
        async with self._dial.client() as redis:
            found = await check(redis, Keys(PREFIX))
        said = f"(after the kill of round {number})"
        self._report.violations += [f"{one.rule}: {one.subject} {one.detail} {said}" for one in found]

    async def close(self) -> None:
        """Kills what runs."""
        for program in self.programs:
            await program.kill()
        await self._dial.close()


async def play(url: str, folder: Path, seed: int, rounds: int) -> Report:
    """All rounds."""
    report, began = Report(seed, rounds), time.monotonic()
    windows = Windows(url, folder, report)
    for program in windows.programs:
        await program.start()
    try:
        async with Client(windows.target) as client:
            for number in range(rounds):
                await windows.round(number, client)
    finally:
        await windows.close()
    report.seconds = round(time.monotonic() - began, 1)
    return report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-keys-") as made, EmbeddedStore(Path(made) / "store") as store:
        report = asyncio.run(play(store.url, Path(made), options.seed, options.rounds))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
