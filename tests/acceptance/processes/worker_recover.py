"""A worker that finishes one run and exits. `python -m ... TARGET COUNTS RUN_ID`."""

from __future__ import annotations

import asyncio
import sys

from redflow_sdk import Client, Context, Worker, workflow
from tests.acceptance.processes.worker_crash import QUEUE, WORKFLOW, count


async def main(target: str, counts: str, run_id: str) -> None:
    """Works until the run has ended."""

    @workflow(name=WORKFLOW, queue=QUEUE)
    async def crash_recover(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("step1", lambda: count(counts, "step1"))
        await ctx.step.run("step2", lambda: count(counts, "step2"))
        return {"ok": True}

    async with Worker(target, workflows=[crash_recover]), Client(target) as client:
        assert await client.handle(run_id).result(timeout=15) == {"ok": True}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
