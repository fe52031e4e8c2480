"""What the workers of the kill rounds run. Every side effect is a line in the journal."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

from redflow_sdk import Context, FailureContext, RetryPolicy, workflow
from tests.chaos.journal import Line, append

JOURNAL = os.environ.get("REDFLOW_JOURNAL", os.devnull)
STEPS = 4
LONGER_THAN_ALL_S = 600.0
FAST_RETRIES = RetryPolicy(max_attempts=3, initial=0.05, maximum=0.2)


@contextmanager
def in_hand(run_id: str) -> Iterator[None]:
    """While the handler of a run is at work."""
    append(JOURNAL, Line("began", run_id, os.getpid()))
    try:
        yield
    finally:
        append(JOURNAL, Line("ended", run_id, os.getpid()))


async def effect(run_id: str, step: str, value: int) -> list[int]:
    """The side effect of a step. Returns the next value, and a ticket that no other execution has."""
    ticket = random.getrandbits(48)
    append(JOURNAL, Line("calls", run_id, os.getpid(), step, ticket))
    await asyncio.sleep(random.uniform(0, 0.06))
    append(JOURNAL, Line("ran", run_id, os.getpid(), step, ticket))
    return [value + 1, ticket]


async def run_step(ctx: Context, step: str, value: int) -> int:
    """One step, with a line when it is recorded: after that it never runs again, whoever is killed."""
    following, ticket = await ctx.step.run(step, effect, ctx.run.id, step, value)
    append(JOURNAL, Line("passed", ctx.run.id, os.getpid(), step, ticket))
    return following


@workflow(name="count", queue="chaos")
async def count(ctx: Context, start: int) -> int:
    """Counts up in steps."""
    with in_hand(ctx.run.id):
        value = start
        for number in range(STEPS):
            value = await run_step(ctx, f"s{number}", value)
        return value


@workflow(name="stumble", queue="chaos", retry=FAST_RETRIES)
async def stumble(ctx: Context, start: int) -> int:
    """Fails once after its first step, so that the second attempt finds that step recorded."""
    with in_hand(ctx.run.id):
        value = await run_step(ctx, "s0", start)
        if ctx.run.attempt == 1:
            raise RuntimeError("the first attempt fails")
        return await run_step(ctx, "s1", value)


@workflow(name="delegate", queue="chaos")
async def delegate(ctx: Context, start: int) -> int:
    """Has another run do the counting, between two steps of its own."""
    with in_hand(ctx.run.id):
        value = await run_step(ctx, "s0", start)
        value = await ctx.step.run_workflow("count", count, value)
        return await run_step(ctx, "s1", value)


@workflow(name="announce", queue="chaos")
async def announce(ctx: Context, start: int) -> int:
    """Emits an event between two steps; how many runs it has started is what it returns."""
    with in_hand(ctx.run.id):
        await run_step(ctx, "s0", start)
        heard = await ctx.step.emit_event("emit", "chaos.announced", start)
        await run_step(ctx, "s1", start)
        return len(heard)


@workflow(name="hear", queue="chaos", events=["chaos.announced"])
async def hear(ctx: Context, start: int) -> int:
    """Is started by the event."""
    with in_hand(ctx.run.id):
        return await run_step(ctx, "s0", start)


def note_failure(context: FailureContext) -> None:
    """The failure handler of `fail`."""
    append(JOURNAL, Line("handled", context.run.id, os.getpid()))


@workflow(name="fail", queue="chaos", retry=FAST_RETRIES, on_failure=note_failure)
async def fail(ctx: Context, start: int) -> int:
    """Fails for good."""
    with in_hand(ctx.run.id):
        raise ValueError(f"no good: {start}")


@workflow(name="linger", queue="chaos")
async def linger(ctx: Context, start: int) -> int:
    """Stays until it is canceled."""
    with in_hand(ctx.run.id):
        await asyncio.sleep(LONGER_THAN_ALL_S)
        return start


@workflow(name="oversee", queue="chaos")
async def oversee(ctx: Context, start: int) -> int:
    """Waits for a run that stays until it is canceled, and is canceled itself, which has to reach the other one."""
    with in_hand(ctx.run.id):
        return await ctx.step.run_workflow("linger", linger, start)


app = [count, stumble, delegate, announce, hear, fail, linger, oversee]
