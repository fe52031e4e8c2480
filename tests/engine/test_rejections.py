"""What a worker rejects: it is left alone with that for a while, and others are asked."""

from __future__ import annotations

import pytest

from redflow_server.domain.leases import Lane
from redflow_server.domain.session import Receipt, RejectReason
from redflow_server.domain.states import RunStatus
from redflow_server.store.store import Store
from tests.builders import LANE, enqueue_one
from tests.engine.conftest import OpenWorker
from tests.engine.parts import Engine
from tests.eventually import eventually


async def test_a_rejected_run_is_offered_to_others_and_not_at_once_to_the_one_that_rejected_it(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    run_id = await enqueue_one(store)
    worker = await open_worker(engine)
    run = await worker.assignment()

    worker.say(receipts=(Receipt(run.lease_token, RejectReason.UNKNOWN_WORKFLOW),))

    async def is_set_aside() -> bool:
        return (await store.read_run(run_id)).status is RunStatus.SCHEDULED

    await eventually(is_set_aside)
    await worker.beat()
    assert worker.session.free_slots == 1
    assert not worker.session.accepts(LANE)
    assert worker.session.accepts(Lane("q", "another"))
    record = await store.read_run(run_id)
    assert (record.losses, record.failures) == (0, 0)


async def test_rejections_of_one_moment_count_once(
    engine: Engine, store: Store, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has no room has none for all that were on their way to it."""
    monkeypatch.setattr("redflow_server.engine.session.LEFT_OUT_S", 0.2)
    for _ in range(6):
        await enqueue_one(store)
    worker = await open_worker(engine, slot_limit=6)
    runs = [await worker.assignment() for _ in range(6)]

    worker.say(receipts=tuple(Receipt(run.lease_token, RejectReason.OVERLOADED) for run in runs))

    assert not worker.session.accepts(LANE)
    await eventually(lambda: worker.session.accepts(LANE), within=3)
