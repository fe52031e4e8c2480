"""Engines without a port, and workers that speak to them in values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from redflow_server.domain.leases import Lane
from redflow_server.store.store import Store
from tests.builders import Changes
from tests.engine.engine_worker import EngineWorker, an_opening
from tests.engine.parts import Engine, Stores
from tests.line import Line, to_redis

OpenWorker = Callable[..., Awaitable[EngineWorker]]


@pytest_asyncio.fixture
async def stores(redis_url: str, prefix: str, store: Store) -> AsyncIterator[Stores]:
    """More stores on the test's prefix. They close before `store`, and the test ends with the check that it brings."""
    opened = Stores(redis_url, prefix)
    yield opened
    await opened.close()


@pytest.fixture
def engine(store: Store) -> Engine:
    """An engine on the test's store."""
    return Engine(store)


@pytest_asyncio.fixture
async def line(redis_url: str) -> AsyncIterator[Line]:
    """A line to Redis, for a store whose requests or replies a test holds."""
    async with Line(to_redis(redis_url)) as held:
        yield held


@pytest_asyncio.fixture
async def far_store(line: Line, redis_url: str, prefix: str, store: Store) -> AsyncIterator[Store]:
    """A store behind the line. What passes it by is done through `store`."""
    opened = Stores(redis_url, prefix)
    yield await opened.open(redis_url=line.through(redis_url))
    line.let_go()
    await opened.close()


@pytest_asyncio.fixture
async def open_worker(store: Store) -> AsyncIterator[OpenWorker]:
    """Opens the session of a worker at an engine: lanes, and fields of its opening."""
    workers: list[EngineWorker] = []

    async def open_one(engine: Engine, *lanes: Lane, **fields: Changes) -> EngineWorker:
        worker = EngineWorker(engine, an_opening(*lanes, **fields))
        workers.append(worker)
        return await worker.open()

    yield open_one
    for worker in workers:
        await worker.close()
