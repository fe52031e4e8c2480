"""Fixtures: a scripted gateway, and workers that are connected to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

from redflow_sdk import Worker
from tests.conftest import StartWorker
from tests.sdk.scripted_gateway import ScriptedGateway, Times

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
def released() -> Iterator[threading.Event]:
    """What threads of the test wait for; set when it is over, so that none outlives it."""
    event = threading.Event()
    yield event
    event.set()
