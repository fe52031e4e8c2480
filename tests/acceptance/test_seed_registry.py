"""Behaviours of the original engine's suite: the registry of workflows."""

from __future__ import annotations

import time
from collections.abc import Sequence

from grpc.aio import insecure_channel

from redflow_sdk import Client, Context, Cron, Worker, Workflow, workflow
from redflow_sdk.proto.api.v1 import workflow_service_pb2, workflow_service_pb2_grpc
from redflow_server.store.keys import Keys
from tests.acceptance.schedules import schedule_ids
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand


def defined(name: str, queue: str, *events: str, cron: Sequence[Cron] = ()) -> Workflow[None, None]:
    @workflow(name=name, queue=queue, events=events, cron=cron)
    async def handler(ctx: Context) -> None:
        return None

    return handler


async def register(target: str, *workflows: Workflow[None, None], owner: str | None = None) -> None:
    """What a deployment of these workflows leaves in the registry."""
    async with Worker(target, workflows=workflows, owner=owner):
        pass


async def has_schedule(redis: RedisCommand, keys: Keys, schedule_id: str) -> tuple[bool, bool]:
    """Whether it is defined, and whether it is planned."""
    is_defined = await redis("HEXISTS", keys.cron_def, schedule_id)
    return bool(is_defined), await redis("ZSCORE", keys.cron_next, schedule_id) is not None


async def test_a_deployment_with_other_triggers_moves_event_subscriptions_and_removes_cron(
    target: str, redis: RedisCommand, keys: Keys
) -> None:
    async def subscribers(event: str) -> list[str]:
        return sorted(await redis("SMEMBERS", keys.event_workflows(event)))

    await register(target, defined("update-wf", "q_update", "evt.a", cron=[Cron("*/1 * * * * *")]))
    assert await subscribers("evt.a") == ["update-wf"]
    assert await subscribers("evt.b") == []
    [schedule_id] = await schedule_ids(redis, keys, "update-wf")
    assert await has_schedule(redis, keys, schedule_id) == (True, True)

    await register(target, defined("update-wf", "q_update", "evt.b"))
    assert await subscribers("evt.a") == []
    assert await subscribers("evt.b") == ["update-wf"]
    assert await schedule_ids(redis, keys, "update-wf") == []
    assert await has_schedule(redis, keys, schedule_id) == (False, False)


async def test_a_workflow_left_out_for_longer_than_the_grace_is_removed_with_its_triggers(
    target: str, redis: RedisCommand, keys: Keys
) -> None:
    stale = Cron("*/10 * * * * *", id="stale")
    await register(target, defined("stale-workflow", "q-stale", "stale.event", cron=[stale]))
    [schedule_id] = await schedule_ids(redis, keys, "stale-workflow")
    assert await has_schedule(redis, keys, schedule_id) == (True, True)
    assert await redis("SMEMBERS", keys.event_workflows("stale.event")) == {"stale-workflow"}

    await register(target, defined("another", "q-stale"))
    assert await redis("SISMEMBER", keys.workflows, "stale-workflow") == 1, "it is not stale yet"
    now_ms = round(time.time() * 1000)
    await redis("HSET", keys.workflow("stale-workflow"), "updatedAt", now_ms - 30_000)
    await register(target, defined("another", "q-stale"))

    assert await redis("SMEMBERS", keys.workflows) == {"another"}
    assert await redis("EXISTS", keys.workflow("stale-workflow")) == 0
    assert await redis("EXISTS", keys.event_workflows("stale.event")) == 0
    assert await has_schedule(redis, keys, schedule_id) == (False, False)


async def test_stale_cleanup_is_isolated_by_owner(target: str, redis: RedisCommand, keys: Keys) -> None:
    for_each = {name: Cron("*/30 * * * * *", id=name) for name in "ab"}
    await register(target, defined("owner-a-wf", "qa", "owner.a", cron=[for_each["a"]]), owner="svc-a")
    await register(target, defined("owner-b-wf", "qb", "owner.b", cron=[for_each["b"]]), owner="svc-b")
    [of_a], [of_b] = [await schedule_ids(redis, keys, name) for name in ("owner-a-wf", "owner-b-wf")]
    await redis("HSET", keys.workflow("owner-a-wf"), "updatedAt", 1)
    await redis("HSET", keys.workflow("owner-b-wf"), "updatedAt", 1)

    await register(target, defined("owner-a-next", "qa"), owner="svc-a")

    assert await redis("HGET", keys.workflow("owner-a-wf"), "queue") is None
    assert await redis("HGET", keys.workflow("owner-b-wf"), "queue") == "qb"
    assert await redis("SMEMBERS", keys.workflows) == {"owner-a-next", "owner-b-wf"}
    assert await redis("SMEMBERS", keys.event_workflows("owner.b")) == {"owner-b-wf"}
    assert await redis("EXISTS", keys.event_workflows("owner.a")) == 0
    assert await has_schedule(redis, keys, of_a) == (False, False)
    assert await has_schedule(redis, keys, of_b) == (True, True)


async def test_workflow_names_that_end_like_index_keys_do_not_collide(
    client: Client, target: str, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    @workflow(name="keyspace-base", queue="q_keyspace")
    async def base(ctx: Context) -> dict[str, str]:
        return {"ok": "base"}

    @workflow(name="keyspace-base:runs", queue="q_keyspace")
    async def suffix(ctx: Context) -> dict[str, str]:
        return {"ok": "suffix"}

    await start_worker(base, suffix, queues=["q_keyspace"])

    handle = await client.start(base)
    assert await handle.result(timeout=5) == {"ok": "base"}

    assert await redis("HGET", keys.workflow("keyspace-base:runs"), "name") == "keyspace-base:runs"
    async with insecure_channel(target) as channel:
        stub = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        request = workflow_service_pb2.GetWorkflowRequest(name="keyspace-base:runs")
        answer = await stub.GetWorkflow(request, timeout=5)
    assert (answer.workflow.definition.name, answer.workflow.definition.queue) == ("keyspace-base:runs", "q_keyspace")
    assert [run.id for run in await client.list_runs(workflow="keyspace-base").page()] == [handle.id]
    assert await client.list_runs(workflow="keyspace-base:runs").page() == []
    assert await client.execute(suffix, timeout=5) == {"ok": "suffix"}
