"""Behaviours of the original engine's suite: attempts, their delays, and what they keep."""

from __future__ import annotations

import time

import pytest

from redflow_sdk import Client, Context, NonRetriableError, RetryPolicy, RunFailedError, workflow
from redflow_server.store.keys import Keys
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand

TWICE = RetryPolicy(max_attempts=2)


async def test_available_at_is_cleared_after_retry_exhaustion(client: Client, start_worker: StartWorker) -> None:
    attempts: list[int] = []

    @workflow(name="retry-failure-clears-available-at", queue="q2_retry_fail", retry=TWICE)
    async def always_fails(ctx: Context) -> None:
        attempts.append(ctx.run.attempt)
        raise RuntimeError("boom")

    await start_worker(always_fails, queues=["q2_retry_fail"])

    handle = await client.start(always_fails)
    with pytest.raises(RunFailedError, match="Run failed"):
        await handle.result(timeout=8)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 2)
    assert run.available_at is None
    assert attempts == [1, 2]


async def test_non_retriable_error_skips_retries_and_fails_at_attempt_1(
    client: Client, start_worker: StartWorker
) -> None:
    attempts: list[int] = []

    @workflow(name="non-retriable-error-wf", queue="q_non_retriable", retry=RetryPolicy(max_attempts=3))
    async def permanent(ctx: Context) -> None:
        attempts.append(ctx.run.attempt)
        raise NonRetriableError("permanent failure")

    await start_worker(permanent, queues=["q_non_retriable"])

    handle = await client.start(permanent)
    with pytest.raises(RunFailedError, match="Run failed"):
        await handle.result(timeout=8)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.failure is not None
    assert run.failure.kind == "non_retriable"
    assert run.failure.message == "permanent failure"
    assert attempts == [1]


async def test_step_results_are_cached_across_attempts(client: Client, start_worker: StartWorker) -> None:
    calls: list[str] = []

    def fail_once() -> bool:
        calls.append("step2")
        if calls.count("step2") == 1:
            raise RuntimeError("boom")
        return True

    @workflow(name="retry-wf", queue="q5", retry=TWICE)
    async def retry_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("step1", calls.append, "step1")
        await ctx.step.run("step2", fail_once)
        return {"ok": True}

    await start_worker(retry_wf, queues=["q5"])

    handle = await client.start(retry_wf)

    assert await handle.result(timeout=8) == {"ok": True}
    assert calls == ["step1", "step2", "step2"]
    run = await handle.get()
    assert (run.status, run.attempt) == ("succeeded", 2)


async def test_a_run_queued_before_any_worker_keeps_the_workflows_max_attempts(
    client: Client, start_worker: StartWorker
) -> None:
    attempts: list[int] = []

    @workflow(name="retry-before-sync", queue="q5_before_sync", retry=TWICE)
    async def fails_once(ctx: Context) -> dict[str, bool]:
        attempts.append(ctx.run.attempt)
        if len(attempts) == 1:
            raise RuntimeError("fail once")
        return {"ok": True}

    handle = await client.start(fails_once)
    assert (await handle.get()).max_attempts == 2

    await start_worker(fails_once, queues=["q5_before_sync"])

    assert await handle.result(timeout=8) == {"ok": True}
    run = await handle.get()
    assert (run.status, run.attempt, run.max_attempts) == ("succeeded", 2, 2)
    assert attempts == [1, 2]


async def test_retry_uses_delayed_backoff(client: Client, start_worker: StartWorker) -> None:
    begun: list[float] = []

    @workflow(name="backoff-wf", queue="q_backoff", retry=TWICE)
    async def backoff_wf(ctx: Context) -> dict[str, bool]:
        begun.append(time.monotonic())
        if ctx.run.attempt == 1:
            raise RuntimeError("fail once")
        return {"ok": True}

    await start_worker(backoff_wf, queues=["q_backoff"])

    handle = await client.start(backoff_wf)

    assert await handle.result(timeout=15) == {"ok": True}
    first, second = begun
    assert second - first > 0.2
    run = await handle.get()
    assert (run.status, run.attempt) == ("succeeded", 2)


async def test_new_steps_keep_a_monotonic_order_after_cached_steps(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    failed: list[bool] = []

    def fail_once() -> bool:
        if not failed:
            failed.append(True)
            raise RuntimeError("fail once")
        return True

    @workflow(name="seq-retry", queue="q_seq", retry=TWICE)
    async def seq_retry(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("step1", lambda: True)
        await ctx.step.run("step2", fail_once)
        await ctx.step.run("step3", lambda: True)
        return {"ok": True}

    await start_worker(seq_retry, queues=["q_seq"])

    handle = await client.start(seq_retry)
    await handle.result(timeout=12)

    headers = await redis("HMGET", keys.steps(handle.id), "s:step1", "s:step2", "s:step3")
    seq1, seq2, seq3 = (int(header.split("|")[2]) for header in headers)
    assert seq1 < seq2 < seq3
    steps = await client.get_run_steps(handle.id)
    assert [(step.name, step.seq) for step in steps] == [("step1", seq1), ("step2", seq2), ("step3", seq3)]


class BrokenText(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no text")


def cyclic() -> Exception:
    error, cause = RuntimeError("error"), RuntimeError("cause")
    error.__cause__, cause.__cause__ = cause, error
    return error


@pytest.mark.parametrize(
    "thrown",
    [
        pytest.param(RuntimeError(1j, {"a": object()}), id="with arguments that are no JSON"),
        pytest.param(RuntimeError("\ud800"), id="with a lone surrogate"),
        pytest.param(BrokenText(), id="whose text raises"),
        pytest.param(cyclic(), id="that is its own cause"),
        pytest.param(ExceptionGroup("several", [RuntimeError(object()), BrokenText()]), id="a group"),
        pytest.param(SystemExit(object()), id="that would end the process"),
    ],
)
async def test_a_thrown_value_that_is_not_serializable_does_not_wedge_a_run(
    thrown: BaseException, client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    @workflow(name="throw-bigint", queue="q_bigint", retry=TWICE)
    async def throws(ctx: Context) -> None:
        raise thrown

    await start_worker(throws, queues=["q_bigint"])

    handle = await client.start(throws)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=12)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 2)
    assert run.failure is not None
    assert run.failure.kind == "error"
    assert run.failure.type == type(thrown).__name__
    assert run.failure.message
    assert await redis("ZSCORE", keys.leases, handle.id) is None
