"""Rounds of kill -9 of the gateway, of a worker, or of both, while runs wait in every way there is. Prints one JSON
line; exits 1 on a violation.

    .venv/bin/python -m tests.chaos.wait_rounds --rounds 200 --mode always-suspend

What is checked, and how to read a violation: README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, defaultdict
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from redflow_sdk import Client, RedflowError, Run
from tests.chaos.beside import BESIDE
from tests.chaos.insist import insisted
from tests.chaos.journal import Journal
from tests.chaos.modes import add_mode, environment_of
from tests.chaos.plan import Plan
from tests.chaos.rounds import Report, Rounds, add_options, check_steps, play
from tests.chaos.wait_workflows import APPROVED, REFUSED, TOLD, Order

END_S: Final = 90.0
UNDISTURBED_S: Final = 60.0
OFFSPRING: Final = Counter(
    {
        ("quick", "succeeded"): 3,
        ("stays", "canceled"): 2,
        ("fails", "failed"): 1,
        ("gives-up", "canceled"): 1,
        ("nobody-serves", "canceled"): 1,
    }
)
"""The runs that each run starts, and how they end."""


class Waits:
    """Runs that use every wait, and the people and programs outside that they wait for."""

    app = "tests.chaos.apps:waits"

    def __init__(self, plan: Plan, mode: str, report: Report, journal: Journal) -> None:
        self.environment = environment_of(mode)
        self._plan = plan
        self._report = report
        self._journal = journal
        self._started: dict[str, Order] = {}
        self._lines_read = 0
        self._asked: dict[str, None] = {}
        """What nobody has done yet, in the order in which it was asked."""

    # ---- the load ----

    async def begin(self, client: Client) -> None:
        """One run that nobody disturbs."""
        order = Order(0, "undisturbed")
        handle = await client.start("everything", order, queue="chaos")
        async with asyncio.TaskGroup() as outside, asyncio.timeout(UNDISTURBED_S):
            outside.create_task(self._tell(order, Random(0), client))
            answering = outside.create_task(self._answer_all(client))
            output = await handle.result(timeout=UNDISTURBED_S)
            answering.cancel()
        assert output == order.outcome, f"undisturbed, it comes to {output}"

    async def start_runs(self, number: int, client: Client, over: asyncio.Event) -> None:
        """Starts runs, and does what they wait for."""
        async with asyncio.TaskGroup() as outside:
            answering = outside.create_task(self._answer_all(client))
            for index in count():
                if over.is_set():
                    break
                random = Random(f"{self._plan.seed} wait {number} {index}")
                order = Order(index, f"{number}-{index}")
                await self._start(order, client)
                outside.create_task(self._tell(order, random, client))
                await asyncio.sleep(random.uniform(0.1, 0.4))
            answering.cancel()

    async def _start(self, order: Order, client: Client) -> None:
        handle = await insisted(lambda: client.start("everything", order, queue="chaos", idempotency_key=order.key))
        self._started[handle.id] = order
        self._report.runs += 1

    # ---- outside ----

    async def _tell(self, order: Order, random: Random, client: Client) -> None:
        """Emits the events of a run, each once."""
        for event in order.events:
            await asyncio.sleep(random.uniform(0.0, 0.8))
            await insisted(partial(client.emit_event, TOLD, event, key=order.key, idempotency_key=event))

    async def _answer_all(self, client: Client) -> None:
        """Does what runs ask for, until it is canceled."""
        while True:
            lines = self._journal.lines()
            self._asked |= {line.step: None for line in lines[self._lines_read :] if line.event == "asks"}
            self._lines_read = len(lines)
            async with asyncio.TaskGroup() as answers:
                for text in self._asked:
                    answers.create_task(self._answer(text, client))
            await asyncio.sleep(0.05)

    async def _answer(self, text: str, client: Client) -> None:
        what, _, whom = text.partition(":")
        match what:
            case "complete":
                await insisted(lambda: client.complete_token(whom, APPROVED))
            case "fail":
                await insisted(lambda: client.fail_token(whom, REFUSED))
            case "cancel":
                await insisted(lambda: client.cancel_run(whom))
        del self._asked[text]

    # ---- the check ----

    async def check(self, client: Client) -> None:
        """Every run comes to what an undisturbed one does, and has started each of its runs once."""
        async with asyncio.TaskGroup() as outside:
            answering = outside.create_task(self._answer_all(client))
            await self._check_ends(client)
            answering.cancel()
        passed = self._journal.tickets()
        for run_id in self._started:
            self._report.violations += await check_steps(client, run_id, passed)
        await self._check_offspring(client)

    async def _check_ends(self, client: Client) -> None:
        deadline = time.monotonic() + END_S
        for run_id, order in self._started.items():
            try:
                output: object = await client.handle(run_id).result(timeout=max(deadline - time.monotonic(), 0.0))
            except (TimeoutError, RedflowError) as error:
                output = repr(error)
            if output != order.outcome:
                said = f"everything {run_id} came to {output} instead of {order.outcome}"
                self._report.violations.append(said)

    async def _check_offspring(self, client: Client) -> None:
        """What runs have started has ended, or does so soon: that of canceled parents, and what was abandoned."""
        offspring: defaultdict[str, list[Run]] = defaultdict(list)
        roots = set()
        async for run in client.list_runs():
            offspring[run.parent_run_id].append(run)
            if not run.parent_run_id and run.queue != BESIDE:
                roots.add(run.id)
        unknown = len(roots - self._started.keys())
        if unknown != 1:
            self._report.violations.append(f"{unknown} runs that nobody has started, with the undisturbed one")
        deadline = time.monotonic() + END_S
        for run_id in self._started:
            ends = Counter([await self._end_of(run, deadline, client) for run in offspring[run_id]])
            if ends != OFFSPRING:
                self._report.violations.append(f"everything {run_id} has started {dict(ends)}")

    async def _end_of(self, run: Run, deadline: float, client: Client) -> tuple[str, str]:
        if run.status not in ("succeeded", "failed", "canceled"):
            run = await client.wait_run(run.id, min(45.0, max(0.0, deadline - time.monotonic()))) or run
        return run.workflow, run.status


def wait_rounds(plan: Plan, mode: str, url: str, prefix: str, folder: Path) -> Rounds:
    """Rounds as the plan has them, with workers in a mode."""
    return Rounds(plan, partial(Waits, plan, mode), url, prefix, folder)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    add_mode(parser)
    options = parser.parse_args()
    return play(options, lambda plan, place: wait_rounds(plan, options.mode, place.url, place.prefix, place.folder))


if __name__ == "__main__":
    sys.exit(main())
