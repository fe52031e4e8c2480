"""Handlers and the tasks of asyncio: groups of steps, tasks left behind, and handlers that cancel themselves."""

from __future__ import annotations

import asyncio
import sys

import pytest

from redflow_sdk import Context, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import cancellation, forbids_retry, kind_of, value_of
from tests.sdk.scripted_gateway import ScriptedGateway


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


async def test_a_failed_child_task_arrives_as_a_group_and_fails_the_run(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="grouped")
    async def grouped(ctx: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step.run("fails", lambda: 1 / 0))
            tasks.create_task(ctx.step.run("waits", asyncio.sleep, 30))

    await connect(scripted, grouped)
    token = scripted.assign("grouped", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert failure.type == "ExceptionGroup" and failure.cause.type == "ZeroDivisionError"
    assert kind_of(failure) == "error" and not forbids_retry(failure)


async def test_a_step_in_a_task_group_that_would_end_the_program_ends_only_the_run(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="grouped")
    async def grouped(ctx: Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step.run("exits", sys.exit, 3))

    await connect(scripted, grouped, quick)
    failure = (await scripted.log.result(scripted.assign("grouped"))).failure
    assert (failure.type, failure.cause.type) == ("ExceptionGroup", "StepFailedError")
    assert value_of((await scripted.log.result(scripted.assign("quick"))).output) == "quick"


async def exits(code: int) -> None:
    await asyncio.sleep(0)
    sys.exit(code)


@pytest.mark.parametrize("way", ["group", "gather", "awaited", "waited for", "canceled before it begins"])
async def test_a_task_that_would_end_the_program_ends_neither_its_loop_nor_its_worker(
    way: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """As asyncio has it, SystemExit goes through the loop, besides to whoever awaits the task."""
    tasks: list[asyncio.Task[None]] = []

    @workflow(name="spawns")
    async def spawns(ctx: Context) -> None:
        if way == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(exits(3))
        elif way == "gather":
            await asyncio.gather(exits(3), asyncio.sleep(30))
        else:
            tasks.append(asyncio.create_task(exits(3), name="mine"))
            assert "exits" in repr(tasks[0]) and tasks[0].get_stack()
            if way == "canceled before it begins":
                tasks[0].cancel()
            await asyncio.wait(tasks)
            if way == "awaited":
                await tasks[0]

    await connect(scripted, spawns, quick)
    result = await scripted.log.result(scripted.assign("spawns"))
    assert await takes_the_next_run(scripted)
    if tasks:
        assert tasks[0].cancelled() or isinstance(tasks[0].exception(), RuntimeError)
    if way in ("group", "gather", "awaited"):
        failure = result.failure.cause if way == "group" else result.failure
        assert (failure.type, failure.message, failure.cause.type) == ("RuntimeError", "SystemExit: 3", "SystemExit")
        assert kind_of(failure) == "error"
    else:
        assert result.HasField("output")


async def test_a_handler_that_cancels_itself_fails_its_run(scripted: ScriptedGateway, connect: StartWorker) -> None:
    """Handed back as if the program ended, it would be delivered again and again."""

    @workflow(name="cancels-itself")
    async def cancels_itself(ctx: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await connect(scripted, cancels_itself, quick)
    token = scripted.assign("cancels-itself")
    assert kind_of((await scripted.log.result(token)).failure) == "canceled"
    assert scripted.log.releases(token) == []
    assert await takes_the_next_run(scripted)


@pytest.mark.parametrize("end", ["canceled", "returned"])
async def test_a_task_that_a_handler_left_behind_begins_no_step_when_its_run_is_over(
    end: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """As with any coroutine, tasks that nobody awaits go on. A TaskGroup ends them with the handler."""
    raised: list[BaseException] = []
    executed: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    @workflow(name="spawns")
    async def spawns(ctx: Context) -> None:
        async def background() -> None:
            await over.wait()
            try:
                await ctx.step.run("too-late", lambda: executed.append("too late"))
            except BaseException as error:
                raised.append(error)

        tasks.append(asyncio.create_task(background()))
        if end == "canceled":
            await asyncio.Event().wait()

    await connect(scripted, spawns)
    token = scripted.assign("spawns")
    await scripted.log.ack(token)
    if end == "canceled":
        scripted.send(cancellations=[cancellation(token)])
    await scripted.log.result(token, within=1)
    over.set()
    await eventually(lambda: raised)
    assert isinstance(raised[0], asyncio.CancelledError if end == "canceled" else RuntimeError)
    assert executed == [] and scripted.log.reports(token) == []
