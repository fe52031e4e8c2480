"""Readers that never read: a worker that floods its session with items, and a client that starts run after run on its
stream. Each costs the gateway no more than its bound, and others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import grpc

from redflow_sdk import RunNotFoundError
from redflow_sdk.proto.api.v1 import run_service_pb2, run_service_pb2_grpc
from redflow_sdk.proto.v1 import payload_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc
from tests.eventually import eventually
from tests.leaks.scene import Report, Scene
from tests.leaks.watched import PAGE_KB
from tests.leaks.workflows import beside, noop
from tests.rpc.items import a_step
from tests.rpc.scripted_worker import an_open

MOST_KB: Final = 50 * 1024
"""By so much the gateway may grow while nobody reads."""
STUCK_S: Final = 2.0
WITHIN_S: Final = 120.0
OTHERS: Final = 100
"""So many runs of those who go on may be there: they are kept for a second or two."""
STARTS: Final = 500
NARROW: Final = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16384),
    ("grpc.use_local_subchannel_pool", 1),
)
"""A channel that takes in little of what nobody reads: else its own buffers would hold much of it."""
ENDS: Final = (grpc.RpcError, asyncio.CancelledError, asyncio.InvalidStateError)


async def play(scene: Scene, report: Report) -> None:
    """In each round, of which there are as many as operations, a worker and a client."""
    most_kb: list[float] = []
    async with _others_go_on(scene) as took_s:

        async def one_round(number: int) -> None:
            before_kb = _rss_kb(scene)
            async with _deaf_worker(scene), _deaf_client(scene) as sent:
                await _stuck(sent)
                await scene.has_worker()  # the session of the deaf one is over
                most_kb.append(_rss_kb(scene) - before_kb)
            await _drained(scene)

        await scene.judge(report, (scene.gateway, scene.worker), one_round, rounds=report.operations)
    report.more["grew_by_at_most_kb"] = max(most_kb)
    report.more["others_took_at_most_s"] = round(max(took_s), 3)
    report.more["others_runs"] = len(took_s)
    if max(most_kb) > MOST_KB:
        report.violations.append(f"the gateway grew by {max(most_kb):.0f} kB while nobody read")
    await scene.all_purged()


def _rss_kb(scene: Scene) -> float:
    return int(Path(f"/proc/{scene.gateway.pid}/statm").read_text().split()[1]) * PAGE_KB


@asynccontextmanager
async def _others_go_on(scene: Scene) -> AsyncIterator[list[float]]:
    """Somebody else starts runs and gets their results meanwhile; how long each took."""
    took_s: list[float] = []
    is_over = asyncio.Event()

    async def go_on() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            with suppress(RunNotFoundError):  # it was kept for less time than the gateway took to tell
                await scene.client.execute(beside, timeout=30)
            took_s.append(time.monotonic() - began)
            await asyncio.sleep(0.05)

    going = asyncio.create_task(go_on())
    yield took_s
    is_over.set()
    await going


@asynccontextmanager
async def _deaf_worker(scene: Scene) -> AsyncIterator[None]:
    message = pb.SessionRequest(step_reports=[a_step("no token", "x" * 200) for _ in range(500)])

    async def flood() -> None:
        with suppress(*ENDS):
            while True:
                await call.write(message)

    async with grpc.aio.insecure_channel(scene.target, options=NARROW) as channel:
        call = worker_pb2_grpc.WorkerServiceStub(channel).Session()
        await call.write(pb.SessionRequest(open=an_open("leak-deaf", owner="deaf")))
        await call.read()
        flooding = asyncio.create_task(flood())
        yield
        call.cancel()
        await asyncio.wait([flooding])


@asynccontextmanager
async def _deaf_client(scene: Scene) -> AsyncIterator[list[int]]:
    """A client; how many runs it has started is the length of what is given."""
    run = run_service_pb2.StartRunRequest(workflow=noop.name, queue="leaks", input=payload_pb2.Payload(data=b"1"))
    starts = [run_service_pb2.NumberedStart(number=number, run=run, wait=True) for number in range(1, STARTS + 1)]
    message = run_service_pb2.ExecuteRunsRequest(starts=starts)
    sent: list[int] = []

    async def flood() -> None:
        with suppress(*ENDS):
            while True:
                await call.write(message)
                sent.append(STARTS)

    async with grpc.aio.insecure_channel(scene.target, options=NARROW) as channel:
        call = run_service_pb2_grpc.RunServiceStub(channel).ExecuteRuns()
        flooding = asyncio.create_task(flood())
        yield sent
        call.cancel()
        await asyncio.wait([flooding])


async def _stuck(sent: list[int]) -> None:
    """Returns when nothing more is taken."""
    seen = (0, time.monotonic())

    def is_stuck() -> bool:
        nonlocal seen
        if len(sent) != seen[0]:
            seen = (len(sent), time.monotonic())
        return bool(sent) and time.monotonic() - seen[1] > STUCK_S

    await eventually(is_stuck, within=WITHIN_S, every=0.05, saying="the gateway takes all that nobody reads")


async def _drained(scene: Scene) -> None:
    async def is_so() -> bool:
        runs = (await scene.client.stats()).runs
        return sum(runs.get(status, 0) for status in ("queued", "succeeded", "failed")) <= OTHERS

    await eventually(is_so, within=WITHIN_S, every=0.2, saying="runs are left")
