"""try_write: it is refused as a start would be, and changes nothing."""

from __future__ import annotations

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import claim_one, enqueue_one, everything
from tests.redis_command import RedisCommand


async def test_it_changes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await store.try_write()
    assert await everything(redis, keys) == {}
    await enqueue_one(store)
    await claim_one(store)
    before = await everything(redis, keys)
    await store.try_write()
    assert await everything(redis, keys) == before


async def test_it_is_refused_when_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await redis("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            await store.try_write()
    finally:
        await redis("CONFIG", "SET", "maxmemory", 0)
    await store.try_write()
