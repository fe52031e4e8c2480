"""What Redis may refuse calls with for a while, brought about in one that runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from redflow_server.store.wire import Dial
from tests.eventually import eventually
from tests.redis_command import RedisCommand

Refusing = Callable[[RedisCommand, str], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def read_only(redis: RedisCommand, url: str) -> AsyncIterator[None]:
    """It has been made a replica, of one that is not there."""
    await redis("REPLICAOF", "127.0.0.1", 1)
    try:
        yield
    finally:
        await redis("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def without_replicas(redis: RedisCommand, url: str) -> AsyncIterator[None]:
    """It writes only with a replica, and has none."""
    await redis("CONFIG", "SET", "min-replicas-to-write", 1)
    try:
        yield
    finally:
        await redis("CONFIG", "SET", "min-replicas-to-write", 0)


@asynccontextmanager
async def without_disk(redis: RedisCommand, url: str) -> AsyncIterator[None]:
    """It cannot write its snapshot: a folder stands where that is to be."""
    _, folder = await redis("CONFIG", "GET", "dir")
    _, name = await redis("CONFIG", "GET", "dbfilename")
    _, save = await redis("CONFIG", "GET", "save")
    in_its_way = Path(folder) / name
    in_its_way.unlink(missing_ok=True)
    in_its_way.mkdir()
    await redis("CONFIG", "SET", "save", "3600 1000000")
    try:
        await redis("BGSAVE")
        await eventually(lambda: _last_save_was(redis, "err"))
        yield
    finally:
        in_its_way.rmdir()
        await redis("BGSAVE")
        await eventually(lambda: _last_save_was(redis, "ok"))
        await redis("CONFIG", "SET", "save", save)


async def _last_save_was(redis: RedisCommand, status: str) -> bool:
    info = await redis("INFO", "persistence")
    return not info["rdb_bgsave_in_progress"] and info["rdb_last_bgsave_status"] == status


@asynccontextmanager
async def busy(redis: RedisCommand, url: str) -> AsyncIterator[None]:
    """Somebody's script does not come to an end."""
    await redis("CONFIG", "SET", "lua-time-limit", 20)
    dial = Dial(url)
    async with dial.client() as client:
        running = asyncio.create_task(_ignore_its_end(RedisCommand(client)("EVAL", "while true do end", 0)))
        await eventually(lambda: _is_busy(redis))
        try:
            yield
        finally:
            await redis("SCRIPT", "KILL")
            await running
            await redis("CONFIG", "SET", "lua-time-limit", 5000)
    await dial.close()


async def _ignore_its_end(call: Awaitable[object]) -> None:
    with contextlib.suppress(RedisError):  # it is killed
        await call


async def _is_busy(redis: RedisCommand) -> bool:
    try:
        return not await redis("PING")
    except RedisError as error:
        return "BUSY" in str(error) or "running a script" in str(error)


REFUSALS: Final[dict[str, Refusing]] = {
    "READONLY": read_only,
    "NOREPLICAS": without_replicas,
    "MISCONF": without_disk,
    "BUSY": busy,
}
"""By the code of the replies."""
