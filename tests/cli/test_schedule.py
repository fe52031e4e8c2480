"""`redflow schedule`: what starts by itself, and when an expression comes."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import grpc
import pytest
import pytest_asyncio

from redflow_sdk import Context, Cron, workflow
from redflow_sdk.proto.api.v1 import workflow_service_pb2 as pb
from redflow_sdk.proto.api.v1 import workflow_service_pb2_grpc
from redflow_sdk.proto.v1 import workflow_pb2
from redflow_server.cli import main
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.store.keys import Keys
from tests.cli.command import Ended
from tests.cli.conftest import Run
from tests.cli.test_workflow import fields
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand

SCHEDULE = {"id", "workflow", "cron", "next_at", "last_at", "skipped", "problem"}


@workflow(name="report", cron=[Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"kind": "digest"}, id="daily")])
async def report(ctx: Context, settings: dict[str, str]) -> None:
    return None


@workflow(name="tick", cron=[Cron("* * * * * *"), Cron("@yearly", id="daily")])
async def tick(ctx: Context) -> None:
    return None


@workflow(name="plain")
async def plain(ctx: Context) -> None:
    return None


@pytest_asyncio.fixture
async def worker(start_worker: StartWorker) -> None:
    await start_worker(report, tick, plain)


# ---- in force ----


@pytest.mark.usefixtures("worker")
async def test_list_shows_each_schedule_on_a_line_by_the_name_of_its_workflow(here: Run) -> None:
    shown = await here("schedule", "list")
    assert (shown.code, shown.err) == (ExitCode.OK, "")
    header, *lines = shown.out.splitlines()
    assert header.split() == ["ID", "WORKFLOW", "EXPRESSION", "TIMEZONE", "NEXT", "LAST", "SKIPPED"]
    assert [line.split()[1] for line in lines] == ["report", "tick", "tick"]
    assert "0 9 * * 1-5  Europe/Berlin" in lines[0]

    document = (await here("schedule", "list", "--workflow", "report", "-o", "json")).json
    (schedule,) = document["schedules"]
    assert set(schedule) == SCHEDULE
    assert schedule["cron"] == {
        "id": "daily",
        "expression": "0 9 * * 1-5",
        "timezone": "Europe/Berlin",
        "input": {"kind": "digest"},
    }
    assert datetime.fromisoformat(schedule["next_at"]) > datetime.now(UTC)
    assert (schedule["last_at"], schedule["skipped"], schedule["problem"]) == (None, 0, "")


@pytest.mark.usefixtures("worker")
async def test_list_tells_the_occurrence_that_started_a_run_last(here: Run) -> None:
    async def has_come() -> bool:
        schedules = (await here("schedule", "list", "--workflow", "tick", "-o", "json")).json["schedules"]
        second = next(one for one in schedules if one["cron"]["expression"] == "* * * * * *")
        return second["last_at"] is not None and second["last_at"] < second["next_at"]

    await eventually(has_come, within=10)


@pytest.mark.usefixtures("worker")
async def test_a_workflow_without_schedules_has_an_empty_list_and_one_that_is_not_there_none(here: Run) -> None:
    assert (await here("schedule", "list", "--workflow", "plain", "-o", "json")).json == {"schedules": []}
    ended = await here("schedule", "list", "--workflow", "nobody's")
    assert ended.code == ExitCode.NOT_FOUND
    assert "nobody's" in ended.error


@pytest.mark.usefixtures("worker")
async def test_get_shows_a_schedule_without_what_it_does_not_have(here: Run) -> None:
    (schedule,) = (await here("schedule", "list", "--workflow", "report", "-o", "json")).json["schedules"]
    assert fields((await here("schedule", "get", schedule["id"])).out) == {
        "id": schedule["id"],
        "workflow": "report",
        "called": "daily",
        "expression": "0 9 * * 1-5",
        "timezone": "Europe/Berlin",
        "input": '{"kind": "digest"}',
        "next_at": schedule["next_at"],
        "skipped": "0",
    }
    assert (await here("schedule", "get", schedule["id"], "-o", "json")).json == schedule


@pytest.mark.usefixtures("worker")
async def test_an_id_that_definitions_of_several_workflows_give_is_not_enough(here: Run) -> None:
    ended = await here("schedule", "get", "daily")
    assert ended.code == ExitCode.REFUSED
    assert ended.error.startswith("2 schedules are called daily; give an id: cron_")


async def test_get_takes_the_id_that_the_definition_gives(here: Run, start_worker: StartWorker) -> None:
    await start_worker(report)
    assert (await here("schedule", "get", "daily", "-o", "json")).json["workflow"] == "report"
    ended = await here("schedule", "get", "weekly")
    assert (ended.code, ended.error) == (ExitCode.NOT_FOUND, "no schedule weekly is in force")


async def test_a_schedule_that_can_start_no_runs_is_listed_with_its_problem(
    here: Run, target: str, redis: RedisCommand, keys: Keys
) -> None:
    definition = workflow_pb2.WorkflowDefinition(
        name="w", definition_digest="d", cron=[workflow_pb2.CronSchedule(expression="* * * * * *", schedule_id="s")]
    )
    async with grpc.aio.insecure_channel(target) as channel:
        registry = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        await registry.RegisterWorkflows(pb.RegisterWorkflowsRequest(owner="o", build_id="b", workflows=[definition]))
    (schedule_id,) = [one["id"] for one in (await here("schedule", "list", "-o", "json")).json["schedules"]]
    stored = json.loads(await redis("HGET", keys.cron_def, schedule_id))
    stored["expression"] = "61 * * * *"
    await redis("HSET", keys.cron_def, schedule_id, json.dumps(stored))

    async def is_stalled() -> bool:
        header, line = (await here("schedule", "list")).out.splitlines()
        return header.split()[-1] == "PROBLEM" and "it cannot be evaluated" in line

    await eventually(is_stalled, within=10)
    shown = (await here("schedule", "get", schedule_id, "-o", "json")).json
    assert shown["next_at"] is None
    assert "must be" in shown["problem"] and "61" in shown["problem"]


# ---- next ----


def next_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    """No gateway takes part in it."""
    code = main(["schedule", "next", *arguments])
    return Ended(code, *capsys.readouterr())


def test_next_shows_the_occurrences_in_utc_and_by_the_clocks_of_the_zone(capsys: pytest.CaptureFixture[str]) -> None:
    zone = ("--timezone", "Europe/Berlin", "--after", "2026-03-27T12:00:00Z", "--count", "3")
    # On the 29th the clocks go from 2 to 3.
    assert next_of(capsys, "30 2 * * *", *zone).out.splitlines() == [
        "AT                        LOCAL",
        "2026-03-28T01:30:00.000Z  Sat 2026-03-28 02:30:00+01:00",
        "2026-03-29T01:00:00.000Z  Sun 2026-03-29 03:00:00+02:00",
        "2026-03-30T00:30:00.000Z  Mon 2026-03-30 02:30:00+02:00",
    ]
    assert next_of(capsys, "@daily", "--after", "2026-03-27T12:00:00+01:00", "--count", "1", "-o", "json").json == {
        "expression": "@daily",
        "timezone": "UTC",
        "next": [{"at": "2026-03-28T00:00:00.000Z", "local": "2026-03-28T00:00:00+00:00"}],
    }


def test_next_begins_now(capsys: pytest.CaptureFixture[str]) -> None:
    before = datetime.now(UTC)
    times = [datetime.fromisoformat(one["at"]) for one in next_of(capsys, "* * * * * *", "-o", "json").json["next"]]
    assert len(times) == 5
    assert times == sorted(set(times))
    assert before < times[0]
    assert (times[0] - datetime.now(UTC)).total_seconds() < 1


@pytest.mark.parametrize("expression", ["0 0 29 2 */7", "0 0 29 2 *", "@yearly"])
def test_next_finds_a_hundred_occurrences_however_rare_they_are(
    expression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    last = ("--after", "5000-12-31T23:59:59Z", "--count", "100", "-o", "json")
    assert len(next_of(capsys, expression, *last).json["next"]) == 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("*/7",), "EXPRESSION must have five fields"),
        (("61 * * * *",), "EXPRESSION minute must be made of 0-59"),
        (("0 0 31 2 *",), "EXPRESSION day-of-month never comes in its month"),
        (("@daily", "--timezone", "Mars/Olympus"), "--timezone must be a zone of the IANA database"),
        (("@daily", "--count", "101"), "--count: must be a whole number from 1 to 100"),
        (("@daily", "--after", "tomorrow"), "--after: must be an ISO 8601 time"),
        (("@daily", "--after", "9999-12-31T00:00:00Z"), "--after: must be a time after 1970 and not after 5000"),
        (("@daily", "--after", "0001-01-01T00:00:00Z"), "--after: must be a time after 1970"),
    ],
)
def test_next_refuses_what_a_gateway_would_refuse(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = next_of(capsys, *arguments)
    assert ended.code == ExitCode.USAGE
    assert says in ended.error
