"""Raw awaits beside waits: they hold the run for a while, and no longer; then they begin again on replay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import ok, resolved, suspended, value_of, wait_over
from tests.sdk.parked_runs import parked_run, parking
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


def setting_aside(item: Item) -> pb.ItemResult:
    return suspended(item) if isinstance(item, pb.Suspension) else ok(item)


def resolving(item: Item) -> pb.ItemResult:
    if not isinstance(item, pb.Suspension):
        return ok(item)
    return resolved(item, *(wait_over("child", wait.step_name, 7) for wait in item.waits))


async def test_a_raw_await_is_not_cut_short_as_long_as_it_takes_less(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    woken = asyncio.Event()

    @workflow(name="beside")
    async def beside(ctx: Context) -> list[Any]:
        async def branch() -> str:
            await woken.wait()
            return await ctx.step.run("after", lambda: "after")

        return list(await asyncio.gather(ctx.step.run_workflow("child", "other"), branch()))

    await connect(scripted, beside)
    scripted.script.item = resolving
    token = scripted.assign("beside")
    [begun] = (await scripted.log.command(token)).wait.waits
    assert begun.step_name == "child", "meanwhile the wait begins"
    for _ in range(3):
        await scripted.log.beat()
    assert scripted.log.suspensions(token) == []
    woken.set()
    assert value_of((await scripted.log.result(token)).output) == [7, "after"]
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "Suspension", "RunResult"]


async def test_one_that_takes_longer_is_cut_short_and_the_log_says_which_it_was(
    hold_for: Callable[[float], None],
    scripted: ScriptedGateway,
    connect: StartWorker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hold_for(0.5)
    ended: list[str] = []

    @workflow(name="beside")
    async def beside(ctx: Context) -> None:
        async def polls_a_server() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cut short")
                raise

        await asyncio.gather(ctx.step.run_workflow("child", "other"), polls_a_server())

    await connect(scripted, beside)
    scripted.script.item = setting_aside
    before = time.monotonic()
    token = scripted.assign("beside")
    await scripted.log.suspension(token)
    assert time.monotonic() - before >= 0.5
    await eventually(lambda: ended == ["cut short"])
    messages = [record.getMessage() for record in caplog.records]
    [warning] = [message for message in messages if "counts as waiting although" in message]
    assert "run-1" in warning and "polls_a_server" in warning and "put it into a step" in warning


async def test_one_that_takes_longer_goes_on_while_its_handler_is_parked_and_is_cut_short_at_the_end_of_the_window(
    hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0.1)
    noted: list[str] = []
    served, goes_on = asyncio.Event(), asyncio.Event()

    @workflow(name="beside")
    async def beside(ctx: Context) -> None:
        async def polls_a_server() -> None:
            try:
                await goes_on.wait()
                noted.append("went on")
                served.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                noted.append("cut short")
                raise

        await asyncio.gather(ctx.step.run_workflow("child", "other"), polls_a_server())

    await connect(scripted, beside, park_window=1)
    scripted.script.item = parking
    token = await parked_run(scripted, "beside")
    goes_on.set()
    await asyncio.wait_for(served.wait(), 1)
    assert (noted, scripted.log.held()) == (["went on"], {token: "PARKED"})

    assert not (await scripted.log.suspension(token, 2)).park
    await eventually(lambda: noted == ["went on", "cut short"])


async def test_every_step_and_wait_begins_the_time_anew(
    hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0.4)

    @workflow(name="polls")
    async def polls(ctx: Context) -> list[Any]:
        async def branch() -> int:
            for n in range(4):
                await asyncio.sleep(0.2)  # nothing that the SDK knows of
                await ctx.step.run(f"s{n}", lambda: None)
            return 4

        return list(await asyncio.gather(ctx.step.run_workflow("child", "other"), branch()))

    await connect(scripted, polls)
    scripted.script.item = resolving
    token = scripted.assign("polls")
    assert value_of((await scripted.log.result(token)).output) == [7, 4]
    assert scripted.log.said(token) == ["StepCommand", *["StepReport"] * 4, "Suspension", "RunResult"]


@pytest.mark.parametrize("pause", [0, 0.001])
async def test_a_task_that_never_rests_holds_the_run_no_longer_than_one_that_waits(
    pause: float, hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0.3)
    ended: list[bool] = []

    @workflow(name="spins")
    async def spins(ctx: Context) -> None:
        async def spin() -> None:
            try:
                while True:  # noqa: ASYNC110  # as some do who wait for a flag
                    await asyncio.sleep(pause)
            finally:
                ended.append(True)

        await asyncio.gather(ctx.step.run_workflow("child", "other"), spin())

    await connect(scripted, spins)
    scripted.script.item = setting_aside
    await scripted.log.suspension(scripted.assign("spins"))
    await eventually(lambda: ended == [True])


@pytest.mark.parametrize("way", ["timeout", "wait_for"])
async def test_a_time_out_of_asyncio_around_a_wait_holds_nothing(
    way: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="impatient")
    async def impatient(ctx: Context) -> Any:
        if way == "timeout":
            async with asyncio.timeout(60):
                return await ctx.step.run_workflow("child", "other")
        return await asyncio.wait_for(ctx.step.run_workflow("child", "other"), 60)

    await connect(scripted, impatient)
    scripted.script.item = resolving
    token = scripted.assign("impatient")
    assert value_of((await scripted.log.result(token)).output) == 7
    assert scripted.log.said(token) == ["Suspension", "RunResult"]


FORMS: dict[str, Any] = {
    "shield": lambda work: asyncio.shield(asyncio.ensure_future(work)),
    "wait": lambda work: asyncio.wait([asyncio.ensure_future(work)]),
    "wait, first completed": lambda work: asyncio.wait(
        [asyncio.ensure_future(work)], return_when=asyncio.FIRST_COMPLETED
    ),
    "gather of gather": lambda work: asyncio.gather(asyncio.gather(work), asyncio.sleep(0)),
    "task of a task": lambda work: asyncio.ensure_future(_awaiting(asyncio.ensure_future(work))),
}


async def _awaiting(work: Any) -> Any:
    return await work


@pytest.mark.parametrize("form", FORMS)
async def test_whatever_asyncio_builds_on_a_wait_holds_nothing(
    form: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="built")
    async def built(ctx: Context) -> None:
        await FORMS[form](ctx.step.run_workflow("child", "other"))

    await connect(scripted, built)
    scripted.script.item = resolving
    token = scripted.assign("built")
    assert (await scripted.log.result(token)).HasField("output")
    assert scripted.log.said(token) == ["Suspension", "RunResult"]


async def test_a_task_that_the_handler_does_not_await_holds_it_too(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """It may be about to run a step."""
    woken = asyncio.Event()

    @workflow(name="spawns")
    async def spawns(ctx: Context) -> Any:
        async def background() -> None:
            await woken.wait()
            await ctx.step.run("background", lambda: None)

        task = asyncio.create_task(background())
        value = await ctx.step.run_workflow("child", "other")
        await task
        return value

    await connect(scripted, spawns)
    scripted.script.item = resolving
    token = scripted.assign("spawns")
    await eventually(lambda: scripted.log.begun(token))
    await scripted.log.beat()
    assert scripted.log.suspensions(token) == []
    woken.set()
    assert value_of((await scripted.log.result(token)).output) == 7
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "Suspension", "RunResult"]
