"""WorkflowService: registering workflows without a worker, and reading what is registered."""

from __future__ import annotations

import base64
import time
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.api.v1 import workflow_service_pb2 as pb
from redflow_sdk.proto.v1 import payload_pb2, workflow_pb2
from redflow_server.gateway import Gateway
from tests.eventually import eventually
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import OpenWorker
from tests.rpc.scripted_worker import a_definition
from tests.rpc.test_session_registration import BAD

REGISTERED = workflow_pb2.REGISTRATION_STATUS_REGISTERED
INVALID = workflow_pb2.REGISTRATION_STATUS_INVALID


async def register(
    calls: Calls,
    *definitions: workflow_pb2.WorkflowDefinition,
    **fields: Any,  # Any: whatever the message takes
) -> list[workflow_pb2.RegistrationResult]:
    """Registers an owner's whole set."""
    request = pb.RegisterWorkflowsRequest(**{"owner": "owner-1", "build_id": "build-1", **fields})
    request.workflows.extend(definitions)
    return list((await calls.workflows.RegisterWorkflows(request)).results)


async def registered(calls: Calls, name: str) -> workflow_pb2.Workflow:
    return (await calls.workflows.GetWorkflow(pb.GetWorkflowRequest(name=name))).workflow


async def names_in_pages(calls: Calls, size: int) -> list[list[str]]:
    found, token = [], ""
    while not found or token:
        page = await calls.workflows.ListWorkflows(pb.ListWorkflowsRequest(page_size=size, page_token=token))
        found.append([workflow.definition.name for workflow in page.workflows])
        token = page.next_page_token
    return found


def with_every_field() -> workflow_pb2.WorkflowDefinition:
    """A definition in which nothing is left at its default."""
    definition = workflow_pb2.WorkflowDefinition(
        name='odd {name}: "<b>" 💥',
        definition_digest="sha256:00ff",
        queue="a queue: of its own",
        max_attempts=1_000_000,
        retry_policy=workflow_pb2.RetryPolicy(
            initial_interval=Duration(nanos=1_000_000),
            backoff_multiplier=1.1,
            maximum_interval=Duration(seconds=86_400),
            jitter_ratio=0.3333333333333333,
        ),
        run_timeout=Duration(seconds=3600, nanos=5_000_000),
        start_timeout=Duration(seconds=60),
        failure_handler_timeout=Duration(seconds=9),
        cron=[
            workflow_pb2.CronSchedule(
                schedule_id="nightly: \u00fc",
                expression="30 2 * * *",
                timezone="Europe/Berlin",
                input=payload_pb2.Payload(data=b"\x00\xff", content_type="text/x", metadata={"enc": "1"}),
            ),
            workflow_pb2.CronSchedule(expression="@hourly"),
        ],
        event_triggers=[workflow_pb2.EventTrigger(event_name=name) for name in ("order.paid", "a:b", "{x}")],
        input_json_schema=payload_pb2.Payload(data=b'{"maximum": 9007199254740993}', content_type="application/schema"),
        has_failure_handler=True,
    )
    assert len(definition.ListFields()) == len(workflow_pb2.WorkflowDefinition.DESCRIPTOR.fields), "a field is new"
    return definition


async def test_every_field_of_a_definition_comes_back_as_it_was_registered(calls: Calls) -> None:
    definition = with_every_field()

    [result] = await register(calls, definition, owner="owner: é", build_id="build {1}")

    assert (result.name, result.status) == (definition.name, REGISTERED)
    found = await registered(calls, definition.name)
    assert found.definition == definition
    assert (found.owner, found.build_id) == ("owner: é", "build {1}")
    assert abs(found.update_time.ToMilliseconds() - time.time() * 1000) < 5000
    [listed] = (await calls.workflows.ListWorkflows(pb.ListWorkflowsRequest())).workflows
    assert listed == found


