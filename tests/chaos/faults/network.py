"""What may happen to a line between any two."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from tests.chaos.stage import Stage
from tests.line import Line


@asynccontextmanager
async def _mended(line: Line) -> AsyncIterator[Line]:
    try:
        yield line
    finally:
        line.let_go()


@asynccontextmanager
async def line_cut(stage: Stage, random: Random) -> AsyncIterator[None]:
    """All connections of a line break, once."""
    random.choice(stage.lines).cut()
    yield


@asynccontextmanager
async def line_slow(stage: Stage, random: Random) -> AsyncIterator[None]:
    """What goes over it takes longer."""
    async with _mended(random.choice(stage.lines)) as line:
        for direction in line.directions:
            direction.delay_s = random.uniform(0.01, 0.3)
        yield


@asynccontextmanager
async def line_frozen(stage: Stage, random: Random) -> AsyncIterator[None]:
    """Nothing comes through, and nobody is told."""
    async with _mended(random.choice(stage.lines)) as line:
        for direction in line.directions:
            direction.passes.clear()
        yield


@asynccontextmanager
async def line_loses_requests(stage: Stage, random: Random) -> AsyncIterator[None]:
    """Nothing comes through to the server."""
    async with _mended(random.choice(stage.lines)) as line:
        line.requests.passes.clear()
        yield


@asynccontextmanager
async def line_loses_replies(stage: Stage, random: Random) -> AsyncIterator[None]:
    """Nothing comes back: what was asked is done, and nobody knows."""
    async with _mended(random.choice(stage.lines)) as line:
        line.replies.passes.clear()
        yield
