"""read_schedules: the cron schedules of workflows with where each stands, whatever foreign hands have written."""

from __future__ import annotations

import json

import pytest

from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import CronSchedule, PlannedSchedule, Registration
from redflow_server.domain.schedules import Schedule
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, a_schedule, a_workflow, everything
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


def of(workflow: str, planned: PlannedSchedule) -> PlannedSchedule:
    return PlannedSchedule(planned.schedule_id, workflow, planned.cron, planned.next_at_ms)


async def register(store: Store, *schedules: PlannedSchedule) -> None:
    """Registers the workflows `v` and `w`."""
    workflows = (a_workflow(name="v"), a_workflow(name="w"))
    await store.register(Registration("owner-1", "build-1", workflows, schedules))


async def test_workflows_without_schedules_and_unknown_ones_have_none(store: Store) -> None:
    await register(store)
    assert await store.read_schedules(["v", "w", "unknown"]) == ()
    assert await store.read_schedules([]) == ()


async def test_they_come_by_workflow_in_the_order_of_their_definitions(store: Store) -> None:
    await register(store, a_schedule("z"), a_schedule("a"), of("v", a_schedule("m")))
    found = await store.read_schedules(["w", "v"])
    assert [(one.workflow, one.schedule_id) for one in found] == [("w", "z"), ("w", "a"), ("v", "m")]
    assert [one.schedule_id for one in await store.read_schedules(["v"])] == ["m"]


async def test_each_says_what_it_is_and_where_it_stands(store: Store, redis: RedisCommand, keys: Keys) -> None:
    schedule = a_schedule(expression="@daily", timezone="Europe/Berlin", input=Payload(b"\xff", "x", (("k", "v"),)))
    await register(store, schedule)
    assert await store.read_schedules(["w"]) == (
        Schedule("cron-1", "w", schedule.cron, START_MS + 1000, None, skipped=0, problem=""),
    )


async def test_reading_changes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule())
    before = await everything(redis, keys)
    await store.read_schedules(["v", "w"])
    assert await everything(redis, keys) == before


def spoilt(**fields: object) -> str:
    """A document with a field as no registration writes it."""
    whole = {"workflow": "w", "id": "", "expression": "@daily", "timezone": "", "input": None}
    return json.dumps({**whole, **fields})


INPUT = {"data": "MQ==", "contentType": "", "metadata": {}}
UNREADABLE = {
    "nothing": "",
    "no JSON": "not JSON",
    "a number": "5",
    "a list": "[]",
    "null": "null",
    "no fields": "{}",
    "another workflow's": spoilt(workflow="v"),
    "an expression that is no text": spoilt(expression=5),
    "a zone that is no text": spoilt(timezone=None),
    "an input that is a text": spoilt(input="x"),
    "an input that is no base64": spoilt(input={**INPUT, "data": "%"}),
    "an input that is cut off": spoilt(input={**INPUT, "data": "MQ="}),
    "metadata that is a list": spoilt(input={**INPUT, "metadata": [1]}),
    "a type that is no text": spoilt(input={**INPUT, "contentType": 5}),
}


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.leaves_faults
async def test_one_that_a_foreign_hand_made_unreadable_says_so_and_hides_no_other(
    store: Store, redis: RedisCommand, keys: Keys, kind: str
) -> None:
    await register(store, a_schedule("bad"), a_schedule("good"))
    await redis("HSET", keys.cron_def, "bad", UNREADABLE[kind])
    bad, good = await store.read_schedules(["w"])
    assert (bad.schedule_id, bad.workflow, bad.cron) == ("bad", "w", CronSchedule("", "", "", None))
    assert "cannot be read" in bad.problem
    assert (good.schedule_id, good.problem) == ("good", "")


@pytest.mark.leaves_faults
async def test_one_whose_definition_is_gone_says_so(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule())
    await redis("DEL", keys.cron_def)
    [found] = await store.read_schedules(["w"])
    assert "cannot be read" in found.problem
