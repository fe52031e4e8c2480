"""Behaviours of the original engine's suite: idempotency keys."""

from __future__ import annotations

import asyncio
import secrets
import time

import pytest

from redflow_sdk import Client, Context, workflow
from redflow_server.config import Config
from redflow_server.store.keys import Keys, lane_name
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.line import gateway_behind_line
from tests.redis_command import RedisCommand


async def test_same_key_returns_the_same_run_and_executes_once(client: Client, start_worker: StartWorker) -> None:
    calls: list[str] = []

    @workflow(name="idem-wf", queue="q9")
    async def idem_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("do", calls.append, "do")
        return {"ok": True}

    await start_worker(idem_wf, queues=["q9"])

    first, second = await asyncio.gather(
        client.start(idem_wf, idempotency_key="k"), client.start(idem_wf, idempotency_key="k")
    )

    assert first.id == second.id
    assert {first.created, second.created} == {True, False}
    assert await first.result(timeout=4) == {"ok": True}
    # A run that is queued behind it shows that no duplicate was left in the lane.
    await client.execute(idem_wf, timeout=4)
    assert calls == ["do", "do"]
    assert len(await client.list_runs(workflow="idem-wf").page()) == 2


async def test_a_slow_producer_cannot_fork_duplicate_runs_nor_leave_a_key_without_ttl(
    client: Client, start_worker: StartWorker, config: Config, redis: RedisCommand, keys: Keys
) -> None:
    calls: list[str] = []

    @workflow(name="idem-race-fix", queue="q9_race_fix")
    async def idem_race_fix(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("do", calls.append, "do")
        return {"ok": True}

    pointer = keys.idempotency("idem-race-fix", "race-key")

    async with (
        gateway_behind_line(config) as (slow_gateway, line),
        Client(f"127.0.0.1:{slow_gateway.port}") as slow_client,
    ):
        await start_worker(idem_race_fix, queues=["q9_race_fix"])
        # Whatever the slow gateway would do after its first command is late.
        line.hold_replies_from(b"race-key")
        starting = asyncio.create_task(slow_client.start(idem_race_fix, idempotency_key="race-key"))
        await eventually(lambda: redis("EXISTS", pointer))
        assert await redis("PTTL", pointer) > 0
        second = await client.start(idem_race_fix, idempotency_key="race-key")
        await asyncio.sleep(0.2)
        line.let_go()

        first = await starting
        assert first.id == second.id
        assert await first.result(timeout=5) == {"ok": True}
        assert await second.result(timeout=5) == {"ok": True}
        assert await redis("PTTL", pointer) > 0

    assert calls == ["do"]


async def test_delimiter_like_workflow_and_key_pairs_do_not_collide(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="idem:a", queue="q9a")
    async def a(ctx: Context) -> dict[str, str]:
        return {"workflow": "idem:a"}

    @workflow(name="idem:a:b", queue="q9b")
    async def ab(ctx: Context) -> dict[str, str]:
        return {"workflow": "idem:a:b"}

    await start_worker(a, ab, queues=["q9a", "q9b"], concurrency=2)

    first, second = await asyncio.gather(client.start(a, idempotency_key="b:c"), client.start(ab, idempotency_key="c"))

    assert first.id != second.id
    assert await first.result(timeout=5) == {"workflow": "idem:a"}
    assert await second.result(timeout=5) == {"workflow": "idem:a:b"}


async def test_a_short_ttl_expires_and_allows_a_new_run_with_the_same_key(
    client: Client, start_worker: StartWorker
) -> None:
    calls: list[str] = []

    @workflow(name="idem-ttl-wf", queue="q_idem_ttl")
    async def idem_ttl_wf(ctx: Context) -> dict[str, bool]:
        await ctx.step.run("count", calls.append, "count")
        return {"ok": True}

    await start_worker(idem_ttl_wf, queues=["q_idem_ttl"])

    first = await client.start(idem_ttl_wf, idempotency_key="ttl-key", idempotency_ttl=1)
    assert await first.result(timeout=5) == {"ok": True}
    within = await client.start(idem_ttl_wf, idempotency_key="ttl-key", idempotency_ttl=1)
    assert within.id == first.id

    await asyncio.sleep(1.2)  # the window passes

    after = await client.start(idem_ttl_wf, idempotency_key="ttl-key", idempotency_ttl=1)
    assert after.id != first.id
    assert await after.result(timeout=5) == {"ok": True}
    assert calls == ["count", "count"]


async def test_a_stale_pointer_is_recovered_instead_of_returning_a_missing_run(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    @workflow(name="idem-recover", queue="q_idem_recover")
    async def idem_recover(ctx: Context) -> dict[str, bool]:
        return {"ok": True}

    await start_worker(idem_recover, queues=["q_idem_recover"])
    stale_id = f"run_stale_{secrets.token_hex(16)}"
    pointer = keys.idempotency("idem-recover", "stale-key")
    await redis("SET", pointer, stale_id)

    handle = await client.start(idem_recover, idempotency_key="stale-key")

    assert handle.id != stale_id
    assert handle.created
    assert await handle.result(timeout=5) == {"ok": True}
    assert await redis("GET", pointer) == handle.id
    assert await redis("PTTL", pointer) > 0


async def half_written_run(redis: RedisCommand, keys: Keys, workflow: str, queue: str) -> str:
    """What a producer leaves that dies between the record of a run and its indexes; its id.

    The record is one that the original wrote: with the input in it, and with empty fields where ours has none.
    """
    run_id = f"run_partial_{secrets.token_hex(16)}"
    record = {
        "workflow": workflow,
        "queue": queue,
        "status": "queued",
        "inputJson": '{"n":7}',
        "attempt": 0,
        "maxAttempts": 1,
        "createdAt": round(time.time() * 1000),
        "availableAt": "",
        "cancelRequestedAt": "",
        "cancelReason": "",
    }
    await redis("HSET", keys.run(run_id), *(item for field in record.items() for item in field))
    return run_id


@pytest.mark.leaves_faults
async def test_a_partial_existing_run_is_repaired_and_executed(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    calls: list[str] = []

    @workflow(name="idem-partial", queue="q_idem_partial")
    async def idem_partial(ctx: Context, input: dict[str, int]) -> dict[str, int]:
        await ctx.step.run("do", calls.append, "do")
        return input

    await start_worker(idem_partial, queues=["q_idem_partial"])
    run_id = await half_written_run(redis, keys, "idem-partial", "q_idem_partial")
    await redis("SET", keys.idempotency("idem-partial", "partial-key"), run_id)

    handle = await client.start(idem_partial, {"n": 7}, idempotency_key="partial-key")

    assert handle.id == run_id
    assert await handle.result(timeout=6) == {"n": 7}
    assert calls == ["do"]
    run = await handle.get()
    assert (run.status, run.attempt, run.input) == ("succeeded", 1, {"n": 7})
    assert await redis("ZSCORE", keys.status("succeeded"), run_id) is not None
    assert await redis("ZSCORE", keys.status("queued"), run_id) is None
    assert [listed.id for listed in await client.list_runs(workflow="idem-partial").page()] == [run_id]


@pytest.mark.leaves_faults
async def test_a_partial_existing_run_is_placed_once_however_often_it_is_started(
    client: Client, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await half_written_run(redis, keys, "idem-partial", "q_idem_partial")
    await redis("SET", keys.idempotency("idem-partial", "partial-key"), run_id)

    async def start() -> str:
        handle = await client.start("idem-partial", {"n": 7}, queue="q_idem_partial", idempotency_key="partial-key")
        return handle.id

    assert set(await asyncio.gather(*(start() for _ in range(10)))) == {run_id}
    lane = keys.lane(lane_name("q_idem_partial", "idem-partial"))
    assert await redis("ZRANGE", lane, 0, -1) == [run_id]
    assert await redis("ZRANGE", keys.status("queued"), 0, -1) == [run_id]


@pytest.mark.parametrize("lost", ["the request", "the reply"])
async def test_a_start_whose_connection_to_redis_breaks_leaves_no_run_orphaned(
    lost: str, start_worker: StartWorker, config: Config, redis: RedisCommand, keys: Keys, client: Client
) -> None:
    @workflow(name="enqueue-atomic", queue="q_enqueue_atomic")
    async def enqueue_atomic(ctx: Context) -> dict[str, bool]:
        return {"ok": True}

    async def queued() -> list[str]:
        ids: list[str] = await redis("ZRANGE", keys.lane(lane_name("q_enqueue_atomic", "enqueue-atomic")), 0, -1)
        return ids

    async with gateway_behind_line(config) as (gateway, line), Client(f"127.0.0.1:{gateway.port}") as producer:
        (line.hold_requests_from if lost == "the request" else line.hold_replies_from)(b"enqueue-atomic")
        starting = asyncio.create_task(producer.start(enqueue_atomic))
        await asyncio.wait_for(line.holding.wait(), 5)
        if lost == "the request":
            assert await queued() == []
        else:
            [run_id] = await eventually(queued)
            # Nothing is left for the producer to write, whatever becomes of it.
            for index in (keys.status("queued"), keys.workflow_status("queued", "enqueue-atomic")):
                assert await redis("ZRANGE", index, 0, -1) == [run_id]
        line.cut()
        handle = await starting
        assert await queued() == [handle.id]

    await start_worker(enqueue_atomic, queues=["q_enqueue_atomic"])
    assert await client.handle(handle.id).result(timeout=6) == {"ok": True}
    assert len(await client.list_runs().page()) == 1
