"""Pipelines of a test's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.builders import START_MS
from tests.redis_command import RedisCommand

WITHIN_S = 5.0


@contextlib.asynccontextmanager
async def pipeline_to(url: str, prefix: str) -> AsyncIterator[tuple[Pipeline, Store]]:
    """A pipeline of its own, and a store on it."""
    dial = Dial(url)
    pipeline = Pipeline(dial, load_scripts(), prefix)
    await pipeline.start()
    try:
        yield pipeline, Store(pipeline, now_ms=START_MS)
    finally:
        await pipeline.stop()
        await dial.close()


async def call_is_postponed(redis: RedisCommand) -> None:
    """Waits until a call has reached Redis, which does not execute it yet."""
    info: dict[str, int] = {}
    async with asyncio.timeout(WITHIN_S):
        while not info.get("blocked_clients"):
            info = await redis("INFO", "clients")
