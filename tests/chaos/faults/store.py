"""What may happen to Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from tests.chaos.stage import Stage


@asynccontextmanager
async def killed(stage: Stage, random: Random) -> AsyncIterator[None]:
    """kill -9, and a start with what it has written down."""
    await stage.redis.kill()
    try:
        yield
    finally:
        await stage.redis.start()


@asynccontextmanager
async def restarted(stage: Stage, random: Random) -> AsyncIterator[None]:
    """An orderly end, and a start."""
    await stage.redis.stop()
    try:
        yield
    finally:
        await stage.redis.start()


@asynccontextmanager
async def frozen(stage: Stage, random: Random) -> AsyncIterator[None]:
    """It takes connections, and answers nobody."""
    stage.redis.freeze()
    try:
        yield
    finally:
        stage.redis.thaw()


@asynccontextmanager
async def scripts_flushed(stage: Stage, random: Random) -> AsyncIterator[None]:
    """It has forgotten all scripts, again and again."""
    async with stage.redis.client() as redis:
        await redis.script_flush()
        yield
        await redis.script_flush()


@asynccontextmanager
async def clients_killed(stage: Stage, random: Random) -> AsyncIterator[None]:
    """It ends all connections, those that listen too."""
    async with stage.redis.client() as redis:
        for kind in ("normal", "pubsub"):
            await redis.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        yield


@asynccontextmanager
async def paused(stage: Stage, random: Random) -> AsyncIterator[None]:
    """It lets all commands wait, as while a fail-over is prepared."""
    async with stage.redis.client() as redis:
        await redis.execute_command("CLIENT", "PAUSE", random.randrange(100, 4000), "ALL")
        yield
    async with stage.redis.client() as redis:
        await redis.execute_command("CLIENT", "UNPAUSE")


@asynccontextmanager
async def full(stage: Stage, random: Random) -> AsyncIterator[None]:
    """It refuses whatever takes memory."""
    async with stage.redis.client() as redis:
        await redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        async with stage.redis.client() as redis:
            await redis.config_set("maxmemory", 0)
