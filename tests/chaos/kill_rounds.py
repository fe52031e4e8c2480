"""Rounds of kill -9 of the gateway, of a worker, or of both, under load. Prints one JSON line; exits 1 on a violation.

What is checked, and how to read a violation: README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

from redflow_sdk import CanceledError, Client, RedflowError, Run, RunFailedError
from tests.chaos.beside import BESIDE
from tests.chaos.insist import insisted
from tests.chaos.journal import Journal
from tests.chaos.plan import Plan, Start
from tests.chaos.rounds import Report, Rounds, add_options, check_steps, play

END_S: Final = 60.0


class Starts:
    """Runs of every workflow, as they are drawn, and what has to become of each."""

    app = "tests.chaos.apps:starts"
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, plan: Plan, report: Report, journal: Journal) -> None:
        self._plan = plan
        self._report = report
        self._journal = journal
        self._started: dict[str, Start] = {}

    # ---- the load ----

    async def begin(self, client: Client) -> None:
        """Nothing."""

    async def start_runs(self, number: int, client: Client, over: asyncio.Event) -> None:
        """Starts runs as they are drawn."""
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
        begin = partial(
            client.start,
            start.workflow,
            start.number,
            queue="chaos",
            idempotency_key=start.key,
            max_attempts=3,
            available_at=available_at,
        )
        # Without a key a start must not be made again: it would be another run.
        ids = [(await begin()).id] if start.key is None else [(await insisted(begin)).id for _ in range(2)]
        if len(set(ids)) > 1:
            self._report.violations.append(f"key {start.key} has two runs: {' and '.join(ids)}")
        self._started[ids[0]] = start
        self._report.runs += 1
        return ids[0]

    async def _cancel(self, run_id: str, after_s: float, client: Client) -> None:
        await asyncio.sleep(after_s)
        await insisted(lambda: client.cancel_run(run_id))

    # ---- the check ----

    async def check(self, client: Client) -> None:
        """Every run ends as its workflow says, and is on record as its handlers saw it."""
        await self._check_ends(client)
        await self._check_records(client)

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

    async def _check_records(self, client: Client) -> None:
        """No run is there that nobody started, and the recorded steps are those that handlers saw."""
        runs = [run async for run in client.list_runs() if run.queue != BESIDE]
        await self._check_offspring(runs, client)
        stored = {run.id for run in runs if not _is_offspring(run)}
        for what, ids in (
            ("was not started", stored - self._started.keys()),
            ("is gone", self._started.keys() - stored),
        ):
            self._report.violations += [f"run {run_id} {what}" for run_id in sorted(ids)]
        passed = self._journal.tickets()
        for run_id in stored & self._started.keys():
            self._report.violations += await check_steps(client, run_id, passed)

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


def _is_offspring(run: Run) -> bool:
    """Whether another run has started it."""
    return bool(run.parent_run_id) or run.workflow == "hear"


def kill_rounds(plan: Plan, url: str, prefix: str, folder: Path) -> Rounds:
    """Rounds as the plan has them."""
    return Rounds(plan, partial(Starts, plan), url, prefix, folder)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    options = parser.parse_args()
    return play(options, lambda plan, place: kill_rounds(plan, place.url, place.prefix, place.folder))


if __name__ == "__main__":
    sys.exit(main())
