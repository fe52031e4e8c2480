"""Steps that take too long, and threads that go on when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from redflow_sdk.proto.v1 import run_pb2
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import cancellation, kind_of, value_of
from tests.sdk.scripted_gateway import ScriptedGateway


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


async def test_a_step_that_takes_too_long_fails_with_kind_timeout_and_the_handler_may_go_on(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="patient")
    async def patient(ctx: Context) -> str:
        try:
            await ctx.step.run("slow", asyncio.sleep, 20, timeout=0.1)
        except TimeoutError:
            return await ctx.step.run("fallback", lambda: "fallback")
        return "slow"

    await connect(scripted, patient)
    token = scripted.assign("patient")
    assert value_of((await scripted.log.result(token, within=2)).output) == "fallback"
    report = await scripted.log.report(token, "slow")
    assert report.status == run_pb2.STEP_STATUS_FAILED and kind_of(report.failure) == "timeout" and report.final


async def test_a_thread_that_outlives_its_steps_timeout_takes_up_a_slot_until_it_ends(
    scripted: ScriptedGateway, connect: StartWorker, released: threading.Event
) -> None:
    @workflow(name="impatient")
    async def impatient(ctx: Context) -> None:
        await ctx.step.run("blocks", released.wait, 20, timeout=0.1)

    await connect(scripted, impatient, quick, concurrency=2)
    token = scripted.assign("impatient")
    failure = (await scripted.log.result(token, within=2)).failure
    assert kind_of(failure) == "timeout"
    assert scripted.log.slot_limits() == [1]
    assert await takes_the_next_run(scripted)
    released.set()
    await eventually(lambda: scripted.log.slot_limits() == [1, 2])


async def test_a_step_in_a_handlers_own_thread_that_takes_too_long_fails_when_it_returns(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="impatient")
    def impatient(ctx: BlockingContext) -> None:
        ctx.step.run("slow", time.sleep, 0.3, timeout=0.1)

    await connect(scripted, impatient)
    token = scripted.assign("impatient")
    assert kind_of((await scripted.log.result(token)).failure) == "timeout"
    assert kind_of((await scripted.log.report(token, "slow")).failure) == "timeout"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
async def test_a_timeout_that_is_no_length_of_time_is_refused_before_the_step_runs(
    timeout: float, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []

    @workflow(name="odd")
    async def odd(ctx: Context) -> None:
        await ctx.step.run("odd", lambda: executed.append(True), timeout=timeout)

    await connect(scripted, odd)
    failure = (await scripted.log.result(scripted.assign("odd"))).failure
    assert "timeout" in failure.message
    assert executed == []


async def test_a_thread_that_outlives_its_canceled_run_takes_up_a_slot_until_it_ends(
    scripted: ScriptedGateway, connect: StartWorker, released: threading.Event
) -> None:
    started = threading.Event()

    def blocks() -> None:
        started.set()
        released.wait(20)

    @workflow(name="waits-for-a-thread")
    async def waits_for_a_thread(ctx: Context) -> None:
        await ctx.step.run("blocks", blocks)

    await connect(scripted, waits_for_a_thread, quick, concurrency=2)
    token = scripted.assign("waits-for-a-thread")
    await eventually(started.is_set)
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1)).HasField("canceled")
    assert scripted.log.slot_limits() == [1]
    assert await takes_the_next_run(scripted)
    released.set()
    await eventually(lambda: scripted.log.slot_limits() == [1, 2])


async def test_a_step_that_has_not_got_a_thread_yet_is_never_executed_after_its_timeout(
    scripted: ScriptedGateway, connect: StartWorker, released: threading.Event
) -> None:
    executed: list[str] = []

    @workflow(name="queues")
    async def queues(ctx: Context) -> None:
        blocked = asyncio.ensure_future(ctx.step.run("blocks", released.wait, 20))
        await asyncio.sleep(0)
        try:
            await ctx.step.run("late", lambda: executed.append("late"), timeout=0.1)
        except TimeoutError:
            released.set()
        await blocked

    await connect(scripted, queues, concurrency=1)
    token = scripted.assign("queues")
    assert (await scripted.log.result(token)).HasField("output")
    assert kind_of((await scripted.log.report(token, "late")).failure) == "timeout"
    assert executed == []
    assert scripted.log.slot_limits() == []
