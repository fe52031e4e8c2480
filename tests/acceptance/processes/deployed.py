"""The workflows of workers that are deployed, restarted and ended, as `redflow worker run` finds them.

What handlers do leaves lines in the file REDFLOW_TEST_JOURNAL; they wait for files beside it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from redflow_sdk import Context, workflow

JOURNAL = Path(os.environ.get("REDFLOW_TEST_JOURNAL", os.devnull))
MOMENT = JOURNAL.with_name("moment")
RELEASE = JOURNAL.with_name("release")
POLL_S = 0.02


def note(line: str) -> None:
    """Leaves a line; short writes at the end of a file are not mixed with others."""
    with JOURNAL.open("a") as file:
        file.write(line + "\n")


async def written(file: Path) -> str:
    """What is in the file, when there is one."""
    while True:
        text = _read(file)
        if text is not None:
            return text
        await asyncio.sleep(POLL_S)


def _read(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


class Moment:
    """When all handlers end: one of them looks for it, the others wait."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[str] | None = None

    async def at(self) -> float:
        """The moment, of the system's clock."""
        if self._looking is None:
            self._looking = asyncio.create_task(written(MOMENT))
        return float(await asyncio.shield(self._looking))


_moment = Moment()


@workflow(name="punctual", queue="deployed")
async def punctual(ctx: Context, number: int) -> int:
    note("at work")
    at = await _moment.at()
    await asyncio.sleep(max(0.0, at - time.time()))
    return number


@workflow(name="patient", queue="deployed")
async def patient(ctx: Context) -> str:
    await ctx.step.run("first", note, "first step")
    note("at work")
    await written(RELEASE)
    await ctx.step.run("last", note, "last step")
    return "done"


@workflow(name="brief", queue="deployed")
async def brief(ctx: Context) -> str:
    return "brief"


@workflow(name="newcomer", queue="deployed")
async def newcomer(ctx: Context) -> str:
    return "new"


old_release = [brief]
new_release = [brief, newcomer]
