"""Runs that end and are kept for a second: nothing is left of them, in Redis or in any process."""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import payload_pb2
from tests.eventually import eventually
from tests.leaks.scene import RETENTION_S, ROUNDS, WARM_UP, Report, Scene
from tests.leaks.watched import ThisProcess
from tests.leaks.workflows import noop
from tests.rpc.calls import Calls

BATCH: Final = 500
AHEAD: Final = 20_000
"""So many runs are started before the worker has caught up."""
DRAINED_WITHIN_S: Final = 600.0
SETTLED_WITHIN_S: Final = 300.0
SHARE: Final = 0.05
"""By which the memory of Redis may differ from what it was before."""


async def play(scene: Scene, report: Report) -> None:
    """So many runs, of which each hundredth fails, each thousandth is canceled and each tenth has a key."""
    calls = Calls(scene.target)
    share = max(BATCH, report.operations // ROUNDS)
    baselines: list[int] = []

    async def one_round(number: int) -> None:
        if number == WARM_UP:
            baselines.append(await scene.redis.used_bytes())
        for first in range(0, share, BATCH):
            await _start(calls, number * share + first, min(BATCH, share - first))
            await _drained(scene, AHEAD)
        await scene.all_purged()

    await scene.judge(report, (scene.gateway, scene.worker, ThisProcess(), scene.redis), one_round)
    await calls.close()
    [before] = baselines
    report.more["redis_bytes_before"] = before

    async def is_back() -> bool:
        report.more["redis_bytes_after"] = after = await scene.redis.used_bytes()
        return abs(after - before) <= SHARE * before

    try:
        await eventually(is_back, within=SETTLED_WITHIN_S, every=1.0)
    except AssertionError:
        report.violations.append(f"Redis has {report.more['redis_bytes_after']:.0f} bytes; before it had {before}")


async def _start(calls: Calls, first: int, count: int) -> None:
    runs = [
        pb.StartRunRequest(
            workflow=noop.name,
            queue="leaks",
            input=payload_pb2.Payload(data=str(number).encode()),
            idempotency_key=f"key-{number}" if number % 10 == 0 else "",
            idempotency_ttl=Duration(seconds=RETENTION_S),  # what has a key is kept as long as that holds
        )
        for number in range(first, first + count)
    ]
    answer = await calls.runs.BatchStartRuns(pb.BatchStartRunsRequest(runs=runs), timeout=60)
    await asyncio.gather(*(calls.cancel(it.started.run_id) for it in answer.results[::1000]))


async def _drained(scene: Scene, to: int) -> None:
    async def is_so() -> bool:
        runs = (await scene.client.stats()).runs
        return sum(runs.get(status, 0) for status in ("queued", "running", "waiting", "scheduled")) <= to

    await eventually(is_so, within=DRAINED_WITHIN_S, every=0.05, saying="the worker does not get on")
