"""Behaviours of the original engine's suite: canceling runs, and the races of it."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from redflow_sdk import CanceledError, Client, Context, FailureContext, RetryPolicy, Worker, workflow
from redflow_server.config import Config
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys, lane_name
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.line import Line, gateway_behind_line, to_port
from tests.redis_command import RedisCommand

HELD_S = 0.25
"""How long the original's tests held up a transition."""


async def is_leased(redis: RedisCommand, keys: Keys, run_id: str) -> bool:
    return await redis("ZSCORE", keys.leases, run_id) is not None


@pytest.mark.parametrize("ending", ["passes it on", "raises something else", "returns"])
async def test_cancel_signals_a_running_handler_which_ends_canceled(
    ending: str, client: Client, start_worker: StartWorker
) -> None:
    started, signaled = asyncio.Event(), asyncio.Event()
    failures: list[FailureContext] = []

    @workflow(
        name="on-failure-not-on-cancel",
        queue="q_on_failure_3",
        retry=RetryPolicy(max_attempts=3),
        on_failure=failures.append,
    )
    async def long_running(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            signaled.set()
            assert ctx.canceled
            if ending == "passes it on":
                raise
            if ending == "raises something else":
                raise RuntimeError("aborted") from None

    await start_worker(long_running, queues=["q_on_failure_3"])

    handle = await client.start(long_running)
    await asyncio.wait_for(started.wait(), 5)
    await handle.cancel()

    await asyncio.wait_for(signaled.wait(), 1)
    with pytest.raises(CanceledError):
        await handle.result(timeout=5)
    run = await handle.get()
    assert (run.status, run.attempt) == ("canceled", 1)
    # The worker is idle again: a run after it shows that nothing more came of it.
    assert await client.cancel_run((await client.start(long_running)).id) is True
    assert failures == []
    assert run.failure_handler == ""


async def test_cancellation_of_a_scheduled_run(client: Client, start_worker: StartWorker) -> None:
    calls: list[str] = []

    @workflow(name="cancel-wf", queue="q7")
    async def cancel_wf(ctx: Context) -> None:
        calls.append("called")

    await start_worker(cancel_wf, queues=["q7"])

    due = datetime.now(UTC) + timedelta(seconds=0.3)
    handle = await client.start(cancel_wf, available_at=due)
    assert await client.cancel_run(handle.id, reason="test") is True

    with pytest.raises(CanceledError):
        await handle.result(timeout=2)
    # A run that starts later shows that the time of the canceled one has come and gone.
    await (await client.start(cancel_wf, available_at=due + timedelta(seconds=0.05))).result(timeout=5)
    assert (await handle.get()).status == "canceled"
    assert calls == ["called"]


async def test_cancellation_of_a_queued_run_is_immediate(client: Client, redis: RedisCommand, keys: Keys) -> None:
    @workflow(name="cancel-wf", queue="q7")
    async def cancel_wf(ctx: Context) -> None:
        raise AssertionError("no worker has it")

    handle = await client.start(cancel_wf)
    assert (await handle.get()).status == "queued"

    assert await client.cancel_run(handle.id, reason="test") is True
    run = await handle.get()
    assert (run.status, run.cancel_reason) == ("canceled", "test")
    assert await redis("EXISTS", keys.lane(lane_name("q7", "cancel-wf"))) == 0


async def test_cancellation_of_a_running_run_stops_it_before_its_next_step(
    client: Client, start_worker: StartWorker
) -> None:
    holding = asyncio.Event()
    touched: list[str] = []

    async def hold() -> bool:
        holding.set()
        await asyncio.sleep(0.6)
        return True

    @workflow(name="cancel-wf", queue="q7")
    async def cancel_wf(ctx: Context) -> None:
        await ctx.step.run("hold", hold)
        await ctx.step.run("touch", touched.append, "touched")

    await start_worker(cancel_wf, queues=["q7"])

    handle = await client.start(cancel_wf)
    await asyncio.wait_for(holding.wait(), 4)
    await client.cancel_run(handle.id, reason="test")

    with pytest.raises(CanceledError, match="test"):
        await handle.result(timeout=5)
    assert touched == []
    assert (await handle.get()).cancel_reason == "test"


async def test_cancel_race_a_run_claimed_but_not_yet_known_to_its_gateway_is_not_started(
    client: Client, config: Config, redis: RedisCommand, keys: Keys
) -> None:
    calls: list[str] = []

    @workflow(name="cancel-race-wf", queue="q7_race")
    async def cancel_race_wf(ctx: Context) -> None:
        calls.append("called")

    @workflow(name="goes-first", queue="q7_race")
    async def goes_first(ctx: Context) -> None: ...

    async with (
        gateway_behind_line(config) as (far_gateway, line),
        Worker(f"127.0.0.1:{far_gateway.port}", workflows=[cancel_race_wf, goes_first], queues=["q7_race"]),
    ):
        # Then the lane of the other has been looked at, and found empty.
        await client.execute(goes_first, timeout=6)
        # Redis leases the run, and the gateway hears that it is to be canceled before it hears of the lease.
        line.hold_replies_from(b"cancel-race-wf")
        handle = await client.start(cancel_race_wf)
        await eventually(lambda: is_leased(redis, keys, handle.id), within=4)
        assert await client.cancel_run(handle.id, reason="race") is True
        await asyncio.sleep(HELD_S)
        line.let_go()

        with pytest.raises(CanceledError, match="race"):
            await handle.result(timeout=6)
        await asyncio.sleep(0.4)  # as long as the original looked for a late start

    assert calls == []


async def work_on_a_loop_of_its_own(worker: Worker, until: threading.Event) -> None:
    """Runs a worker whose loop the test can block without blocking its own."""

    async def work() -> None:
        async with worker:
            await asyncio.to_thread(until.wait)

    await asyncio.to_thread(lambda: asyncio.run(work()))


async def test_cancel_race_a_run_that_its_worker_had_no_time_to_start_is_not_started(
    client: Client, target: str
) -> None:
    blocking, unblocked, done = threading.Event(), threading.Event(), threading.Event()
    calls: list[str] = []

    @workflow(name="blocks-its-loop", queue="q7_race")
    async def blocks_its_loop(ctx: Context) -> None:
        blocking.set()
        unblocked.wait(5)

    @workflow(name="cancel-race-wf", queue="q7_race")
    async def cancel_race_wf(ctx: Context) -> None:
        calls.append("called")

    worker = Worker(target, workflows=[blocks_its_loop, cancel_race_wf], queues=["q7_race"])
    working = asyncio.create_task(work_on_a_loop_of_its_own(worker, done))
    try:
        blocker = await client.start(blocks_its_loop)
        await eventually(blocking.is_set)
        handle = await client.start(cancel_race_wf)
        await eventually(lambda: is_running(client, handle.id), within=4)
        assert await client.cancel_run(handle.id, reason="race") is True
        await asyncio.sleep(HELD_S)
        unblocked.set()

        await blocker.result(timeout=5)
        with pytest.raises(CanceledError, match="race"):
            await handle.result(timeout=6)
    finally:
        unblocked.set()
        done.set()
        await working
    assert calls == []


async def is_running(client: Client, run_id: str) -> bool:
    return (await client.get_run(run_id)).status == "running"


async def test_cancel_during_a_step_makes_run_and_step_canceled(client: Client, start_worker: StartWorker) -> None:
    started, may_end = threading.Event(), threading.Event()

    def slow() -> bool:
        started.set()
        may_end.wait(2)  # does not see that it is canceled
        return True

    @workflow(name="cancel-mid-step", queue="q12")
    async def cancel_mid_step(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("slow", slow)
        return {"ok": True}

    await start_worker(cancel_mid_step, queues=["q12"])

    handle = await client.start(cancel_mid_step)
    await eventually(started.is_set, within=4)
    asked_at = time.monotonic()
    await client.cancel_run(handle.id, reason="test")

    with pytest.raises(CanceledError, match="test"):
        await handle.result(timeout=6)
    assert time.monotonic() - asked_at < 1
    assert (await handle.get()).status == "canceled"
    [step] = await client.get_run_steps(handle.id)
    assert step.failure is not None
    assert (step.name, step.status, step.failure.kind) == ("slow", "failed", "canceled")
    may_end.set()


async def test_cancel_of_a_finished_run_leaves_it_unchanged(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="cancel-terminal", queue="q_cancel_terminal")
    async def cancel_terminal(ctx: Context) -> dict[str, bool]:
        return {"ok": True}

    await start_worker(cancel_terminal, queues=["q_cancel_terminal"])

    handle = await client.start(cancel_terminal)
    await handle.result(timeout=4)
    before = await handle.get()

    assert await client.cancel_run(handle.id, reason="late") is False
    assert await handle.get() == before
    assert (before.status, before.cancel_requested_at, before.cancel_reason) == ("succeeded", None, "")


async def test_cancel_race_near_the_finish_settles_as_canceled(client: Client, gateway: Gateway) -> None:
    started = asyncio.Event()

    async with Line(to_port(gateway.port)) as line:

        @workflow(name="cancel-late", queue="q_cancel_late")
        async def cancel_late(ctx: Context) -> dict[str, bool]:
            started.set()
            await ctx.step.run("short", asyncio.sleep, 0.1)
            line.hold_requests()
            return {"ok": True}

        async with Worker(f"127.0.0.1:{line.port}", workflows=[cancel_late], queues=["q_cancel_late"]):
            handle = await client.start(cancel_late)
            await asyncio.wait_for(started.wait(), 4)
            await asyncio.sleep(0.08)  # the step has not long to go

            assert await client.cancel_run(handle.id, reason="race") is True
            await asyncio.sleep(HELD_S)
            line.let_go()

            with pytest.raises(CanceledError):
                await handle.result(timeout=8)
            run = await handle.get()
            assert (run.status, run.cancel_reason) == ("canceled", "race")


async def test_cancel_race_a_cancel_while_the_result_is_under_way_wins_over_success(
    client: Client, gateway: Gateway
) -> None:
    returning = asyncio.Event()

    async with Line(to_port(gateway.port)) as line:

        @workflow(name="cancel-finalize-race", queue="q_cancel_finalize_race")
        async def cancel_finalize_race(ctx: Context) -> dict[str, bool]:
            line.hold_requests()
            returning.set()
            return {"ok": True}

        async with Worker(
            f"127.0.0.1:{line.port}", workflows=[cancel_finalize_race], queues=["q_cancel_finalize_race"]
        ):
            handle = await client.start(cancel_finalize_race)
            await asyncio.wait_for(returning.wait(), 5)
            assert (await handle.get()).status == "running"

            assert await client.cancel_run(handle.id, reason="race") is True
            await asyncio.sleep(HELD_S)
            line.let_go()

            with pytest.raises(CanceledError, match="race"):
                await handle.result(timeout=6)
            run = await handle.get()
            assert (run.status, run.output, run.cancel_reason) == ("canceled", None, "race")
