"""Parked handlers that move by themselves: a raw await has ended, a time-out has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import cancellation, child_open, ok, parked, resolved, value_of, wait_over
from tests.sdk.parked_runs import (
    parked_run,
    parking,
    parking_and,
    resolve,
    rounds,
    withholding_suspensions,
    without_slot,
)
from tests.sdk.scripted_gateway import ScriptedGateway


@pytest.mark.parametrize("gets_slot", [True, False], ids=["gets a slot", "gets none"])
async def test_a_step_that_begins_while_the_handler_is_parked_waits_for_a_slot(
    gets_slot: bool, hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0)
    woken, come = asyncio.Event(), asyncio.Event()
    executed: list[str] = []

    @workflow(name="moves")
    async def moves(ctx: Context) -> None:
        async def branch() -> None:
            await woken.wait()  # nothing that the SDK knows of
            come.set()
            await ctx.step.run("late", executed.append, "late")

        await asyncio.gather(ctx.step.run_workflow("child", "other"), branch())

    await connect(scripted, moves, park_window=60)
    scripted.script.item = without_slot
    token = await parked_run(scripted, "moves")
    woken.set()
    await come.wait()
    asked = await scripted.log.suspension(token, 2)
    assert asked.park and not asked.waits
    await rounds(scripted, 2)
    assert executed == [] and scripted.log.held() == {token: "PARKED"}
    if gets_slot:
        scripted.answer(resolved(asked))
        await scripted.log.report(token, "late")
        resolve(scripted, token)
        assert (await scripted.log.result(token)).HasField("output")
        assert executed == ["late"]
    else:
        scripted.send(cancellations=[cancellation(token, pb.CANCELLATION_REASON_UNPARKED)])
        await eventually(lambda: scripted.log.held() == {})
        assert executed == [] and scripted.log.said(token) == ["Suspension", "Suspension"]


async def test_a_wait_that_begins_while_the_handler_is_parked_begins_when_it_has_a_slot(
    hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0)
    woken = asyncio.Event()

    @workflow(name="moves")
    async def moves(ctx: Context) -> None:
        async def branch() -> None:
            await woken.wait()  # nothing that the SDK knows of
            await ctx.step.run_workflow("late", "other")

        await asyncio.gather(ctx.step.run_workflow("child", "other"), branch())

    await connect(scripted, moves, park_window=60)
    scripted.script.item = without_slot
    token = await parked_run(scripted, "moves")
    woken.set()
    asked = await scripted.log.suspension(token, 2)
    assert not asked.waits
    scripted.answer(resolved(asked))
    again = await scripted.log.suspension(token, 3)
    assert [wait.step_name for wait in again.waits] == ["child", "late"]
    await eventually(lambda: sorted(scripted.log.open_waits(token)) == ["child", "late"])
    resolve(scripted, token)
    resolve(scripted, token, 1, "late")
    assert (await scripted.log.result(token)).HasField("output")


async def test_a_wait_that_begins_when_its_end_has_been_told_is_over_at_once(
    hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0)
    woken, come = asyncio.Event(), asyncio.Event()

    @workflow(name="moves")
    async def moves(ctx: Context) -> list[Any]:
        async def branch() -> Any:
            await woken.wait()  # nothing that the SDK knows of
            come.set()
            value = await ctx.step.run_workflow("late", "other")
            return await ctx.step.run("after", lambda: value)

        return list(await asyncio.gather(ctx.step.run_workflow("child", "other"), branch()))

    await connect(scripted, moves, park_window=60)
    scripted.script.item = parking
    token = await parked_run(scripted, "moves", steps=[child_open("late", seq=9)])
    woken.set()
    await come.wait()
    resolve(scripted, token, 5, "late")
    await scripted.log.report(token, "after")
    await scripted.log.suspension(token, 3)
    resolve(scripted, token, 6)
    assert value_of((await scripted.log.result(token)).output) == [6, 5]


async def test_a_handler_that_gives_up_its_last_wait_goes_on_when_it_has_a_slot(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Nothing could wake it any more, and its slot may be another's."""

    @workflow(name="impatient")
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.6):
                await ctx.step.run_workflow("child", "other")
        except TimeoutError:
            return await ctx.step.run("gives-up", lambda: "gave up")
        return "waited"

    await connect(scripted, impatient, park_window=60)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepReport) else without_slot(item)
    token = await parked_run(scripted, "impatient")
    asked = await scripted.log.suspension(token, 2)
    assert asked.park and not asked.waits
    await rounds(scripted, 2)
    assert scripted.log.reports(token) == []
    scripted.answer(resolved(asked))
    report = await scripted.log.report(token, "gives-up")
    await scripted.log.beat()
    await eventually(lambda: scripted.log.held() == {token: "RUNNING"})
    scripted.answer(ok(report))
    assert value_of((await scripted.log.result(token)).output) == "gave up"
    assert scripted.log.said(token) == ["Suspension", "Suspension", "StepReport", "RunResult"]


