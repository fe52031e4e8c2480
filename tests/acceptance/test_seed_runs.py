"""Behaviours of the original engine's suite: runs, their steps and how they end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import pytest

from redflow_sdk import Client, Context, RetryPolicy, RunFailedError, UnknownWorkflowError, workflow
from redflow_server.store.keys import Keys, lane_name
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand


class Number(TypedDict):
    n: int


class Validated(TypedDict):
    x: float


async def test_manual_run_succeeds_and_records_steps(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="manual-success", queue="q1")
    async def manual_success(ctx: Context, input: Number) -> dict[str, int | bool]:
        a = await ctx.step.run("a", lambda: input["n"] + 1)
        b = await ctx.step.run("b", lambda: a + 1)
        return {"ok": True, "b": b}

    await start_worker(manual_success, queues=["q1"])

    handle = await client.start(manual_success, {"n": 1})

    assert await handle.result(timeout=3) == {"ok": True, "b": 3}
    steps = await client.get_run_steps(handle.id)
    assert [step.name for step in steps] == ["a", "b"]
    assert [step.status for step in steps] == ["succeeded", "succeeded"]


async def test_available_at_scheduled_then_promoted_then_executed(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="delayed", queue="q2")
    async def delayed(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("do", lambda: True)
        return {"ok": True}

    await start_worker(delayed, queues=["q2"])

    run_at = datetime.now(UTC) + timedelta(seconds=1.2)
    handle = await client.start(delayed, available_at=run_at)
    scheduled = await handle.get()
    assert scheduled.status == "scheduled"
    assert scheduled.available_at is not None
    assert abs(scheduled.available_at - run_at) < timedelta(milliseconds=1)

    assert await handle.result(timeout=4) == {"ok": True}
    run = await handle.get()
    assert run.status == "succeeded"
    assert run.started_at is not None
    assert run.started_at + timedelta(milliseconds=40) >= run_at
    assert run.available_at is None


async def test_step_timeout_fails_the_run_and_the_error_is_recorded(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="timeout-wf", queue="q6")
    async def timeout_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("slow", asyncio.sleep, 0.25, timeout=0.08)
        return {"ok": True}

    await start_worker(timeout_wf, queues=["q6"])

    handle = await client.start(timeout_wf)
    with pytest.raises(RunFailedError, match="Run failed"):
        await handle.result(timeout=6)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.failure is not None
    assert run.failure.kind == "timeout"
    [step] = await client.get_run_steps(handle.id)
    assert step.status == "failed"
    assert step.failure is not None
    assert step.failure.kind == "timeout"


async def test_input_validation_fails_once_and_is_not_retried(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    calls: list[Validated] = []

    @workflow(name="validate-wf", queue="q11", retry=RetryPolicy(max_attempts=3))
    async def validate_wf(ctx: Context, input: Validated) -> dict[str, bool]:
        calls.append(input)
        return {"ok": True}

    await start_worker(validate_wf, queues=["q11"])

    handle = await client.start("validate-wf", {"x": "nope"}, queue="q11")
    with pytest.raises(RunFailedError):
        await handle.result(timeout=6)

    run = await handle.get()
    assert (run.status, run.attempt, run.max_attempts) == ("failed", 1, 3)
    assert run.failure is not None
    assert run.failure.kind == "validation"
    assert [fault["path"] for fault in run.failure.details] == ["$.x"]
    assert await redis("ZSCORE", keys.scheduled, handle.id) is None
    assert calls == []


async def test_unknown_workflow_with_a_queue_fails_and_is_not_retried(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(queues=["qx"])

    handle = await client.start("no-such-wf", {"ok": True}, queue="qx")
    with pytest.raises(RunFailedError):
        await handle.result(timeout=6)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.failure is not None
    assert run.failure.kind == "unknown_workflow"


async def test_unknown_workflow_without_a_queue_fails_fast(client: Client, redis: RedisCommand, keys: Keys) -> None:
    with pytest.raises(UnknownWorkflowError, match="no-such-wf"):
        await client.start("no-such-wf", {"ok": True})

    assert await client.list_runs().page(limit=1) == []
    assert await redis("KEYS", f"{keys.prefix}:run:*") == []


async def test_runs_queued_before_a_worker_starts_are_picked_and_status_indexes_move(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    wakes = asyncio.Event()

    @workflow(name="status-wf", queue="q_status")
    async def status_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("sleep", wakes.wait)
        return {"ok": True}

    handle = await client.start(status_wf)

    async def indexes() -> list[str]:
        statuses = ("scheduled", "queued", "running", "waiting", "succeeded", "failed", "canceled")
        names = [(status, keys.status(status)) for status in statuses]
        names += [(status, keys.workflow_status(status, "status-wf")) for status in statuses]
        return [status for status, key in names if await redis("ZSCORE", key, handle.id) is not None]

    assert await indexes() == ["queued", "queued"]

    await start_worker(status_wf, queues=["q_status"])
    await eventually(lambda: is_running(client, handle.id), within=8)
    assert await indexes() == ["running", "running"]

    wakes.set()
    assert await handle.result(timeout=8) == {"ok": True}
    assert await indexes() == ["succeeded", "succeeded"]


async def is_running(client: Client, run_id: str) -> bool:
    return (await client.get_run(run_id)).status == "running"


async def test_output_that_is_no_json_fails_once_and_is_not_stuck(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    @workflow(name="serialization-fail", queue="q_serial", retry=RetryPolicy(max_attempts=3))
    async def serialization_fail(ctx: Context) -> dict[str, complex]:
        return {"bad": 1j}

    await start_worker(serialization_fail, queues=["q_serial"])

    handle = await client.start(serialization_fail)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=8)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.failure is not None
    assert run.failure.kind == "serialization"
    assert "$.bad" in run.failure.message
    assert await redis("ZSCORE", keys.lane(lane_name("q_serial", "serialization-fail")), handle.id) is None
    assert await redis("ZSCORE", keys.leases, handle.id) is None
