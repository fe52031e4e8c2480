"""Waits beside steps and beside one another: no step runs twice because its sibling waited."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from redflow_sdk import ChildFailedError, Client, Context, workflow
from redflow_sdk.workflow import AnyWorkflow
from redflow_server.config import Config
from redflow_server.domain.timing import Timing
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.acceptance.waits.trees import SEEDS, Forest
from tests.conftest import StartWorker
from tests.eventually import eventually


@pytest.fixture
def config(config: Config) -> Config:
    """Steps run once while leases last: here none ends because the machine gives its worker nothing for a second."""
    return replace(config, timing=Timing(lease_ms=10_000, cancel_grace_ms=1000))


@workflow(name="together-double")
async def double(ctx: Context, number: int) -> int:
    await ctx.step.sleep("nap", 0.05)
    return 2 * number


@workflow(name="together-fails")
async def fails(ctx: Context) -> None:
    raise LookupError("nothing there")


async def test_a_step_that_runs_beside_a_wait_runs_once_however_long_each_of_them_takes(
    client: Client, start_worker: StartWorker
) -> None:
    calls: Counter[str] = Counter()

    async def work(name: str, seconds: float) -> str:
        calls[name] += 1
        await asyncio.sleep(seconds)
        return name

    @workflow
    async def mixes(ctx: Context) -> list[object]:
        return list(
            await asyncio.gather(
                ctx.step.run("quick", work, "quick", 0.0),
                ctx.step.run("slow", work, "slow", 0.4),
                ctx.step.sleep("short", 0.1),
                ctx.step.sleep("long", 0.8),
                ctx.step.wait_for_event("event", "nobody.emits", timeout=0.2),
                ctx.step.run_workflow("double", double, 4),
            )
        )

    await start_worker(mixes, double)

    assert await client.execute(mixes, timeout=15) == ["quick", "slow", None, None, None, 8]
    assert calls == {"quick": 1, "slow": 1}


async def test_a_branch_goes_on_with_its_steps_while_the_others_wait(client: Client, start_worker: StartWorker) -> None:
    calls: Counter[str] = Counter()

    async def count(name: str) -> str:
        calls[name] += 1
        return name

    @workflow
    async def branches(ctx: Context) -> list[str]:
        async def branch(name: str, waits: int) -> str:
            for number in range(waits):
                await ctx.step.run(f"{name} {number}", count, f"{name} {number}")
                await ctx.step.sleep(f"{name} nap {number}", 0.05)
            return name

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(f"branch {number}", number)) for number in range(5)]
        return [task.result() for task in tasks]

    await start_worker(branches, concurrency=1)

    assert await client.execute(branches, timeout=15) == [f"branch {number}" for number in range(5)]
    assert set(calls.values()) == {1}
    assert len(calls) == 0 + 1 + 2 + 3 + 4


async def test_a_wait_that_fails_in_a_group_ends_its_siblings_and_the_run_goes_on(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def recovers(ctx: Context) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step.sleep("for long", 3600))
                group.create_task(ctx.step.wait_for_event("never", "nobody.emits"))
                group.create_task(ctx.step.run_workflow("fails", fails))
        except* ChildFailedError as failed:
            failures = len(failed.exceptions)
        await ctx.step.sleep("and on", 0.05)
        return f"recovered from {failures}"

    await start_worker(recovers, fails)

    assert await client.execute(recovers, timeout=15) == "recovered from 1"


async def test_a_time_out_of_asyncio_around_a_step_that_waits_for_nothing_is_no_wait(
    client: Client, start_worker: StartWorker
) -> None:
    """It is kept by the handler and begins anew with it, unlike those of waits; so the result is that of the step."""

    @workflow
    async def impatient(ctx: Context) -> list[str]:
        seen = []
        try:
            async with asyncio.timeout(0.1):
                await ctx.step.run("never ends", asyncio.Event().wait)
        except TimeoutError:
            seen.append("too slow")
        await ctx.step.sleep("nap", 0.05)
        seen.append("rested")
        return seen

    await start_worker(impatient)

    assert await client.execute(impatient, timeout=15) == ["too slow", "rested"]


async def test_hundreds_of_waits_at_once_end_together(client: Client, start_worker: StartWorker) -> None:
    @workflow
    async def many(ctx: Context, count: int) -> list[object]:
        naps = [ctx.step.sleep(f"nap {number}", 0.1 + number / 1000) for number in range(count)]
        events = [ctx.step.wait_for_event(f"event {number}", "many", timeout=30) for number in range(count)]
        ended = await asyncio.gather(*naps, *events)
        return [event and event.payload for event in ended[count:]]

    await start_worker(many)
    handle = await client.start(many, 150)
    await eventually(lambda: waits_for_events_only(client, handle.id, 150), within=20)
    for number in range(150):
        await client.emit_event("many", number)

    assert await handle.result(timeout=30) == list(range(150))


async def waits_for_events_only(client: Client, run_id: str, count: int) -> bool:
    steps = [step for step in await client.get_run_steps(run_id) if step.status == "waiting"]
    return len(steps) == count and all(step.kind == "event" for step in steps)


@pytest.mark.parametrize("seed", SEEDS)
async def test_handlers_of_every_shape_come_to_the_same_and_run_each_step_once(
    seed: int, client: Client, start_worker: StartWorker
) -> None:
    forest = Forest(seed, client)
    workflows: tuple[AnyWorkflow, ...] = (forest.tree, forest.child, forest.failing)
    await start_worker(*workflows, concurrency=2)
    handles = [await client.start(forest.tree, number) for number in range(forest.size)]

    outputs = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))

    assert outputs == [forest.expected(number) for number in range(forest.size)]
    assert forest.repeated() == []


async def test_a_run_of_every_kind_of_wait_says_what_it_waits_for(client: Client, start_worker: StartWorker) -> None:
    @workflow
    async def waits(ctx: Context) -> None:
        token = await ctx.step.token("token", timeout=60)
        await asyncio.gather(
            ctx.step.sleep("timer", 60),
            ctx.step.wait_for_event("event", "nobody.emits", key="k", timeout=60),
            ctx.step.run_workflow("child", "nobody-serves", queue="nowhere"),
            token.result(),
        )

    await start_worker(waits)
    handle = await client.start(waits)

    await eventually(lambda: has_begun_to_wait(client, handle.id, "timer", "event", "child", "token"))
    found = {one.step_name: one for one in (await handle.get()).waiting_for}
    assert {name: one.kind for name, one in found.items()} == {name: name for name in found}
    assert {name for name, one in found.items() if one.until is None} == {"child"}
    assert "no worker serves 'nobody-serves' on queue 'nowhere'" in found["child"].detail
    assert await client.cancel_run(handle.id)


async def test_handlers_that_give_up_their_waits_take_turns_at_the_slots(
    client: Client, start_worker: StartWorker
) -> None:
    """Each was kept in memory without a slot, and wakes by its own clock."""
    at_work: list[int] = []
    most = 0

    async def works(number: int) -> None:
        nonlocal most
        at_work.append(number)
        most = max(most, len(at_work))
        await asyncio.sleep(0.02)
        at_work.remove(number)

    @workflow
    async def impatient(ctx: Context, number: int) -> int:
        try:
            async with asyncio.timeout(0.3):
                await ctx.step.wait_for_event("it", "never", timeout=1)
        except TimeoutError:
            await ctx.step.run("works", works, number)
        return number

    await start_worker(impatient, concurrency=2)
    handles = [await client.start(impatient, number) for number in range(12)]

    assert [await handle.result(timeout=20) for handle in handles] == list(range(12))
    assert most <= 2
