"""Thousands of events that are emitted just when runs begin to wait for them, through a gateway and a worker that are
processes of their own. Prints one JSON line; exits 1 when a run did not get each event once, in order.

    .venv/bin/python -m tests.chaos.emit_against_wait --races 10000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

from redflow_sdk import Client
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.event_races import WAITS, Account, Races
from tests.chaos.modes import add_mode, environment_of
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

PREFIX = "chaos"
AT_ONCE = 40
MOST = 3
"""As many races as these times those that are asked for, on a machine where few are close."""


@dataclass(frozen=True)
class Report:
    """How the races went. `met_ms` is how long after the beginning of the first wait its event was emitted: the
    smallest, the 5th, 50th and 95th of a hundred, the largest; `within_50_ms` is how many were so close, which is how
    many are asked for.
    """

    mode: str
    seed: int
    races: int
    events: int
    within_50_ms: int
    event_first: int
    met_ms: list[float]
    seconds: float
    violations: list[str]


async def play(url: str, folder: Path, mode: str, seed: int, races: int) -> Report:
    """From the start of the processes to the check."""
    target = f"127.0.0.1:{quiet_port()}"
    store = ("--redis", url, "--prefix", PREFIX, "--port", target.rpartition(":")[2])
    gateway = Program("gateway", "server", *store, log=folder / "log")
    work = ("worker", "run", "tests.chaos.event_races:app", "--target", target, "--concurrency", str(2 * AT_ONCE))
    worker = Program("worker", *work, log=folder / "log", environment=environment_of(mode))
    await gateway.start()
    await worker.start()
    async with Client(target) as client:
        await eventually(lambda: _is_served(client), within=30, saying="no worker has come")
        began = time.monotonic()
        account = await Races(client, seed, AT_ONCE).run(races, MOST * races)
        took_s = time.monotonic() - began
    await worker.stop()
    await gateway.stop()
    dial = Dial(url)
    async with dial.client() as redis:
        found = [f"{one.rule}: {one.subject} {one.detail}" for one in await check(redis, Keys(PREFIX))]
    await dial.close()
    violations = [*account.violations, *found]
    held = len(account.meetings_s)
    return Report(
        *(mode, seed, held, held * WAITS, account.close, account.before),
        *(_spread_ms(account), round(took_s, 1), violations),
    )


def _spread_ms(account: Account) -> list[float]:
    cuts = quantiles(account.meetings_s, n=20)
    spread = (min(account.meetings_s), cuts[0], cuts[9], cuts[18], max(account.meetings_s))
    return [round(1000 * meeting, 1) for meeting in spread]


async def _is_served(client: Client) -> bool:
    return bool(await client.list_workers())


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=10_000, help="how many that are close (%(default)d)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    add_mode(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-races-") as made, EmbeddedStore(Path(made) / "store") as store:
        report = asyncio.run(play(store.url, Path(made), options.mode, options.seed, options.races))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
