"""What a program can say of its worker to those who probe it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from redflow_sdk import Worker, WorkerHealth
from tests.eventually import eventually
from tests.sdk.messages import payload
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.worker_program import naps

AWAY = WorkerHealth(is_connected=False, is_draining=False, stalled_for=0.0)
BLOCKED_S = 2.0


def test_a_worker_that_was_not_started_is_not_ready() -> None:
    assert Worker("localhost:1", workflows=[naps]).health == AWAY


async def test_a_worker_is_ready_from_its_first_session_until_it_drains(scripted: ScriptedGateway) -> None:
    worker = Worker(scripted.target, workflows=[naps], drain_grace=0.0)
    await worker.start()
    assert worker.health.is_ready
    await scripted.log.ack(scripted.assign("naps", payload(60)))
    drain = asyncio.create_task(worker.drain(30.0))
    await eventually(lambda: worker.health.is_draining)
    assert worker.health.is_connected and not worker.health.is_ready
    await worker.stop()
    await drain
    assert worker.health == WorkerHealth(is_connected=False, is_draining=True, stalled_for=0.0)


async def test_a_worker_without_a_session_is_not_ready(scripted: ScriptedGateway) -> None:
    worker = Worker(scripted.target, workflows=[naps])
    await worker.start()
    scripted.stop()
    await eventually(lambda: not worker.health.is_connected)
    assert not worker.health.is_ready
    await worker.stop()


def look_after(seconds: float, worker: Worker) -> float:
    time.sleep(seconds)
    return worker.health.stalled_for


async def test_a_loop_that_is_blocked_is_seen_from_other_threads(scripted: ScriptedGateway) -> None:
    worker = Worker(scripted.target, workflows=[naps])
    await worker.start()
    await eventually(lambda: worker.health.stalled_for < BLOCKED_S / 2)
    with ThreadPoolExecutor() as threads:
        stalled_s = threads.submit(look_after, BLOCKED_S, worker).result()  # as a handler that does not await
    assert stalled_s >= BLOCKED_S - 1.1
    await eventually(lambda: worker.health.stalled_for < BLOCKED_S / 2)
    await worker.stop()
