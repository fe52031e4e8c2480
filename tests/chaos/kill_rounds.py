"""Rounds of kill -9 of the gateway, of a worker, or of both, under load. Prints one JSON line; exits 1 on a violation.

What is checked, and how to read a violation: README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final

from redflow_sdk import CanceledError, Client, RedflowError, Run, RunFailedError
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos import journal
from tests.chaos.plan import GATEWAY, WORKERS, Plan, Start
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

LEASE_S: Final = 2
SLOTS: Final = 8
DRAIN_GRACE_S: Final = 5
READY_S: Final = 30.0
END_S: Final = 60.0
PREFIX: Final = "chaos"


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


class KillRounds:
    """The processes, the load, and the faults. `url` and `prefix` are of the Redis; logs go to the folder."""

    def __init__(self, plan: Plan, url: str, prefix: str, folder: Path) -> None:
        self._plan = plan
        self._url = url
        self._keys = Keys(prefix)
        self._journal = journal.Journal(folder / "journal")
        self._report = Report(plan.seed, plan.rounds)
        self._started: dict[str, Start] = {}
        self._target = f"127.0.0.1:{quiet_port()}"
        self._programs = {program.name: program for program in self._make_programs(folder / "log")}

    def _make_programs(self, log: Path) -> Iterator[Program]:
        store = ("--redis", self._url, "--prefix", self._keys.prefix)
        port = self._target.rpartition(":")[2]
        yield Program(GATEWAY, "server", *store, "--port", port, "--lease", str(LEASE_S), log=log)
        settings = ("--target", self._target, "--concurrency", str(SLOTS), "--drain-grace", str(DRAIN_GRACE_S))
        work = ("worker", "run", "tests.chaos.workflows:app", *settings)
        for name in WORKERS:
            environment = {"REDFLOW_JOURNAL": str(self._journal.path)}
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
                for number in range(self._plan.rounds):
                    await self._round(number, client)
                await self._check_ends(client)
                await self._check_records(client)
        except* (AssertionError, RedflowError) as broken:
            # What was found until then may say why, so it is told too.
            self._report.violations += [f"broke off: {error}" for error in _leaves(broken)]
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

    # ---- the fault ----

    async def _round(self, number: int, client: Client) -> None:
        fault = self._plan.round(number)
        victims = [self._programs[name] for name in fault.victims]
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._start_runs(number, client, over))
            try:
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
            finally:
                over.set()

    def _have_work(self, victims: list[Program]) -> bool:
        """Whether a kill of these would take work from each worker among them, and from some worker at least."""
        workers = [victim for victim in victims if victim.name in WORKERS]
        if not workers:
            return any(self._journal.in_hand(self._programs[name].pid) for name in WORKERS)
        return all(self._journal.in_hand(worker.pid) for worker in workers)

    def _is_running(self, program: Program) -> bool:
        """Whether it runs still; that it has ended by itself is noted."""
        if program.exit_code is not None:
            self._report.violations.append(f"{program.name} ended by itself with code {program.exit_code}")
        return program.exit_code is None

    # ---- the load ----

    async def _start_runs(self, number: int, client: Client, over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as cancels:
            for index in count():
                if over.is_set():
                    return
                start = self._plan.start(number, index)
                run_id = await self._start(start, client)
                if start.cancel_after_s is not None:
                    cancels.create_task(self._cancel(run_id, start.cancel_after_s, client))
                await asyncio.sleep(start.pause_s)

    async def _start(self, start: Start, client: Client) -> str:
        available_at = datetime.now(UTC) + timedelta(seconds=start.delay_s) if start.delay_s else None
        ids = [
            (
                await client.start(
                    start.workflow,
                    start.number,
                    queue="chaos",
                    idempotency_key=start.key,
                    max_attempts=3,
                    available_at=available_at,
                )
            ).id
            for _ in range(1 if start.key is None else 2)
        ]
        if len(set(ids)) > 1:
            self._report.violations.append(f"key {start.key} has two runs: {' and '.join(ids)}")
        self._started[ids[0]] = start
        self._report.runs += 1
        return ids[0]

    async def _cancel(self, run_id: str, after_s: float, client: Client) -> None:
        await asyncio.sleep(after_s)
        await client.cancel_run(run_id)

    # ---- the check ----

    async def _check_ends(self, client: Client) -> None:
        """Every run ends as its workflow says, and all of them in time."""
        began = time.monotonic()
        for run_id, start in self._started.items():
            try:
                left_s = max(began + END_S - time.monotonic(), 0.0)
                end: object = await client.handle(run_id).result(timeout=left_s)
            except RunFailedError as error:
                end = error.failure.type if error.failure else "failed"
            except CanceledError:
                end = "canceled"
            except (TimeoutError, RedflowError) as error:
                end = repr(error)
            if start.workflow == "fail" and run_id not in self._journal.handled():
                self._report.violations.append(f"{run_id} is failed, but its failure handler was not called")
            if end != start.end:
                self._report.violations.append(f"{start.workflow} {run_id} ended with {end!r} instead of {start.end!r}")
        self._report.recovery_s = round(time.monotonic() - began, 1)

    async def _check_records(self, client: Client) -> None:
        """No run is there that nobody started, and the recorded steps are those that handlers saw."""
        runs = [run async for run in client.list_runs()]
        await self._check_offspring(runs, client)
        stored = {run.id for run in runs if not _is_offspring(run)}
        for what, ids in (
            ("was not started", stored - self._started.keys()),
            ("is gone", self._started.keys() - stored),
        ):
            self._report.violations += [f"run {run_id} {what}" for run_id in sorted(ids)]
        passed = self._journal.tickets()
        for run_id in stored & self._started.keys():
            for step in await client.get_run_steps(run_id):
                ticket = step.output[1] if step.kind == "function" and isinstance(step.output, list) else None
                if passed.get((run_id, step.name), ticket) != ticket:
                    self._report.violations.append(
                        f"step {step.name} of {run_id} is recorded as {step.output!r}, its handler saw the ticket "
                        f"{passed[run_id, step.name]}"
                    )

    async def _check_offspring(self, runs: list[Run], client: Client) -> None:
        """Each run that starts another one has started it once, and that ends as it should."""
        expected = {"delegate": "succeeded", "oversee": "canceled"}
        children = Counter(run.parent_run_id for run in runs if run.parent_run_id)
        for run_id, start in self._started.items():
            most = 1 if start.workflow in expected else 0
            # One that is canceled before it began starts none.
            if children[run_id] > most or (start.workflow == "delegate" and children[run_id] < 1):
                self._report.violations.append(f"{start.workflow} {run_id} has started {children[run_id]} runs")
        heard = sum(run.workflow == "hear" for run in runs)
        announced = sum(start.workflow == "announce" for start in self._started.values())
        if heard != announced:
            self._report.violations.append(f"{announced} events have started {heard} runs")
        deadline = time.monotonic() + END_S
        for run in runs:
            if _is_offspring(run):
                parent = self._started.get(run.parent_run_id)
                wanted = expected[parent.workflow] if parent else "succeeded"
                ended = await client.wait_run(run.id, max(0.0, deadline - time.monotonic()))
                if ended is None or ended.status != wanted:
                    self._report.violations.append(f"{run.workflow} {run.id} is {ended}, not {wanted}")

    async def _check_store(self, when: str) -> None:
        """What is stored keeps its invariants, at any moment."""
        dial = Dial(self._url)
        async with dial.client() as redis:
            found = await check(redis, self._keys)
        await dial.close()
        self._report.checks += 1
        self._report.violations += [f"{one.rule}: {one.subject} {one.detail} ({when})" for one in found]


def _is_offspring(run: Run) -> bool:
    """Whether another run has started it."""
    return bool(run.parent_run_id) or run.workflow == "hear"


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


@contextmanager
def _store(url: str | None, folder: Path) -> Iterator[str]:
    if url is not None:
        yield url
    else:
        with EmbeddedStore(folder / "store") as store:
            yield store.url


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    parser.add_argument("--keep", type=Path, help="an empty folder for the journal, the log and the store's data")
    parser.add_argument("--redis", metavar="URL", help="instead of an embedded store")
    parser.add_argument("--prefix", default=PREFIX, help="the beginning of all keys (%(default)s); nothing is removed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        with _store(options.redis, folder) as url:
            plan = Plan(options.seed, options.rounds)
            report = asyncio.run(KillRounds(plan, url, options.prefix, folder).run())
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
