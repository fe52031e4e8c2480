"""Behaviours of the original engine's suite: events."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from redflow_sdk import Client, Context, RetryPolicy, workflow
from redflow_server.store.keys import Keys
from tests.acceptance.test_seed_children import TWICE, FailsFirst, counted
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand

Ok = dict[str, bool]

CLOCK_SLACK = timedelta(milliseconds=40)


async def test_emit_event_forwards_auto_and_given_idempotency_keys(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="step-emit-consumer-a", queue="q_emit_a", events=["step.emit.forward"])
    async def consumer_a(ctx: Context, input: dict[str, int]) -> Ok:
        return {"ok": True}

    @workflow(name="step-emit-consumer-b", queue="q_emit_b", events=["step.emit.forward.custom"])
    async def consumer_b(ctx: Context, input: dict[str, int]) -> Ok:
        return {"ok": True}

    @workflow(name="step-emit-parent-forward", queue="q_emit_parent")
    async def parent(ctx: Context) -> dict[str, list[str]]:
        auto = await ctx.step.emit_event("emit-auto", "step.emit.forward", {"ok": 1})
        custom = await ctx.step.emit_event(
            "emit-custom", "step.emit.forward.custom", {"ok": 2}, idempotency_key="evt-custom"
        )
        return {"auto": auto, "custom": custom}

    await start_worker(parent, consumer_a, consumer_b, queues=["q_emit_parent", "q_emit_a", "q_emit_b"], concurrency=2)

    handle = await client.start(parent)
    emitted = await handle.result(timeout=5)

    assert {name: len(run_ids) for name, run_ids in emitted.items()} == {"auto": 1, "custom": 1}
    # Whoever emits with such a key gets the runs that the step has started.
    auto_key = f"stepev:{counted(handle.id)}:{counted('emit-auto')}:{counted('step.emit.forward')}"
    assert await client.emit_event("step.emit.forward", {"ok": 1}, idempotency_key=auto_key) == emitted["auto"]
    again = await client.emit_event("step.emit.forward.custom", {"ok": 2}, idempotency_key="evt-custom")
    assert again == emitted["custom"]
    for run_ids in emitted.values():
        assert await client.handle(run_ids[0]).result(timeout=5) == {"ok": True}
    assert len(await client.list_runs().page()) == 3


async def test_emitted_workflows_execute_once_across_parent_retries(client: Client, start_worker: StartWorker) -> None:
    counts: list[dict[str, int]] = []

    @workflow(name="step-emit-consumer-once", queue="q_emit_retry_consumer", events=["step.emit.once"])
    async def consumer(ctx: Context, input: dict[str, int]) -> Ok:
        await ctx.step.run("count", counts.append, input)
        return {"ok": True}

    fails_once = FailsFirst()

    @workflow(name="step-emit-parent-retry", queue="q_emit_retry_parent", retry=TWICE)
    async def parent(ctx: Context) -> list[str]:
        run_ids = await ctx.step.emit_event("emit-once", "step.emit.once", {"v": 1})
        await ctx.step.run("fail-once", fails_once)
        return run_ids

    await start_worker(parent, consumer, queues=["q_emit_retry_parent", "q_emit_retry_consumer"], concurrency=2)

    handle = await client.start(parent)
    [run_id] = await handle.result(timeout=8)

    assert await client.handle(run_id).result(timeout=5) == {"ok": True}
    assert [run.id for run in await client.list_runs(workflow="step-emit-consumer-once").page()] == [run_id]
    assert counts == [{"v": 1}]
    run = await handle.get()
    assert (run.status, run.attempt, fails_once.calls) == ("succeeded", 2, 2)


async def test_scheduled_workflows_execute_once_across_parent_retries(
    client: Client, start_worker: StartWorker
) -> None:
    counts: list[dict[str, int]] = []
    due: list[datetime] = []
    begun: list[datetime] = []

    @workflow(name="step-schedule-consumer-once", queue="q_schedule_retry_consumer", events=["step.schedule.once"])
    async def consumer(ctx: Context, input: dict[str, int]) -> Ok:
        begun.append(datetime.now(UTC))
        await ctx.step.run("count", counts.append, input)
        return {"ok": True}

    fails_once = FailsFirst()

    # Its second attempt comes before the event is due: what it returns is there at once, and not at that time.
    quickly = RetryPolicy(max_attempts=2, initial=0.01, jitter=0.0)

    @workflow(name="step-schedule-parent-retry", queue="q_schedule_retry_parent", retry=quickly)
    async def parent(ctx: Context) -> list[str]:
        due.append(datetime.now(UTC) + timedelta(seconds=1))
        run_ids = await ctx.step.schedule_event("schedule-once", "step.schedule.once", {"v": 1}, available_at=due[-1])
        await ctx.step.run("fail-once", fails_once)
        return run_ids

    await start_worker(parent, consumer, queues=["q_schedule_retry_parent", "q_schedule_retry_consumer"], concurrency=2)

    handle = await client.start(parent)
    [run_id] = await handle.result(timeout=8)
    assert datetime.now(UTC) < due[0], "the ids are there before the runs are due"
    assert (await client.get_run(run_id)).status == "scheduled"

    assert await client.handle(run_id).result(timeout=6) == {"ok": True}
    assert [run.id for run in await client.list_runs(workflow="step-schedule-consumer-once").page()] == [run_id]
    assert counts == [{"v": 1}]
    assert begun[0] + CLOCK_SLACK >= due[0]
    run = await handle.get()
    assert (run.status, run.attempt, fails_once.calls) == ("succeeded", 2, 2)


async def test_emit_event_idempotency_same_key_across_different_events_does_not_collide(
    client: Client, start_worker: StartWorker
) -> None:
    counts: list[dict[str, int]] = []

    @workflow(name="evt-idem-scope", queue="q10_scope", events=["dup.event.a", "dup.event.b"])
    async def scoped(ctx: Context, input: dict[str, int]) -> Ok:
        await ctx.step.run("count", counts.append, input)
        return {"ok": True}

    await start_worker(scoped, queues=["q10_scope"])

    [first] = await client.emit_event("dup.event.a", {"a": 1}, idempotency_key="evt_shared")
    [second] = await client.emit_event("dup.event.b", {"b": 1}, idempotency_key="evt_shared")

    assert first != second
    await asyncio.gather(*(client.handle(run_id).result(timeout=5) for run_id in (first, second)))
    assert sorted(counts, key=str) == [{"a": 1}, {"b": 1}]


async def test_schedule_event_delayed_fan_out_is_idempotent(client: Client, start_worker: StartWorker) -> None:
    counts: list[str] = []

    @workflow(name="schedule-consumer", queue="q10_schedule", events=["schedule.event"])
    async def consumer(ctx: Context, input: dict[str, int]) -> Ok:
        await ctx.step.run("count", counts.append, "count")
        return {"ok": True}

    await start_worker(consumer, queues=["q10_schedule"])

    due = datetime.now(UTC) + timedelta(seconds=1.2)

    async def schedule() -> list[str]:
        return await client.schedule_event("schedule.event", {"x": 1}, available_at=due, idempotency_key="sched-shared")

    [first], [second] = await asyncio.gather(schedule(), schedule())

    assert first == second
    run = await client.get_run(first)
    assert run.status == "scheduled"
    assert run.available_at is not None
    assert abs(run.available_at - due) < timedelta(milliseconds=1)

    assert await client.handle(first).result(timeout=7) == {"ok": True}
    run = await client.get_run(first)
    assert run.started_at is not None
    assert run.started_at + CLOCK_SLACK >= due
    assert counts == ["count"]
    assert len(await client.list_runs().page()) == 1


async def test_emit_event_prunes_stale_subscribers_which_do_not_break_fan_out(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    event = "stale.subscribers.event"

    @workflow(name="stale-subscriber-live", queue="q10_stale_subs", events=[event])
    async def live(ctx: Context, input: dict[str, int]) -> Ok:
        return {"ok": True}

    await start_worker(live, queues=["q10_stale_subs"])
    await redis("SADD", keys.event_workflows(event), "stale-subscriber-ghost")

    [run_id] = await client.emit_event(event, {"v": 1})

    assert await redis("SMEMBERS", keys.event_workflows(event)) == {"stale-subscriber-live"}
    assert await client.handle(run_id).result(timeout=5) == {"ok": True}
