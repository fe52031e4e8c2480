"""Messages between gateways make things fast, never right: what one of them would have told is found out anyway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest_asyncio

from redflow_sdk import Client, Context, Worker, workflow
from redflow_sdk.records import Run
from redflow_server.config import Config
from redflow_server.domain.leases import Stop, WaitOver
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from redflow_server.rpc.server import WORKER_SERVICE
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import a_run
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls

WITHIN = timedelta(seconds=1.5)
"""A second until the next look, up to a tenth of it as jitter, and what a busy machine needs."""


async def _returns(ctx: Context) -> str:
    return "done"


returns = workflow(name="w", queue="q")(_returns)


class DeafGateway(Gateway):
    """A gateway on which every message is lost."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.lost: list[str] = []

    def lane_filled(self, name: str, change: int) -> None:
        self.lost.append("lane")

    def due(self, kind: str, at_ms: int) -> None:
        self.lost.append("due")

    def stop_handler(self, stop: Stop) -> None:
        self.lost.append("stop")

    def wait_over(self, over: WaitOver) -> None:
        self.lost.append("resolved")

    def finished(self, run_id: str) -> None:
        self.lost.append("finished")


@pytest_asyncio.fixture
async def deaf(config: Config, store: Store) -> AsyncIterator[DeafGateway]:
    gateway = DeafGateway(config)
    await gateway.start()
    yield gateway
    await gateway.stop()


@pytest_asyncio.fixture
async def deaf_client(deaf: DeafGateway) -> AsyncIterator[Client]:
    async with Client(f"127.0.0.1:{deaf.port}") as client:
        yield client


def waited(run: Run) -> timedelta:
    """How long it was in its lane."""
    assert run.started_at is not None
    return run.started_at - run.created_at


async def test_a_run_starts_within_about_a_second_when_no_message_says_that_its_lane_has_filled(
    deaf: DeafGateway, deaf_client: Client
) -> None:
    async with Worker(f"127.0.0.1:{deaf.port}", workflows=[returns]):
        handle = await deaf_client.start(returns)
        await handle.result(timeout=5)
        assert waited(await handle.get()) <= WITHIN
    assert "lane" in deaf.lost


async def test_many_runs_that_nobody_was_told_of_all_start(deaf: DeafGateway, store: Store) -> None:
    definitions = [workflow(name=f"w{number}", queue="q")(_returns) for number in range(20)]
    async with Worker(f"127.0.0.1:{deaf.port}", workflows=definitions, concurrency=3):
        started = await asyncio.gather(
            *(store.enqueue(a_run(workflow=one.name)) for one in definitions for _ in range(3))
        )

        async def have_all_ended() -> bool:
            runs = await asyncio.gather(*(store.read_run(run.run_id) for run in started))
            return all(run.status.is_terminal for run in runs)

        await eventually(have_all_ended, within=5)


async def test_a_delayed_run_starts_within_about_a_second_of_its_time_when_no_message_says_when_that_is(
    deaf: DeafGateway, deaf_client: Client, store: Store
) -> None:
    async with Worker(f"127.0.0.1:{deaf.port}", workflows=[returns]):
        at_ms = (await store.due(0)).now_ms + 300
        started = await store.enqueue(a_run(available_at_ms=at_ms))

        async def started_at_ms() -> int | None:
            return (await store.read_run(started.run_id)).started_at_ms

        assert 0 <= await eventually(started_at_ms) - at_ms <= 2 * WITHIN / timedelta(milliseconds=1)


async def test_the_end_of_a_run_is_answered_within_about_a_second_when_no_message_tells_of_it(
    deaf: DeafGateway, deaf_client: Client, store: Store
) -> None:
    handle = await deaf_client.start(returns)
    waiting = asyncio.create_task(handle.result(timeout=5))
    await eventually(lambda: deaf._waiters.count)
    async with Worker(f"127.0.0.1:{deaf.port}", workflows=[returns]):
        assert await waiting == "done"
        now_ms = (await store.due(0)).now_ms
        finished_at_ms = (await store.read_run(handle.id)).finished_at_ms
        assert finished_at_ms is not None
        assert now_ms - finished_at_ms <= WITHIN / timedelta(milliseconds=1)
    assert "finished" in deaf.lost


async def test_an_order_to_stop_reaches_a_handler_with_a_heartbeat_when_its_message_is_lost(
    deaf: DeafGateway, deaf_client: Client
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @workflow(name="sleeps", queue="q")
    async def sleeps(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with Worker(f"127.0.0.1:{deaf.port}", workflows=[sleeps]):
        handle = await deaf_client.start(sleeps)
        await asyncio.wait_for(begun.wait(), 5)
        await handle.cancel("changed my mind")
        await asyncio.wait_for(ended.wait(), 2)
    assert (await handle.get()).status == "canceled"
    assert "stop" in deaf.lost


async def test_an_order_to_stop_that_was_lost_reaches_its_handler_at_once_when_the_subscription_is_new(
    config: Config, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    deaf = DeafGateway(replace(config, timing=Timing(lease_ms=30_000)))
    await deaf.start()
    begun, ended = asyncio.Event(), asyncio.Event()

    @workflow(name="sleeps", queue="q")
    async def sleeps(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    try:
        async with Worker(f"127.0.0.1:{deaf.port}", workflows=[sleeps]):
            started = await store.enqueue(a_run(workflow="sleeps"))
            await asyncio.wait_for(begun.wait(), 5)
            # Its receipt, which would bring the order too, is stored.
            await eventually(lambda: redis("HGET", keys.run(started.run_id), "acked"))
            await store.cancel(started.run_id, "changed my mind", "")
            await eventually(lambda: "stop" in deaf.lost)

            assert await redis("CLIENT", "KILL", "TYPE", "pubsub") >= 1

            await asyncio.wait_for(ended.wait(), 3)  # heartbeats are ten seconds apart
    finally:
        await deaf.stop()
    assert (await store.read_run(started.run_id)).status is RunStatus.CANCELED


async def test_what_happens_while_the_subscription_is_broken_is_caught_up_on(
    gateway: Gateway, client: Client, start_worker: StartWorker, redis: RedisCommand
) -> None:
    await start_worker(returns)
    calls = Calls(f"127.0.0.1:{gateway.port}")

    async def serves() -> bool:
        return await calls.health_of(WORKER_SERVICE) == "SERVING"

    try:
        for _ in range(3):
            await eventually(lambda: gateway._wakeups.is_subscribed)
            assert await redis("CLIENT", "KILL", "TYPE", "pubsub") >= 1
            handle = await client.start(returns)
            assert await handle.result(timeout=5) == "done"
            assert waited(await handle.get()) <= WITHIN
        await eventually(serves, saying="it serves again")
    finally:
        await calls.close()