async def test_what_a_definition_leaves_out_has_its_documented_default(calls: Calls) -> None:
    await register(calls, workflow_pb2.WorkflowDefinition(name="w", definition_digest="d"))

    assert (await registered(calls, "w")).definition == workflow_pb2.WorkflowDefinition(
        name="w", definition_digest="d", queue="default", max_attempts=1
    )


async def test_a_registration_may_be_repeated_and_a_changed_definition_is_in_force_at_once(calls: Calls) -> None:
    for _ in range(3):
        assert [one.status for one in await register(calls, a_definition("w"), a_definition("v"))] == [REGISTERED] * 2
    assert await names_in_pages(calls, 50) == [["v", "w"]]

    await register(calls, a_definition("w", "new", max_attempts=5), a_definition("v"))

    definition = (await registered(calls, "w")).definition
    assert (definition.queue, definition.max_attempts) == ("new", 5)


async def test_a_registration_of_nothing_is_answered_with_nothing(calls: Calls) -> None:
    assert await register(calls) == []


async def test_a_worker_that_registers_the_same_definition_serves_it(calls: Calls, open_worker: OpenWorker) -> None:
    await register(calls, a_definition("w"))

    worker = await open_worker(a_definition("w"))

    assert worker.opened is not None
    assert [result.status for result in worker.opened.registration_results] == [REGISTERED]
    run_id = await calls.start("w", "")
    assert (await worker.assignment()).run_id == run_id


@pytest.mark.parametrize("kind", BAD)
async def test_an_invalid_definition_is_reported_and_the_others_are_in_force(calls: Calls, kind: str) -> None:
    fields, field = BAD[kind]
    bad = a_definition(**{"name": "bad", "queue": "q", **fields})

    results = await register(calls, a_definition("first"), bad, a_definition("last"))

    assert [(one.name, one.status) for one in results] == [
        ("first", REGISTERED),
        (bad.name, INVALID),
        ("last", REGISTERED),
    ]
    assert field in results[1].message
    assert await names_in_pages(calls, 50) == [["first", "last"]]


@pytest.mark.parametrize("name", ["", "x" * 257, "a\x00", "a\nb"], ids=ascii)
@pytest.mark.parametrize("field", ["owner", "build_id"])
async def test_an_owner_or_build_without_a_name_is_refused(calls: Calls, field: str, name: str) -> None:
    answer = await refused(register(calls, a_definition("w"), **{field: name}))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert answer.field == field
    assert await names_in_pages(calls, 50) == [[]]


# ---- reading ----


@pytest.mark.parametrize("name", ["nobody's", "x" * 256, "a:runs", "*", "💥", " "], ids=ascii)
async def test_a_workflow_that_nobody_registered_is_not_found(calls: Calls, name: str) -> None:
    answer = await refused(registered(calls, name))

    assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "WORKFLOW_NOT_FOUND")
    assert dict(answer.about) == {"workflow": name}


@pytest.mark.parametrize("name", ["", "x" * 257, "a\x00b"], ids=ascii)
async def test_what_can_be_no_name_is_refused(calls: Calls, name: str) -> None:
    answer = await refused(registered(calls, name))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert answer.field == "name"


async def test_workflows_are_listed_by_name_in_pages(gateway: Gateway, calls: Calls) -> None:
    names = sorted([f"w{number:03}" for number in range(520)] + ["é", "💥", "A", "a:b"])
    await register(calls, *(a_definition(name) for name in names))

    assert await names_in_pages(calls, 200) == [names[:200], names[200:400], names[400:]]
    sizes = {}
    for asked in (0, -1, 3, 500, 501, 2**31 - 1):
        page = await calls.workflows.ListWorkflows(pb.ListWorkflowsRequest(page_size=asked))
        sizes[asked] = len(page.workflows)
    assert sizes == {0: 50, -1: 50, 3: 3, 500: 500, 501: 500, 2**31 - 1: 500}


