"""What the worker of a benchmark runs."""

from __future__ import annotations

from benchmarks.counter import count
from redflow_sdk import Context, workflow


@workflow(name="noop")
async def noop(ctx: Context, number: int) -> int:
    """Does nothing."""
    count()
    return number


@workflow(name="ten-steps")
async def ten_steps(ctx: Context, number: int) -> int:
    """Ten steps, one after the other."""
    for step in range(10):
        number = await ctx.step.run(f"s{step}", _next, number)
    count()
    return number


async def _next(number: int) -> int:
    return number + 1


app = [noop, ten_steps]
