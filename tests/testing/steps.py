"""Scenarios: steps, their tries, and attempts of runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from redflow_sdk import (
    BlockingContext,
    Context,
    FailureContext,
    NonRetriableError,
    RetryAfterError,
    RetryPolicy,
    workflow,
)
from tests.testing.scenario import Scenario, calls, fails

QUICK = RetryPolicy(max_attempts=3, initial=0.02, maximum=0.1)


@dataclass(frozen=True)
class Order:
    id: str
    cents: int = 100


def charge(order: Order, *, twice: bool = False) -> Order:
    return Order(order.id, order.cents * (2 if twice else 1))


@workflow
async def typed_steps(ctx: Context, order: Order) -> Order:
    charged = await ctx.step.run("charge", charge, order, twice=True)
    assert isinstance(charged, Order)
    return await ctx.step.run("again", charge, charged)


@workflow
def blocking_steps(ctx: BlockingContext, order: Order) -> list[int]:
    first = ctx.step.run("charge", charge, order)
    ctx.step.sleep("rest", 0.05)
    return [first.cents, ctx.step.run("again", charge, first, twice=True).cents]


@workflow
async def parallel_steps(ctx: Context) -> list[int]:
    async def one(number: int) -> int:
        await asyncio.sleep(0)
        return number

    return await asyncio.gather(*(ctx.step.run(f"one {number}", one, number) for number in range(5)))


@workflow
async def steps_of_a_loop(ctx: Context, numbers: list[int]) -> list[int]:
    return [await ctx.step.run(name, lambda number=number: number * 2) for name, number in ctx.step.each("n", numbers)]


@workflow(retry=QUICK)
async def attempts_until_it_succeeds(ctx: Context) -> list[int]:
    kept = await ctx.step.run("kept", lambda: fails(0, ValueError, "kept"))
    return [kept, await ctx.step.run("flaky", fails, 2, ValueError("not yet"))]


@workflow(retry=QUICK)
async def attempts_in_vain(ctx: Context) -> None:
    await ctx.step.run("flaky", fails, 9, ValueError("never"))


@workflow(retry=QUICK)
async def non_retriable(ctx: Context) -> None:
    try:
        await ctx.step.run("bad", fails, 9, KeyError("gone"))
    except KeyError as error:
        raise NonRetriableError("no use") from error


@workflow(retry=RetryPolicy(max_attempts=2, initial=60, maximum=60))
async def retry_after(ctx: Context) -> int:
    return await ctx.step.run("limited", fails, 1, RetryAfterError("later", delay=0.05))


@workflow
async def no_retries(ctx: Context) -> None:
    raise LookupError("nothing there")


@workflow
async def tries_of_a_step(ctx: Context) -> int:
    return await ctx.step.run("flaky", fails, 2, ValueError("not yet"), retry=QUICK)


@workflow
async def tries_in_vain(ctx: Context) -> str:
    try:
        await ctx.step.run("flaky", fails, 9, ValueError("never"), retry=QUICK)
    except ValueError as error:
        return f"gave up: {error}"
    return "no"


@workflow
async def a_try_after_a_wait(ctx: Context) -> int:
    retry = RetryPolicy(max_attempts=2, initial=1.2, jitter=0)
    return await ctx.step.run("flaky", fails, 1, ValueError("not yet"), retry=retry)


@workflow(retry=QUICK)
def blocking_tries(ctx: BlockingContext) -> int:
    ctx.step.run("tried", fails, 1, OSError("once"), "tried", retry=QUICK)
    return ctx.step.run("flaky", fails, 1, ValueError("not yet"))


@workflow
async def step_times_out(ctx: Context) -> str:
    try:
        await ctx.step.run("slow", asyncio.sleep, 60, timeout=0.05)
    except TimeoutError:
        return await ctx.step.run("instead", lambda: "instead")
    return "no"


@workflow(run_timeout=0.2)
async def run_times_out_at_work(ctx: Context) -> None:
    await ctx.step.run("slow", asyncio.sleep, 60)


@workflow(run_timeout=0.2)
async def run_times_out_asleep(ctx: Context) -> None:
    await ctx.step.sleep("long", hours=1)


@workflow(run_timeout=0.3, retry=RetryPolicy(max_attempts=9, initial=10))
async def run_times_out_backing_off(ctx: Context) -> None:
    raise ValueError("not yet")


@workflow
async def same_name_twice(ctx: Context) -> None:
    await ctx.step.run("a", int)
    await ctx.step.run("a", int)


@workflow(retry=QUICK)
async def output_is_no_json(ctx: Context) -> object:
    return {"when": {1, 2}}


@workflow(retry=QUICK)
async def step_value_is_no_json(ctx: Context) -> str:
    await ctx.step.run("set", lambda: float("nan"))
    return "no"


@workflow(retry=QUICK)
async def other_kind_of_step(ctx: Context) -> str:
    if ctx.run.attempt == 1:
        await ctx.step.run("name", int)
        raise ValueError("not yet")
    await ctx.step.sleep("name", 1)
    return "no"


@workflow
async def waits_within_a_step(ctx: Context) -> None:
    await ctx.step.run("outer", lambda: ctx.step.sleep("inner", 1))


@workflow(retry=QUICK)
async def group_of_errors(ctx: Context) -> None:
    steps = [
        ctx.step.run("a", fails, 9, ValueError("a"), "a"),
        ctx.step.run("b", fails, 9, NonRetriableError("b"), "b"),
    ]
    errors = await asyncio.gather(*steps, return_exceptions=True)
    raise ExceptionGroup("both", [error for error in errors if isinstance(error, Exception)])


def note(context: FailureContext) -> None:
    calls[f"handled {type(context.error).__name__} {context.input}"] += 1


@workflow(retry=QUICK, on_failure=note)
async def failure_is_handled(ctx: Context, number: int) -> None:
    raise ValueError(f"no {number}")


async def fail_too(context: FailureContext) -> None:
    raise LookupError("handler")


@workflow(on_failure=fail_too)
async def failure_handler_fails(ctx: Context) -> None:
    raise ValueError("run")


@workflow(run_timeout=0.1, on_failure=note)
async def time_out_is_handled(ctx: Context, number: int) -> None:
    await ctx.step.sleep("long", hours=1)


@workflow(on_failure=lambda context: time.sleep(0))
def blocking_failure(ctx: BlockingContext) -> None:
    raise ValueError("blocking")


SCENARIOS = (
    Scenario(typed_steps, Order("a")),
    Scenario(blocking_steps, Order("a")),
    Scenario(parallel_steps),
    Scenario(steps_of_a_loop, [1, 2, 3]),
    Scenario(attempts_until_it_succeeds),
    Scenario(attempts_in_vain),
    Scenario(non_retriable),
    Scenario(retry_after),
    Scenario(no_retries),
    Scenario(tries_of_a_step),
    Scenario(tries_in_vain),
    Scenario(a_try_after_a_wait),
    Scenario(blocking_tries),
    Scenario(step_times_out),
    Scenario(run_times_out_at_work),
    Scenario(run_times_out_asleep),
    Scenario(run_times_out_backing_off),
    Scenario(same_name_twice),
    Scenario(output_is_no_json),
    Scenario(step_value_is_no_json),
    Scenario(other_kind_of_step),
    Scenario(waits_within_a_step),
    Scenario(group_of_errors),
    Scenario(failure_is_handled, 3),
    Scenario(failure_handler_fails),
    Scenario(time_out_is_handled, 4),
    Scenario(blocking_failure),
)
