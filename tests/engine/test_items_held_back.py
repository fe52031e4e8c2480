"""Items that the store did not take: what is remembered of them, for as long as it holds others back."""

from __future__ import annotations

import pytest

from redflow_server.domain.ids import new_run_id, new_secret
from redflow_server.domain.leases import CompleteRun
from redflow_server.domain.session import Item, ItemStatus, WorkerMessage
from tests.engine.conftest import OpenWorker
from tests.engine.parts import Engine, Stores
from tests.eventually import eventually

RUNS = 20


async def test_nothing_is_kept_of_runs_whose_items_do_not_come_again(
    stores: Stores, open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.items.BLOCKED_S", 0.0)
    worker = await open_worker(Engine(await stores.open()))
    await stores.close()  # it takes nothing any more

    for number in range(RUNS):
        run_id = new_run_id()
        item = Item(number, CompleteRun(run_id, f"{run_id}.{new_secret()}", 0, None))
        worker.session.receive(WorkerMessage(items=(item,)))
        await eventually(lambda number=number: number in worker.answers)

    assert {answer.status for answer in worker.answers.values()} == {ItemStatus.UNAVAILABLE}
    assert len(worker.session._items._blocked) == 1
