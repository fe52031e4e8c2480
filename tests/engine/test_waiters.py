"""Callers that wait for the end of a run: none waits in vain, and none is forgotten."""

from __future__ import annotations

import asyncio
import random

import pytest

from redflow_server.domain.errors import RunNotFound, StoreUnavailable, TooManyWaiters
from redflow_server.domain.ids import new_run_id
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import a_completion, enqueue_one, start_one
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.line import Line
from tests.redis_command import RedisCommand

WATCH = load_scripts()["watch_run"].sha
LONG_S = 30.0


async def finish(store: Store, run_id: str) -> None:
    """The run ends."""
    await store.cancel(run_id, "", "")


async def registered(store: Store, engine: Engine) -> None:
    """Returns when the store knows of all who wait."""
    await store.due(0)
    await engine.store.due(0)


# ---- no end is missed ----


async def test_a_run_that_has_ended_is_answered_at_once(engine: Engine, store: Store) -> None:
    run_id = await enqueue_one(store)
    await finish(store, run_id)
    assert await engine.waiters.wait(run_id, LONG_S)
    assert engine.waiters.count == 0


async def test_a_run_that_ends_later_is_answered_by_message(
    engine: Engine, store: Store, redis_url: str, keys: Keys
) -> None:
    lease = await start_one(store)
    async with engine.listening(redis_url, keys):
        waiting = [asyncio.create_task(engine.waiters.wait(lease.run_id, LONG_S)) for _ in range(5)]
        await eventually(lambda: engine.waiters.count == 5)
        await registered(store, engine)
        assert not any(one.done() for one in waiting)

        await store.complete(a_completion(lease))

        assert await asyncio.wait_for(asyncio.gather(*waiting), 2) == [True] * 5
        assert engine.waiters.count == 0


async def test_an_end_before_the_store_was_asked_is_in_its_answer(far_store: Store, line: Line, store: Store) -> None:
    engine = Engine(far_store)
    run_id = await enqueue_one(store)
    line.hold_requests_from(WATCH)
    waiting = asyncio.create_task(engine.waiters.wait(run_id, LONG_S))
    await line.holding.wait()
    await finish(store, run_id)

    line.let_go()

    assert await asyncio.wait_for(waiting, 2)


async def test_an_end_between_the_reading_and_its_answer_is_told_by_message(
    far_store: Store, line: Line, store: Store, redis_url: str, keys: Keys
) -> None:
    engine = Engine(far_store)
    run_id = await enqueue_one(store)
    async with engine.listening(redis_url, keys):
        line.hold_replies_from(WATCH)
        waiting = asyncio.create_task(engine.waiters.wait(run_id, LONG_S))
        await line.holding.wait()
        await finish(store, run_id)
        await eventually(lambda: "finished" in engine.heard)

        line.let_go()

        assert await asyncio.wait_for(waiting, 2)


async def test_of_many_runs_that_end_while_callers_come_none_is_missed(
    engine: Engine, store: Store, redis_url: str, keys: Keys
) -> None:
    chance = random.Random(3)
    run_ids = await asyncio.gather(*(enqueue_one(store) for _ in range(300)))

    async def wait_somewhen(run_id: str) -> bool:
        await asyncio.sleep(chance.random() * 0.1)
        return await engine.waiters.wait(run_id, LONG_S)

    async def finish_somewhen(run_id: str) -> None:
        await asyncio.sleep(chance.random() * 0.1)
        await finish(store, run_id)

    async with engine.listening(redis_url, keys):
        waits = [asyncio.create_task(wait_somewhen(run_id)) for run_id in run_ids]
        await asyncio.gather(*map(finish_somewhen, run_ids))
        assert await asyncio.wait_for(asyncio.gather(*waits), 3) == [True] * len(run_ids)
    assert engine.waiters.count == 0


# ---- lost messages ----


async def test_a_lost_message_is_made_up_for_by_asking_again(
    engine: Engine, store: Store, redis_url: str, keys: Keys
) -> None:
    engine.deaf_to.add("finished")
    ends, goes_on = await enqueue_one(store), await enqueue_one(store)
    async with engine.listening(redis_url, keys):
        waiting = [asyncio.create_task(engine.waiters.wait(run_id, LONG_S)) for run_id in (ends, goes_on)]
        await eventually(lambda: engine.waiters.count == 2)
        await registered(store, engine)
        await finish(store, ends)
        await eventually(lambda: "finished" in engine.heard)
        assert not waiting[0].done()

        await engine.waiters.tick()

        assert await asyncio.wait_for(waiting[0], 1)
        await asyncio.sleep(0)
        assert not waiting[1].done()
        waiting[1].cancel()


