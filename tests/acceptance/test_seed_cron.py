"""Behaviours of the original engine's suite: runs that cron schedules start."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from grpc.aio import insecure_channel

from redflow_sdk import Client, Context, Cron, InvalidInputError, Worker, Workflow, workflow
from redflow_sdk.proto.api.v1 import workflow_service_pb2, workflow_service_pb2_grpc
from redflow_sdk.proto.v1 import workflow_pb2
from redflow_server.config import Config
from redflow_server.domain.states import RunStatus
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.acceptance.schedules import EverySecond, now_ms, schedule_ids
from tests.conftest import CheckInvariants, StartWorker
from tests.eventually import eventually
from tests.line import Line, gateway_behind_line
from tests.redis_command import RedisCommand

PER_SECOND = "*/1 * * * * *"


def ticking(name: str, queue: str, ticks: list[str]) -> Workflow[None, None]:
    """A workflow of each second, whose runs leave their ids."""

    @workflow(name=name, queue=queue, cron=[Cron(PER_SECOND)])
    async def ticks_once(ctx: Context) -> None:
        await ctx.step.run("tick", ticks.append, ctx.run.id)

    return ticks_once


async def test_cron_creates_runs_and_executes_the_workflow(client: Client, start_worker: StartWorker) -> None:
    ticks: list[dict[str, int]] = []

    @workflow(name="cron-wf", queue="q4", cron=[Cron(PER_SECOND, input={"x": 1})])
    async def cron_wf(ctx: Context, input: dict[str, int]) -> None:
        await ctx.step.run("tick", ticks.append, input)

    await start_worker(cron_wf, queues=["q4"])

    await eventually(lambda: ticks, within=5, saying="cron tick")
    assert ticks[0] == {"x": 1}
    [*_, first] = [run async for run in client.list_runs(workflow="cron-wf")]
    assert (await client.get_run(first.id)).input == {"x": 1}


async def test_cron_lock_two_workers_do_not_double_schedule(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    ticks: list[str] = []
    ticks_once = ticking("cron-lock-wf", "q15", ticks)
    account = EverySecond("cron-lock-wf", client, redis, keys)

    async with account.registering():
        for _ in range(2):
            await start_worker(ticks_once, queues=["q15"], concurrency=1)
    await asyncio.sleep(3.5)  # as long as the original counts

    assert 0 < len(ticks) < 7
    assert set(Counter(ticks).values()) == {1}
    await account.check()


async def test_cron_leader_failover_ticks_continue_after_one_worker_stops(start_worker: StartWorker) -> None:
    ticks: list[str] = []
    ticks_once = ticking("cron-failover-wf", "q_failover", ticks)
    first = await start_worker(ticks_once, queues=["q_failover"], concurrency=1)
    await start_worker(ticks_once, queues=["q_failover"], concurrency=1)
    await eventually(lambda: ticks, within=8, saying="first tick")

    await first.stop()
    before = len(ticks)

    await eventually(lambda: len(ticks) > before, within=10, saying="ticks continue")
    assert set(Counter(ticks).values()) == {1}


@dataclass(frozen=True)
class Scene:
    """A gateway whose line to Redis can break, and a schedule of it."""

    gateway: Gateway
    line: Line
    schedule_id: str
    redis: RedisCommand
    keys: Keys


async def request_is_lost(scene: Scene) -> None:
    scene.line.hold_requests_from(scene.schedule_id.encode())
    await asyncio.wait_for(scene.line.holding.wait(), 5)
    scene.line.cut()


async def reply_is_lost(scene: Scene) -> None:
    scene.line.hold_replies_from(scene.schedule_id.encode())
    await asyncio.wait_for(scene.line.holding.wait(), 5)
    await eventually(lambda: scene.redis("ZCARD", scene.keys.cron_last), saying="the run is started")
    scene.line.cut()


async def script_fails(scene: Scene) -> None:
    await scene.redis("SET", scene.keys.cron_last, "no sorted set")
    await eventually(lambda: scene.gateway.telemetry.counters["faults"], saying="the start fails")
    await scene.redis("DEL", scene.keys.cron_last)


@pytest.mark.parametrize("start_fails", [request_is_lost, reply_is_lost, script_fails])
async def test_cron_scheduler_a_transient_enqueue_failure_does_not_drop_the_trigger(
    start_fails: Callable[[Scene], Awaitable[None]],
    config: Config,
    redis: RedisCommand,
    keys: Keys,
    check_invariants: CheckInvariants,
) -> None:
    ticks: list[str] = []
    ticks_once = ticking("cron-retry", "q_cron_retry", ticks)

    async with gateway_behind_line(config) as (gateway, line), Client(f"127.0.0.1:{gateway.port}") as client:
        account = EverySecond("cron-retry", client, redis, keys)
        async with account.registering():
            worker = Worker(f"127.0.0.1:{gateway.port}", workflows=[ticks_once], queues=["q_cron_retry"])
            await worker.start()
        [schedule_id] = await schedule_ids(redis, keys, "cron-retry")

        await start_fails(Scene(gateway, line, schedule_id, redis, keys))

        before = len(ticks)
        await eventually(lambda: len(ticks) > before, within=10, saying="cron tick after transient enqueue failure")
        assert set(Counter(ticks).values()) == {1}
        await account.check()
        await worker.stop()
    await check_invariants()


async def test_cron_scheduler_a_stale_score_does_not_enqueue_a_catch_up_burst(
    config: Config, redis: RedisCommand, keys: Keys, check_invariants: CheckInvariants
) -> None:
    ticks: list[str] = []
    ticks_once = ticking("cron-stale", "q_cron_stale", ticks)

    async def started() -> set[str]:
        runs = [await redis("ZRANGE", keys.workflow_status(status, "cron-stale"), 0, -1) for status in RunStatus]
        return {run_id for run_ids in runs for run_id in run_ids}

    async with (
        gateway_behind_line(config) as (gateway, line),
        Worker(f"127.0.0.1:{gateway.port}", workflows=[ticks_once], queues=["q_cron_stale"]),
    ):
        # Where the original's test held the lock of all schedulers, this gateway does not get at the schedule.
        line.hold_requests()
        [schedule_id] = await schedule_ids(redis, keys, "cron-stale")
        before = await started()
        await redis("DEL", keys.cron_last)  # had it fired by now, a past occurrence would not be its next one
        await redis("ZADD", keys.cron_next, await now_ms(redis) - 5000, schedule_id)
        released_at_ms = await now_ms(redis)
        line.let_go()

        await asyncio.sleep(1.2)  # as long as the original counts

        count = len(await started() - before)
        later = await now_ms(redis) // 1000 - released_at_ms // 1000
        assert 1 <= count <= 1 + later, "one run for all that were missed, and those that came later"
        assert int(await redis("HGET", keys.cron_skipped, schedule_id)) >= 4
        await eventually(lambda: len(ticks) >= count)
        assert set(Counter(ticks).values()) == {1}
    await check_invariants()


# ---- the registry ----


def defined(name: str, queue: str, *cron: Cron) -> Workflow[None, None]:
    @workflow(name=name, queue=queue, cron=cron)
    async def handler(ctx: Context) -> None:
        return None

    return handler


async def register(target: str, *workflows: Workflow[None, None]) -> None:
    """What a deployment of these workflows leaves in the registry."""
    async with Worker(target, workflows=workflows):
        pass


async def document(redis: RedisCommand, keys: Keys, schedule_id: str) -> dict[str, Any]:  # Any: JSON
    stored: dict[str, Any] = json.loads(await redis("HGET", keys.cron_def, schedule_id))
    return stored


async def test_cron_trigger_ids_the_same_custom_id_in_two_workflows_does_not_collide(
    target: str, redis: RedisCommand, keys: Keys
) -> None:
    shared = Cron("*/5 * * * * *", id="shared")

    await register(target, defined("cron-id-a", "qa", shared), defined("cron-id-b", "qb", shared))

    [first] = await schedule_ids(redis, keys, "cron-id-a")
    [second] = await schedule_ids(redis, keys, "cron-id-b")
    assert first != second
    assert (await document(redis, keys, first))["workflow"] == "cron-id-a"
    assert (await document(redis, keys, second))["workflow"] == "cron-id-b"
    assert set(await redis("ZRANGE", keys.cron_next, 0, -1)) == {first, second}


async def test_cron_trigger_ids_delimiter_like_custom_ids_do_not_collide(
    target: str, redis: RedisCommand, keys: Keys
) -> None:
    a = defined("wf:a", "qa", Cron("*/5 * * * * *", id="b:c"))
    ab = defined("wf:a:b", "qb", Cron("*/5 * * * * *", id="c"))

    await register(target, a, ab)

    [first] = await schedule_ids(redis, keys, "wf:a")
    [second] = await schedule_ids(redis, keys, "wf:a:b")
    assert first != second
    assert (await document(redis, keys, first))["workflow"] == "wf:a"
    assert (await document(redis, keys, second))["workflow"] == "wf:a:b"


@pytest.mark.parametrize(
    ("schedule", "stored"),
    [
        pytest.param(Cron(PER_SECOND, id="null-input", input=None), "null", id="null"),
        pytest.param(Cron(PER_SECOND, id="no-input"), "{}", id="absent"),
    ],
)
async def test_a_cron_trigger_with_explicit_null_input_preserves_null(
    schedule: Cron, stored: str, client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    inputs: list[object] = []

    @workflow(name="cron-null-input", queue="q-cron-null", cron=[schedule])
    async def handler(ctx: Context, input: object) -> None:
        inputs.append(input)

    await start_worker(handler, queues=["q-cron-null"])

    [schedule_id] = await schedule_ids(redis, keys, "cron-null-input")
    given = (await document(redis, keys, schedule_id))["input"]
    assert (given and base64.b64decode(given["data"])) == (b"null" if stored == "null" else None)
    await eventually(lambda: inputs, saying="a run of it")
    [*_, first] = [run async for run in client.list_runs(workflow="cron-null-input")]
    assert await redis("HGET", keys.data(first.id), "inputJson") == stored
    assert inputs[0] == json.loads(stored)


async def test_an_invalid_cron_expression_removes_the_existing_next_schedule_of_the_same_custom_id(
    client: Client, target: str, redis: RedisCommand, keys: Keys
) -> None:
    name = "cron-invalid-update"
    await register(target, defined(name, "q-cron-invalid", Cron("*/5 * * * * *", id="stable")))
    [schedule_id] = await schedule_ids(redis, keys, name)
    assert await redis("ZRANGE", keys.cron_next, 0, -1) == [schedule_id]

    invalid = Cron("not a valid cron", id="stable")
    await register(target, defined(name, "q-cron-invalid", invalid))

    assert await redis("ZRANGE", keys.cron_next, 0, -1) == []
    # The rest of the definition is in force: its runs are started and worked on.
    assert (await client.get_workflow(name)).cron[0].expression == "not a valid cron"
    async with Worker(target, workflows=[defined(name, "q-cron-invalid", invalid)]):
        assert await client.execute(name, timeout=5) is None


def test_duplicate_custom_cron_ids_in_one_workflow_are_rejected() -> None:
    first, second = Cron("*/5 * * * * *", id="same", input={"n": 1}), Cron("*/7 * * * * *", id="same", input={"n": 2})

    with pytest.raises(InvalidInputError, match="Duplicate cron trigger id"):
        defined("dup-custom-cron-id", "q_dup_cron_id", first, second)


async def test_duplicate_custom_cron_ids_of_any_client_are_rejected_by_the_gateway(
    target: str, redis: RedisCommand, keys: Keys
) -> None:
    schedules = [
        workflow_pb2.CronSchedule(schedule_id="same", expression=expression)
        for expression in ("*/5 * * * * *", "*/7 * * * * *")
    ]
    definition = workflow_pb2.WorkflowDefinition(name="dup-custom-cron-id", queue="q_dup_cron_id", cron=schedules)
    request = workflow_service_pb2.RegisterWorkflowsRequest(owner="any", build_id="1", workflows=[definition])

    async with insecure_channel(target) as channel:
        stub = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        answer = await stub.RegisterWorkflows(request, timeout=5)

    [result] = answer.results
    assert result.status == workflow_pb2.REGISTRATION_STATUS_INVALID
    assert "Duplicate cron trigger id" in result.message
    assert await redis("EXISTS", keys.cron_def, keys.cron_next, keys.workflow("dup-custom-cron-id")) == 0
