"""Rounds of kill -9 of the gateway, of a worker, or of both, under a load: the processes, the faults, and the checks
that hold whatever the load is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Protocol

from redflow_sdk import Client, RedflowError
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos import journal
from tests.chaos.plan import PLANS, WORKERS, Plan
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

LEASE_S: Final = 2
SLOTS: Final = 8
DRAIN_GRACE_S: Final = 5
READY_S: Final = 30.0
PREFIX: Final = "chaos"
PART_ROUNDS: Final = 40


@dataclass
class Report:
    """What happened."""

    seed: int
    rounds: int
    runs: int = 0
    kills: int = 0
    moved_runs: int = 0
    repeated_steps: int = 0
    checks: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    recovery_s: float = 0.0


class Load(Protocol):
    """What runs meanwhile, and what has to have come of it. `app` is where the workers find their workflows."""

    app: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Of the workers."""

    async def begin(self, client: Client) -> None:
        """What is to be seen before anything is disturbed."""

    async def start_runs(self, number: int, client: Client, over: asyncio.Event) -> None:
        """Starts runs for a round, until it is over."""

    async def check(self, client: Client) -> None:
        """Waits for the ends of all runs. What is not as it should be goes to the report's violations."""


class Rounds:
    """The processes and the faults. `url` and `prefix` are of the Redis; logs go to the folder."""

    def __init__(
        self, plan: Plan, make_load: Callable[[Report, journal.Journal], Load], url: str, prefix: str, folder: Path
    ) -> None:
        self._plan = plan
        self._url = url
        self._keys = Keys(prefix)
        self._journal = journal.Journal(folder / "journal")
        self._report = Report(plan.seed, plan.rounds)
        self._load = make_load(self._report, self._journal)
        self._ports = {name: quiet_port() for name in plan.gateways}
        # gRPC takes the first of several addresses that answers, and the next one when that is gone.
        self._target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self._lines_before = 0
        """How long the journal was when the last victims had been started again."""
        self._programs = {program.name: program for program in self._make_programs(folder / "log")}

    def _make_programs(self, log: Path) -> Iterator[Program]:
        store = ("--redis", self._url, "--prefix", self._keys.prefix)
        for name, port in self._ports.items():
            yield Program(name, "server", *store, "--port", str(port), "--lease", str(LEASE_S), log=log)
        settings = ("--target", self._target, "--concurrency", str(SLOTS), "--drain-grace", str(DRAIN_GRACE_S))
        work = ("worker", "run", self._load.app, *settings)
        for name in WORKERS:
            environment = {**self._load.environment, "REDFLOW_JOURNAL": str(self._journal.path)}
            yield Program(name, *work, "--name", name, log=log, environment=environment)

    async def run(self) -> Report:
        """Everything, from start to check."""
        began = time.monotonic()
        started: list[Program] = []
        try:
            for program in self._programs.values():
                await program.start()
                started.append(program)
            async with Client(self._target) as client:
                await self._load.begin(client)
                for number in range(self._plan.rounds):
                    await self._round(number, client)
                recovering = time.monotonic()
                await self._load.check(client)
                self._report.recovery_s = round(time.monotonic() - recovering, 1)
        except* (AssertionError, RedflowError) as broken:
            # What was found until then may say why, so it is told too.
            self._report.violations += [f"broke off: {error}" for error in leaves(broken)]
        finally:
            # The gateway last: the workers say goodbye to it.
            for program in reversed(started):
                if self._is_running(program) and (code := await program.stop()):
                    self._report.violations.append(f"{program.name} stopped with code {code}")
        await self._check_store("at the end")
        self._report.violations += journal.violations(self._journal.lines())
        self._report.moved_runs = self._journal.moved_runs()
        self._report.repeated_steps = self._journal.repeated_steps()
        self._report.seconds = round(time.monotonic() - began, 1)
        return self._report

    async def _round(self, number: int, client: Client) -> None:
        fault = self._plan.round(number)
        victims = [self._programs[name] for name in fault.victims]
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._load.start_runs(number, client, over))
            try:
                await eventually(self._all_listen, within=READY_S, saying=f"a gateway is not there in round {number}")
                await eventually(
                    lambda: self._have_work(victims),
                    within=READY_S,
                    saying=f"nothing to do for those to be killed in round {number}, {' and '.join(fault.victims)}",
                )
                await asyncio.sleep(fault.aim_s)
                for victim in victims:
                    if self._is_running(victim):
                        await victim.kill()
                        self._report.kills += 1
                await self._check_store(f"after the kill of round {number}")
                await asyncio.sleep(fault.down_s)
                for victim in victims:
                    await victim.start()
                self._lines_before = len(self._journal.lines())
            finally:
                over.set()

    async def _all_listen(self) -> bool:
        """Whether every gateway takes connections."""
        for port in self._ports.values():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
        return True

    def _have_work(self, victims: list[Program]) -> bool:
        """Whether a kill of these would take work from each worker among them, and from some worker at least: without
        one among them, workers have to have got or recorded something since the last fault.
        """
        workers = [victim for victim in victims if victim.name in WORKERS]
        if not workers:
            return any(line.event in ("began", "passed") for line in self._journal.lines()[self._lines_before :])
        return all(self._journal.in_hand(worker.pid) for worker in workers)

    def _is_running(self, program: Program) -> bool:
        """Whether it runs still; that it has ended by itself is noted."""
        if program.exit_code is not None:
            self._report.violations.append(f"{program.name} ended by itself with code {program.exit_code}")
        return program.exit_code is None

    async def _check_store(self, when: str) -> None:
        """What is stored keeps its invariants, at any moment."""
        dial = Dial(self._url)
        async with dial.client() as redis:
            found = await check(redis, self._keys)
        await dial.close()
        self._report.checks += 1
        self._report.violations += [f"{one.rule}: {one.subject} {one.detail} ({when})" for one in found]


