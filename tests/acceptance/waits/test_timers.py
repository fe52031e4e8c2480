"""Runs that wait for a time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from redflow_sdk import BlockingContext, Client, Context, workflow
from tests.acceptance.waits.seen import has_begun_to_wait
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually

EARLIEST = timedelta(milliseconds=-1)
LATEST = timedelta(seconds=1)


async def test_a_run_sleeps_for_as_long_as_it_says_and_its_steps_run_once(
    client: Client, start_worker: StartWorker
) -> None:
    done: list[str] = []

    @workflow
    async def naps(ctx: Context) -> list[str]:
        await ctx.step.run("before", done.append, "before")
        for number in range(3):
            await ctx.step.sleep(f"nap {number}", 0.1)
            await ctx.step.run(f"after {number}", done.append, f"after {number}")
        return done

    await start_worker(naps)
    handle = await client.start(naps)

    assert await handle.result(timeout=10) == ["before", "after 0", "after 1", "after 2"]
    naps_on_record = [step for step in await client.get_run_steps(handle.id) if step.kind == "timer"]
    for step in naps_on_record:
        assert step.started_at is not None
        assert step.finished_at is not None
        length = step.finished_at - step.started_at
        assert timedelta(seconds=0.1) <= length < timedelta(seconds=0.1) + LATEST
    assert [step.name for step in naps_on_record] == ["nap 0", "nap 1", "nap 2"]


async def test_a_run_sleeps_until_a_time_and_not_at_all_when_that_has_passed(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow
    async def wakes(ctx: Context, at: datetime) -> datetime:
        await ctx.step.sleep_until("yesterday", at - timedelta(days=1))
        await ctx.step.sleep_until("at", at)
        await ctx.step.sleep("not at all", -3.0)
        return datetime.now(UTC)

    await start_worker(wakes)
    at = datetime.now(UTC) + timedelta(seconds=0.3)

    woken = await client.execute(wakes, at, timeout=10)

    assert EARLIEST < woken - at < LATEST


async def test_sleepers_take_up_no_slot(client: Client, start_worker: StartWorker) -> None:
    woken: list[int] = []

    @workflow
    async def sleeper(ctx: Context, number: int) -> None:
        await ctx.step.sleep("nap", 1.0)
        await ctx.step.run("woken", woken.append, number)

    await start_worker(sleeper, concurrency=1)
    handles = [await client.start(sleeper, number) for number in range(30)]

    # One after the other they would take 30 s.
    await asyncio.gather(*(handle.result(timeout=15) for handle in handles))
    assert sorted(woken) == list(range(30))


async def test_a_sleep_goes_on_when_everything_has_been_started_anew_and_is_over_at_its_time(
    start_gateway: StartGateway, start_worker_at: StartWorker
) -> None:
    done: list[str] = []

    @workflow
    async def sleeper(ctx: Context) -> list[str]:
        await ctx.step.run("before", done.append, "before")
        await ctx.step.sleep("long", 1.5)
        await ctx.step.run("after", done.append, "after")
        return done

    first = await start_gateway()
    worker = await start_worker_at(f"127.0.0.1:{first.port}", sleeper)
    async with Client(f"127.0.0.1:{first.port}") as client:
        handle = await client.start(sleeper)
        await eventually(lambda: has_begun_to_wait(client, handle.id, "long"))
    await worker.drain()
    await first.stop()

    second = await start_gateway()
    await start_worker_at(f"127.0.0.1:{second.port}", sleeper)
    async with Client(f"127.0.0.1:{second.port}") as client:
        run_id = handle.id
        assert await client.handle(run_id).result(timeout=10) == ["before", "after"]
        [_, sleep, _] = await client.get_run_steps(run_id)
        assert sleep.started_at is not None
        assert sleep.finished_at is not None
        slept = sleep.finished_at - sleep.started_at
        assert timedelta(seconds=1.5) <= slept < timedelta(seconds=1.5) + LATEST
        run = await client.get_run(run_id)
        assert (run.attempt, run.losses) == (1, 0)


async def test_a_handler_in_a_thread_waits_like_any_other(client: Client, start_worker: StartWorker) -> None:
    done: list[str] = []

    @workflow
    def double(ctx: BlockingContext, number: int) -> int:
        ctx.step.sleep("nap", 0.05)
        return 2 * number

    @workflow
    def waits(ctx: BlockingContext, key: str) -> list[object]:
        ctx.step.run("before", done.append, "before")
        ctx.step.sleep("nap", 0.05)
        ctx.step.sleep_until("then", datetime.now(UTC) + timedelta(seconds=0.05))
        ctx.step.emit_event("tell", "threads.told", 7, key=key)
        told = ctx.step.wait_for_event("told", "threads.told", key=key, timeout=5)
        late = ctx.step.wait_for_event("late", "threads.told", key=key, timeout=0.1)
        token = ctx.step.token("approve", str, timeout=5)
        ctx.step.run("complete", complete, token)
        doubled = ctx.step.run_workflow("double", double, 4)
        ctx.step.run("after", done.append, "after")
        return [told and told.payload, late, token.result(), doubled]

    async def complete(token: str) -> None:
        await client.complete_token(token, "yes")

    await start_worker(waits, double, concurrency=1)

    assert await client.execute(waits, "some", timeout=15) == [7, None, "yes", 8]
    assert done == ["before", "after"]
