"""The runs of one caller: it can have no more of them than it listens to."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.engine import client_runs
from tests.builders import a_run
from tests.engine.parts import Engine

UNTOLD = 10


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_runs, "MAX_UNTOLD", UNTOLD)


async def test_there_is_room_for_more_starts_when_the_answers_to_others_were_taken(engine: Engine) -> None:
    runs = engine.runs.of_client()
    for number in range(UNTOLD):
        runs.start(number, a_run())
    await runs.room()
    runs.start(UNTOLD, a_run())
    waiting = asyncio.ensure_future(runs.room())
    await engine.store.due(0)  # it is answered after all that was asked before
    assert not waiting.done()

    news = await runs.take()

    assert news is not None
    assert {answer.number for answer in news.starts} == set(range(UNTOLD + 1))
    await asyncio.wait_for(waiting, 5)


async def test_nobody_waits_for_room_when_the_caller_is_gone(engine: Engine) -> None:
    runs = engine.runs.of_client()
    for number in range(UNTOLD + 1):
        runs.start(number, a_run())
    waiting = asyncio.ensure_future(runs.room())
    await asyncio.sleep(0)
    assert not waiting.done()

    runs.close()

    await asyncio.wait_for(waiting, 5)
    assert engine.waiters.count == 0


async def test_what_is_started_after_the_caller_is_gone_is_not_waited_for(engine: Engine) -> None:
    runs = engine.runs.of_client()
    run = a_run()
    await engine.runs.start(run)
    runs.execute(1, run)
    runs.close()
    await engine.store.due(0)
    await asyncio.sleep(0)
    assert engine.waiters.count == 0
