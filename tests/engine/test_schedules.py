"""Cron schedules from registration to run: each occurrence once, whoever is there, and none holds up another."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    CronSchedule,
    Registration,
    RegistrationResult,
    RegistrationStatus,
    WorkflowDefinition,
)
from redflow_server.domain.schedules import Schedule
from redflow_server.engine.schedules import MAX_SKIPPED, Schedules
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry
from tests.builders import LANE, START_MS, a_workflow, memory_is_full, record_of
from tests.conftest import StartGateway
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import definitions_of
from tests.engine.parts import Engine, Stores
from tests.eventually import eventually
from tests.redis_command import RedisCommand

SECONDLY: Final = "* * * * * *"


def cron(
    expression: str = SECONDLY, schedule_id: str = "", timezone: str = "", data: bytes | None = None
) -> CronSchedule:
    return CronSchedule(schedule_id, expression, timezone, None if data is None else Payload(data))


def with_cron(*schedules: CronSchedule, name: str = "w") -> WorkflowDefinition:
    return a_workflow(name=name, cron=schedules)


async def register(engine: Engine, *definitions: WorkflowDefinition) -> tuple[RegistrationResult, ...]:
    return await engine.registry.register(Registration("owner-1", "build-1", definitions))


async def listed(engine: Engine, workflow: str = "") -> list[Schedule]:
    found, _ = await engine.registry.schedules(workflow, 100, "")
    return list(found)


async def runs(redis: RedisCommand, keys: Keys, workflow: str = "w") -> list[str]:
    found: list[str] = await redis("ZRANGE", keys.workflow_status("queued", workflow), 0, -1)
    return found


# ---- registration ----


async def test_the_next_occurrence_is_in_milliseconds_by_the_clock_of_redis(engine: Engine, store: Store) -> None:
    store.now_ms = START_MS + 250
    await register(engine, with_cron(cron(), cron("@daily", timezone="Europe/Berlin")))
    secondly, daily = await listed(engine)
    assert secondly.next_at_ms == START_MS + 1000
    # 2033-05-18 05:33:20 in Berlin; the next midnight there is at 22:00 in UTC.
    assert daily.next_at_ms == 2_000_066_400_000


BAD: Final = {
    "an expression that is none": cron("often"),
    "an empty expression": cron(""),
    "seven fields": cron("* * * * * * *"),
    "a minute that is none": cron("61 * * * *"),
    "a zone that is none": cron(timezone="Mars/Olympus"),
    "a path as zone": cron(timezone="../../etc/passwd"),
    "a date that never comes": cron("0 0 30 2 *"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_schedule_that_can_never_come_is_reported_and_the_workflow_is_in_force_without_it(
    engine: Engine, kind: str
) -> None:
    good = cron("@daily", "good")
    [result] = await register(engine, with_cron(BAD[kind], good))
    assert result.status is RegistrationStatus.REGISTERED
    assert "without these schedules" in result.message
    assert (await engine.registry.get("w")).definition.cron == (BAD[kind], good)
    assert [schedule.cron for schedule in await listed(engine)] == [good]


@pytest.mark.parametrize("kind", BAD)
async def test_what_stood_in_its_place_before_is_gone(
    engine: Engine, redis: RedisCommand, keys: Keys, kind: str
) -> None:
    await register(engine, with_cron(cron("@daily", "nightly")))
    await register(engine, with_cron(replace(BAD[kind], schedule_id="nightly")))
    assert await listed(engine) == []
    assert await redis("EXISTS", keys.cron_def, keys.cron_next) == 0


async def test_every_schedule_that_is_wrong_is_named(engine: Engine) -> None:
    results = await register(engine, with_cron(cron("bad one"), cron("bad two"), name="a"), with_cron(cron(), name="b"))
    assert "bad one" in results[0].message and "bad two" in results[0].message
    assert results[1].message == ""


async def test_one_id_for_two_schedules_of_a_workflow_is_invalid_and_the_other_workflows_are_in_force(
    engine: Engine,
) -> None:
    twice = with_cron(cron("@daily", "same"), cron("@hourly", "same"), name="twice")
    results = await register(engine, twice, with_cron(cron(), name="other"))
    assert [one.status for one in results] == [RegistrationStatus.INVALID, RegistrationStatus.REGISTERED]
    assert "Duplicate cron trigger id" in results[0].message
    assert [schedule.workflow for schedule in await listed(engine)] == ["other"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (with_cron(cron("@daily", "same"), name="a"), with_cron(cron("@daily", "same"), name="b")),
        (with_cron(cron("@daily", "b:c"), name="wf:a"), with_cron(cron("@daily", "c"), name="wf:a:b")),
        (with_cron(cron("@daily"), name="a"), with_cron(cron("@daily"), name="b")),
    ],
    ids=["one custom id", "parts that read the same in a row", "no id"],
)
async def test_schedules_of_two_workflows_are_two(
    engine: Engine, one: WorkflowDefinition, other: WorkflowDefinition
) -> None:
    await register(engine, one, other)
    found = await listed(engine)
    assert sorted(schedule.workflow for schedule in found) == sorted((one.name, other.name))
    assert len({schedule.schedule_id for schedule in found}) == 2


async def test_schedules_without_an_id_are_told_apart_by_expression_zone_and_input(engine: Engine) -> None:
    different = (cron("@daily"), cron("@hourly"), cron("@daily", timezone="Asia/Tokyo"))
    inputs = (cron("@daily", data=b"null"), cron("@daily", data=b"{}"))
    await register(engine, with_cron(*different, *inputs))
    found = await listed(engine)
    assert len({schedule.schedule_id for schedule in found}) == 5
    assert [schedule.cron for schedule in found] == [*different, *inputs]


async def test_twenty_registrations_at_once_plan_each_schedule_once(
    engine: Engine, redis: RedisCommand, keys: Keys
) -> None:
    definitions = [with_cron(cron("@daily"), cron("@hourly", "h"), name=f"w{number}") for number in range(5)]
    await asyncio.gather(*(register(engine, *definitions) for _ in range(20)))
    assert await redis("ZCARD", keys.cron_next) == await redis("HLEN", keys.cron_def) == 10
    assert len(await listed(engine)) == 10


async def test_all_is_back_with_the_next_assertion_when_everything_was_flushed(
    engine: Engine, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    [definition] = definitions_of([LANE])
    await open_worker(engine, workflows=(replace(definition, cron=(cron("@daily", "nightly"),)),))
    before = await listed(engine)
    assert len(before) == 1
    for name in await redis("KEYS", f"{keys.prefix}:*"):
        await redis("DEL", name)

    await engine.sessions.assert_registry()

    assert await listed(engine) == before


# ---- firing ----


@pytest.mark.parametrize(("data", "given"), [(None, b"{}"), (b"null", b"null"), (b"\x00\xff", b"\x00\xff")])
async def test_an_occurrence_starts_a_run_with_the_input_of_its_schedule(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, data: bytes | None, given: bytes
) -> None:
    store.now_ms = START_MS
    await register(engine, with_cron(cron(data=data)))
    await engine.schedules.fire()
    assert await runs(redis, keys) == []

    store.now_ms = START_MS + 1000
    await engine.schedules.fire()
    await engine.schedules.fire()

    [run_id] = await runs(redis, keys)
    run = await store.read_run(run_id)
    assert run is not None and run.input is not None
    assert run.input.data == given


async def test_after_an_outage_one_run_is_started_and_the_others_that_passed_are_counted(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    store.now_ms = START_MS
    await register(engine, with_cron(cron()))
    store.now_ms = START_MS + 600_500
    for _ in range(3):
        await engine.schedules.fire()

    assert len(await runs(redis, keys)) == 1
    [schedule] = await listed(engine)
    assert (schedule.last_at_ms, schedule.next_at_ms) == (START_MS + 1000, START_MS + 601_000)
    assert schedule.skipped == 599


async def test_a_long_outage_of_many_schedules_leaves_the_gateway_responsive(engine: Engine, store: Store) -> None:
    store.now_ms = START_MS
    await register(engine, with_cron(*(cron(data=b"%d" % number) for number in range(5))))
    store.now_ms = START_MS + 24 * 3600 * 1000
    longest_s, loop = 0.0, asyncio.get_running_loop()
    firing = asyncio.create_task(engine.schedules.fire())
    while not firing.done():
        began = loop.time()
        await asyncio.sleep(0)
        longest_s = max(longest_s, loop.time() - began)
    await firing

    assert [schedule.skipped for schedule in await listed(engine)] == [MAX_SKIPPED] * 5
    assert longest_s < 0.5, "leases have to be renewed meanwhile"


async def test_a_clock_that_is_set_back_and_forth_makes_no_second_run_of_an_occurrence(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    store.now_ms = START_MS
    await register(engine, with_cron(cron()))
    for at_ms in (1000, 2000, 3000, 500, 1500, 2500, 3500, 4000, 1000, 4500, 5000):
        store.now_ms = START_MS + at_ms
        await register(engine, with_cron(cron()))
        await engine.schedules.fire()
    assert len(await runs(redis, keys)) == 5


async def test_a_gateway_that_restarts_at_the_moment_of_an_occurrence_neither_drops_nor_repeats_it(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    store.now_ms = START_MS
    await register(engine, with_cron(cron()))
    for number in range(1, 6):
        store.now_ms = START_MS + 1000 * number + 1
        await register(engine, with_cron(cron()))
        await engine.schedules.fire()
        store.now_ms = START_MS + 1000 * number - 1
        await register(engine, with_cron(cron()))
    assert len(await runs(redis, keys)) == 5


async def test_when_memory_is_full_the_occurrence_is_fired_as_soon_as_it_can_be(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys
) -> None:
    store.now_ms = START_MS
    await register(engine, with_cron(cron()))
    store.now_ms = START_MS + 1000
    async with memory_is_full(redis):
        for _ in range(3):
            with pytest.raises(StoreFull):
                await engine.schedules.fire()
    assert await runs(redis, keys) == []

    await engine.schedules.fire()

    assert len(await runs(redis, keys)) == 1
    assert (await listed(engine))[0].last_at_ms == START_MS + 1000


def poison(**fields: object) -> str:
    whole = {"workflow": "w", "timing": "x", "id": "", "expression": SECONDLY, "timezone": "", "input": None}
    return json.dumps({**whole, **fields})


POISON: Final = {
    "no JSON": "not JSON",
    "a list": "[]",
    "no fields": "{}",
    "an expression that is none": poison(expression="often"),
    "an expression that is a number": poison(expression=5),
    "an expression that is a list": poison(expression=["*"]),
    "a zone that is none": poison(timezone="Mars/Olympus"),
    "a zone that is a list": poison(timezone=["UTC"]),
    "a workflow that is a number": poison(workflow=5),
    "a workflow that is no text": poison(workflow="\ud800"),
    "no workflow": poison(workflow=None),
    "an input that is a text": poison(input="x"),
    "an input of numbers": poison(input={"data": 5, "contentType": 5, "metadata": {}}),
    "metadata that is a list": poison(input={"data": "MQ==", "contentType": "x", "metadata": [1]}),
}


@pytest.mark.parametrize("kind", POISON)
@pytest.mark.leaves_faults
async def test_what_a_foreign_hand_wrote_stops_no_other_schedule_and_says_what_is_wrong_with_it(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, kind: str
) -> None:
    store.now_ms = START_MS
    await register(
        engine, with_cron(cron(data=b"bad")), *(with_cron(cron(), name=f"good-{number}") for number in range(10))
    )
    [bad] = await listed(engine, "w")
    await redis("HSET", keys.cron_def, bad.schedule_id, POISON[kind])

    for second in (1, 2, 3):
        store.now_ms = START_MS + 1000 * second
        await engine.schedules.fire()

    counts = [len(await runs(redis, keys, f"good-{number}")) for number in range(10)]
    assert counts == [3] * 10
    assert await runs(redis, keys) == []
    [found] = await listed(engine, "w")
    assert (found.next_at_ms, found.problem != "") == (None, True)

    await register(engine, with_cron(cron(data=b"bad")))
    [found] = await listed(engine, "w")
    assert (found.next_at_ms, found.problem) == (START_MS + 4000, "")


async def test_several_gateways_at_once_start_one_run_for_each_occurrence(
    engine: Engine, store: Store, stores: Stores, redis: RedisCommand, keys: Keys
) -> None:
    others = [await stores.open() for _ in range(3)]
    gateways = [engine.schedules, *(Schedules(other, Telemetry()) for other in others)]
    store.now_ms = START_MS
    await register(engine, *(with_cron(cron(), name=f"w{number}") for number in range(10)))
    for second in range(1, 6):
        for one in (store, *others):
            one.now_ms = START_MS + 1000 * second
        await asyncio.gather(*(gateway.fire() for gateway in gateways))
    counts = Counter({f"w{number}": len(await runs(redis, keys, f"w{number}")) for number in range(10)})
    assert set(counts.values()) == {5}


# ---- in real time ----


async def test_two_gateways_start_one_run_for_each_second_in_real_time(
    start_gateway: StartGateway, redis: RedisCommand, keys: Keys
) -> None:
    gateways = [await start_gateway(), await start_gateway()]
    schedules = Schedules(gateways[0].store, gateways[0].telemetry)
    plan = await schedules.plan([with_cron(cron())])
    await gateways[0].store.register(Registration("owner-1", "build-1", (with_cron(cron()),), plan.schedules))
    first_ms = plan.schedules[0].next_at_ms

    async def has_four() -> bool:
        return len(await runs(redis, keys)) >= 4

    await eventually(has_four, within=10)

    run_ids = await runs(redis, keys)
    [schedule] = await schedules.list(["w"])
    created = [int((await record_of(redis, keys, run_id))["createdAt"]) for run_id in run_ids]
    assert schedule.last_at_ms is not None
    occurrences = (schedule.last_at_ms - first_ms) // 1000 + 1
    assert len(set(run_ids)) == len(run_ids)
    assert occurrences in (len(run_ids) + schedule.skipped, len(run_ids) + schedule.skipped + 1)
    assert all(at_ms >= first_ms for at_ms in created), "none comes early"
    if not schedule.skipped:
        assert [(at_ms - first_ms) // 1000 for at_ms in created] == list(range(len(created)))
    fired = sum(gateway.telemetry.counters["schedules.fired"] for gateway in gateways)
    assert fired in (occurrences - schedule.skipped, occurrences - schedule.skipped + 1)
