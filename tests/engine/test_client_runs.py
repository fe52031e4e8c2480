"""The runs of one caller: it can have no more of them than it listens to."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun, StartedRun
from redflow_server.engine import client_runs
from redflow_server.engine.client_runs import ClientRuns
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


async def test_starts_with_large_inputs_have_less_room(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_runs, "MAX_UNTOLD_BYTES", 1000)
    runs = engine.runs.of_client()
    runs.start(1, a_run(input=Payload(b"x" * 1001)))
    waiting = asyncio.ensure_future(runs.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await runs.take()
    await asyncio.wait_for(waiting, 5)


async def test_what_is_to_be_told_of_waits_takes_room_too(engine: Engine) -> None:
    runs = engine.runs.of_client()
    runs.want(f"no run {number}" for number in range(UNTOLD + 1))
    waiting = asyncio.ensure_future(runs.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await runs.take()
    await asyncio.wait_for(waiting, 5)


async def test_an_answer_that_comes_while_a_record_is_read_is_told_and_so_is_every_later_one(engine: Engine) -> None:
    asked: list[asyncio.Future[StartedRun]] = []

    def start(run: NewRun, waiter: str) -> asyncio.Future[StartedRun]:
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    runs = ClientRuns(start, store=engine.store, waiters=engine.waiters, telemetry=engine.telemetry)
    started = [await engine.runs.start(a_run()) for _ in range(3)]
    for number, one in enumerate(started):
        runs.execute(number, a_run(run_id=one.run_id))
    asked[0].set_result(started[0])
    engine.waiters.finished(started[0].run_id)
    taking = asyncio.ensure_future(runs.take())
    await asyncio.sleep(0)
    asked[1].set_result(started[1])
    told = [await taking]

    while sum(len(news.starts) for news in told if news) < 2:
        told.append(await asyncio.wait_for(runs.take(), 5))
    asked[2].set_result(started[2])
    news = await asyncio.wait_for(runs.take(), 5)

    assert news is not None
    assert [answer.number for answer in news.starts] == [2]
    runs.close()


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
