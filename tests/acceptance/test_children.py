"""Runs that wait for runs, beyond what the original engine's suite shows."""

from __future__ import annotations

import asyncio

from redflow_sdk import Client, Context, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually


async def test_a_run_is_set_aside_also_when_a_step_of_it_was_given_up_before(
    client: Client, start_worker: StartWorker
) -> None:
    """The step is on record as canceled, which its handler did not wait to hear."""
    may_go_on = asyncio.Event()

    @workflow(name="double", queue="family")
    async def double(ctx: Context, number: int) -> int:
        if number == 2:
            await may_go_on.wait()
        return 2 * number

    @workflow(name="patient", queue="family")
    async def patient(ctx: Context) -> list[int]:
        first = await ctx.step.run_workflow("first", double, 1)
        try:
            async with asyncio.timeout(0.05):
                await ctx.step.run("slow", asyncio.sleep, 60)
        except TimeoutError:
            pass
        return [first, await ctx.step.run_workflow("second", double, 2)]

    await start_worker(patient, double, queues=["family"], park_window=0.0)
    handle = await client.start(patient)

    async def is_set_aside() -> bool:
        run = await client.get_run(handle.id)
        return run.status == "waiting" and {one.step_name for one in run.waiting_for} == {"second"}

    await eventually(is_set_aside, within=10)
    may_go_on.set()
    assert await handle.result(timeout=10) == [2, 4]
    assert (await handle.get()).delivery_count == 3
