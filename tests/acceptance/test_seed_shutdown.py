"""Behaviours of the original engine's suite: stopping a worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from redflow_sdk import BlockingContext, CanceledError, Client, Context, Workflow, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually

Started = Callable[[], object]
Released = threading.Event


def awaits_for_ever(started: Started, released: Released) -> Workflow[None, None]:
    @workflow(name="stop-abort", queue="q_stop_abort")
    async def handler(ctx: Context) -> None:
        started()
        await asyncio.Event().wait()

    return handler


def swallows_its_cancellation(started: Started, released: Released) -> Workflow[None, None]:
    @workflow(name="stop-abort", queue="q_stop_abort")
    async def handler(ctx: Context) -> None:
        started()
        while not released.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    return handler


def blocks_its_thread(started: Started, released: Released) -> Workflow[None, None]:
    @workflow(name="stop-abort", queue="q_stop_abort")
    def handler(ctx: BlockingContext) -> None:
        started()
        released.wait(30)

    return handler


async def waits_in_a_step(ctx: Context, started: Started, released: Released) -> None:
    started()
    await ctx.step.run("endless", released.wait, 30)


def blocks_the_thread_of_a_step(started: Started, released: Released) -> Workflow[None, None]:
    @workflow(name="stop-abort", queue="q_stop_abort")
    async def handler(ctx: Context) -> None:
        await waits_in_a_step(ctx, started, released)

    return handler


@pytest.mark.parametrize(
    "make", [awaits_for_ever, swallows_its_cancellation, blocks_its_thread, blocks_the_thread_of_a_step]
)
async def test_worker_stop_aborts_an_in_flight_handler_that_never_returns(
    make: Callable[[Started, Released], Workflow[None, None]], client: Client, start_worker: StartWorker
) -> None:
    started, released = threading.Event(), threading.Event()
    endless = make(started.set, released)
    worker = await start_worker(endless, queues=["q_stop_abort"])
    handle = await client.start(endless)
    await eventually(started.is_set, within=5)
    try:
        stopping_at = time.monotonic()
        await worker.stop()
        assert time.monotonic() - stopping_at < 2.5

        with pytest.raises(CanceledError):
            await handle.result(timeout=4)
        run = await handle.get()
        assert (run.status, run.attempt) == ("canceled", 1)
    finally:
        released.set()


async def test_worker_stop_leaves_no_run_behind_however_many_workers_stop(
    client: Client, start_worker: StartWorker
) -> None:
    started: list[bool] = []
    released = threading.Event()
    endless = swallows_its_cancellation(lambda: started.append(True), released)
    workers = [await start_worker(endless, queues=["q_stop_abort"], concurrency=1) for _ in range(10)]
    handles = [await client.start(endless) for _ in workers]
    await eventually(lambda: len(started) == len(workers), within=5)
    try:
        await asyncio.gather(*(worker.stop() for worker in workers))
        ends = await asyncio.gather(*(handle.result(timeout=4) for handle in handles), return_exceptions=True)
        assert [type(end) for end in ends] == [CanceledError] * len(handles)
    finally:
        released.set()
