"""Handlers and steps that block: each has a thread of its own, and the context variables of its run."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar

from redflow_sdk import BlockingContext, Context, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import payload, value_of
from tests.sdk.scripted_gateway import ScriptedGateway

RUNS = 20
NAP_S = 0.4

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def all_end_within(seconds: float, gateway: ScriptedGateway, name: str) -> None:
    runs = [gateway.assignment(name) for _ in range(RUNS)]
    started_at = time.monotonic()
    gateway.send(assignments=runs)
    await eventually(lambda: len(gateway.log.results()) == RUNS)
    assert time.monotonic() - started_at < seconds
    assert all(heard.message.HasField("output") for heard in gateway.log.results())
    assert [ack.message.reject_reason for ack in gateway.log.acks()] == [0] * RUNS


# ---- side by side ----


async def test_as_many_blocking_handlers_run_at_once_as_there_are_slots(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="naps")
    def naps(ctx: BlockingContext) -> None:
        time.sleep(NAP_S)

    await connect(scripted, naps, concurrency=RUNS)
    await all_end_within(4 * NAP_S, scripted, "naps")


async def test_as_many_blocking_steps_run_at_once_as_there_are_slots(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="naps-in-a-step")
    async def naps_in_a_step(ctx: Context) -> None:
        await ctx.step.run("nap", time.sleep, NAP_S)

    await connect(scripted, naps_in_a_step, concurrency=RUNS)
    await all_end_within(4 * NAP_S, scripted, "naps-in-a-step")


async def test_blocking_handlers_in_every_slot_leave_threads_for_blocking_steps(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    stepped = threading.Event()

    @workflow(name="waits-for-the-step")
    def waits_for_the_step(ctx: BlockingContext) -> bool:
        return stepped.wait(10)

    @workflow(name="steps")
    async def steps(ctx: Context) -> None:
        await ctx.step.run("step", stepped.set)

    await connect(scripted, waits_for_the_step, steps, concurrency=3)
    waiting = [scripted.assign("waits-for-the-step") for _ in range(2)]
    await scripted.log.result(scripted.assign("steps"))
    assert [value_of((await scripted.log.result(token)).output) for token in waiting] == [True, True]


async def test_the_steps_of_a_blocking_handler_run_in_its_thread_and_async_ones_on_the_loop(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    threads: dict[str, int] = {}

    async def on_loop() -> None:
        await asyncio.sleep(0)
        threads["async step"] = threading.get_ident()

    @workflow(name="looks")
    def looks(ctx: BlockingContext) -> None:
        threads["handler"] = threading.get_ident()
        ctx.step.run("plain", lambda: threads.update(step=threading.get_ident()))
        ctx.step.run("async", on_loop)

    await connect(scripted, looks)
    result = await scripted.log.result(scripted.assign("looks"))
    assert result.HasField("output") and result.steps_recorded == 2
    assert threads["step"] == threads["handler"] != threading.get_ident()
    assert threads["async step"] == threading.get_ident()


async def test_a_plain_function_that_gives_an_awaitable_is_awaited_as_a_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    @workflow(name="asks")
    async def asks(ctx: Context) -> int:
        return await ctx.step.run("asks", lambda: answer())

    await connect(scripted, asks)
    assert value_of((await scripted.log.result(scripted.assign("asks"))).output) == 42


# ---- context variables ----


async def sees_later() -> str:
    await asyncio.sleep(0.01)
    return tenant.get()


@workflow(name="async-tenant")
async def async_tenant(ctx: Context, name: str) -> list[str]:
    before = tenant.get()
    tenant.set(name)
    in_thread = await ctx.step.run("in-thread", tenant.get)
    return [before, in_thread, await ctx.step.run("on-loop", sees_later), tenant.get()]


@workflow(name="thread-tenant")
def thread_tenant(ctx: BlockingContext, name: str) -> list[str]:
    before = tenant.get()
    tenant.set(name)
    plain = ctx.step.run("plain", tenant.get)
    return [before, plain, ctx.step.run("on-loop", sees_later), tenant.get()]


async def test_each_of_many_parallel_runs_sees_its_own_context_variables_everywhere(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, async_tenant, thread_tenant, concurrency=100)
    names = {
        scripted.assign(workflow_name, payload(f"{workflow_name}-{n}")): f"{workflow_name}-{n}"
        for n in range(50)
        for workflow_name in ("async-tenant", "thread-tenant")
    }
    for token, name in names.items():
        output = value_of((await scripted.log.result(token)).output)
        assert output == ["nobody", name, name, name]
    assert tenant.get() == "nobody"


async def test_what_a_run_sets_is_gone_in_the_next_one_of_its_thread(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, thread_tenant, concurrency=1)
    for name in ("first", "second"):
        output = value_of((await scripted.log.result(scripted.assign("thread-tenant", payload(name)))).output)
        assert output[0] == "nobody"
        await eventually(lambda: scripted.log.beats())
        await scripted.log.beat()


async def test_handlers_see_the_context_variables_of_who_started_the_worker(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="sees")
    def sees(ctx: BlockingContext) -> str:
        return tenant.get()

    token = tenant.set("the starter")
    try:
        await connect(scripted, sees)
        assert value_of((await scripted.log.result(scripted.assign("sees"))).output) == "the starter"
    finally:
        tenant.reset(token)
