"""What becomes of the definitions that a worker brings: each is answered by itself, and a bad one spoils no other."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.api.v1 import workflow_service_pb2
from redflow_sdk.proto.v1 import payload_pb2, workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.gateway import Gateway
from tests.rpc.calls import Calls
from tests.rpc.conftest import Dial, OpenWorker
from tests.rpc.scripted_worker import ScriptedWorker, a_definition, an_open

REGISTERED = workflow_pb2.REGISTRATION_STATUS_REGISTERED
SUPERSEDED = workflow_pb2.REGISTRATION_STATUS_SUPERSEDED
FOREIGN_OWNER = workflow_pb2.REGISTRATION_STATUS_FOREIGN_OWNER
INVALID = workflow_pb2.REGISTRATION_STATUS_INVALID


def policy(**changes: Any) -> workflow_pb2.RetryPolicy:  # Any: its fields
    fields = {"initial_interval": Duration(seconds=1), "backoff_multiplier": 2, "maximum_interval": Duration(seconds=9)}
    return workflow_pb2.RetryPolicy(**{**fields, **changes})


BAD = {
    "an empty name": ({"name": ""}, "name"),
    "a name of 257 bytes": ({"name": "x" * 257}, "name"),
    "a name with a NUL": ({"name": "a\x00"}, "name"),
    "a queue with a line break": ({"queue": "a\nb"}, "queue"),
    "negative attempts": ({"max_attempts": -1}, "max_attempts"),
    "too many attempts": ({"max_attempts": 1_000_001}, "max_attempts"),
    "a run time-out of nothing": ({"run_timeout": Duration()}, "run_timeout"),
    "a negative run time-out": ({"run_timeout": Duration(seconds=-1)}, "run_timeout"),
    "an endless start time-out": ({"start_timeout": Duration(seconds=2**62)}, "start_timeout"),
    "a shrinking back-off": ({"retry_policy": policy(backoff_multiplier=0.5)}, "backoff_multiplier"),
    "a back-off that is no number": ({"retry_policy": policy(backoff_multiplier=float("nan"))}, "backoff_multiplier"),
    "an endless back-off": ({"retry_policy": policy(backoff_multiplier=float("inf"))}, "backoff_multiplier"),
    "jitter above 1": ({"retry_policy": policy(jitter_ratio=1.5)}, "jitter_ratio"),
    "jitter that is no number": ({"retry_policy": policy(jitter_ratio=float("nan"))}, "jitter_ratio"),
    "a negative first delay": ({"retry_policy": policy(initial_interval=Duration(seconds=-1))}, "initial_interval"),
    "a last delay below the first": ({"retry_policy": policy(maximum_interval=Duration())}, "maximum_interval"),
    "an event without a name": ({"event_triggers": [workflow_pb2.EventTrigger()]}, "event_name"),
    "a schema over the payload limit": (
        {"input_json_schema": payload_pb2.Payload(data=b"x" * (1024 * 1024 + 1))},
        "input_json_schema",
    ),
    "a digest without bound": ({"definition_digest": "x" * 100_000}, "definition_digest"),
}


def results_of(worker: ScriptedWorker) -> list[tuple[str, int]]:
    assert worker.opened is not None
    return [(result.name, result.status) for result in worker.opened.registration_results]


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_definition_is_reported_as_invalid_and_the_others_run(
    calls: Calls, open_worker: OpenWorker, kind: str
) -> None:
    fields, field = BAD[kind]
    bad = a_definition(**{"name": "bad", "queue": "q", **fields})

    worker = await open_worker("first", bad, "last")

    assert results_of(worker) == [("first", REGISTERED), (bad.name, INVALID), ("last", REGISTERED)]
    assert worker.opened is not None
    result = worker.opened.registration_results[1]
    assert result.reason == "INVALID"
    assert field in result.message
    assert len(result.message) < 1000
    run_id = await calls.start("last")
    assert (await worker.assignment()).run_id == run_id


async def test_a_definition_that_is_listed_twice_is_registered_once_and_the_second_is_invalid(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker(a_definition("w", "q1"), a_definition("w", "q2"))

    assert results_of(worker) == [("w", REGISTERED), ("w", INVALID)]
    found = await calls.workflows.GetWorkflow(workflow_service_pb2.GetWorkflowRequest(name="w"))
    assert found.workflow.definition.queue == "q1"


async def test_a_registered_definition_has_no_reason_and_no_message(gateway: Gateway, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")

    assert worker.opened is not None
    [result] = worker.opened.registration_results
    assert result == workflow_pb2.RegistrationResult(name="w", status=REGISTERED)


async def test_an_older_build_is_superseded_by_a_later_one_and_still_serves_the_workflow(
    calls: Calls, open_worker: OpenWorker
) -> None:
    old, new = a_definition("w", max_attempts=1), a_definition("w", max_attempts=2)
    await open_worker(old, build_id="build-1", slot_limit=0)
    await open_worker(new, build_id="build-2", slot_limit=0)

    late = await open_worker(old, build_id="build-1")

    assert results_of(late) == [("w", SUPERSEDED)]
    assert late.opened is not None
    [result] = late.opened.registration_results
    assert result.reason == "SUPERSEDED"
    assert "later build" in result.message
    await calls.start("w")
    assert (await late.assignment()).max_attempts == 2


async def test_a_name_in_use_stays_with_its_owner_and_another_owners_worker_still_serves_it(
    calls: Calls, open_worker: OpenWorker
) -> None:
    await open_worker(a_definition("w", max_attempts=3), owner="owner-1", slot_limit=0)

    foreign = await open_worker(a_definition("w", max_attempts=9), "own", owner="owner-2")

    assert results_of(foreign) == [("w", FOREIGN_OWNER), ("own", REGISTERED)]
    assert foreign.opened is not None
    result = foreign.opened.registration_results[0]
    assert result.reason == "FOREIGN_OWNER"
    assert "another owner" in result.message
    found = await calls.workflows.GetWorkflow(workflow_service_pb2.GetWorkflowRequest(name="w"))
    assert (found.workflow.owner, found.workflow.definition.max_attempts) == ("owner-1", 3)
    await calls.start("w")
    assert (await foreign.assignment()).max_attempts == 3


async def test_a_refused_opening_registers_nothing(calls: Calls, dial: Dial) -> None:
    worker = dial()

    await worker.say(open=an_open("w", slot_limit=-1))

    await worker.end()
    listed = await calls.workflows.ListWorkflows(workflow_service_pb2.ListWorkflowsRequest())
    assert list(listed.workflows) == []


async def test_a_workflow_is_served_by_all_who_registered_it_and_each_run_by_one(
    calls: Calls, open_worker: OpenWorker
) -> None:
    workers = [await open_worker("w", slot_limit=1) for _ in range(3)]
    run_ids = await calls.start_many(3)

    assignments = [await worker.assignment() for worker in workers]

    assert sorted(assignment.run_id for assignment in assignments) == sorted(run_ids)
    assert {assignment.assignment_kind for assignment in assignments} == {pb.ASSIGNMENT_KIND_RUN}


# ---- cron schedules ----


def cron(expression: str, schedule_id: str = "", timezone: str = "") -> workflow_pb2.CronSchedule:
    return workflow_pb2.CronSchedule(expression=expression, schedule_id=schedule_id, timezone=timezone)


async def schedules_of(calls: Calls, workflow: str) -> list[workflow_pb2.Schedule]:
    request = workflow_service_pb2.ListSchedulesRequest(workflow=workflow)
    return list((await calls.workflows.ListSchedules(request)).schedules)


@pytest.mark.parametrize(
    ("bad", "about"),
    [
        (cron("often"), "expression"),
        (cron("0 0 30 2 *"), "never"),
        (cron("@daily", timezone="Mars/Olympus"), "timezone"),
    ],
    ids=["no expression", "a date that never comes", "no zone"],
)
async def test_a_schedule_that_cannot_come_is_reported_and_the_workflow_is_in_force_without_it(
    calls: Calls, open_worker: OpenWorker, bad: workflow_pb2.CronSchedule, about: str
) -> None:
    worker = await open_worker(a_definition("w", cron=[bad, cron("@daily", "good")]), "other")

    assert results_of(worker) == [("w", REGISTERED), ("other", REGISTERED)]
    assert worker.opened is not None
    result, other = worker.opened.registration_results
    assert (result.reason, other.reason, other.message) == ("INVALID_SCHEDULE", "", "")
    assert about in result.message
    assert [schedule.cron for schedule in await schedules_of(calls, "w")] == [cron("@daily", "good")]
    run_id = await calls.start("w")
    assert (await worker.assignment()).run_id == run_id


async def test_a_schedule_that_became_invalid_is_gone(calls: Calls, open_worker: OpenWorker) -> None:
    await open_worker(a_definition("w", cron=[cron("@daily", "nightly")]), build_id="build-1")
    await open_worker(a_definition("w", cron=[cron("nightly", "nightly")]), build_id="build-2")
    assert await schedules_of(calls, "w") == []


async def test_one_id_for_two_schedules_of_a_workflow_makes_it_invalid(
    gateway: Gateway, open_worker: OpenWorker
) -> None:
    worker = await open_worker(a_definition("w", cron=[cron("@daily", "same"), cron("@hourly", "same")]), "other")
    assert results_of(worker) == [("w", INVALID), ("other", REGISTERED)]
    assert worker.opened is not None
    result = worker.opened.registration_results[0]
    assert result.reason == "INVALID"
    assert "Duplicate cron trigger id" in result.message
