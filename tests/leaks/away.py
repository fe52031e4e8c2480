"""Clients and workers that call a port where nobody listens, and a gateway that is killed again and again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from redflow_sdk import Client, UnavailableError, Worker
from tests.chaos.processes import quiet_port
from tests.eventually import eventually
from tests.leaks.scene import ROUNDS, Report, Scene, at_once
from tests.leaks.watched import ThisProcess
from tests.leaks.workflows import noop

LANES: Final = 16
SHORT_S: Final = 0.05


async def play(scene: Scene, report: Report) -> None:
    """So many calls to the closed port."""
    share = max(1, report.operations // ROUNDS)
    closed = f"127.0.0.1:{quiet_port()}"

    async with Client(closed, call_timeout=SHORT_S) as lasting:

        async def one_round(number: int) -> None:
            await at_once(share, LANES, lambda at: _call_nobody(closed, lasting, at, report))
            await _kill(scene)
            await scene.all_purged()

        await scene.judge(report, (scene.worker, ThisProcess(), scene.redis), one_round)


async def _call_nobody(closed: str, lasting: Client, number: int, report: Report) -> None:
    """By a client that stays, by one of its own, or by a worker that is given up."""
    if number % 20 == 0:
        worker = Worker(closed, workflows=[noop], name="nobody")
        with suppress(TimeoutError):
            await asyncio.wait_for(worker.start(), SHORT_S)
        await worker.stop()
        return
    client = Client(closed, call_timeout=SHORT_S) if number % 10 == 1 else lasting
    try:
        await (client.start(noop, 1) if number % 2 else client.stats())
        report.violations.append("nobody has answered")
    except UnavailableError:
        pass
    if client is not lasting:
        await client.close()


async def _kill(scene: Scene) -> None:
    """Somebody waits meanwhile, and gets what he waits for."""
    await scene.gateway.kill()
    waiting = asyncio.create_task(scene.client.execute(noop, 1, timeout=60))
    async with Client(scene.target, call_timeout=SHORT_S) as brief:
        with suppress(UnavailableError):
            await brief.stats()
    await scene.gateway.start()
    await waiting
    await eventually(lambda: _works(scene), within=60, every=0.1, saying="the gateway does not work again")
    await scene.has_worker()


async def _works(scene: Scene) -> bool:
    try:
        return bool(await scene.client.stats())
    except UnavailableError:
        return False
