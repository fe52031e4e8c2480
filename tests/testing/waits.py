"""Scenarios: sleeps, events, tokens, races, and several of them at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from redflow_sdk import BlockingContext, Context, RetryPolicy, TokenFailedError, workflow
from redflow_sdk.testing import ExternalEvent
from tests.testing.scenario import Scenario, fails, hand_over

QUICK = RetryPolicy(max_attempts=3, initial=0.02, maximum=0.1)


async def fails_slowly(times: int) -> int:
    """Not before its rivals have begun."""
    await asyncio.sleep(0.1)
    return fails(times, ValueError("not yet"))


@workflow
async def sleeps(ctx: Context) -> str:
    await ctx.step.sleep("short", 0.05)
    await ctx.step.sleep("none", 0)
    await ctx.step.sleep_until("past", datetime(2020, 1, 1, tzinfo=UTC))
    await ctx.step.sleep_until("soon", datetime.now(UTC) + timedelta(seconds=0.05))
    return "awake"


@workflow(retry=QUICK)
async def sleeps_once_in_all_attempts(ctx: Context) -> int:
    await ctx.step.sleep("nap", 0.05)
    return fails(2, ValueError("not yet"))


@workflow
async def event_with_key(ctx: Context, order: str) -> object:
    paid = await ctx.step.wait_for_event("paid", "order.paid", key=order, payload_type=dict[str, int], timeout=5)
    return None if paid is None else [paid.name, paid.key, paid.payload]


@workflow
async def event_that_was_before(ctx: Context) -> object:
    await ctx.step.sleep("first", 0.1)
    got = await ctx.step.wait_for_event("got", "early", timeout=0.2)
    more = await ctx.step.wait_for_event("more", "early", timeout=0.2)
    return [got and got.payload, more and more.payload]


@workflow
async def events_in_their_order(ctx: Context) -> list[object]:
    got = [await ctx.step.wait_for_event(f"got {number}", "tick", timeout=5) for number in range(3)]
    return [one and one.payload for one in got]


@workflow
async def no_event_in_time(ctx: Context) -> object:
    return await ctx.step.wait_for_event("paid", "order.paid", timeout=0.05)


@workflow
async def event_of_another_key(ctx: Context) -> object:
    return await ctx.step.wait_for_event("paid", "order.paid", key="b", timeout=0.2)


@workflow(retry=QUICK)
async def event_that_does_not_fit(ctx: Context) -> int:
    got = await ctx.step.wait_for_event("got", "number", payload_type=int, timeout=5)
    return got.payload if got else 0


@workflow
async def token_is_completed(ctx: Context) -> dict[str, bool]:
    token = await ctx.step.token("approve", dict[str, bool], timeout=5)
    await ctx.step.run("ask", hand_over, token)
    return await token.result()


@workflow
def blocking_token(ctx: BlockingContext) -> int:
    token = ctx.step.token("approve", int, timeout=5)
    ctx.step.run("ask", hand_over, token)
    return token.result()


@workflow
async def token_is_failed(ctx: Context) -> str:
    token = await ctx.step.token("approve", str, timeout=5)
    await ctx.step.run("ask", hand_over, token)
    try:
        return await token.result()
    except TokenFailedError as error:
        return f"{error} {error.failure.type}"


@workflow
async def token_times_out(ctx: Context) -> None:
    await (await ctx.step.token("approve", timeout=0.05)).result()


@workflow
async def sleep_wins(ctx: Context) -> str:
    race = await ctx.step.race(
        "first", paid=ctx.step.wait_for_event("paid", "order.paid"), late=ctx.step.sleep("late", 0.05)
    )
    return race.winner


@workflow
async def event_wins(ctx: Context) -> object:
    race = await ctx.step.race(
        "first", paid=ctx.step.wait_for_event("paid", "order.paid"), late=ctx.step.sleep("late", 60)
    )
    return [race.winner, race.value and race.value.payload]


@workflow
async def function_wins(ctx: Context) -> object:
    race = await ctx.step.race("first", work=ctx.step.run("work", fails_slowly, 0), late=ctx.step.sleep("late", 1))
    await ctx.step.sleep("longer than late", 1)
    return [race.winner, race.value]


@workflow
async def function_loses(ctx: Context) -> object:
    slow = ctx.step.run("slow", asyncio.sleep, 60)
    race = await ctx.step.race("first", work=slow, late=ctx.step.sleep("late", 0.1))
    return race.winner


@workflow(retry=QUICK)
async def function_fails_in_a_race(ctx: Context) -> object:
    work = ctx.step.run("work", fails_slowly, 1)
    race = await ctx.step.race("first", work=work, late=ctx.step.sleep("late", 60))
    return [race.winner, race.value]


@workflow
async def races_in_a_row(ctx: Context) -> list[str]:
    won = []
    for number in range(3):
        quick, slow = ctx.step.sleep(f"quick {number}", 0.03), ctx.step.sleep(f"slow {number}", 60)
        won.append((await ctx.step.race(f"race {number}", slow=slow, quick=quick)).winner)
    return won


@workflow
async def losers_are_over_before_the_run_goes_on(ctx: Context) -> object:
    token = await ctx.step.token("approve", int)
    await ctx.step.run("ask", hand_over, token)
    paid, late = ctx.step.wait_for_event("paid", "order.paid"), ctx.step.sleep("late", 1)
    first = await ctx.step.race("first", approved=token.result(), paid=paid, late=late)
    again = await ctx.step.wait_for_event("again", "order.paid", timeout=5)
    await ctx.step.sleep("longer than late", 0.8)
    return [first.winner, first.value, again and again.payload]


@workflow
async def waits_at_once(ctx: Context) -> list[object]:
    async with asyncio.TaskGroup() as group:
        event = group.create_task(ctx.step.wait_for_event("event", "go", timeout=5))
        nap = group.create_task(ctx.step.sleep("nap", 0.1))
        step = group.create_task(ctx.step.run("step", lambda: 1))
    return [event.result() is not None, nap.result(), step.result()]


@workflow
async def steps_after_waits_at_once(ctx: Context) -> list[str]:
    async def branch(number: int) -> str:
        await ctx.step.sleep(f"nap {number}", 0.02 * (number + 1))
        return await ctx.step.run(f"step {number}", lambda: f"done {number}")

    return await asyncio.gather(*(branch(number) for number in range(4)))


SCENARIOS = (
    Scenario(sleeps),
    Scenario(sleeps_once_in_all_attempts),
    Scenario(event_with_key, "a", events=(ExternalEvent("order.paid", {"cents": 5}, "a", after=0.1),)),
    Scenario(event_that_was_before, events=(ExternalEvent("early", 1),)),
    Scenario(events_in_their_order, events=tuple(ExternalEvent("tick", number) for number in range(3))),
    Scenario(no_event_in_time),
    Scenario(event_of_another_key, events=(ExternalEvent("order.paid", 1, "a"), ExternalEvent("order.paid", 2))),
    Scenario(event_that_does_not_fit, events=(ExternalEvent("number", "seven", after=0.05),)),
    Scenario(token_is_completed, tokens={"approve": {"yes": True}}),
    Scenario(blocking_token, tokens={"approve": 5}),
    Scenario(token_is_failed, tokens={"approve": PermissionError("not you")}),
    Scenario(token_times_out),
    Scenario(sleep_wins),
    Scenario(event_wins, events=(ExternalEvent("order.paid", 5, after=0.1),)),
    Scenario(function_wins),
    Scenario(function_loses),
    Scenario(function_fails_in_a_race),
    Scenario(races_in_a_row),
    Scenario(
        losers_are_over_before_the_run_goes_on,
        tokens={"approve": 5},
        events=(ExternalEvent("order.paid", 7, after=0.7),),
    ),
    Scenario(waits_at_once, events=(ExternalEvent("go", after=0.05),)),
    Scenario(steps_after_waits_at_once),
)
