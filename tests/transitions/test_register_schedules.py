"""register, where workflows have cron schedules: what is planned, what stays as it was planned, and what goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import PlannedSchedule, Registration, WorkflowDefinition
from redflow_server.domain.schedules import Occurrence, Schedule
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, Messages, a_schedule, a_workflow, everything
from tests.redis_command import RedisCommand

STALE_MS: Final = 30_000
DAY_MS: Final = 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def register(store: Store, *schedules: PlannedSchedule, build: str = "build-1") -> None:
    """Registers workflow `w` with these schedules."""
    await store.register(Registration("owner-1", build, (a_workflow(),), schedules))


async def retire(store: Store) -> None:
    """The owner registers another set, when nobody has asserted `w` for long enough."""
    store.now_ms = (store.now_ms or 0) + STALE_MS
    await store.register(Registration("owner-1", "build-2", (a_workflow(name="other"),)))


async def listed(store: Store, workflow: str = "w") -> dict[str, Schedule]:
    return {schedule.schedule_id: schedule for schedule in await store.read_schedules([workflow])}


async def planned(redis: RedisCommand, keys: Keys) -> dict[str, int]:
    """When the next occurrence of each schedule is."""
    flat = await redis("ZRANGE", keys.cron_next, 0, -1, "WITHSCORES")
    pairs = flat if flat and isinstance(flat[0], list | tuple) else zip(flat[::2], flat[1::2], strict=True)
    return {name: int(float(at)) for name, at in pairs}


async def fire(store: Store, next_at_ms: int) -> None:
    """Fires the one schedule that is due."""
    [due] = (await store.due_schedules(10)).schedules
    assert due.cron is not None
    assert await store.fire_schedule(Occurrence(due, due.workflow, due.cron, f"run_{due.occurrence_ms}", next_at_ms, 0))


async def test_a_schedule_is_planned_for_the_occurrence_that_comes_with_it(store: Store) -> None:
    schedule = a_schedule(expression="0 9 * * 1-5", timezone="Europe/Berlin")
    await register(store, schedule)
    assert await listed(store) == {
        "cron-1": Schedule("cron-1", "w", schedule.cron, START_MS + 1000, None, skipped=0, problem="")
    }


@pytest.mark.parametrize("data", [None, b"null", b"{}", b"\x00\xff", b""])
async def test_its_input_is_kept_byte_for_byte_and_none_is_not_null(store: Store, data: bytes | None) -> None:
    schedule = a_schedule(input=None if data is None else Payload(data, "x/y", (("k", "v"),)))
    await register(store, schedule)
    assert (await listed(store))["cron-1"].cron == schedule.cron


async def test_registering_again_keeps_the_occurrence_that_is_planned(store: Store) -> None:
    await register(store, a_schedule())
    store.now_ms = START_MS + 1500
    await register(store, a_schedule(next_at_ms=START_MS + 2000))
    assert (await listed(store))["cron-1"].next_at_ms == START_MS + 1000, "the one that is due is not dropped"


@pytest.mark.parametrize("change", [{"expression": "*/2 * * * * *"}, {"timezone": "Europe/Berlin"}])
async def test_a_change_of_its_times_plans_it_anew(store: Store, change: dict[str, str]) -> None:
    await register(store, a_schedule())
    await register(store, a_schedule(next_at_ms=START_MS + 7000, **change))
    assert (await listed(store))["cron-1"].next_at_ms == START_MS + 7000


async def test_a_change_of_its_input_alone_keeps_its_times_and_takes_the_input(store: Store) -> None:
    await register(store, a_schedule(input=Payload(b"1")))
    await register(store, a_schedule(next_at_ms=START_MS + 7000, input=Payload(b"2")))
    found = (await listed(store))["cron-1"]
    assert (found.next_at_ms, found.cron.input) == (START_MS + 1000, Payload(b"2"))


async def test_a_schedule_that_is_left_out_is_gone_and_the_others_stay(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule("cron-1"), a_schedule("cron-2", next_at_ms=START_MS + 2000))
    await register(store, a_schedule("cron-2", next_at_ms=START_MS + 9000))
    assert await planned(redis, keys) == {"cron-2": START_MS + 2000}
    assert list(await listed(store)) == ["cron-2"]
    assert await redis("HKEYS", keys.cron_def) == ["cron-2"]


async def test_without_any_schedule_nothing_is_left_of_them(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store)
    before = await everything(redis, keys)
    await register(store, a_schedule())
    await register(store)
    after = await everything(redis, keys)
    assert after.keys() == before.keys()


async def test_a_schedule_that_is_listed_twice_is_one(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule(), a_schedule())
    assert len(await store.read_schedules(["w"])) == 1
    assert await planned(redis, keys) == {"cron-1": START_MS + 1000}


async def test_removed_and_added_again_within_moments_it_fires_no_occurrence_twice(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    store.now_ms = START_MS + 1000
    await fire(store, START_MS + 2000)

    store.now_ms = START_MS + 1025
    await register(store)
    store.now_ms = START_MS + 950  # the clock was set back in between
    await register(store, a_schedule(next_at_ms=START_MS + 1000))
    store.now_ms = START_MS + 1050
    [due] = (await store.due_schedules(10)).schedules
    assert due.cron is not None
    fired = await store.fire_schedule(Occurrence(due, "w", due.cron, "run_again", START_MS + 2000, 0))

    assert not fired
    assert await redis("EXISTS", keys.run("run_again")) == 0
    assert await planned(redis, keys) == {"cron-1": START_MS + 2000}


async def test_the_last_occurrence_of_a_schedule_that_is_gone_is_remembered_for_a_day(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    store.now_ms = START_MS + 1000
    await fire(store, START_MS + 2000)
    await register(store)

    store.now_ms = START_MS + 1000 + DAY_MS - 1
    await store.assert_registry([])
    assert await redis("ZSCORE", keys.cron_last, "cron-1") is not None
    store.now_ms += 1
    await store.assert_registry([])
    assert await redis("EXISTS", keys.cron_last) == 0


async def test_the_last_occurrence_of_a_schedule_in_force_is_remembered_however_old(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    store.now_ms = START_MS + 1000
    await fire(store, START_MS + 400 * DAY_MS)
    store.now_ms = START_MS + 300 * DAY_MS
    await store.assert_registry([])
    assert (await listed(store))["cron-1"].last_at_ms == START_MS + 1000


async def test_a_retired_workflow_loses_its_schedules(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule("cron-1"), a_schedule("cron-2"))
    await retire(store)
    assert await store.read_schedules(["w"]) == ()
    for key in (keys.cron_def, keys.cron_next, keys.cron_skipped, keys.cron_problem):
        assert await redis("EXISTS", key) == 0


async def test_another_owner_that_takes_a_stale_name_brings_its_own_schedules(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule("cron-1"))
    store.now_ms = START_MS + STALE_MS
    await store.register(Registration("owner-2", "b", (a_workflow(),), (a_schedule("cron-2"),)))
    assert await redis("HKEYS", keys.cron_def) == ["cron-2"]
    assert list(await planned(redis, keys)) == ["cron-2"]


@pytest.mark.parametrize("rival", ["another owner", "an older build"])
async def test_a_registration_that_is_refused_changes_no_schedule(store: Store, rival: str) -> None:
    if rival == "an older build":
        await store.register(Registration("owner-1", "build-0", (a_workflow(digest="old"),)))
    store.now_ms = START_MS + 1
    await store.register(Registration("owner-1", "build-1", (a_workflow(digest="new"),), (a_schedule(),)))
    before = await listed(store)

    owner, build = ("owner-1", "build-0") if rival == "an older build" else ("owner-2", "build-9")
    late: WorkflowDefinition = replace(a_workflow(), digest="old")
    await store.register(Registration(owner, build, (late,), (a_schedule("cron-2", expression="@daily"),)))

    assert await listed(store) == before


async def test_many_registrations_at_once_leave_each_schedule_once(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    schedules = [a_schedule(f"cron-{number}") for number in range(10)]
    await asyncio.gather(*(register(store, *schedules) for _ in range(20)))
    assert await planned(redis, keys) == dict.fromkeys((one.schedule_id for one in schedules), START_MS + 1000)
    assert len(await store.read_schedules(["w"])) == 10


async def test_an_earlier_next_occurrence_is_made_known(store: Store, redis_url: str, keys: Keys) -> None:
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await register(store, a_schedule(), a_schedule("cron-2", next_at_ms=START_MS + 5000))
        assert await messages.so_far() == [f"due cron {START_MS + 1000}"]
    assert (await store.due(0)).cron_at_ms == START_MS + 1000


@pytest.mark.parametrize("document", ["", "not JSON", "5", "[]", '{"timing":5}', "null"])
async def test_registering_heals_what_a_foreign_hand_wrote_over_a_schedule(
    store: Store, redis: RedisCommand, keys: Keys, document: str
) -> None:
    await register(store, a_schedule())
    await redis("HSET", keys.cron_def, "cron-1", document)
    await register(store, a_schedule(next_at_ms=START_MS + 3000))
    found = (await listed(store))["cron-1"]
    assert (found.cron, found.next_at_ms, found.problem) == (a_schedule().cron, START_MS + 3000, "")