async def test_a_handler_that_gives_up_its_last_wait_while_it_asks_is_not_parked(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    given_up = asyncio.Event()

    @workflow(name="impatient")
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.3):
                await ctx.step.run_workflow("child", "other")
        except TimeoutError:
            given_up.set()
            return await ctx.step.run("gives-up", lambda: "gave up")
        return "waited"

    await connect(scripted, impatient, park_window=60)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("impatient")
    asked = await scripted.log.suspension(token)
    await asyncio.wait_for(given_up.wait(), 5)
    assert scripted.log.said(token) == ["Suspension"]
    scripted.answer(parked(asked))
    assert value_of((await scripted.log.result(token)).output) == "gave up"
    assert scripted.log.said(token) == ["Suspension", "StepReport", "RunResult"]


async def test_a_handler_that_returns_while_it_is_parked_has_ended(
    hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    hold_for(0)
    woken = asyncio.Event()

    @workflow(name="leaves")
    async def leaves(ctx: Context) -> str:
        waits = asyncio.ensure_future(ctx.step.run_workflow("child", "other"))
        await woken.wait()
        waits.cancel()
        return "left"

    await connect(scripted, leaves, park_window=60)
    scripted.script.item = parking
    token = await parked_run(scripted, "leaves")
    woken.set()
    assert value_of((await scripted.log.result(token)).output) == "left"
    await scripted.log.beat()
    assert scripted.log.held() == {}


@pytest.mark.parametrize("is_parked", [True, False], ids=["parked", "while it is asked"])
async def test_a_cancel_frees_what_wanted_to_begin_while_no_step_could(
    is_parked: bool, hold_for: Callable[[float], None], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Also what the handler has left behind."""
    hold_for(0)
    woken, come = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Task[None]] = []

    @workflow(name="leaves")
    async def leaves(ctx: Context) -> None:
        async def behind() -> None:
            await woken.wait()
            come.set()
            await ctx.step.run("late", lambda: None)

        left.append(asyncio.create_task(behind()))
        await ctx.step.run_workflow("child", "other")

    await connect(scripted, leaves, park_window=60)
    scripted.script.item = parking if is_parked else withholding_suspensions
    token = await parked_run(scripted, "leaves") if is_parked else scripted.assign("leaves")
    await scripted.log.suspension(token)
    woken.set()
    await come.wait()
    scripted.send(cancellations=[pb.Cancellation(lease_token=token, reason=pb.CANCELLATION_REASON_USER)])
    assert (await scripted.log.result(token)).HasField("canceled")
    await asyncio.wait(left, timeout=5)
    assert left[0].cancelled()


async def test_at_the_end_of_the_window_all_waits_are_named_also_those_registered_before(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> None:
        await asyncio.gather(
            *(ctx.step.run_workflow(f"c{n}", "other") for n in range(3)), ctx.step.run("slow", go_on.wait)
        )

    await connect(scripted, busy, park_window=0.2)
    scripted.script.item = parking_and(
        lambda item: resolved(item, *(wait_over("child", f"c{n}", n, number=n + 1) for n in range(3)))
    )
    token = scripted.assign("busy")
    await eventually(lambda: len(scripted.log.begun(token)) == 3)
    go_on.set()
    assert (await scripted.log.result(token)).HasField("output")
    assert [[wait.step_name for wait in it.message.waits] for it in scripted.log.suspensions(token)] == [
        ["c0", "c1", "c2"]
    ] * 2
