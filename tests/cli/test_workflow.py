"""`redflow workflow`: what is registered, with where its runs wait."""

from __future__ import annotations

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from redflow_sdk import Client, Context, RetryPolicy, workflow
from redflow_sdk.proto.api.v1 import workflow_service_pb2 as pb
from redflow_sdk.proto.api.v1 import workflow_service_pb2_grpc
from redflow_sdk.proto.v1 import payload_pb2, workflow_pb2
from redflow_server.cli.exit_codes import ExitCode
from tests.cli.conftest import Run
from tests.conftest import StartWorker

WORKFLOW = {
    *("name", "queue", "max_attempts", "retry", "run_timeout", "start_timeout", "failure_handler_timeout"),
    *("has_failure_handler", "cron", "events", "input_schema", "owner", "build_id", "digest", "updated_at"),
}
LANE = {"queue", "workflow", "depth", "is_served", "free_slots", "workers"}


@workflow(name="charge", queue="money", retry=RetryPolicy(max_attempts=4, initial=0.5, maximum=60), run_timeout=90.5)
async def charge(ctx: Context, order: dict[str, int]) -> None:
    return None


@workflow(name="ship", queue="parcels")
async def ship(ctx: Context) -> None:
    return None


@pytest_asyncio.fixture
async def report(target: str) -> None:
    """A workflow with all that a definition can have, registered by a deploy tool."""
    definition = workflow_pb2.WorkflowDefinition(
        name="report",
        definition_digest="d1",
        max_attempts=2,
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
        has_failure_handler=True,
        failure_handler_timeout=Duration(seconds=2),
        input_json_schema=payload_pb2.Payload(data=b'{"type": "object"}'),
    )
    async with grpc.aio.insecure_channel(target) as channel:
        registry = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        await registry.RegisterWorkflows(pb.RegisterWorkflowsRequest(owner="o", build_id="b", workflows=[definition]))


def fields(card: str) -> dict[str, str]:
    """A card, read."""
    return dict(line.split(maxsplit=1) for line in card.splitlines())


@pytest.mark.usefixtures("report")
async def test_list_shows_each_workflow_on_a_line_by_name(here: Run, start_worker: StartWorker) -> None:
    await start_worker(charge, ship, owner="billing", build_id="b7")
    shown = await here("workflow", "list")
    assert (shown.code, shown.err) == (ExitCode.OK, "")
    header, *lines = [line.split() for line in shown.out.splitlines()]
    assert header == ["NAME", "QUEUE", "ATTEMPTS", "CRONS", "EVENTS", "OWNER", "BUILD", "IN_USE_AT"]
    assert [line[:-1] for line in lines] == [
        ["charge", "money", "4", "0", "0", "billing", "b7"],
        ["report", "default", "2", "2", "2", "o", "b"],
        ["ship", "parcels", "1", "0", "0", "billing", "b7"],
    ]
    document = (await here("workflow", "list", "-o", "json")).json
    assert [one["name"] for one in document["workflows"]] == ["charge", "report", "ship"]
    assert all(set(one) == WORKFLOW for one in document["workflows"])


async def test_get_shows_the_definition_without_what_it_does_not_have(here: Run, start_worker: StartWorker) -> None:
    await start_worker(charge, ship, name="shop-1", owner="billing", build_id="b7", concurrency=5)
    card, _, lanes = (await here("workflow", "get", "charge")).out.partition("\n\n")
    shown = fields(card)
    assert shown.pop("in_use_at").endswith("Z")
    assert shown == {
        "name": "charge",
        "queue": "money",
        "max_attempts": "4",
        "retry": "after 0.5 s, times 2, at most 60 s, plus up to 10% of it",
        "run_timeout": "90.5 s",
        "owner": "billing",
        "build_id": "b7",
    }
    header, line = lanes.splitlines()
    assert header.split() == ["QUEUE", "QUEUED", "FREE_SLOTS", "SERVED_BY"]
    assert line.split() == ["money", "0", "5", "shop-1"]


@pytest.mark.usefixtures("report")
async def test_get_shows_time_outs_triggers_and_the_retry_that_the_gateway_has_for_it(here: Run) -> None:
    shown = fields((await here("workflow", "get", "report")).out.partition("\n\n")[0])
    assert shown["retry"] == "after 0.25 s, times 2, at most 30 s, plus up to 0.1 s"
    assert (shown["start_timeout"], shown["failure_handler_timeout"]) == ("3600 s", "2 s")
    assert shown["failure_handler"] == "yes"
    assert shown["cron"] == "0 9 * * 1-5 Europe/Berlin (daily); @hourly UTC"
    assert shown["events"] == "paid, refunded"
    assert shown["input_schema"] == '{"type": "object"}'

    document = (await here("workflow", "get", "report", "-o", "json")).json
    assert set(document) == WORKFLOW | {"lanes"}
    assert document["cron"] == [
        {"id": "daily", "expression": "0 9 * * 1-5", "timezone": "Europe/Berlin", "input": {"kind": "digest"}},
        {"id": "", "expression": "@hourly", "timezone": "", "input": None},
    ]
    assert (document["events"], document["retry"], document["start_timeout"]) == (["paid", "refunded"], None, 3600.0)


async def test_get_shows_every_queue_in_which_runs_of_the_workflow_wait(
    here: Run, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(charge, name="shop-1", concurrency=5)
    for workflow_name in ("charge", "charge", "ship"):
        await client.start(workflow_name, {}, queue="elsewhere")
    document = (await here("workflow", "get", "charge", "-o", "json")).json
    assert all(set(lane) == LANE for lane in document["lanes"])
    assert [(lane["queue"], lane["depth"], lane["is_served"], lane["workers"]) for lane in document["lanes"]] == [
        ("elsewhere", 2, False, []),
        ("money", 0, True, ["shop-1"]),
    ]


async def test_a_workflow_that_nobody_registered_is_not_found(here: Run) -> None:
    ended = await here("workflow", "get", "nobody's")
    assert ended.code == ExitCode.NOT_FOUND
    assert "nobody's" in ended.error


async def test_without_workflows_a_list_is_a_header_or_an_empty_list(here: Run) -> None:
    assert len((await here("workflow", "list")).out.splitlines()) == 1
    assert (await here("workflow", "list", "-o", "json")).json == {"workflows": []}
