"""A worker that gets stuck in its second step. `python -m ... TARGET COUNTS`: each step leaves a line in the file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from redflow_sdk import Context, Worker, workflow

WORKFLOW = "crash-recover"
QUEUE = "q8"


def count(path: str, line: str) -> None:
    """Leaves a line; short writes at the end of a file are not mixed with others."""
    with Path(path).open("a") as file:
        file.write(line + "\n")


async def main(target: str, counts: str) -> None:
    """Works until it is killed."""

    @workflow(name=WORKFLOW, queue=QUEUE)
    async def crash_recover(ctx: Context) -> None:
        await ctx.step.run("step1", lambda: count(counts, "step1"))
        await ctx.step.run("step2", stuck)

    async def stuck() -> None:
        count(counts, "step2 begins")
        await asyncio.Event().wait()

    await Worker(target, workflows=[crash_recover]).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
