"""Two gateways on one Redis: they share the work, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.store.keys import Keys
from tests.builders import START_MS, enqueue_one
from tests.conftest import StartGateway
from tests.engine.conftest import OpenWorker
from tests.engine.parts import Engine, Stores
from tests.eventually import eventually

RUNS = 120


async def test_each_run_is_executed_once_and_both_have_a_share(start_gateway: StartGateway) -> None:
    targets = [f"127.0.0.1:{gateway.port}" for gateway in (await start_gateway(), await start_gateway())]
    executed: Counter[int] = Counter()
    shares: Counter[str] = Counter()

    def a_worker(target: str) -> Worker:
        @workflow(name="w")
        async def notes(ctx: Context, number: int) -> None:
            executed[number] += 1
            shares[target] += 1
            await asyncio.sleep(0.005)

        return Worker(target, workflows=[notes], concurrency=4)

    async with a_worker(targets[0]), a_worker(targets[1]), Client(targets[0]) as client:
        handles = await asyncio.gather(*(client.start("w", number) for number in range(RUNS)))
        await asyncio.gather(*(handle.result(timeout=10) for handle in handles))

    assert executed == Counter(range(RUNS))
    assert len(shares) == 2
    assert min(shares.values()) >= 5


async def test_the_end_of_a_run_at_one_is_told_to_who_waits_for_it_at_the_other(
    stores: Stores, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    here, there = Engine(await stores.open()), Engine(await stores.open())
    run_id = await enqueue_one(here.store)
    async with here.listening(redis_url, keys):
        waiting = asyncio.create_task(here.waiters.wait(run_id, 30.0))
        await eventually(lambda: here.waiters.count == 1)
        worker = await open_worker(there)
        await worker.complete(await worker.assignment())

        assert await asyncio.wait_for(waiting, 2), "nobody here looks again by himself"


async def test_two_that_pass_at_the_same_moment_promote_each_run_once(stores: Stores) -> None:
    engines = [Engine(await stores.open()) for _ in range(3)]
    store = engines[0].store
    for engine in engines:
        engine.store.now_ms = START_MS
    await asyncio.gather(*(enqueue_one(store, available_at_ms=START_MS + 50) for _ in range(250)))
    for engine in engines:
        engine.store.now_ms = START_MS + 50

    promoted = 0
    for _ in range(2):
        passes = await asyncio.gather(*(engine.upkeep.promote() for engine in engines))
        promoted += sum(passed.count for passed in passes)

    assert promoted == 250
    assert sum(engine.telemetry.counters["runs.promoted"] for engine in engines) == 250
    assert (await store.read_stats()).lanes[0].depth == 250
