"""Workers that are there by halves: one direction of their connection is blocked, or their record is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.config import Config
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.eventually import eventually
from tests.line import Line, to_port
from tests.redis_command import RedisCommand

LEASE_S = 2.0
MEANWHILE = 10
BACK_WITHIN_S = 30.0


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, timing=Timing(lease_ms=int(LEASE_S * 1000), cancel_grace_ms=1000))


@pytest_asyncio.fixture
async def line(gateway: Gateway) -> AsyncIterator[Line]:
    async with Line(to_port(gateway.port)) as line:
        yield line


@workflow(name="half", queue="half")
async def half(ctx: Context, number: int) -> int:
    return number


def at(target: str, name: str) -> Worker:
    return Worker(target, workflows=[half], name=name, drain_grace=0.0, concurrency=50)


async def is_connected(client: Client, name: str) -> bool:
    return name in [worker.name for worker in await client.list_workers()]


async def is_gone(client: Client, name: str) -> bool:
    return not await is_connected(client, name)


@pytest.mark.parametrize("blocked", ["requests", "replies"])
async def test_a_worker_that_only_hears_or_is_only_heard_holds_up_no_run_and_comes_back_by_itself(
    line: Line, target: str, client: Client, blocked: str
) -> None:
    direction = line.requests if blocked == "requests" else line.replies
    async with at(f"127.0.0.1:{line.port}", "zombie"):
        await client.execute(half, 0, timeout=5)
        direction.passes.clear()
        async with at(target, "other") as other:
            handles = [await client.start(half, number) for number in range(MEANWHILE)]
            # What the zombie was given, or might have started, is the other's at the latest when its lease is over.
            results = await asyncio.gather(*(handle.result(timeout=BACK_WITHIN_S) for handle in handles))
            assert results == list(range(MEANWHILE))

            await eventually(lambda: is_gone(client, "zombie"), within=BACK_WITHIN_S)
            again = [await client.start(half, number) for number in range(MEANWHILE)]
            await asyncio.gather(*(handle.result(timeout=BACK_WITHIN_S) for handle in again))
            assert {(await handle.get()).delivery_count for handle in again} == {1}, "it is given nothing more"
            assert other.health.is_connected
            line.let_go()
        await eventually(lambda: is_connected(client, "zombie"), within=BACK_WITHIN_S)
        assert await client.execute(half, 7, timeout=BACK_WITHIN_S) == 7


async def test_a_worker_whose_record_is_gone_goes_on_and_is_listed_again(
    gateway: Gateway, target: str, client: Client, redis: RedisCommand, keys: Keys
) -> None:
    async with at(target, "recorded"):
        await eventually(lambda: is_connected(client, "recorded"))
        for session_id in await redis("ZRANGE", keys.sessions, 0, -1):
            await redis("DEL", keys.session(session_id))
        await redis("DEL", keys.sessions)
        assert not await is_connected(client, "recorded")

        assert await client.execute(half, 7, timeout=5) == 7

        await gateway._sessions.announce()  # it does so every ten seconds
        assert await is_connected(client, "recorded")
