"""A worker whose connection breaks again and again with runs in hand, and sessions that others open and break off."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.eventually import eventually
from tests.leaks.scene import ROUNDS, Report, Scene, at_once
from tests.leaks.watched import ThisProcess
from tests.leaks.workflows import beside, stay
from tests.rpc.calls import Calls
from tests.rpc.scripted_worker import ScriptedWorker, an_open

IN_HAND = 3
LANES = 10
BACK_WITHIN_S = 30.0


async def play(scene: Scene, report: Report) -> None:
    """As many cuts, and as many sessions, as there are operations."""
    kept = [await scene.client.start(stay) for _ in range(IN_HAND)]
    share = max(1, report.operations // ROUNDS)

    async def one_round(number: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_cut_again_and_again(scene, share))
            group.create_task(at_once(share, LANES, lambda at: _open_and_leave(scene, at)))
        await scene.has_worker()
        await scene.all_purged(left=IN_HAND)

    await scene.judge(report, (scene.gateway, scene.worker, ThisProcess(), scene.redis), one_round)
    for handle in kept:
        run = await handle.get()
        if run.losses:
            report.violations.append(f"{handle.id} was lost {run.losses} times, although its worker came back")
        await handle.cancel()
    await scene.all_purged()


async def _cut_again_and_again(scene: Scene, times: int) -> None:
    for _ in range(times):
        before = await _connected_at(scene)
        await asyncio.sleep(random.uniform(0, 0.02))
        scene.worker_line.cut()

        async def is_back(before: object = before) -> bool:
            return await _connected_at(scene) not in (None, before)

        await eventually(is_back, within=BACK_WITHIN_S, saying="the worker does not come back")
        # A session in which nothing comes counts as none: the pause before the next one would be longer each time.
        await scene.client.execute(beside, timeout=BACK_WITHIN_S)


async def _connected_at(scene: Scene) -> object:
    times = [worker.connected_at for worker in await scene.client.list_workers() if worker.name == scene.worker.name]
    return times[0] if len(times) == 1 else None


async def _open_and_leave(scene: Scene, number: int) -> None:
    """Breaks off, ends its side, says goodbye, or has its channel closed under it."""
    async with AsyncExitStack() as stack:
        calls = Calls(scene.target)
        stack.push_async_callback(calls.close)
        worker = ScriptedWorker(calls.channel)
        await worker.open(an_open("leak-scripted", owner="scripted", slot_limit=0))
        match number % 4:
            case 0:
                await worker.cut()
            case 1:
                await worker.finish_writing()
                await worker.end()
            case 2:
                await worker.say(close=pb.CloseSession())
                await worker.end()
            case _:
                await calls.close()
                await worker.cut()
