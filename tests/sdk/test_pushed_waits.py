"""Waits that end while a step of their run is at work: the gateway tells, and their branch goes on at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    child_by_reference,
    child_failed,
    child_open,
    ok,
    resolution,
    resolved,
    timed_out,
    value_of,
    wait_over,
)
from tests.sdk.parked_runs import resolve
from tests.sdk.scripted_gateway import ScriptedGateway


async def test_a_branch_goes_on_when_its_wait_is_over_although_another_is_at_work(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="both")
    async def both(ctx: Context) -> list[Any]:
        async def branch() -> Any:
            value = await ctx.step.run_workflow("child", "other")
            return await ctx.step.run("after", lambda: value + 1)

        return list(await asyncio.gather(branch(), ctx.step.run("slow", go_on.wait)))

    await connect(scripted, both)
    token = scripted.assign("both")
    await eventually(lambda: scripted.log.open_waits(token) == ["child"])
    assert scripted.log.held() == {token: "RUNNING"}
    resolve(scripted, token, 41)
    report = await scripted.log.report(token, "after")
    assert value_of(report.output) == 42 and report.steps_recorded == 1
    go_on.set()
    result = await scripted.log.result(token)
    assert value_of(result.output) == [42, True] and result.steps_recorded == 3
    assert scripted.log.suspensions(token) == [], "it never came to rest"


async def test_so_does_a_thread_of_a_def_handler(
    scripted: ScriptedGateway, connect: StartWorker, released: Any
) -> None:
    @workflow(name="threads")
    def threads(ctx: BlockingContext) -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            slow = pool.submit(ctx.step.run, "slow", released.wait, 10)
            waits = pool.submit(ctx.step.run_workflow, "child", "other")
            return [ctx.step.run("after", waits.result), slow.result()]

    await connect(scripted, threads)
    token = scripted.assign("threads")
    await eventually(lambda: scripted.log.begun(token))
    resolve(scripted, token, 41)
    assert value_of((await scripted.log.report(token, "after")).output) == 41
    released.set()
    assert value_of((await scripted.log.result(token)).output) == [41, True]


async def test_an_end_that_comes_before_the_answer_that_the_wait_has_begun_counts(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="both")
    async def both(ctx: Context) -> list[Any]:
        async def branch() -> None:
            await ctx.step.run_workflow("child", "other")
            go_on.set()

        return list(await asyncio.gather(branch(), ctx.step.run("slow", go_on.wait)))

    await connect(scripted, both)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepCommand) else ok(item)
    token = scripted.assign("both")
    command = await scripted.log.command(token)
    resolve(scripted, token)
    report = await scripted.log.report(token, "slow")
    scripted.answer(ok(command))
    assert (await scripted.log.result(token)).HasField("output")
    assert report.steps_recorded == 1


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (wait_over("child", "child", 5), 5),
        (child_failed("child"), "ChildFailedError"),
        (timed_out("child", "child"), "TimeoutError"),
        (child_by_reference("child", 70_000), "fetched"),
    ],
    ids=["value", "failed", "timed out", "large"],
)
async def test_it_is_the_same_end_as_in_an_answer(
    step: pb.StepSnapshot, outcome: object, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="both")
    async def both(ctx: Context) -> Any:
        async def branch() -> Any:
            try:
                return await ctx.step.run_workflow("child", "other")
            except Exception as error:
                return type(error).__name__
            finally:
                go_on.set()

        return (await asyncio.gather(branch(), ctx.step.run("slow", go_on.wait)))[0]

    await connect(scripted, both)
    fetched = wait_over("child", "child", "fetched")
    scripted.script.outputs = lambda request: pb.GetStepOutputsResponse(steps=[fetched])
    token = scripted.assign("both")
    await eventually(lambda: scripted.log.begun(token))
    scripted.send(wait_resolutions=[resolution(token, step)])
    assert value_of((await scripted.log.result(token)).output) == outcome
    assert scripted.log.suspensions(token) == []


async def test_a_wait_whose_end_was_told_before_the_handler_came_to_it_is_asked_for_beside_a_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Else it would be heard of only when the step is done."""
    first, slow = asyncio.Event(), asyncio.Event()

    @workflow(name="both")
    async def both(ctx: Context) -> list[Any]:
        async def branch() -> Any:
            await ctx.step.run("first", first.wait)
            value = await ctx.step.run_workflow("child", "other")
            slow.set()
            return value

        return list(await asyncio.gather(branch(), ctx.step.run("slow", slow.wait)))

    over = wait_over("child", "child", 41, seq=9)
    await connect(scripted, both)
    scripted.script.item = lambda item: resolved(item, over) if isinstance(item, pb.StepCommand) else ok(item)
    token = scripted.assign("both", steps=[child_open("child", seq=9)])
    await eventually(lambda: scripted.log.open_waits(token) == ["child"])
    scripted.send(wait_resolutions=[resolution(token, over)])
    await eventually(lambda: scripted.log.open_waits(token) == [])
    first.set()
    assert value_of((await scripted.log.result(token)).output) == [41, True]
    assert scripted.log.suspensions(token) == []


async def test_an_end_that_is_told_when_the_handler_has_ended_changes_nothing(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="leaves")
    async def leaves(ctx: Context) -> str:
        waits = asyncio.ensure_future(ctx.step.run_workflow("child", "other"))
        await ctx.step.run("slow", asyncio.sleep, 0.05)
        waits.cancel()
        return "left"

    await connect(scripted, leaves)
    scripted.script.item = lambda item: None if isinstance(item, pb.RunResult) else ok(item)
    token = scripted.assign("leaves")
    result = await scripted.log.result(token)
    resolve(scripted, token)
    for _ in range(2):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "RunResult"]
    scripted.answer(ok(result))
    await eventually(lambda: scripted.log.held() == {})