@pytest.mark.parametrize("token", ["%%%", "MQ", "ü", base64.urlsafe_b64encode(b"\xff").decode()], ids=ascii)
async def test_a_page_token_that_no_listing_answered_is_refused(calls: Calls, token: str) -> None:
    await register(calls, a_definition("w"))

    answer = await refused(calls.workflows.ListWorkflows(pb.ListWorkflowsRequest(page_token=token)))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert answer.field == "page_token"


# ---- schedules ----


def cron(expression: str = "@daily", **fields: Any) -> workflow_pb2.CronSchedule:  # Any: whatever the message takes
    return workflow_pb2.CronSchedule(expression=expression, **fields)


async def schedules_in_pages(calls: Calls, **fields: Any) -> list[list[workflow_pb2.Schedule]]:  # Any: as above
    found, token = [], ""
    while not found or token:
        page = await calls.workflows.ListSchedules(pb.ListSchedulesRequest(page_token=token, **fields))
        found.append(list(page.schedules))
        token = page.next_page_token
    return found


async def test_a_schedule_is_listed_with_what_it_is_and_when_it_comes(calls: Calls) -> None:
    definition = cron(
        "0 9 * * 1-5",
        schedule_id="daily: ü",
        timezone="Europe/Berlin",
        input=payload_pb2.Payload(data=b"\x00\xff", content_type="x/y", metadata={"k": "v"}),
    )
    await register(calls, a_definition("w", cron=[definition]))

    [[schedule]] = await schedules_in_pages(calls, workflow="w")

    assert (schedule.workflow, schedule.cron) == ("w", definition)
    assert 0 < schedule.next_time.ToSeconds() - time.time() < 4 * 86_400
    assert schedule.next_time.nanos == 0
    assert not schedule.HasField("last_time")
    assert (schedule.skipped_count, schedule.problem) == (0, "")


async def test_an_input_of_null_is_told_from_none(calls: Calls) -> None:
    definitions = [cron(), cron(input=payload_pb2.Payload(data=b"null", content_type="application/json"))]
    await register(calls, a_definition("w", cron=definitions))
    [schedules] = await schedules_in_pages(calls, workflow="w")
    assert [schedule.cron for schedule in schedules] == definitions
    assert len({schedule.schedule_id for schedule in schedules}) == 2


async def test_schedules_are_listed_by_the_name_of_their_workflow_in_pages_of_workflows(calls: Calls) -> None:
    names = [f"w{number}" for number in range(5)]
    await register(calls, *(a_definition(name, cron=[cron("@daily"), cron("@hourly")]) for name in names))
    pages = await schedules_in_pages(calls, page_size=2)
    assert [[schedule.workflow for schedule in page] for page in pages] == [
        ["w0", "w0", "w1", "w1"],
        ["w2", "w2", "w3", "w3"],
        ["w4", "w4"],
    ]
    assert [len(page) for page in await schedules_in_pages(calls)] == [10]


async def test_a_workflow_without_schedules_and_an_unknown_one_have_none(calls: Calls) -> None:
    await register(calls, a_definition("w"))
    for name in ("w", "unknown", ""):
        assert await schedules_in_pages(calls, workflow=name) == [[]]


@pytest.mark.parametrize("fields", [{"workflow": "x" * 257}, {"page_token": "junk"}])
async def test_a_listing_of_schedules_that_asks_for_what_is_not_is_refused(
    gateway: Gateway, calls: Calls, fields: dict[str, Any]
) -> None:
    answer = await refused(calls.workflows.ListSchedules(pb.ListSchedulesRequest(**fields)))
    assert (answer.code, answer.field) == (grpc.StatusCode.INVALID_ARGUMENT, next(iter(fields)))
    assert gateway.telemetry.counters["faults"] == 0


async def test_a_schedule_that_has_come_says_when_it_came_last(calls: Calls) -> None:
    await register(calls, a_definition("w", cron=[cron("* * * * * *")]))

    async def has_come() -> bool:
        [[schedule]] = await schedules_in_pages(calls, workflow="w")
        return schedule.HasField("last_time") and schedule.next_time.ToSeconds() > schedule.last_time.ToSeconds()

    await eventually(has_come)
