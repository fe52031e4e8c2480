"""What a handler does while it is asked whether its run is set aside, and what is left of it when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import answer, cancellation, child_failed, child_succeeded, ok, resolved, suspended, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@pytest.fixture
def connect(connect_without_parking: StartWorker) -> StartWorker:
    return connect_without_parking


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


def withholding_suspensions(item: Item) -> pb.ItemResult | None:
    return None if isinstance(item, pb.Suspension) else ok(item)


async def test_a_cancel_while_it_is_asked_interrupts_the_clean_up_no_second_time(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="cleans-up")
    async def cleans_up(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", "child")
        finally:
            noted.append("begun")
            for _ in range(10):
                await asyncio.sleep(0.05)
            noted.append("ended")

    await connect(scripted, cleans_up)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("cleans-up")
    asked = await scripted.log.suspension(token)
    scripted.send(cancellations=[cancellation(token)])
    await eventually(lambda: noted == ["begun"], every=0.005)
    scripted.answer(answer(asked, pb.ITEM_STATUS_CANCELED))
    await eventually(lambda: len(noted) == 2)
    assert noted == ["begun", "ended"]
    assert scripted.log.said(token)[:1] == ["Suspension"]


@pytest.mark.parametrize("is_asked", [True, False], ids=["while it is asked", "before it is asked"])
async def test_a_handler_that_ended_asks_for_nothing_and_what_it_left_behind_ends(
    is_asked: bool, hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0)
    left: list[asyncio.Task[object]] = []

    @workflow(name="leaves")
    async def leaves(ctx: Context) -> str:
        left.append(asyncio.create_task(ctx.step.run_workflow("child", "child")))
        await asyncio.sleep(0.2 if is_asked else 0)
        return "done"

    await connect(scripted, leaves)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("leaves")
    assert value_of((await scripted.log.result(token)).output) == "done"
    await asyncio.wait(left, timeout=5)
    assert left[0].cancelled()
    assert scripted.log.said(token) == (["Suspension", "RunResult"] if is_asked else ["RunResult"])


async def test_a_failed_child_ends_the_handler_although_its_sibling_still_waits(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    tasks: list[asyncio.Task[object]] = []

    @workflow(name="gathers")
    async def gathers(ctx: Context) -> None:
        tasks.extend(asyncio.create_task(ctx.step.run_workflow(f"c{n}", "child")) for n in range(2))
        await asyncio.gather(*tasks)

    await connect(scripted, gathers)
    scripted.script.item = lambda item: (
        resolved(item, child_failed("c0")) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("gathers")
    assert (await scripted.log.result(token)).failure.type == "ChildFailedError"
    await asyncio.wait(tasks, timeout=5)
    assert tasks[1].cancelled()
    for _ in range(2):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["Suspension", "RunResult"]


async def test_a_handler_that_swallows_the_end_runs_no_further_step_and_no_further_run(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[str] = []

    @workflow(name="swallows")
    async def swallows(ctx: Context) -> str:
        async def again(n: int) -> None:
            if n == 0:
                await ctx.step.run("step", lambda: raised.append("executed"))
            elif n == 1:
                await ctx.step.run_workflow("other", "child")
            else:
                await ctx.step.emit_event("event", "e")

        try:
            await ctx.step.run_workflow("child", "child")
        except asyncio.CancelledError:
            for n in range(3):
                try:
                    await again(n)
                except asyncio.CancelledError:
                    raised.append("CancelledError")
        return "done"

    await connect(scripted, swallows, quick, concurrency=1)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("swallows")
    await eventually(lambda: len(raised) == 3)
    assert raised == ["CancelledError"] * 3
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_timeout_around_a_wait_ends_the_wait_while_the_answer_is_not_there(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="impatient")
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.1):
                await ctx.step.run_workflow("child", "child")
        except TimeoutError:
            return await ctx.step.run("gives-up", lambda: "gave up")
        return "waited"

    await connect(scripted, impatient)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("impatient")
    asked = await scripted.log.suspension(token)
    for _ in range(3):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["Suspension"], "no step begins before the answer"
    scripted.answer(resolved(asked, child_succeeded("child", 1)))
    assert value_of((await scripted.log.result(token)).output) == "gave up"
    assert scripted.log.said(token) == ["Suspension", "StepReport", "RunResult"]


@pytest.mark.parametrize("way", ["timeout", "wait_for"])
async def test_a_timeout_of_asyncio_ends_with_the_handler_that_is_set_aside(
    way: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="impatient")
    async def impatient(ctx: Context) -> None:
        try:
            if way == "timeout":
                async with asyncio.timeout(5):
                    await ctx.step.run_workflow("child", "child")
            else:
                await asyncio.wait_for(ctx.step.run_workflow("child", "child"), 5)
        except BaseException as error:
            noted.append(type(error).__name__)
            raise

    await connect(scripted, impatient, quick, concurrency=1)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("impatient")
    await eventually(lambda: noted)
    assert noted == ["CancelledError"]
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]