async def test_of_many_runs_a_pass_asks_for_some_and_the_next_for_others(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.waiters.ASKED_AGAIN", 3)
    leases = [await start_one(store) for _ in range(7)]
    waiting = [asyncio.create_task(engine.waiters.wait(lease.run_id, LONG_S)) for lease in leases]
    await eventually(lambda: engine.waiters.count == 7)
    await store.read_stats()  # they have all been asked for once
    for lease in leases:
        await store.complete(a_completion(lease))

    ended: list[int] = []
    for _ in range(3):
        await engine.waiters.tick()
        await asyncio.sleep(0)
        ended.append(sum(wait.done() for wait in waiting))

    assert ended == [3, 6, 7]


async def test_a_gateway_that_the_run_has_forgotten_is_told_again_after_it_has_asked_again(
    engine: Engine, store: Store, redis: RedisCommand, redis_url: str, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    async with engine.listening(redis_url, keys):
        waiting = asyncio.create_task(engine.waiters.wait(run_id, LONG_S))
        await eventually(lambda: redis("HGET", keys.run(run_id), "waiters"))
        await redis("HDEL", keys.run(run_id), "waiters")

        await engine.waiters.tick()
        await finish(store, run_id)

        assert await asyncio.wait_for(waiting, 2)


async def test_a_run_that_is_gone_keeps_nobody_waiting(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    waiting = asyncio.create_task(engine.waiters.wait(run_id, LONG_S))
    await eventually(lambda: redis("HGET", keys.run(run_id), "waiters"))
    await finish(store, run_id)
    await redis("DEL", keys.run(run_id), keys.data(run_id))
    for name in (keys.status("canceled"), keys.workflow_status("canceled", "w"), keys.finished("canceled")):
        await redis("ZREM", name, run_id)

    await engine.waiters.tick()

    await asyncio.wait_for(waiting, 1)
    assert engine.waiters.count == 0


async def test_looking_again_with_nobody_waiting_asks_nothing(engine: Engine) -> None:
    await engine.waiters.tick()
    assert engine.waiters.count == 0


# ---- who does not wait any more ----


async def test_a_caller_whose_time_is_over_is_answered_that_the_run_goes_on(engine: Engine, store: Store) -> None:
    run_id = await enqueue_one(store)
    for timeout_s in (0.0, 0.05):
        assert not await engine.waiters.wait(run_id, timeout_s)
    assert engine.waiters.count == 0


async def test_a_run_that_does_not_exist_is_not_waited_for(engine: Engine) -> None:
    with pytest.raises(RunNotFound):
        await engine.waiters.wait(new_run_id(), LONG_S)
    assert engine.waiters.count == 0


async def test_a_caller_that_goes_away_leaves_those_beside_it_waiting(
    engine: Engine, store: Store, redis_url: str, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    async with engine.listening(redis_url, keys):
        gone, stays = (asyncio.create_task(engine.waiters.wait(run_id, LONG_S)) for _ in range(2))
        await eventually(lambda: engine.waiters.count == 2)
        await registered(store, engine)
        gone.cancel()
        await asyncio.wait([gone])
        assert engine.waiters.count == 1

        await finish(store, run_id)

        assert await asyncio.wait_for(stays, 2)


async def test_a_store_that_is_away_leaves_nobody_on_the_list(far_store: Store, line: Line, store: Store) -> None:
    engine = Engine(far_store)
    run_id = await enqueue_one(store)
    line.hold_requests_from(WATCH)
    waiting = asyncio.create_task(engine.waiters.wait(run_id, LONG_S))
    await line.holding.wait()
    line.refuse()

    line.cut()

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(waiting, 5)
    assert engine.waiters.count == 0


# ---- the limit ----


async def test_over_the_limit_callers_are_refused_until_others_have_gone(
    engine: Engine, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_server.engine.waiters.MAX_WAITERS", 3)
    run_ids = [await enqueue_one(store) for _ in range(2)]
    waiting = [asyncio.create_task(engine.waiters.wait(run_ids[number % 2], LONG_S)) for number in range(3)]
    await eventually(lambda: engine.waiters.count == 3)
    for run_id in (*run_ids, new_run_id()):
        with pytest.raises(TooManyWaiters, match="3 callers"):
            await engine.waiters.wait(run_id, LONG_S)
    assert engine.waiters.count == 3

    await finish(store, run_ids[0])
    await engine.waiters.tick()
    await asyncio.wait_for(asyncio.gather(waiting[0], waiting[2]), 1)

    assert engine.waiters.count == 1
    assert await engine.waiters.wait(run_ids[0], LONG_S)
    waiting[1].cancel()
