"""due_schedules: which cron schedules have come, as they stand on record, and when the next one comes."""

from __future__ import annotations

import pytest

from redflow_server.domain.registry import PlannedSchedule, Registration
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, a_schedule, a_workflow, everything
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def register(store: Store, *schedules: PlannedSchedule) -> None:
    await store.register(Registration("owner-1", "build-1", (a_workflow(),), schedules))


async def test_without_schedules_nothing_is_due_and_nothing_comes(store: Store) -> None:
    due = await store.due_schedules(10)
    assert (due.now_ms, due.schedules, due.next_at_ms) == (START_MS, (), None)


@pytest.mark.parametrize(("now_ms", "is_due"), [(START_MS + 999, False), (START_MS + 1000, True)])
async def test_a_schedule_is_due_from_its_occurrence_on(store: Store, now_ms: int, is_due: bool) -> None:
    schedule = a_schedule()
    await register(store, schedule)
    store.now_ms = now_ms
    found = await store.due_schedules(10)
    assert [(one.schedule_id, one.occurrence_ms, one.workflow, one.cron) for one in found.schedules] == (
        [("cron-1", START_MS + 1000, "w", schedule.cron)] if is_due else []
    )
    assert (found.now_ms, found.next_at_ms) == (now_ms, START_MS + 1000)


async def test_the_longest_due_come_first_and_no_more_than_asked_for(store: Store) -> None:
    await register(store, *(a_schedule(f"cron-{number}", START_MS - number) for number in range(5)))
    assert [one.schedule_id for one in (await store.due_schedules(3)).schedules] == ["cron-4", "cron-3", "cron-2"]
    assert (await store.due_schedules(0)).schedules == ()


async def test_reading_changes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    before = await everything(redis, keys)
    await store.due_schedules(10)
    assert await everything(redis, keys) == before


UNREADABLE = ("", "not JSON", "5", "[]", "null", "{}", '{"workflow":"w"}', "\\ud800", '{"a":' * 500)


@pytest.mark.parametrize("document", UNREADABLE)
@pytest.mark.leaves_faults
async def test_one_that_a_foreign_hand_made_unreadable_is_due_without_a_definition_beside_the_others(
    store: Store, redis: RedisCommand, keys: Keys, document: str
) -> None:
    await register(store, a_schedule("bad", START_MS), a_schedule("good", START_MS))
    await redis("HSET", keys.cron_def, "bad", document)
    found = {one.schedule_id: one for one in (await store.due_schedules(10)).schedules}
    assert (found["bad"].cron, found["bad"].document) == (None, document.encode())
    assert found["good"].cron is not None


@pytest.mark.leaves_faults
async def test_one_whose_definition_is_gone_is_due_without_it(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule(next_at_ms=START_MS))
    await redis("DEL", keys.cron_def)
    [due] = (await store.due_schedules(10)).schedules
    assert (due.cron, due.document) == (None, b"")
