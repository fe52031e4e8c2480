"""A loop over items gives each its own step name, the same one whenever the handler runs again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from tests.conftest import StartWorker
from tests.sdk.messages import forbids_retry, payload, succeeded, value_of
from tests.sdk.scripted_gateway import ScriptedGateway


@workflow(name="in-turn")
async def in_turn(ctx: Context, items: list[str]) -> list[str]:
    return [await ctx.step.run(name, str.upper, item) for name, item in ctx.step.each("shout", items)]


@workflow(name="at-once")
async def at_once(ctx: Context, items: list[str]) -> list[str]:
    named = ctx.step.each("shout", items)
    return await asyncio.gather(*(ctx.step.run(name, str.upper, item) for name, item in named))


@workflow(name="in-a-thread")
def in_a_thread(ctx: BlockingContext, items: list[str]) -> list[str]:
    return [ctx.step.run(name, str.upper, item) for name, item in ctx.step.each("shout", items)]


HANDLERS = {one.name: one for one in (in_turn, at_once, in_a_thread)}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
async def test_each_item_has_a_step_of_its_own_also_when_items_are_equal(
    handler: Any, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, handler)
    token = scripted.assign(handler.name, payload(["a", "b", "a"]))
    assert value_of((await scripted.log.result(token)).output) == ["A", "B", "A"]
    assert sorted(report.message.step_name for report in scripted.log.reports(token)) == [
        "shout#0",
        "shout#1",
        "shout#2",
    ]


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
async def test_a_replay_takes_what_is_on_record_of_each_item_and_runs_the_others(
    handler: Any, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, handler)
    on_record = [succeeded("shout#0", "zero"), succeeded("shout#2", "two", seq=3)]
    token = scripted.assign(handler.name, payload(["a", "b", "c"]), steps=on_record)
    assert value_of((await scripted.log.result(token)).output) == ["zero", "B", "two"]
    assert [report.message.step_name for report in scripted.log.reports(token)] == ["shout#1"]


async def test_loops_may_be_nested_by_the_name_of_the_item_around(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="nested")
    async def nested(ctx: Context, rows: list[list[int]]) -> int:
        total = 0
        for row, numbers in ctx.step.each("row", rows):
            for name, number in ctx.step.each(f"{row} number", numbers):
                total += await ctx.step.run(name, int, number)
        return total

    await connect(scripted, nested)
    token = scripted.assign("nested", payload([[1, 2], [3]]))
    assert value_of((await scripted.log.result(token)).output) == 6
    names = [report.message.step_name for report in scripted.log.reports(token)]
    assert names == ["row#0 number#0", "row#0 number#1", "row#1 number#0"]


async def test_a_second_loop_of_the_same_name_is_a_second_use_of_its_names(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="twice")
    async def twice(ctx: Context) -> None:
        for _ in range(2):
            for name, item in ctx.step.each("shout", ["a"]):
                await ctx.step.run(name, str.upper, item)

    await connect(scripted, twice)
    failure = (await scripted.log.result(scripted.assign("twice", max_attempts=5))).failure
    assert (
        failure.type == "DuplicateStepError" and "'shout#0'" in failure.message and "ctx.step.each" in failure.message
    )
    assert forbids_retry(failure)


@pytest.mark.parametrize("items", [{"a", "b"}, frozenset({"a"})], ids=["set", "frozenset"])
async def test_items_whose_order_may_differ_on_a_replay_are_refused(
    items: Iterable[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="unordered")
    async def unordered(ctx: Context) -> None:
        for name, item in ctx.step.each("shout", items):
            await ctx.step.run(name, str.upper, item)

    await connect(scripted, unordered)
    token = scripted.assign("unordered")
    failure = (await scripted.log.result(token)).failure
    assert failure.type == "InvalidInputError" and "must have an order" in failure.message
    assert not scripted.log.reports(token)


@pytest.mark.parametrize(
    "items", [("a", "b"), dict.fromkeys("ab"), dict.fromkeys("ab").keys(), iter("ab")], ids=lambda it: type(it).__name__
)
async def test_whatever_has_an_order_is_taken(
    items: Iterable[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="ordered")
    async def ordered(ctx: Context) -> list[list[str]]:
        return [[name, item] for name, item in ctx.step.each("shout", items)]

    await connect(scripted, ordered)
    output = value_of((await scripted.log.result(scripted.assign("ordered"))).output)
    assert output == [["shout#0", "a"], ["shout#1", "b"]]
