"""fire_schedule: one run for each occurrence, whoever fires it, however often, and however the clock goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import PlannedSchedule, Registration
from redflow_server.domain.schedules import DueSchedule, Occurrence
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    START_MS,
    Changes,
    Messages,
    a_schedule,
    a_workflow,
    everything,
    memory_is_full,
    places,
    record_of,
)
from tests.engine.conftest import stores  # noqa: F401  # a fixture
from tests.engine.parts import Stores
from tests.redis_command import RedisCommand

FIRST_MS: Final = START_MS + 1000


@pytest.fixture(autouse=True)
def _stand_at_the_first_occurrence(store: Store) -> None:
    store.now_ms = FIRST_MS


async def register(store: Store, *schedules: PlannedSchedule) -> None:
    workflow = a_workflow(queue="q", max_attempts=3, start_timeout_ms=9_000)
    await store.register(Registration("owner-1", "build-1", (workflow,), schedules))


async def the_due_one(store: Store) -> DueSchedule:
    [due] = (await store.due_schedules(10)).schedules
    return due


def an_occurrence(due: DueSchedule, **changes: Changes) -> Occurrence:
    """The occurrence that is due; the next one a second later."""
    assert due.cron is not None
    run_id, next_at_ms = f"run_{due.occurrence_ms}", due.occurrence_ms + 1000
    return replace(Occurrence(due, due.workflow, due.cron, run_id, next_at_ms, skipped=0), **changes)


async def queued(redis: RedisCommand, keys: Keys) -> list[str]:
    found: list[str] = await redis("ZRANGE", keys.status("queued"), 0, -1)
    return found


# ---- what is started ----


async def test_an_occurrence_starts_a_run_as_the_workflow_says_and_the_next_one_is_planned(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    assert await store.fire_schedule(an_occurrence(await the_due_one(store)))

    [run_id] = await queued(redis, keys)
    run = await record_of(redis, keys, run_id)
    assert (run["workflow"], run["queue"], run["maxAttempts"], run["attempt"]) == ("w", "q", "3", "0")
    assert (await places(redis, keys, run_id)).lanes == ("1:q:1:w",)
    assert await redis("ZSCORE", keys.deadlines, run_id) == FIRST_MS + 9_000
    [schedule] = await store.read_schedules(["w"])
    assert (schedule.last_at_ms, schedule.next_at_ms, schedule.skipped) == (FIRST_MS, FIRST_MS + 1000, 0)


@pytest.mark.parametrize("data", [None, *AWKWARD_BYTES.values()], ids=["none", *AWKWARD_BYTES])
async def test_the_run_has_the_input_of_the_schedule_byte_for_byte(store: Store, data: bytes | None) -> None:
    payload = None if data is None else Payload(data, "x/y", (("k", "é"),))
    await register(store, a_schedule(input=payload))
    occurrence = an_occurrence(await the_due_one(store))
    await store.fire_schedule(occurrence)
    run = await store.read_run(occurrence.run_id)
    assert run is not None
    assert run.input == (payload or Payload(b"{}"))


async def test_the_filled_lane_and_the_next_occurrence_are_made_known(store: Store, redis_url: str, keys: Keys) -> None:
    await register(store, a_schedule())
    occurrence = an_occurrence(await the_due_one(store))
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.fire_schedule(occurrence)
        heard = await messages.so_far()
    assert f"lane {1000 * FIRST_MS} 1:q:1:w" in heard
    assert heard[-1] == f"due cron {FIRST_MS + 1000}"


# ---- once ----


async def test_fired_again_it_starts_nothing_and_changes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_schedule())
    occurrence = an_occurrence(await the_due_one(store))
    assert await store.fire_schedule(occurrence)
    before = await everything(redis, keys)
    assert not await store.fire_schedule(occurrence)
    assert await everything(redis, keys) == before


async def test_several_gateways_at_once_fire_each_occurrence_once(
    store: Store,
    redis: RedisCommand,
    keys: Keys,
    stores: Stores,  # noqa: F811  # the fixture
) -> None:
    gateways = [store, *[await stores.open() for _ in range(4)]]
    await register(store, *(a_schedule(f"cron-{number}", FIRST_MS) for number in range(20)))

    async def fire_all(gateway: Store) -> int:
        gateway.now_ms = FIRST_MS
        due = (await gateway.due_schedules(100)).schedules
        fired = await asyncio.gather(
            *(
                gateway.fire_schedule(an_occurrence(one, run_id=f"run_{one.schedule_id}_{one.occurrence_ms}"))
                for one in due
            )
        )
        return sum(fired)

    assert sum(await asyncio.gather(*(fire_all(gateway) for gateway in gateways))) == 20
    assert len(await queued(redis, keys)) == 20


async def test_a_clock_that_is_set_back_fires_no_occurrence_again_and_forth_none_is_left_out(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    for _ in range(3):
        occurrence = an_occurrence(await the_due_one(store))
        assert await store.fire_schedule(occurrence)
        store.now_ms = occurrence.next_at_ms
    assert store.now_ms == FIRST_MS + 3000

    store.now_ms = FIRST_MS + 500
    assert (await store.due_schedules(10)).schedules == ()
    store.now_ms = FIRST_MS + 3000
    assert await store.fire_schedule(an_occurrence(await the_due_one(store)))
    assert len(await queued(redis, keys)) == 4


async def test_a_schedule_planned_anew_by_a_clock_that_was_set_back_fires_only_what_was_not_fired(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule(expression="* * * * *"))
    await store.fire_schedule(an_occurrence(await the_due_one(store), next_at_ms=FIRST_MS + 60_000))
    # Its times change while the clock is an hour back: occurrences up to the last one were fired before.
    store.now_ms = FIRST_MS - 2000
    await register(store, a_schedule(next_at_ms=FIRST_MS - 1000))
    fired = []
    for _ in range(4):
        store.now_ms = (await store.read_schedules(["w"]))[0].next_at_ms
        occurrence = an_occurrence(await the_due_one(store), run_id=f"run_{store.now_ms}x")
        fired.append(await store.fire_schedule(occurrence))
    assert fired == [False, False, True, True]
    assert len(await queued(redis, keys)) == 3


async def test_a_definition_that_was_replaced_since_it_was_read_is_not_fired_with_the_old_input(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule(input=Payload(b"old")))
    old = an_occurrence(await the_due_one(store))
    await register(store, a_schedule(input=Payload(b"new")))

    assert not await store.fire_schedule(old)
    assert await queued(redis, keys) == []

    assert await store.fire_schedule(an_occurrence(await the_due_one(store)))
    run = await store.read_run(old.run_id)
    assert run is not None
    assert run.input == Payload(b"new")


async def test_a_schedule_that_was_removed_since_it_was_read_is_not_fired(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    occurrence = an_occurrence(await the_due_one(store))
    await register(store)
    before = await everything(redis, keys)
    assert not await store.fire_schedule(occurrence)
    assert await everything(redis, keys) == before


async def test_an_occurrence_that_is_no_longer_the_planned_one_is_not_fired(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    occurrence = an_occurrence(await the_due_one(store))
    # Removed and added again, it is the same to the letter, but comes later.
    await register(store)
    await register(store, a_schedule(next_at_ms=FIRST_MS + 5000))
    before = await everything(redis, keys)
    assert not await store.fire_schedule(occurrence)
    assert await everything(redis, keys) == before


# ---- late, full, foreign ----


async def test_occurrences_that_passed_without_a_run_are_counted(store: Store) -> None:
    await register(store, a_schedule())
    store.now_ms = FIRST_MS + 5500
    await store.fire_schedule(an_occurrence(await the_due_one(store), next_at_ms=FIRST_MS + 6000, skipped=5))
    store.now_ms = FIRST_MS + 9000
    await store.fire_schedule(an_occurrence(await the_due_one(store), next_at_ms=FIRST_MS + 10_000, skipped=3))
    [schedule] = await store.read_schedules(["w"])
    assert (schedule.skipped, schedule.last_at_ms, schedule.next_at_ms) == (8, FIRST_MS + 6000, FIRST_MS + 10_000)


async def test_when_memory_is_full_nothing_is_started_and_the_occurrence_stays_due(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    occurrence = an_occurrence(await the_due_one(store))
    before = await everything(redis, keys)

    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await store.fire_schedule(occurrence)

    assert await everything(redis, keys) == before
    assert await store.fire_schedule(occurrence)
    assert await queued(redis, keys) == [occurrence.run_id]


async def test_an_occurrence_whose_run_could_not_be_written_is_fired_when_it_can(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    occurrence = an_occurrence(await the_due_one(store))
    await redis("SET", keys.data(occurrence.run_id), "not a hash")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await store.fire_schedule(occurrence)

    await redis("DEL", keys.data(occurrence.run_id))
    assert await store.fire_schedule(occurrence)
    assert await queued(redis, keys) == [occurrence.run_id]


async def test_a_schedule_whose_workflow_somebody_deleted_starts_nothing_and_goes_on(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_schedule())
    await redis("DEL", keys.workflow("w"))
    await store.fire_schedule(an_occurrence(await the_due_one(store)))
    assert await queued(redis, keys) == []
    assert (await store.due_schedules(10)).next_at_ms == FIRST_MS + 1000
    await register(store, a_schedule())
