"""Every test of this folder runs in each of the ways to wait, and expects the same of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from redflow_sdk import Worker
from tests.acceptance.waits.ways import Way
from tests.conftest import StartWorker


@pytest.fixture(params=list(Way), ids=lambda way: way.value, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    chosen: Way = request.param
    chosen.choose(monkeypatch)
    return chosen


@pytest_asyncio.fixture
async def start_worker_at(way: Way) -> AsyncIterator[StartWorker]:
    """Starts workers on the gateway at a target; what is still running at the end of the test is stopped."""
    workers: list[Worker] = []

    async def start(target: str, *workflows: object, **settings: object) -> Worker:
        chosen = {**way.settings, **settings}
        worker = Worker(target, workflows=workflows, **chosen)  # type: ignore[arg-type]  # any argument of Worker
        await worker.start()
        workers.append(worker)
        return worker

    yield start
    await asyncio.gather(*(worker.stop() for worker in workers))


@pytest.fixture
def start_worker(target: str, start_worker_at: StartWorker) -> StartWorker:
    """Starts workers on the test's gateway."""
    return partial(start_worker_at, target)
