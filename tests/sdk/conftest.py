"""Fixtures: a scripted gateway with workers that are connected to it, and a scripted run service for clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest
import pytest_asyncio

from redflow_sdk import Worker
from redflow_sdk.proto.api.v1 import run_service_pb2
from tests.conftest import StartWorker
from tests.sdk.messages import payload
from tests.sdk.scripted_gateway import ScriptedGateway, Times
from tests.sdk.scripted_runs import ScriptedRuns, a_page, a_run

StartScripted = Callable[..., ScriptedGateway]


@pytest.fixture
def start_scripted() -> Iterator[StartScripted]:
    """Starts scripted gateways with times of their own."""
    started: list[ScriptedGateway] = []

    def start(max_payload_bytes: int = 1024 * 1024, **times: float) -> ScriptedGateway:
        gateway = ScriptedGateway(Times(**times), max_payload_bytes=max_payload_bytes)
        gateway.start()
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture
def scripted(start_scripted: StartScripted) -> ScriptedGateway:
    """A scripted gateway with a lease of 2.4 s and beats of 200 ms."""
    return start_scripted()


@pytest_asyncio.fixture
async def connect(start_scripted: StartScripted) -> AsyncIterator[StartWorker]:
    """Connects workers to a scripted gateway. What runs at the end of the test is stopped."""
    workers: list[tuple[ScriptedGateway, Worker]] = []

    async def start(gateway: ScriptedGateway, *workflows: object, **settings: object) -> Worker:
        worker = Worker(gateway.target, workflows=workflows, **settings)  # type: ignore[arg-type]  # any of Worker's
        await asyncio.wait_for(worker.start(), 10)
        workers.append((gateway, worker))
        return worker

    yield start
    for gateway, _ in workers:
        gateway.behave()
        for session in gateway.sessions:
            if session.is_muted:
                session.cut()
    await asyncio.gather(*(worker.stop() for _, worker in workers))


@pytest.fixture
def connect_without_parking(connect: StartWorker) -> StartWorker:
    """Connects workers whose handlers end when they have to wait."""
    return partial(connect, park_window=0)


@pytest.fixture
def hold_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets for how many seconds a task that waits for something else keeps its run from being set aside."""
    return partial(monkeypatch.setattr, "redflow_sdk._suspension.HELD_S")


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What threads of the test wait for; set when it is over, so that none outlives it."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def runs() -> Iterator[ScriptedRuns]:
    """A run service that starts whatever it is asked to, and has every run succeeded."""
    service = ScriptedRuns()
    output = payload({"total": 9.5})
    service.script = {
        "StartRun": lambda request: run_service_pb2.StartRunResponse(run_id="run-1", created=True),
        "GetRun": lambda request: run_service_pb2.GetRunResponse(run=a_run(run_id=request.run_id)),
        "ListRuns": lambda request: a_page(3),
        "ListRunSteps": lambda request: run_service_pb2.ListRunStepsResponse(),
        "CancelRun": lambda request: run_service_pb2.CancelRunResponse(accepted=True),
        "CompleteToken": lambda request: run_service_pb2.CompleteTokenResponse(),
        "End": lambda run_id: a_run(run_id=run_id, output=output),
        "WaitRun": lambda request: run_service_pb2.WaitRunResponse(
            done=True, run=a_run(run_id=request.run_id, output=output)
        ),
    }
    service.start()
    yield service
    service.stop()
