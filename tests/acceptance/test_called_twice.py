"""What may be called twice although it is a step: when it took too long in a thread, or its worker went meanwhile."""

from __future__ import annotations

import asyncio
import threading

from redflow_sdk import BlockingContext, Client, Context, RetryPolicy, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually

AGAIN = RetryPolicy(max_attempts=2, initial=0.0)


async def test_a_def_step_over_its_time_out_may_be_called_again_while_its_first_call_goes_on(
    client: Client, start_worker: StartWorker
) -> None:
    released = threading.Event()
    noted: list[str] = []

    def slow_at_first() -> str:
        if noted:
            noted.append("second")
            return "second"
        noted.append("first")
        released.wait(20)
        noted.append("end of first")
        return "first"

    @workflow(name="impatient")
    async def impatient(ctx: Context) -> str:
        return await ctx.step.run("slow", slow_at_first, timeout=0.05, retry=AGAIN)

    await start_worker(impatient)
    try:
        assert await client.execute(impatient, timeout=10) == "second"
        assert noted == ["first", "second"]
    finally:
        released.set()
    await eventually(lambda: noted == ["first", "second", "end of first"])


async def test_a_def_step_of_a_def_handler_that_returns_too_late_has_failed_and_is_called_again(
    client: Client, start_worker: StartWorker
) -> None:
    calls: list[int] = []

    def slow_at_first() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            threading.Event().wait(0.1)
        return len(calls)

    @workflow(name="impatient", retry=AGAIN)
    def impatient(ctx: BlockingContext) -> int:
        return ctx.step.run("slow", slow_at_first, timeout=0.05)

    await start_worker(impatient)
    assert await client.execute(impatient, timeout=10) == 2


async def test_a_step_that_was_at_work_when_its_worker_went_is_called_again_under_the_same_run_and_name(
    client: Client, start_worker: StartWorker
) -> None:
    keys: list[str] = []

    async def charge(key: str) -> str:
        keys.append(key)
        if len(keys) == 1:
            await asyncio.Event().wait()
        return key

    @workflow(name="pays")
    async def pays(ctx: Context) -> str:
        return await ctx.step.run("charge", charge, f"{ctx.run.id} charge")

    first = await start_worker(pays)
    handle = await client.start(pays)
    await eventually(lambda: keys)
    await first.drain(0)
    await start_worker(pays)
    assert await handle.result(timeout=10) == f"{handle.id} charge"
    assert keys == [f"{handle.id} charge"] * 2
    assert (await handle.get()).attempt == 1
