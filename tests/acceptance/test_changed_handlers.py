"""A deploy changes a handler while runs of it are on their way: what the new one makes of what is on record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from redflow_sdk import Client, Context, RunFailedError, workflow
from redflow_sdk.workflow import AnyWorkflow
from tests.conftest import StartWorker
from tests.eventually import eventually

Part = Callable[[Context], Awaitable[object]]


@workflow(name="old child")
async def old_child(ctx: Context) -> str:
    return "of the old child"


@workflow(name="new child")
async def new_child(ctx: Context) -> str:
    return "of the new child"


def one() -> int:
    return 1


def two() -> int:
    return 2


def word() -> str:
    return "one"


async def a_then_b(ctx: Context) -> object:
    return [await ctx.step.run("a", one), await ctx.step.run("b", two)]


async def b_then_new_then_a(ctx: Context) -> object:
    return [await ctx.step.run("b", two), await ctx.step.run("new", lambda: 3), await ctx.step.run("a", one)]


async def only_b(ctx: Context) -> object:
    return await ctx.step.run("b", two)


async def a_by_another_function(ctx: Context) -> object:
    return await ctx.step.run("a", two)


async def a_under_another_name(ctx: Context) -> object:
    return await ctx.step.run("renamed", two)


async def a_is_a_word(ctx: Context) -> object:
    return await ctx.step.run("a", word)


async def a_is_a_sleep(ctx: Context) -> object:
    await ctx.step.sleep("a", 0)
    return "slept"


async def an_old_child(ctx: Context) -> object:
    return await ctx.step.run_workflow("child", old_child)


async def a_new_child(ctx: Context) -> object:
    return await ctx.step.run_workflow("child", new_child)


async def a_short_sleep(ctx: Context) -> object:
    await ctx.step.sleep("nap", 0.01)
    return "slept"


async def a_long_sleep(ctx: Context) -> object:
    await ctx.step.sleep("nap", days=30)
    return "slept"


async def no_event_in_time(ctx: Context) -> object:
    return await ctx.step.wait_for_event("wait", "old", timeout=0.01)


async def another_event(ctx: Context) -> object:
    return await ctx.step.wait_for_event("wait", "new", timeout=30 * 86400)


@dataclass(frozen=True)
class Change:
    """What a handler did up to the deploy, what it does since, and what its runs come to: an output, or a kind."""

    before: Part
    since: Part
    outcome: object


CHANGES = {
    "steps-moved-and-a-new-one": Change(a_then_b, b_then_new_then_a, [2, 3, 1]),
    "a-step-left-out": Change(a_then_b, only_b, 2),
    "another-function": Change(a_then_b, a_by_another_function, 1),
    "another-name": Change(a_then_b, a_under_another_name, 2),
    "another-annotation": Change(a_then_b, a_is_a_word, "validation"),
    "another-kind": Change(a_then_b, a_is_a_sleep, "non_deterministic"),
    "another-child": Change(an_old_child, a_new_child, "of the old child"),
    "another-length": Change(a_short_sleep, a_long_sleep, "slept"),
    "another-event-when-the-wait-is-over": Change(no_event_in_time, another_event, None),
}


async def outcome_of(client: Client, run_id: str) -> object:
    try:
        return await client.handle(run_id).result(timeout=10)
    except RunFailedError as error:
        return error.failure and error.failure.kind


async def test_what_is_on_record_goes_by_the_names_and_kinds_of_steps(
    client: Client, start_worker: StartWorker
) -> None:
    done: list[str] = []

    def release_one(name: str, change: Change) -> AnyWorkflow:
        @workflow(name=name)
        async def handler(ctx: Context) -> object:
            await change.before(ctx)
            done.append(name)
            return await asyncio.Event().wait()

        return handler

    def release_two(name: str, change: Change) -> AnyWorkflow:
        @workflow(name=name)
        async def handler(ctx: Context) -> object:
            return await change.since(ctx)

        return handler

    before = await start_worker(*(release_one(*entry) for entry in CHANGES.items()), old_child)
    runs = {name: (await client.start(name)).id for name in CHANGES}
    await eventually(lambda: len(done) == len(CHANGES))
    await before.drain(0)
    await start_worker(*(release_two(*entry) for entry in CHANGES.items()), new_child)
    came_to = {name: await outcome_of(client, run_id) for name, run_id in runs.items()}
    assert came_to == {name: change.outcome for name, change in CHANGES.items()}
