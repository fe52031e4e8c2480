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


@workflow(name="third-of-three")
async def third_of_three(ctx: Context, number: int) -> int:
    """Has no child."""
    return number + 1


@workflow(name="second-of-three")
async def second_of_three(ctx: Context, number: int) -> int:
    """Waits for a child that has none."""
    return await ctx.step.run_workflow("child", third_of_three, number) + 1


@workflow(name="first-of-three")
async def first_of_three(ctx: Context, number: int) -> int:
    """Waits for a child that waits for one."""
    answer = await ctx.step.run_workflow("child", second_of_three, number) + 1
    count()
    return answer


app = [noop, ten_steps, first_of_three, second_of_three, third_of_three]
