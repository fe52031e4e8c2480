"""stall_schedule: what cannot be evaluated leaves the plan, says why, and comes back when it is registered anew."""

from __future__ import annotations

import pytest

from redflow_server.domain.registry import PlannedSchedule, Registration
from redflow_server.domain.schedules import DueSchedule
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, a_schedule, a_workflow, everything, memory_is_full
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def register(store: Store, *schedules: PlannedSchedule) -> None:
    await store.register(Registration("owner-1", "build-1", (a_workflow(),), schedules))


async def the_due_one(store: Store) -> DueSchedule:
    [due] = (await store.due_schedules(10)).schedules
    return due


async def test_it_is_no_longer_due_and_its_problem_is_listed(store: Store) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    await store.stall_schedule(await the_due_one(store), "no such zone: é")
    due = await store.due_schedules(10)
    assert (due.schedules, due.next_at_ms) == ((), None)
    [listed] = await store.read_schedules(["w"])
    assert (listed.problem, listed.next_at_ms) == ("no such zone: é", None)


async def test_registered_again_it_is_planned_again_without_the_problem(store: Store) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    await store.stall_schedule(await the_due_one(store), "no such zone")
    await register(store, a_schedule(next_at_ms=START_MS + 5000))
    [listed] = await store.read_schedules(["w"])
    assert (listed.problem, listed.next_at_ms) == ("", START_MS + 5000)


@pytest.mark.parametrize("change", ["planned anew", "removed", "stalled before"])
async def test_one_that_has_changed_since_it_was_read_is_left_alone(
    store: Store, redis: RedisCommand, keys: Keys, change: str
) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    due = await the_due_one(store)
    match change:
        case "planned anew":
            await register(store, a_schedule(next_at_ms=START_MS + 5000, expression="@daily"))
        case "removed":
            await register(store)
        case _:
            await store.stall_schedule(due, "the first reason")
    before = await everything(redis, keys)
    await store.stall_schedule(due, "no such zone")
    assert await everything(redis, keys) == before


async def test_it_leaves_the_plan_also_when_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    due = await the_due_one(store)
    async with memory_is_full(redis):
        await store.stall_schedule(due, "no such zone")
    assert (await store.due_schedules(10)).schedules == ()


async def test_its_problem_goes_with_it(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    await store.stall_schedule(await the_due_one(store), "no such zone")
    await register(store)
    assert await redis("EXISTS", keys.cron_problem) == 0
