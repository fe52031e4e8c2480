"""`redflow run watch`: the changes of a run and of its steps, a line for each, until it ends."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from redflow_sdk import Run, Step, UnavailableError
from redflow_server.cli import run_views
from redflow_server.cli.client import Connection
from redflow_server.cli.escaping import printable
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import iso_time, json_line, say, write
from redflow_server.cli.wait_views import Document, seen_of_waits

ENDED: Final = ("succeeded", "failed", "canceled")
LOOK_EVERY_S: Final = 0.5
# A run of many steps takes long to read; the gateway has other things to do, too.
PAUSE_PER_LOOK: Final = 10
LONGEST_PAUSE_S: Final = 10.0

Change = Run | Step


@dataclass(slots=True)
class Changes:
    """What is new of a run from one look to the next."""

    _run: tuple[object, ...] | None = None
    _steps: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def of(self, run: Run, steps: Sequence[Step]) -> Iterator[Change]:
        """What has changed, in the order in which it did. The steps have to be read after the run."""
        is_first = self._run is None
        state = _state(run)
        before: list[Step] = []
        after: list[Step] = []
        for step in self._new(steps):
            if run.status not in ENDED and step.attempt > run.attempt:
                continue  # of an attempt that the run, as it was read, has yet to begin: for the next look
            is_after = run.status == "running" and step.attempt == run.attempt and not is_first
            (after if is_after else before).append(step)
            self._steps[step.name] = _state(step)
        yield from before
        if state != self._run:
            self._run = state
            yield run
        yield from after

    def _new(self, steps: Iterable[Step]) -> Iterator[Step]:
        return (step for step in steps if self._steps.get(step.name) != _state(step))


def _state(change: Change) -> tuple[object, ...]:
    if isinstance(change, Step):
        return change.status, change.attempt
    waits = seen_of_waits(change)
    return change.status, change.attempt, change.worker_name, waits, change.cancel_requested_at


async def watch(connection: Connection, arguments: argparse.Namespace) -> ExitCode:
    """Prints changes until the run has ended. Raises CommandFailed, and what the end of the run raises."""
    # Whether there is such a run has to be known at once; later the command outlasts an outage however long.
    run = await connection.answer(connection.client.get_run(arguments.id))
    timeout_s: float | None = arguments.timeout
    try:
        async with asyncio.timeout(timeout_s):
            await _follow(connection, run, arguments.output)
    except TimeoutError:
        raise CommandFailed(f"run {run.id} has not ended within {timeout_s:g} s", ExitCode.TIMED_OUT) from None
    await connection.answer(connection.client.handle(run.id).result())
    return ExitCode.OK


async def _follow(connection: Connection, run: Run, output: str) -> None:
    client = connection.client
    changes = Changes()
    is_away = False
    while True:
        began = time.monotonic()
        try:
            steps = await client.get_run_steps(run.id)
            for change in changes.of(run, steps):
                write(_line(change) if output == "table" else json_line(_document(change)))
            if run.status in ENDED:
                return
            pause_s = min(max(LOOK_EVERY_S, PAUSE_PER_LOOK * (time.monotonic() - began)), LONGEST_PAUSE_S)
            run = await client.wait_run(run.id, pause_s) or await client.get_run(run.id)
            is_away = False
        except UnavailableError as error:
            if not is_away:
                say(f"{error}; watching on")
            is_away = True


def _at(change: Change) -> datetime:
    """When it happened by its record, else when it was seen."""
    if isinstance(change, Step):
        return change.finished_at or change.started_at or datetime.now(UTC)
    return change.finished_at or datetime.now(UTC)


def _document(change: Change) -> Document:
    """A change. The names of the fields are a promise."""
    if isinstance(change, Step):
        return {"change": "step", "at": _at(change), **run_views.step_document(change)}
    return {"change": "run", "at": _at(change), **run_views.run_document(change)}


def _line(change: Change) -> str:
    if isinstance(change, Step):
        kind, what = "step", run_views.step_news(change)
    else:
        kind, what = "run", run_views.run_news(change)
    return printable(f"{iso_time(_at(change))}  {kind:<4}  {change.status:<9}  {what}".rstrip())