async def check_steps(client: Client, run_id: str, passed: Mapping[tuple[str, str], int]) -> list[str]:
    """The recorded steps are those that handlers saw; `passed` has their tickets."""
    found = []
    for step in await client.get_run_steps(run_id):
        ticket = step.output[1] if step.kind == "function" and isinstance(step.output, list) else None
        if passed.get((run_id, step.name), ticket) != ticket:
            saw = f"its handler saw the ticket {passed[run_id, step.name]}"
            found.append(f"step {step.name} of {run_id} is recorded as {step.output!r}, {saw}")
    return found


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The exceptions in a group, and in the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


@contextmanager
def _store(url: str | None, folder: Path) -> Iterator[str]:
    if url is not None:
        yield url
    else:
        with EmbeddedStore(folder / "store") as store:
            yield store.url


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that plays rounds."""
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--victims", choices=list(PLANS), default="all", help="who is killed (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    parser.add_argument("--keep", type=Path, help="an empty folder for the journal, the log and the store's data")
    parser.add_argument("--redis", metavar="URL", help="instead of an embedded store")
    parser.add_argument("--prefix", default=PREFIX, help="the beginning of all keys (%(default)s); nothing is removed")


@dataclass(frozen=True, slots=True)
class Place:
    """Where rounds are played: in which Redis, under which prefix, and with which folder for journal and log."""

    url: str
    prefix: str
    folder: Path


def play(options: argparse.Namespace, make: Callable[[Plan, Place], Rounds]) -> int:
    """Plays rounds as the options say, prints the report, and gives the exit code. What is stored is checked as a whole
    in each round, so many rounds are played in parts, each with a prefix, processes and a seed of its own.
    """
    total = Report(options.seed, options.rounds)
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        with _store(options.redis, folder) as url:
            for part, first in enumerate(range(0, options.rounds, PART_ROUNDS)):
                plan = PLANS[options.victims](options.seed + part, min(PART_ROUNDS, options.rounds - first))
                place = Place(url, f"{options.prefix}-{part}", folder / f"part-{part}")
                place.folder.mkdir()
                _add(total, asyncio.run(make(plan, place).run()))
    sys.stdout.write(json.dumps(asdict(total)) + "\n")
    return 1 if total.violations else 0


def _add(total: Report, part: Report) -> None:
    total.runs += part.runs
    total.kills += part.kills
    total.moved_runs += part.moved_runs
    total.repeated_steps += part.repeated_steps
    total.checks += part.checks
    total.violations += [f"{violation} (seed {part.seed})" for violation in part.violations]
    total.seconds = round(total.seconds + part.seconds, 1)
    total.recovery_s = max(total.recovery_s, part.recovery_s)
