"""Calls that their callers give up, many under way at a time, while Redis is restarted twice."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

import grpc

from redflow_sdk import RedflowError
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import payload_pb2
from tests.eventually import eventually
from tests.leaks.scene import ROUNDS, WARM_UP, Report, Scene, at_once
from tests.leaks.watched import ThisProcess
from tests.leaks.workflows import noop, stay
from tests.rpc.calls import Calls

LANES: Final = 32
LONGEST_S: Final = 0.01
NORMAL_CALLS: Final = 100
LOST_BYTES: Final = 400
"""What grpc.aio loses in a client of each call that is given up (https://github.com/grpc/grpc/issues/43360): memory of
its own, so there are no more objects of Python than before.
"""
RESTARTS: Final = (WARM_UP + ROUNDS // 3, WARM_UP + 2 * ROUNDS // 3)
"""The rounds in which Redis is restarted."""
ENDS: Final = (grpc.RpcError, asyncio.CancelledError, asyncio.InvalidStateError, grpc.aio.UsageError)


async def play(scene: Scene, report: Report) -> None:
    """So many calls, then some that nobody gives up."""
    share = max(1, report.operations // ROUNDS)
    waited_for = await scene.client.start(stay)
    calls = Calls(scene.target)
    callers = Callers(scene, calls, waited_for.id)

    async def one_round(number: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(at_once(share, LANES, callers.call_and_hang_up))
            if number in RESTARTS:
                group.create_task(_restart(scene))
        await eventually(callers.works, within=60, every=0.1, saying="the gateway does not work again")
        await scene.all_purged(left=1)

    lost_kb = {ThisProcess.name: share * ROUNDS * LOST_BYTES / 1024}
    await scene.judge(report, (scene.gateway, scene.worker, ThisProcess(), scene.redis), one_round, lost_kb=lost_kb)
    report.more["answered_before_hanging_up"] = callers.answered
    for number in range(NORMAL_CALLS):
        await scene.client.execute(noop, number % 99, timeout=30)
    await waited_for.cancel()
    await calls.close()
    await scene.all_purged()


async def _restart(scene: Scene) -> None:
    await scene.redis.stop()
    await asyncio.sleep(1)  # calls fail meanwhile
    await scene.redis.start()


class Callers:
    """Callers that hang up after a moment, whatever they have asked for."""

    def __init__(self, scene: Scene, calls: Calls, run_id: str) -> None:
        self._client = scene.client
        self._calls = calls
        self._run_id = run_id
        self.answered = 0

    async def works(self) -> bool:
        """Whether a run can be started and comes to its end."""
        try:
            return bool(await self._client.execute(noop, 1, timeout=5))
        except RedflowError:
            return False

    async def call_and_hang_up(self, number: int) -> None:
        """One call, by the stubs or by the SDK's client."""
        match number % 6:
            case 0:
                await self._hang_up(self._calls.runs.WaitRun(pb.WaitRunRequest(run_id=self._run_id)))
            case 1:
                await self._hang_up(self._calls.runs.StartRun(_start()))
            case 2:
                await self._break_off()
            case 3:
                await self._give_up(asyncio.ensure_future(self._client.handle(self._run_id).result(timeout=60)))
            case 4:
                await self._give_up(asyncio.ensure_future(self._client.execute(noop, 1, timeout=60)))
            case _:
                await self._give_up(asyncio.ensure_future(self._client.start(noop, 1)))

    async def _hang_up(self, call: grpc.aio.UnaryUnaryCall[object, object]) -> None:
        await asyncio.sleep(random.uniform(0, LONGEST_S))
        self.answered += not call.cancel()
        with suppress(*ENDS):
            await call

    async def _break_off(self) -> None:
        """A stream on which a run is started and waited for, and another one is waited for."""
        call = self._calls.runs.ExecuteRuns()
        with suppress(*ENDS):
            start = pb.NumberedStart(number=1, run=_start(), wait=True)
            await call.write(pb.ExecuteRunsRequest(starts=[start], run_ids=[self._run_id]))
            await asyncio.sleep(random.uniform(0, LONGEST_S))
        call.cancel()
        with suppress(*ENDS):
            await call.code()

    async def _give_up(self, asked: asyncio.Future[object]) -> None:
        await asyncio.wait([asked], timeout=random.uniform(0, LONGEST_S))
        self.answered += not asked.cancel()
        with suppress(asyncio.CancelledError, RedflowError):
            await asked


def _start() -> pb.StartRunRequest:
    return pb.StartRunRequest(workflow=noop.name, queue="leaks", input=payload_pb2.Payload(data=b"1"))
