"""Scenarios: runs that start runs, wait for them, and end them; events that start runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redflow_sdk import BlockingContext, ChildFailedError, Context, RetryPolicy, UnknownWorkflowError, workflow
from tests.testing.scenario import Scenario, fails

QUICK = RetryPolicy(max_attempts=2, initial=0.02, maximum=0.1)


@dataclass(frozen=True)
class Page:
    number: int


@workflow
async def render(ctx: Context, number: int) -> Page:
    await ctx.step.sleep("ink", 0.03)
    return Page(await ctx.step.run("print", lambda: number * 2))


@workflow(retry=QUICK)
async def broken(ctx: Context, number: int) -> int:
    raise ValueError(f"broken {number}")


@workflow(retry=QUICK)
async def flaky(ctx: Context) -> int:
    return fails(1, ValueError("not yet"), "child")


@workflow
async def endless(ctx: Context) -> None:
    await ctx.step.wait_for_event("never", "never")


@workflow
async def at_work(ctx: Context) -> None:
    await ctx.step.run("work", asyncio.sleep, 60)


@workflow(events=["order.paid"])
async def on_paid(ctx: Context, order: dict[str, int]) -> int:
    return order["id"]


@workflow(events=["order.paid"])
async def also_on_paid(ctx: Context, order: list[int]) -> None:
    raise AssertionError("its input does not fit")


@workflow
async def child_succeeds(ctx: Context) -> list[int]:
    first = await ctx.step.run_workflow("first", render, 1)
    pages = await asyncio.gather(*(ctx.step.run_workflow(f"page {n}", render, n) for n in range(3)))
    by_name = await ctx.step.run_workflow("by name", "render", 9)
    return [first.number, *(page.number for page in pages), by_name["number"]]


@workflow
def blocking_parent(ctx: BlockingContext) -> list[int]:
    return [ctx.step.run_workflow("page", render, 3).number, ctx.step.run_workflow("flaky", flaky)]


@workflow
async def child_fails(ctx: Context) -> str:
    try:
        await ctx.step.run_workflow("broken", broken, 1)
    except ChildFailedError as error:
        cause = error.failure.cause
        return f"{cause and cause.type} {cause and cause.message}"
    return "no"


@workflow(retry=QUICK)
async def child_fails_the_run(ctx: Context) -> None:
    await ctx.step.run_workflow("broken", broken, 1)


@workflow
async def child_times_out(ctx: Context) -> str:
    try:
        await ctx.step.run_workflow("endless", endless, timeout=0.05)
    except TimeoutError:
        return "too long"
    return "no"


@workflow
async def child_at_work_times_out(ctx: Context) -> str:
    try:
        await ctx.step.run_workflow("work", at_work, timeout=0.1)
    except TimeoutError:
        return "too long"
    return "no"


@workflow
async def child_loses_a_race(ctx: Context) -> str:
    child, late = ctx.step.run_workflow("child", endless), ctx.step.sleep("late", 0.05)
    return (await ctx.step.race("first", child=child, late=late)).winner


@workflow
async def child_wins_a_race(ctx: Context) -> int:
    child, late = ctx.step.run_workflow("child", render, 4), ctx.step.sleep("late", 60)
    won = await ctx.step.race("first", child=child, late=late)
    return won.value.number if won.value else 0


@workflow
async def unknown_child(ctx: Context) -> str:
    try:
        await ctx.step.run_workflow("who", "nobody", 1)
    except UnknownWorkflowError as error:
        return str(error)
    return "no"


@workflow(retry=QUICK)
async def input_of_a_child_does_not_fit(ctx: Context) -> None:
    await ctx.step.run_workflow("page", "render", "seven")


@workflow
async def one_child_for_two_steps(ctx: Context) -> list[int]:
    first = await ctx.step.run_workflow("first", render, 1, idempotency_key="same")
    return [first.number, (await ctx.step.run_workflow("second", render, 2, idempotency_key="same")).number]


@workflow
async def takes_a_while(ctx: Context) -> int:
    await ctx.step.sleep("while", 0.5)
    return 5


@workflow
async def one_of_two_waits_gives_up(ctx: Context) -> list[str]:
    first = ctx.step.run_workflow("first", takes_a_while, timeout=0.1, idempotency_key="one")
    second = ctx.step.run_workflow("second", takes_a_while, idempotency_key="one")
    return [str(outcome) for outcome in await asyncio.gather(first, second, return_exceptions=True)][1:]


@workflow
async def waits_for_itself(ctx: Context, depth: int) -> None:
    await ctx.step.run_workflow("again", waits_for_itself, depth, idempotency_key="circle")


@workflow
async def starts_and_goes_on(ctx: Context) -> str:
    await ctx.step.start_workflow("page", render, 5)
    return "went on"


@workflow
async def started_run_ends_along(ctx: Context) -> str:
    await ctx.step.start_workflow("endless", endless, parent_close="cancel")
    return "went on"


@workflow
async def starts_an_unknown_one(ctx: Context) -> None:
    await ctx.step.start_workflow("who", "nobody")


@workflow
async def emits(ctx: Context) -> int:
    ids = await ctx.step.emit_event("announce", "order.paid", {"id": 7})
    again = await ctx.step.emit_event("again", "order.paid", {"id": 8}, idempotency_key="once")
    repeated = await ctx.step.emit_event("repeated", "order.paid", {"id": 9}, idempotency_key="once")
    assert again == repeated
    return len(ids)


@workflow
async def schedules(ctx: Context) -> int:
    at = datetime.now(UTC) + timedelta(seconds=0.05)
    return len(await ctx.step.schedule_event("announce", "order.paid", {"id": 7}, available_at=at))


@workflow
async def emits_to_itself(ctx: Context) -> object:
    await ctx.step.emit_event("ping", "ping", 3)
    got = await ctx.step.wait_for_event("pong", "ping", timeout=5)
    return got and got.payload


ALL = (render, broken, flaky, endless, at_work, takes_a_while)

SCENARIOS = (
    *(
        Scenario(each, others=ALL)
        for each in (
            *(child_succeeds, blocking_parent, child_fails, child_fails_the_run, child_times_out),
            *(child_at_work_times_out, child_loses_a_race, child_wins_a_race, unknown_child),
            *(input_of_a_child_does_not_fit, one_child_for_two_steps, starts_and_goes_on, started_run_ends_along),
            *(starts_an_unknown_one, emits_to_itself, one_of_two_waits_gives_up),
        )
    ),
    *(Scenario(each, others=(on_paid, also_on_paid)) for each in (emits, schedules)),
    Scenario(waits_for_itself, 1),
)
