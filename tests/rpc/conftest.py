"""Workers and clients that know only the generated stubs, against gateways on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from redflow_sdk.proto.v1 import workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from tests.rpc.calls import Calls
from tests.rpc.run_stream import RunStream
from tests.rpc.scripted_worker import Fields, ScriptedWorker, a_definition, an_open

CallsTo = Callable[[Gateway], Calls]
Dial = Callable[..., ScriptedWorker]
OpenWorker = Callable[..., Awaitable[ScriptedWorker]]


@pytest_asyncio.fixture
async def calls_to() -> AsyncIterator[CallsTo]:
    """Clients of gateways, each over a channel of its own."""
    async with AsyncExitStack() as stack:

        def connect(gateway: Gateway) -> Calls:
            calls = Calls(f"127.0.0.1:{gateway.port}")
            stack.push_async_callback(calls.close)
            return calls

        yield connect


@pytest.fixture
def calls(gateway: Gateway, calls_to: CallsTo) -> Calls:
    """A client of the gateway."""
    return calls_to(gateway)


@pytest.fixture
def _own_gateway(request: pytest.FixtureRequest) -> Gateway | None:
    """The gateway of a test that asked for it, or for `calls`; the others start their own."""
    return request.getfixturevalue("gateway") if "gateway" in request.fixturenames else None


@pytest_asyncio.fixture
async def dial(calls_to: CallsTo, _own_gateway: Gateway | None) -> AsyncIterator[Dial]:
    """Opens the streams of workers; the test's gateway is dialed unless `at` names another."""
    workers: list[ScriptedWorker] = []
    channels: dict[int, Calls] = {}

    def dial_one(at: Gateway | None = None) -> ScriptedWorker:
        gateway = at or _own_gateway
        assert gateway is not None, "say which gateway to dial"
        if gateway.port not in channels:
            channels[gateway.port] = calls_to(gateway)
        workers.append(ScriptedWorker(channels[gateway.port].channel))
        return workers[-1]

    yield dial_one
    for worker in workers:
        await worker.cut()


@pytest.fixture
def open_worker(dial: Dial) -> OpenWorker:
    """Opens the session of a worker that sends heartbeats: workflows, and fields of its OpenSession."""

    async def open_one(
        *workflows: str | workflow_pb2.WorkflowDefinition, at: Gateway | None = None, **fields: Fields
    ) -> ScriptedWorker:
        worker = dial(at)
        await worker.open(an_open(*workflows, **fields))
        worker.beat_on()
        return worker

    return open_one


async def started(calls: Calls, open_worker: OpenWorker, **fields: Fields) -> tuple[ScriptedWorker, pb.Assignment]:
    """A worker that has taken up one run of workflow `w`, whose definition has these fields."""
    worker = await open_worker(a_definition("w", **fields))
    await calls.start()
    return worker, await worker.take()


@pytest_asyncio.fixture
async def open_stream() -> AsyncIterator[Callable[[Calls], RunStream]]:
    opened: list[RunStream] = []

    def open_one(calls: Calls) -> RunStream:
        opened.append(RunStream(calls))
        return opened[-1]

    yield open_one
    for stream in opened:
        stream.call.cancel()


@pytest.fixture
def stream(calls: Calls, open_stream: Callable[[Calls], RunStream]) -> RunStream:
    return open_stream(calls)
