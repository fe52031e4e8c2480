"""What a client reads of workflows, workers and lanes, from a gateway and its Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from redflow_sdk import (
    VERSION,
    Client,
    Context,
    CronTrigger,
    LaneDepth,
    RetryPolicy,
    UnknownWorkflowError,
    WorkerInfo,
    workflow,
)
from redflow_sdk.proto.api.v1 import workflow_service_pb2 as pb
from redflow_sdk.proto.api.v1 import workflow_service_pb2_grpc
from redflow_sdk.proto.v1 import payload_pb2, workflow_pb2
from redflow_server.gateway import Gateway
from tests.conftest import StartWorker
from tests.eventually import eventually

POLICY = RetryPolicy(max_attempts=4, initial=0.5, multiplier=3, maximum=60, jitter=0.25)


@workflow(name="charge", queue="money", retry=POLICY, run_timeout=90.5)
async def charge(ctx: Context, order: dict[str, int]) -> None:
    await asyncio.sleep(60)


@workflow(name="ship", queue="parcels")
async def ship(ctx: Context) -> None:
    return None


@workflow(name="audit", queue="books")
async def audit(ctx: Context) -> None:
    return None


@pytest_asyncio.fixture
async def registry(target: str) -> AsyncIterator[workflow_service_pb2_grpc.WorkflowServiceStub]:
    """The registry as a deploy tool calls it."""
    async with grpc.aio.insecure_channel(target) as channel:
        yield workflow_service_pb2_grpc.WorkflowServiceStub(channel)


def near(at: datetime) -> bool:
    return abs(at - datetime.now(UTC)) < timedelta(seconds=30)


# ---- workflows ----


async def test_a_workflow_is_read_as_its_worker_defines_it(client: Client, start_worker: StartWorker) -> None:
    await start_worker(charge, ship, owner="billing", build_id="b7")

    found = await client.get_workflow("charge")
    assert (found.name, found.queue, found.max_attempts, found.retry) == ("charge", "money", 4, POLICY)
    assert (found.run_timeout, found.start_timeout, found.failure_handler_timeout) == (90.5, None, None)
    assert (found.owner, found.build_id, found.cron, found.events) == ("billing", "b7", (), ())
    assert near(found.updated_at)
    assert await client.list_workflows() == [found, await client.get_workflow("ship")]


async def test_what_other_sdks_define_is_read_in_full(
    client: Client, registry: workflow_service_pb2_grpc.WorkflowServiceStub
) -> None:
    definition = workflow_pb2.WorkflowDefinition(
        name="report",
        definition_digest="d1",
        cron=[
            workflow_pb2.CronSchedule(
                schedule_id="daily",
                expression="0 9 * * 1-5",
                timezone="Europe/Berlin",
                input=payload_pb2.Payload(data=b'{"kind": "digest"}'),
            ),
            workflow_pb2.CronSchedule(expression="@hourly"),
        ],
        event_triggers=[workflow_pb2.EventTrigger(event_name=name) for name in ("paid", "refunded")],
        start_timeout=Duration(seconds=3600),
        failure_handler_timeout=Duration(seconds=2, nanos=500_000_000),
        input_json_schema=payload_pb2.Payload(data=b'{"type": "object"}'),
        has_failure_handler=True,
    )
    await registry.RegisterWorkflows(pb.RegisterWorkflowsRequest(owner="o", build_id="b", workflows=[definition]))

    found = await client.get_workflow("report")
    assert found.cron == (
        CronTrigger("daily", "0 9 * * 1-5", "Europe/Berlin", {"kind": "digest"}),
        CronTrigger("", "@hourly"),
    )
    assert found.events == ("paid", "refunded")
    assert (found.start_timeout, found.failure_handler_timeout, found.has_failure_handler) == (3600.0, 2.5, True)
    assert (found.input_schema, found.digest) == ({"type": "object"}, "d1")
    assert (found.queue, found.max_attempts, found.retry, found.run_timeout) == ("default", 1, None, None)


async def test_a_workflow_that_nobody_registered_is_unknown(client: Client) -> None:
    with pytest.raises(UnknownWorkflowError, match="nobody's"):
        await client.get_workflow("nobody's")
    assert await client.list_workflows() == []


async def test_a_list_of_workflows_is_complete_beyond_what_a_page_holds(
    client: Client, registry: workflow_service_pb2_grpc.WorkflowServiceStub
) -> None:
    names = [f"w{number:04}" for number in range(501)]
    definitions = [workflow_pb2.WorkflowDefinition(name=name, definition_digest="d") for name in names]
    await registry.RegisterWorkflows(pb.RegisterWorkflowsRequest(owner="o", build_id="b", workflows=definitions))
    assert [found.name for found in await client.list_workflows()] == names


# ---- workers ----


async def test_workers_are_listed_with_what_they_serve_and_how_busy_they_are(
    client: Client, start_worker: StartWorker, gateway: Gateway
) -> None:
    await start_worker(charge, ship, name="b", owner="billing", build_id="b7", concurrency=2)
    await start_worker(audit, name="a", owner="audit")
    assert [worker.name for worker in await client.list_workers()] == ["a", "b"]
    await client.start(charge, {})

    async def when_busy() -> WorkerInfo | None:
        gateway.duties.registry.wake()  # else it tells every ten seconds
        [_, worker] = await client.list_workers()
        return worker if worker.leases else None

    worker = await eventually(when_busy, within=10)
    assert (worker.name, worker.owner, worker.build_id, worker.gateway_id) == (
        *("b", "billing", "b7", gateway.gateway_id),
    )
    assert (worker.sdk_name, worker.sdk_version, worker.language) == ("redflow-sdk", VERSION, "python")
    assert (set(worker.queues), set(worker.workflows)) == ({"money", "parcels"}, {"charge", "ship"})
    assert (worker.slot_limit, worker.leases, worker.free_slots, worker.is_draining) == (2, 1, 1, False)
    assert worker.serves("money", "charge") and not worker.serves("money", "other")
    assert worker.id and worker.session_id and near(worker.connected_at)


# ---- stats ----


async def test_stats_count_runs_by_status_and_by_the_lane_they_wait_in(client: Client) -> None:
    for name, queue in (("w", "q"), ("w", "q"), ("w", "other"), ("v", "q")):
        await client.start(name, queue=queue)
    await client.start("w", queue="q", available_at=datetime.now(UTC) + timedelta(hours=1))
    await (await client.start("w", queue="q")).cancel()

    stats = await client.stats()
    assert stats.runs == {
        **dict.fromkeys(("running", "waiting", "succeeded", "failed"), 0),
        "scheduled": 1,
        "queued": 4,
        "canceled": 1,
    }
    assert sorted(stats.lanes, key=lambda lane: (lane.queue, lane.workflow)) == [
        *(LaneDepth("other", "w", 1), LaneDepth("q", "v", 1), LaneDepth("q", "w", 2)),
    ]
    assert stats.lane_count == 3
