"""A worker that gets stuck in a failure handler. `python -m ... TARGET COUNTS`: what happens leaves a line there."""

from __future__ import annotations

import asyncio
import sys

from redflow_sdk import Context, FailureContext, RetryPolicy, Worker, workflow
from tests.acceptance.processes.worker_crash import count

WORKFLOW = "fails-for-good"
QUEUE = "q_failing"


async def main(target: str, counts: str) -> None:
    """Works until it is killed."""

    async def stuck(failed: FailureContext) -> None:
        count(counts, "failure handler begins")
        await asyncio.Event().wait()

    @workflow(name=WORKFLOW, queue=QUEUE, retry=RetryPolicy(max_attempts=2, initial=0.01), on_failure=stuck)
    async def fails_for_good(ctx: Context, input: dict[str, int]) -> None:
        count(counts, f"attempt {ctx.run.attempt}")
        raise RuntimeError("always fails")

    await Worker(target, workflows=[fails_for_good], concurrency=1).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
