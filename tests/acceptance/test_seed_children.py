"""Behaviours of the original engine's suite: runs that start others and wait for them."""

from __future__ import annotations

from typing import TypedDict

from redflow_sdk import Client, Context, RetryPolicy, workflow
from tests.conftest import StartWorker

TWICE = RetryPolicy(max_attempts=2)


class Number(TypedDict):
    n: int


class Ended(TypedDict):
    ok: bool
    attempt: int


class FailsFirst:
    """Raises when it is called first, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bool:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("boom once")
        return True


def counted(part: str) -> str:
    return f"{len(part)}:{part}"


async def test_run_workflow_forwards_auto_and_given_idempotency_keys_to_child_runs(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="child-rw-forward", queue="q_rw_child")
    async def child(ctx: Context, input: Number) -> Number:
        return input

    @workflow(name="parent-rw-forward", queue="q_rw_parent")
    async def parent(ctx: Context) -> dict[str, Number]:
        auto = await ctx.step.run_workflow("child-auto", child, {"n": 1})
        custom = await ctx.step.run_workflow("child-custom", child, {"n": 2}, idempotency_key="custom-idem")
        return {"auto": auto, "custom": custom}

    await start_worker(parent, child, queues=["q_rw_parent", "q_rw_child"], concurrency=2)

    handle = await client.start(parent)

    assert await handle.result(timeout=5) == {"auto": {"n": 1}, "custom": {"n": 2}}
    auto_key = f"stepwf:{counted(handle.id)}:{counted('child-auto')}:{counted('child-rw-forward')}"
    second, first = [await client.get_run(run.id) for run in await client.list_runs(workflow="child-rw-forward").page()]
    assert (first.idempotency_key, first.parent_run_id) == (auto_key, handle.id)
    assert (second.idempotency_key, second.parent_run_id) == ("custom-idem", handle.id)
    # Whoever starts a run with such a key gets that of the step.
    for run in (first, second):
        again = await client.start(child, run.input, idempotency_key=run.idempotency_key)
        assert (again.id, again.created) == (run.id, False)


async def test_run_workflow_executes_its_child_once_across_parent_retries(
    client: Client, start_worker: StartWorker
) -> None:
    counts: list[str] = []

    @workflow(name="child-rw-retry", queue="q_rw_retry_child")
    async def child(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("count-child", counts.append, "child")
        return {"ok": True}

    fails_once = FailsFirst()

    @workflow(name="parent-rw-retry", queue="q_rw_retry_parent", retry=TWICE)
    async def parent(ctx: Context) -> dict[str, bool]:
        output = await ctx.step.run_workflow("invoke-child", child)
        await ctx.step.run("fail-once", fails_once)
        return output

    await start_worker(parent, child, queues=["q_rw_retry_parent", "q_rw_retry_child"], concurrency=2)

    handle = await client.start(parent)

    assert await handle.result(timeout=8) == {"ok": True}
    assert counts == ["child"]
    assert len(await client.list_runs(workflow="child-rw-retry").page()) == 1
    run = await handle.get()
    assert (run.status, run.attempt, fails_once.calls) == ("succeeded", 2, 2)


async def test_run_workflow_on_the_same_queue_avoids_self_deadlock_with_concurrency_1(
    client: Client, start_worker: StartWorker
) -> None:
    fails_once = FailsFirst()

    @workflow(name="child-rw-single-worker", queue="q_rw_single", retry=TWICE)
    async def child(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("do-child", fails_once)
        return {"ok": True}

    @workflow(name="parent-rw-single-worker", queue="q_rw_single")
    async def parent(ctx: Context) -> dict[str, bool]:
        return await ctx.step.run_workflow("call-child", child)

    await start_worker(parent, child, queues=["q_rw_single"], concurrency=1)

    handle = await client.start(parent)

    assert await handle.result(timeout=10) == {"ok": True}
    assert fails_once.calls == 2
    [child_run] = await client.list_runs(workflow="child-rw-single-worker").page()
    assert (child_run.status, child_run.attempt) == ("succeeded", 2)


async def test_parent_waits_for_a_child_that_it_started_in_a_step_and_the_child_retries_with_cached_steps(
    client: Client, start_worker: StartWorker
) -> None:
    counts: list[str] = []
    fails_once = FailsFirst()

    @workflow(name="child-wf", queue="q_child", retry=TWICE)
    async def child(ctx: Context) -> Ended:
        await ctx.step.run("fetch", counts.append, "fetch")
        await ctx.step.run("send", fails_once)
        return {"ok": True, "attempt": ctx.run.attempt}

    async def start_and_wait() -> Ended:
        handle = await client.start(child)
        return await handle.result(timeout=10)

    @workflow(name="parent-wf", queue="q_parent")
    async def parent(ctx: Context) -> dict[str, Ended]:
        await ctx.step.run("before", counts.append, "before")
        return {"child": await ctx.step.run("child", start_and_wait)}

    await start_worker(parent, child, queues=["q_parent", "q_child"], concurrency=2)

    handle = await client.start(parent)

    assert await handle.result(timeout=15) == {"child": {"ok": True, "attempt": 2}}
    assert counts == ["before", "fetch"]
    [child_run] = await client.list_runs(workflow="child-wf").page()
    assert (child_run.status, child_run.attempt) == ("succeeded", 2)
