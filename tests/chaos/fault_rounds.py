"""Faults of every kind, one after the other, under load: strikes, mends, and sees that everything goes on.

What is started meanwhile, and what has to come of it, is left to the load; what a fault is, to `faults`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from redflow_sdk import Client, RedflowError
from redflow_server.store import invariants
from redflow_server.store.keys import Keys
from redflow_server.store.snapshot import read_snapshot
from redflow_server.store.wire import Dial
from tests.chaos import journal
from tests.chaos.at_work import all_are_at_work
from tests.chaos.faults import FAULTS
from tests.chaos.insist import insisted
from tests.chaos.plan import Plan, Start
from tests.chaos.rounds import Load, Report, leaves
from tests.chaos.stage import Play, Stage, set_up
from tests.chaos.witness import Witness, told

MAX_HELD_S: Final = 5.0
CALL_S: Final = 20.0


class KeyedPlan(Plan):
    """Each start has an idempotency key, so that it may be repeated whatever became of it."""

    def start(self, number: int, index: int) -> Start:
        """As in any plan."""
        return replace(super().start(number, index), key=f"{number}-{index}")


@dataclass
class FaultReport(Report):
    """What happened, by kind of fault."""

    faults: Counter[str] = field(default_factory=Counter)
    recoveries_s: dict[str, float] = field(default_factory=dict)
    """From when it was mended until every worker had taken work, at most."""


class FaultRounds:
    """One part: a stage, a load, and faults until its time is over. Whatever is drawn is drawn from the seed."""

    def __init__(
        self,
        seed: int,
        kinds: Sequence[str],
        make_load: Callable[[Plan, Report, journal.Journal], Load],
        prefix: str,
        folder: Path,
    ) -> None:
        self._random = Random(f"{seed} faults")
        self._kinds = kinds
        self._keys = Keys(prefix)
        self._journal = journal.Journal(folder / "journal")
        self._report = FaultReport(seed, rounds=0)
        self._load = make_load(KeyedPlan(seed, 0), self._report, self._journal)
        self._witness = Witness()
        environment = {**self._load.environment, "REDFLOW_JOURNAL": str(self._journal.path)}
        self._play = Play(prefix, self._load.app, environment, folder)
        self._log = folder / "log"

    async def run(self, seconds: float) -> FaultReport:
        """Faults for so many seconds, at least one, and all checks."""
        began = time.monotonic()
        try:
            async with set_up(self._play) as stage, Client(f"127.0.0.1:{stage.client_line.port}") as client:
                await self._load.begin(client)
                for kind in self._drawn():
                    await self._round(kind, stage, client)
                    if time.monotonic() - began >= seconds:
                        break
                recovering = time.monotonic()
                await self._load.check(client)
                self._report.recovery_s = round(time.monotonic() - recovering, 1)
                for check in (self._witness.check_echoes, self._witness.check_schedule):
                    self._report.violations += await check(client)
                self._report.violations += await self._witness.check_descriptors(stage.nodes)
                await self._check_store(stage, "at the end")
        except* (AssertionError, RedflowError, TimeoutError) as broken:
            self._report.violations += [f"broke off: {error!r}" for error in leaves(broken)]
        self._report.violations += [*journal.violations(self._journal.lines()), *told(self._log)]
        self._report.moved_runs = self._journal.moved_runs()
        self._report.repeated_steps = self._journal.repeated_steps()
        self._report.seconds = round(time.monotonic() - began, 1)
        return self._report

    def _drawn(self) -> Iterator[str]:
        """Each kind once, in some order, and so on for ever."""
        while True:
            yield from self._random.sample(self._kinds, len(self._kinds))

    async def _round(self, kind: str, stage: Stage, client: Client) -> None:
        over = asyncio.Event()
        number = self._report.rounds
        self._report.rounds += 1
        self._report.faults[kind] += 1
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._load.start_runs(number, client, over))
            try:
                await self._all_are_at_work(stage, f"before {kind} of round {number}")
                self._witness.look_at(stage.nodes)
                await self._witness.start_echo(number, client)
                async with FAULTS[kind](stage, self._random):
                    await asyncio.sleep(self._random.uniform(0.1, MAX_HELD_S))
                mended = time.monotonic()
                await self._all_are_at_work(stage, f"after {kind} of round {number}")
                took_s = round(time.monotonic() - mended, 1)
                self._report.recoveries_s[kind] = max(took_s, self._report.recoveries_s.get(kind, 0.0))
                await insisted(client.stats)
                await self._check_store(stage, f"after {kind} of round {number}")
            finally:
                over.set()

    async def _all_are_at_work(self, stage: Stage, when: str) -> None:
        """Every worker begins a handler, and no process has ended."""
        await all_are_at_work([worker.program for worker in stage.workers], self._journal, when)
        for node in stage.nodes:
            assert node.program.exit_code is None, f"{node.program.name} has ended with {node.program.exit_code} {when}"

    async def _check_store(self, stage: Stage, when: str) -> None:
        """What is stored keeps its invariants."""
        dial = Dial(stage.redis.url)
        async with dial.client() as redis:
            snapshot = await read_snapshot(redis, self._keys)
        await dial.close()
        self._report.checks += 1
        found = [f"{one.rule}: {one.subject} {one.detail}" for one in invariants.violations(snapshot)]
        found += self._witness.changed_ends({run.run_id: run.record for run in snapshot.runs if run.is_terminal})
        self._report.violations += [f"{one} ({when})" for one in found]
