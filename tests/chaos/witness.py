"""Who sees what has to hold whatever is started: what has ended stays so, each occurrence of a schedule has one run,
values come through unchanged, nobody tells a secret or stumbles over itself, and no connection is left behind.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from redflow_sdk import Client, RedflowError, Run
from redflow_sdk.records import Schedule
from redflow_server.domain.ids import run_id_for
from tests.chaos.beside import AWKWARD, BESIDE, MARKER, PULSE, echo_by_others
from tests.chaos.insist import insisted
from tests.chaos.stage import PASSWORD, Node
from tests.eventually import eventually

END_S: Final = 60.0
PERIOD_MS: Final = 1000
CLOCK_SET_BY_AT_MOST_MS: Final = 60_000
FINAL_FIELDS: Final = ("status", "finishedAt", "attempt", "failures", "losses", "deliveries")
SECRETS: Final = (MARKER, PASSWORD, quote(PASSWORD, safe=""))
OURS: Final = re.compile(r'File ".*/redflow_(server|sdk)/')
FAULT: Final = re.compile(r" (ERROR|CRITICAL) .*\bfault ")
MORE_DESCRIPTORS: Final = 4
"""What a process may have open beyond what it had in the beginning."""


class Witness:
    """Of one part. What is not as it should be is what its methods give."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[str, ...]] = {}
        self._echoes: list[str] = []
        self._open: dict[str, Counter[str]] = {}

    # ---- in each round ----

    def look_at(self, nodes: Iterable[Node]) -> None:
        """How many descriptors each process has open while all are at work: what is seen first counts."""
        self._open = {node.program.name: _descriptors(node.program.pid) for node in nodes} | self._open

    async def start_echo(self, number: int, client: Client) -> None:
        """A run whose input other systems would change."""
        key = f"echo-{number}"
        handle = await insisted(lambda: client.start(echo_by_others, AWKWARD, queue=BESIDE, idempotency_key=key))
        self._echoes.append(handle.id)

    def changed_ends(self, ended: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        """Runs that had ended, and have ended in another way by now, or are gone. It gets the records of those that
        have ended.
        """
        ends = {run_id: tuple(record.get(name, "") for name in FINAL_FIELDS) for run_id, record in ended.items()}
        for run_id, end in self._ends.items():
            if ends.get(run_id) != end:
                yield f"{run_id} had ended with {end}, and has now {ends.get(run_id)}"
        self._ends |= ends

    # ---- at the end ----

    async def check_echoes(self, client: Client) -> list[str]:
        """Values that have changed on the way."""
        found = []
        deadline = time.monotonic() + END_S
        for run_id in self._echoes:
            try:
                came: object = await client.handle(run_id).result(timeout=max(0.0, deadline - time.monotonic()))
            except (TimeoutError, RedflowError) as error:
                came = repr(error)
            if json.dumps(came) != json.dumps(AWKWARD):
                found.append(f"{run_id} was given {AWKWARD!r} and came back with {came!r}")
        return found

    async def check_schedule(self, client: Client) -> list[str]:
        """What `occurrences_amiss` says, and runs of the schedule that do not end."""
        (schedule,) = await client.list_schedules(workflow=PULSE)
        runs = [run async for run in client.list_runs(workflow=PULSE)]
        found = [
            f"{run.id} of {PULSE} has not ended" for run in runs if await client.wait_run(run.id, END_S / 2) is None
        ]
        return [*occurrences_amiss(schedule, runs), *found]

    async def check_descriptors(self, nodes: Iterable[Node]) -> list[str]:
        """Processes that keep open what they no longer need."""
        nodes = tuple(nodes)
        try:
            await eventually(lambda: not self._with_more(nodes), within=END_S)
        except AssertionError:
            return self._with_more(nodes)
        return []

    def _with_more(self, nodes: Iterable[Node]) -> list[str]:
        now = {node.program.name: _descriptors(node.program.pid) for node in nodes}
        return [
            f"{name} has open {dict(found)}, and {dict(self._open[name])} in the beginning"
            for name, found in now.items()
            if found.total() > self._open[name].total() + MORE_DESCRIPTORS
        ]


def occurrences_amiss(schedule: Schedule, runs: Sequence[Run]) -> Iterator[str]:
    """Occurrences with two runs or none, beyond those that are counted as skipped, and runs of no occurrence. The
    schedule has to be read before its runs.
    """
    if schedule.last_at is None:
        yield f"{PULSE} has never started a run"
        return
    last_ms = round(schedule.last_at.timestamp() * 1000)
    began_ms = round(min(run.created_at for run in runs).timestamp() * 1000) // PERIOD_MS * PERIOD_MS
    span = range(began_ms - CLOCK_SET_BY_AT_MOST_MS, last_ms + CLOCK_SET_BY_AT_MOST_MS, PERIOD_MS)
    occurrences = {run_id_for("cron", schedule.id, str(at_ms)): at_ms for at_ms in span}
    for run in runs:
        if run.id not in occurrences:
            yield f"{run.id} belongs to no occurrence of {PULSE}"
    # Those after the last one were started while the runs were read.
    started = [at_ms for run in runs if (at_ms := occurrences.get(run.id, last_ms + 1)) <= last_ms]
    passed = (last_ms - min(started)) // PERIOD_MS + 1
    if passed != len(started) + schedule.skipped:
        yield f"{passed} occurrences of {PULSE}: {len(started)} have runs, {schedule.skipped} were skipped"


def told(log: Path) -> Iterator[str]:
    """What should not be in a log: secrets, and faults of the product itself."""
    for number, line in enumerate(log.read_text(errors="replace").splitlines(), 1):
        if any(secret in line for secret in SECRETS):
            yield f"line {number} of the log tells a secret: {line}"
        if OURS.search(line) or FAULT.search(line):
            yield f"line {number} of the log has a fault: {line}"


def _descriptors(pid: int) -> Counter[str]:
    """What a process has open, by what it is; nothing where there is no /proc."""
    kinds: Counter[str] = Counter()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):  # it was closed meanwhile
            kinds[descriptor.readlink().as_posix().partition(":")[0]] += 1
    return kinds
