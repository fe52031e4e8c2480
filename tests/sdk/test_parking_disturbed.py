"""Parked handlers while messages overtake each other, and the store loses waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import child_open, lost_wait, ok, parked, resolution, value_of, wait_over, withdrawn
from tests.sdk.parked_runs import parked_run, parking, resolve, rounds, waiting, withholding_suspensions
from tests.sdk.scripted_gateway import ScriptedGateway

BOTH = pytest.mark.parametrize("kind", ["async", "def"])


@pytest.fixture
def noted() -> list[str]:
    return []


# ---- messages in another order ----


@BOTH
@pytest.mark.parametrize("order", ["before", "in one message", "after"])
async def test_a_resolution_and_the_answer_that_it_is_parked_come_in_any_order(
    order: str, kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), park_window=60)
    scripted.script.item = withholding_suspensions
    token = scripted.assign(f"waits-{kind}")
    asked = await scripted.log.suspension(token)
    over = resolution(token, wait_over("child", "child", 41))
    if order == "in one message":
        scripted.send(item_results=[parked(asked)], wait_resolutions=[over])
    elif order == "before":
        scripted.send(wait_resolutions=[over])
        scripted.send(item_results=[parked(asked)])
    else:
        scripted.send(item_results=[parked(asked)])
        scripted.send(wait_resolutions=[over])
    assert value_of((await scripted.log.result(token)).output) == 41
    assert noted == ["begun", "went on"]
    assert scripted.log.said(token) == ["Suspension", "StepReport", "RunResult"]


async def test_a_resolution_that_overtakes_the_answer_by_long_lets_nothing_begin_before_it(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), park_window=60)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("waits-async")
    asked = await scripted.log.suspension(token)
    resolve(scripted, token, 41)
    await eventually(lambda: noted == ["begun", "went on"])
    await rounds(scripted)
    assert scripted.log.said(token) == ["Suspension"], "the run may still be set aside"
    scripted.answer(parked(asked))
    assert value_of((await scripted.log.result(token)).output) == 41


async def test_of_two_waits_one_is_over_before_the_answer_and_the_other_parks_anew(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="two")
    async def two(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", "other") for n in range(2))))

    await connect(scripted, two, park_window=60)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("two")
    asked = await scripted.log.suspension(token)
    scripted.script.item = parking
    resolve(scripted, token, 0, "c0")
    scripted.answer(parked(asked))
    again = await scripted.log.suspension(token, 2)
    assert again.park and [wait.step_name for wait in again.waits] == ["c1"] and again.steps_recorded == 1
    resolve(scripted, token, 1, "c1")
    assert value_of((await scripted.log.result(token)).output) == [0, 1]


async def test_an_end_that_is_told_twice_changes_nothing(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = lambda item: None if isinstance(item, pb.StepReport) else parking(item)
    token = await parked_run(scripted, "waits-async")
    for value in (41, 41, 42):
        resolve(scripted, token, value)
    report = await scripted.log.report(token, "after")
    await rounds(scripted)
    scripted.answer(ok(report))
    assert value_of((await scripted.log.result(token)).output) == 41
    assert scripted.log.said(token) == ["Suspension", "StepReport", "RunResult"]


async def test_the_end_of_a_wait_of_a_run_that_is_not_here_is_ignored(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    resolve(scripted, "run-9.token-9")
    token = await parked_run(scripted, "waits-async")
    resolve(scripted, "run-9.token-9")
    resolve(scripted, token, 41)
    assert value_of((await scripted.log.result(token)).output) == 41


# ---- waits that the handler or the store does not have ----


@BOTH
@pytest.mark.parametrize("step", [wait_over("child", "forgotten", 1), withdrawn("child", "forgotten")])
async def test_the_end_of_a_wait_that_nobody_waits_for_has_it_ask_and_park_once_more(
    step: pb.StepSnapshot, kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """The gateway has given it a slot, which it gives back."""
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, f"waits-{kind}")
    scripted.send(wait_resolutions=[resolution(token, step)])
    again = await scripted.log.suspension(token, 2)
    assert again.park and [wait.step_name for wait in again.waits] == ["child"]
    assert again.steps_recorded == (step.step_name == "forgotten" and step.final)
    await eventually(lambda: scripted.log.held() == {token: "PARKED"})
    resolve(scripted, token, 41)
    assert value_of((await scripted.log.result(token)).output) == 41


@BOTH
async def test_a_wait_that_the_store_has_lost_is_asked_for_again(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, f"waits-{kind}")
    scripted.send(wait_resolutions=[resolution(token, lost_wait("child"))])
    again = await scripted.log.suspension(token, 2)
    assert again.park and again.waits == scripted.log.suspensions(token)[0].message.waits
    await eventually(lambda: scripted.log.open_waits(token) == ["child"])
    resolve(scripted, token, 41)
    assert value_of((await scripted.log.result(token)).output) == 41


async def test_a_wait_that_the_store_has_lost_begins_anew_beside_a_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.step.run_workflow("child", "other"), ctx.step.run("slow", go_on.wait)))

    await connect(scripted, busy)
    token = scripted.assign("busy")
    await eventually(lambda: scripted.log.begun(token))
    scripted.send(wait_resolutions=[resolution(token, lost_wait("child"))])
    await eventually(lambda: len(scripted.log.begun(token)) == 2)
    first, second = scripted.log.begun(token)
    assert first == second
    resolve(scripted, token, 41)
    go_on.set()
    assert value_of((await scripted.log.result(token)).output) == [41, True]


async def test_a_wait_that_the_store_has_lost_before_the_handler_comes_to_it_begins_anew(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """It was open on record, which no longer is so."""
    go_on, slow = asyncio.Event(), asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> None:
        async def later() -> None:
            await ctx.step.run("first", go_on.wait)
            await ctx.step.run_workflow("child", "other")

        await asyncio.gather(later(), ctx.step.run("slow", slow.wait))

    await connect(scripted, busy)
    token = scripted.assign("busy", steps=[child_open("child", seq=9)])
    await eventually(lambda: scripted.log.open_waits(token) == ["child"])
    scripted.send(wait_resolutions=[resolution(token, lost_wait("child"))])
    await eventually(lambda: scripted.log.open_waits(token) == [])
    go_on.set()
    await eventually(lambda: [wait.step_name for wait in scripted.log.begun(token)] == ["child"])
    resolve(scripted, token)
    slow.set()
    assert (await scripted.log.result(token)).HasField("output")
