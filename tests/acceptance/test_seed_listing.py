"""Behaviours of the original engine's suite: listing runs."""

from __future__ import annotations

import pytest

from redflow_sdk import Client, Context, RunFailedError, workflow
from tests.conftest import StartWorker


async def test_status_and_workflow_filters_are_applied_together(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="filters-success", queue="q_filters")
    async def succeeds(ctx: Context) -> dict[str, bool]:
        return {"ok": True}

    @workflow(name="filters-fail", queue="q_filters")
    async def fails(ctx: Context) -> None:
        raise RuntimeError("expected failure")

    await start_worker(succeeds, fails, queues=["q_filters"])
    success, failure = await client.start(succeeds), await client.start(fails)
    await success.result(timeout=4)
    with pytest.raises(RunFailedError):
        await failure.result(timeout=6)

    assert await client.list_runs(workflow="filters-success", status="failed").page(limit=20) == []
    listed = await client.list_runs(workflow="filters-fail", status="failed").page(limit=20)
    assert [(run.id, run.status, run.workflow) for run in listed] == [(failure.id, "failed", "filters-fail")]
    assert [run.id for run in await client.list_runs(workflow="filters-success").page()] == [success.id]
    assert [run.id for run in await client.list_runs(status="failed").page()] == [failure.id]
    assert [run.id async for run in client.list_runs()] == [failure.id, success.id]


async def test_a_negative_offset_is_clamped_to_zero(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="offset-wf", queue="q_offset")
    async def offset_wf(ctx: Context) -> dict[str, bool]:
        return {"ok": True}

    await start_worker(offset_wf, queues=["q_offset"])
    handles = [await client.start(offset_wf) for _ in range(3)]
    for handle in handles:
        await handle.result(timeout=4)

    [from_zero] = await client.list_runs(workflow="offset-wf").page(limit=1, offset=0)
    [from_negative] = await client.list_runs(workflow="offset-wf").page(limit=1, offset=-1)
    [from_one] = await client.list_runs(workflow="offset-wf").page(limit=1, offset=1)

    assert from_zero.id == from_negative.id == handles[2].id
    assert from_one.id == handles[1].id
