"""Clocks that are set forward or back, and then right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from tests.chaos.clocks import Clock
from tests.chaos.stage import Stage

OFFSETS_S: Final = (-60, -5, 5, 60)


@asynccontextmanager
async def _set(clock: Clock, random: Random) -> AsyncIterator[None]:
    clock.set(random.choice(OFFSETS_S))
    try:
        yield
    finally:
        clock.set(0)


@asynccontextmanager
async def redis_clock_set(stage: Stage, random: Random) -> AsyncIterator[None]:
    """The clock by which all scripts go."""
    async with _set(stage.redis_clock, random):
        yield


@asynccontextmanager
async def gateway_clock_set(stage: Stage, random: Random) -> AsyncIterator[None]:
    """The clock of a gateway, by which nothing goes but its log."""
    async with _set(random.choice(stage.gateway_clocks), random):
        yield
