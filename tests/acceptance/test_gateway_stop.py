"""A gateway process that is told to end while many workers are connected and many callers wait."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from redflow_sdk import Context, Worker, workflow
from redflow_sdk.proto.api.v1.run_service_pb2 import WaitRunRequest
from redflow_sdk.proto.api.v1.system_service_pb2 import ListWorkersRequest
from tests.cli.command import Command, spawn
from tests.conftest import CheckInvariants
from tests.eventually import eventually
from tests.rpc.calls import Calls, refused

WORKERS = WAITERS = 200
GRACE_S = 2.0
BEYOND_GRACE_S = 3.0
"""What a gateway may take after its grace: to end streams, and for this machine's other tests."""
READY_WITHIN_S = 30.0

StartServer = Callable[[], Awaitable[Command]]


@workflow(name="endless", queue="stop")
async def endless(ctx: Context) -> None:
    await ctx.step.sleep("nap", 3600)


@pytest_asyncio.fixture
async def start_server(redis_url: str, prefix: str) -> AsyncIterator[StartServer]:
    """Starts gateways; none outlives the test."""
    commands: list[Command] = []

    async def start() -> Command:
        settings = ("--redis", redis_url, "--prefix", prefix, "--drain-grace", str(GRACE_S))
        commands.append(await spawn("server", *settings, "--port", "0", "-o", "json"))
        return commands[-1]

    yield start
    for command in commands:
        if command.is_running:
            command.process.kill()
        await command.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_within_its_grace_with_200_workers_and_200_waiting_callers(
    number: signal.Signals, start_server: StartServer, check_invariants: CheckInvariants
) -> None:
    server = await start_server()
    target = json.loads(await server.line())["gateway"]
    workers = [Worker(target, workflows=[endless], concurrency=2, name=f"w{number}") for number in range(WORKERS)]
    await asyncio.wait_for(asyncio.gather(*(worker.start() for worker in workers)), READY_WITHIN_S)
    calls = Calls(target)
    run_ids = await calls.start_many(WAITERS, "endless", "stop")

    async def all_are_there() -> bool:
        listed = await calls.system.ListWorkers(ListWorkersRequest())
        return len(listed.workers) == WORKERS and (await calls.run(run_ids[-1])).open_waits == 1

    await eventually(all_are_there, within=READY_WITHIN_S)
    waiting = [
        asyncio.create_task(refused(calls.runs.WaitRun(WaitRunRequest(run_id=run_id, timeout=Duration(seconds=45)))))
        for run_id in run_ids
    ]
    await calls.run(run_ids[0])  # what was sent before on the connection has arrived
    told_at = time.monotonic()
    server.send(number)
    ended = await server.end()
    took_s = time.monotonic() - told_at
    refusals = await asyncio.gather(*waiting)
    await calls.close()
    try:
        assert ended.code == 0
        assert took_s < GRACE_S + BEYOND_GRACE_S
        assert "Traceback" not in ended.err, ended.err
        assert {refusal.code for refusal in refusals} == {grpc.StatusCode.UNAVAILABLE}
        host, _, port = target.rpartition(":")
        with socket.socket() as probe:
            assert probe.connect_ex((host, int(port))) != 0, "nobody listens there any more"
        await check_invariants()
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
