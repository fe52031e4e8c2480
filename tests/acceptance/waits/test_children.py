"""Runs that start others: those that are waited for take up no slot, the others go their way."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from redflow_sdk import CanceledError, Client, Context, workflow
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.conftest import StartWorker
from tests.eventually import eventually


async def test_fifty_parents_of_three_children_each_complete_on_one_slot(
    client: Client, start_worker: StartWorker
) -> None:
    executed: Counter[tuple[int, int]] = Counter()

    def double(parent: int, number: int) -> int:
        executed[parent, number] += 1
        return 2 * number

    @workflow(name="fifty-child")
    async def child(ctx: Context, input: tuple[int, int]) -> int:
        return await ctx.step.run("double", double, *input)

    @workflow(name="fifty-parent")
    async def parent(ctx: Context, number: int) -> list[int]:
        steps = (ctx.step.run_workflow(f"child {one}", child, (number, one)) for one in range(3))
        return list(await asyncio.gather(*steps))

    await start_worker(parent, child, concurrency=1)
    handles = [await client.start(parent, number) for number in range(50)]

    assert await asyncio.gather(*(handle.result(timeout=60) for handle in handles)) == [[0, 2, 4]] * 50
    assert executed == Counter({(number, one): 1 for number in range(50) for one in range(3)})


async def test_a_chain_of_five_runs_of_one_workflow_completes_on_one_slot(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="chain")
    async def chain(ctx: Context, depth: int) -> list[int]:
        if depth == 0:
            return [0]
        return [*await ctx.step.run_workflow("deeper", chain, depth - 1), depth]

    await start_worker(chain, concurrency=1)

    assert await client.execute(chain, 5, timeout=20) == [0, 1, 2, 3, 4, 5]
    assert len(await client.list_runs(workflow="chain").page()) == 6


async def test_a_child_that_two_runs_wait_for_ends_both_waits_and_outlives_the_end_of_one(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="shared-child")
    async def child(ctx: Context) -> str:
        got = await ctx.step.wait_for_event("go", "shared.go", payload_type=str, timeout=30)
        return got.payload if got else "nothing"

    @workflow(name="shared-parent")
    async def parent(ctx: Context) -> str:
        return await ctx.step.run_workflow("child", child, idempotency_key="shared")

    await start_worker(parent, child)
    handles = [await client.start(parent) for _ in range(3)]
    for handle in handles:
        await eventually(lambda run_id=handle.id: has_begun_to_wait(client, run_id, "child"))
    assert await client.cancel_run(handles[0].id)
    with pytest.raises(CanceledError):
        await handles[0].result(timeout=10)

    await client.emit_event("shared.go", "on")

    assert await asyncio.gather(*(handle.result(timeout=10) for handle in handles[1:])) == ["on", "on"]


# ---- not waited for ----


class Starter:
    """A workflow that starts two runs and ends in the way it is told; one of the two is to go with it."""

    def __init__(self) -> None:
        @workflow(name="started")
        async def started(ctx: Context) -> str:
            got = await ctx.step.wait_for_event("go", "starter.go", payload_type=str, timeout=30)
            return got.payload if got else "nothing"

        @workflow(name="starter")
        async def starter(ctx: Context, end: str) -> list[str]:
            stays = await ctx.step.start_workflow("stays", started, parent_close="abandon")
            goes = await ctx.step.start_workflow("goes", started, parent_close="cancel")
            if end == "canceled":
                await ctx.step.sleep("until canceled", 3600)
            await ctx.step.sleep("nap", 0.05)
            if end == "failed":
                raise LookupError("nothing there")
            return [stays, goes]

        self.started, self.starter = started, starter


@pytest.mark.parametrize("end", ["succeeded", "failed", "canceled"])
async def test_a_started_run_is_abandoned_or_canceled_when_the_one_that_has_started_it_ends(
    end: str, client: Client, start_worker: StartWorker
) -> None:
    family = Starter()
    await start_worker(family.started, family.starter, concurrency=1)
    handle = await client.start(family.starter, end)
    if end == "canceled":
        await eventually(lambda: has_begun_to_wait(client, handle.id, "until canceled"))
        assert await client.cancel_run(handle.id)

    await eventually(lambda: has_ended(client, handle.id, end), within=10)
    ids = {step.name: step.child_run_id for step in await client.get_run_steps(handle.id) if step.kind == "start"}
    with pytest.raises(CanceledError):
        await client.handle(ids["goes"]).result(timeout=10)
    await eventually(lambda: has_begun_to_wait(client, ids["stays"], "go"))
    await client.emit_event("starter.go", "on")
    assert await client.handle(ids["stays"]).result(timeout=10) == "on"
    assert len(await client.list_runs(workflow="started").page()) == 2, "each was started once"


async def has_ended(client: Client, run_id: str, status: str) -> bool:
    return (await client.get_run(run_id)).status == status


async def test_a_run_that_somebody_waits_for_is_not_canceled_with_the_one_that_has_started_it(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="kept")
    async def kept(ctx: Context) -> str:
        got = await ctx.step.wait_for_event("go", "kept.go", payload_type=str, timeout=30)
        return got.payload if got else "nothing"

    @workflow(name="keeper")
    async def keeper(ctx: Context) -> str:
        return await ctx.step.run_workflow("child", kept, idempotency_key="kept")

    @workflow(name="leaver")
    async def leaver(ctx: Context) -> str:
        started = await ctx.step.start_workflow("child", kept, idempotency_key="kept", parent_close="cancel")
        await ctx.step.wait_for_event("leave", "leaver.go", timeout=30)
        return started

    await start_worker(kept, keeper, leaver)
    leaving = await client.start(leaver)
    await eventually(lambda: has_begun_to_wait(client, leaving.id, "leave"))
    keeping = await client.start(keeper)
    await eventually(lambda: has_begun_to_wait(client, keeping.id, "child"))

    await client.emit_event("leaver.go")
    started = await leaving.result(timeout=10)
    await client.emit_event("kept.go", "on")

    assert await keeping.result(timeout=10) == "on"
    assert await client.handle(started).result(timeout=10) == "on"
