"""Gateways and workers that are killed, or stand still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from tests.chaos.stage import Node, Stage


@asynccontextmanager
async def _killed(nodes: Sequence[Node]) -> AsyncIterator[None]:
    for node in nodes:
        await node.program.kill()
    try:
        yield
    finally:
        for node in nodes:
            await node.program.start()


@asynccontextmanager
async def _frozen(node: Node) -> AsyncIterator[None]:
    node.program.freeze()
    try:
        yield
    finally:
        node.program.thaw()


@asynccontextmanager
async def gateway_killed(stage: Stage, random: Random) -> AsyncIterator[None]:
    """kill -9 of a gateway."""
    async with _killed([random.choice(stage.gateways)]):
        yield


@asynccontextmanager
async def worker_killed(stage: Stage, random: Random) -> AsyncIterator[None]:
    """kill -9 of a worker."""
    async with _killed([random.choice(stage.workers)]):
        yield


@asynccontextmanager
async def workers_killed(stage: Stage, random: Random) -> AsyncIterator[None]:
    """kill -9 of all workers, and of a gateway."""
    async with _killed([*stage.workers, random.choice(stage.gateways)]):
        yield


@asynccontextmanager
async def gateway_frozen(stage: Stage, random: Random) -> AsyncIterator[None]:
    """SIGSTOP of a gateway, as by a debugger, a hypervisor, or swap."""
    async with _frozen(random.choice(stage.gateways)):
        yield


@asynccontextmanager
async def worker_frozen(stage: Stage, random: Random) -> AsyncIterator[None]:
    """SIGSTOP of a worker."""
    async with _frozen(random.choice(stage.workers)):
        yield
