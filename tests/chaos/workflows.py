"""What the workers of the kill rounds run. Every side effect is a line in the journal, a file outside of the system.

`ran` is written by a step function, `passed` by the handler once the step is recorded: after that the step never runs
again, whoever is killed.
"""

from __future__ import annotations

import asyncio
import os
import random

from redflow_sdk import Context, RetryPolicy, workflow

JOURNAL = os.environ.get("REDFLOW_JOURNAL", os.devnull)
STEPS = 4
FAST_RETRIES = RetryPolicy(max_attempts=3, initial=0.05, maximum=0.2)


def write(event: str, run_id: str, step: str) -> None:
    """One line, whole: appends of this size do not mix."""
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, f"{event} {run_id} {step} {os.getpid()}\n".encode())
    finally:
        os.close(journal)


async def effect(run_id: str, step: str, value: int) -> int:
    """The side effect of a step."""
    await asyncio.sleep(random.uniform(0, 0.02))
    write("ran", run_id, step)
    return value + 1


@workflow(name="count", queue="chaos")
async def count(ctx: Context, start: int) -> int:
    """Counts up in steps."""
    value = start
    for number in range(STEPS):
        step = f"s{number}"
        value = await ctx.step.run(step, effect, ctx.run.id, step, value)
        write("passed", ctx.run.id, step)
    return value


@workflow(name="stumble", queue="chaos", retry=FAST_RETRIES)
async def stumble(ctx: Context, start: int) -> int:
    """Fails once after its first step, so that the second attempt finds that step recorded."""
    value = await ctx.step.run("s0", effect, ctx.run.id, "s0", start)
    write("passed", ctx.run.id, "s0")
    if ctx.run.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return await ctx.step.run("s1", effect, ctx.run.id, "s1", value)


@workflow(name="fail", queue="chaos", retry=FAST_RETRIES)
async def fail(ctx: Context, start: int) -> int:
    """Fails for good."""
    raise ValueError(f"no good: {start}")


app = [count, stumble, fail]
