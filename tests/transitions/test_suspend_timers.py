"""suspend: a run that sleeps, for a while or until a time, and goes on then, whatever happens meanwhile."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, Outcome, Suspended
from redflow_server.domain.runs import WaitingKind
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.waits import Wait
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Passed
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    Places,
    a_failed_attempt,
    claim_one,
    everything,
    let_leases_expire,
    memory_is_full,
    places,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import SLEEP_MS, a_sleep, a_sleep_until, a_suspension, a_wait, read_step, some_waits

WAITING: Final = Suspended(Outcome.OK, RunStatus.WAITING)
DAY_MS: Final = 24 * 3600 * 1000
YEAR_1_MS: Final = -62_135_596_800_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def suspend_one(store: Store, *waits: Wait) -> ClaimedRun:
    """A run of lane `w` that waits."""
    lease = await start_one(store)
    assert await store.suspend(a_suspension(lease, *waits)) == WAITING
    return lease


async def status_at(store: Store, run_id: str, at_ms: int) -> RunStatus:
    """Goes to a time and fires the timers."""
    store.now_ms = at_ms
    await store.fire_timers(100)
    return (await store.read_run(run_id)).status


async def test_a_run_that_sleeps_has_no_lease_and_stands_nowhere(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await suspend_one(store, a_sleep())
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("waiting",))


@pytest.mark.parametrize("wait", [a_sleep(), a_sleep_until(START_MS + SLEEP_MS)], ids=["for a while", "until a time"])
async def test_it_goes_on_when_the_time_has_come_and_not_before(store: Store, wait: Wait) -> None:
    lease = await suspend_one(store, wait)
    assert await status_at(store, lease.run_id, START_MS + SLEEP_MS - 1) is RunStatus.WAITING
    assert await status_at(store, lease.run_id, START_MS + SLEEP_MS) is RunStatus.QUEUED

    again = await claim_one(store)
    assert (again.run_id, again.attempt) == (lease.run_id, 1)
    [step] = again.steps or ()
    assert (step.name, step.kind, step.status, step.output) == ("sleep", StepKind.TIMER, StepStatus.SUCCEEDED, None)
    assert (step.started_at_ms, step.finished_at_ms, step.is_final) == (START_MS, START_MS + SLEEP_MS, True)


async def test_it_says_since_when_and_until_when_it_sleeps(store: Store) -> None:
    lease = await suspend_one(store, a_sleep("nap"))
    [waiting_for] = (await store.read_run(lease.run_id)).waiting_for
    assert (waiting_for.kind, waiting_for.step_name) == (WaitingKind.TIMER, "nap")
    assert (waiting_for.since_ms, waiting_for.until_ms) == (START_MS, START_MS + SLEEP_MS)


async def test_a_sleep_of_years_is_kept_to_the_millisecond(store: Store) -> None:
    years_ms = 20 * 365 * DAY_MS + 1
    lease = await suspend_one(store, a_sleep(ms=years_ms))
    assert (await store.due(0)).timer_at_ms == START_MS + years_ms
    assert await status_at(store, lease.run_id, START_MS + years_ms - 1) is RunStatus.WAITING
    assert await status_at(store, lease.run_id, START_MS + years_ms) is RunStatus.QUEUED


@pytest.mark.parametrize(
    "wait",
    [a_sleep(ms=0), *(a_sleep_until(at_ms) for at_ms in (START_MS, START_MS - DAY_MS, 0, -DAY_MS, YEAR_1_MS))],
    ids=["no time", "now", "yesterday", "1970", "1969", "year 1"],
)
async def test_a_time_that_has_come_is_over_at_once_and_keeps_the_lease(
    store: Store, redis: RedisCommand, keys: Keys, wait: Wait
) -> None:
    lease = await start_one(store)
    answer = await store.suspend(a_suspension(lease, wait))
    [step] = answer.resolutions
    assert (answer.outcome, step.name, step.status) == (Outcome.RESOLVED, "sleep", StepStatus.SUCCEEDED)
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    assert (await store.due(0)).timer_at_ms is None


async def test_gateways_hear_of_the_earliest_time(store: Store, keys: Keys, redis_url: str) -> None:
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await suspend_one(store, a_sleep(ms=SLEEP_MS))
        assert f"due timers {START_MS + SLEEP_MS}" in await messages.so_far()
        await suspend_one(store, a_sleep(ms=SLEEP_MS + 1))
        assert not [word for word in await messages.so_far() if word.startswith("due timers")]
        await suspend_one(store, a_sleep(ms=SLEEP_MS - 1))
        assert f"due timers {START_MS + SLEEP_MS - 1}" in await messages.so_far()


# ---- when a time is fixed ----


async def test_the_first_registration_fixes_the_time_also_for_later_deliveries(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, a_sleep()))
    await let_leases_expire(store)
    again = await claim_one(store)
    store.now_ms = (store.now_ms or 0) + 1

    await store.suspend(a_suspension(again, a_sleep(ms=DAY_MS)))

    assert (await store.due(0)).timer_at_ms == START_MS + SLEEP_MS


async def test_a_sleep_goes_on_through_the_attempts_of_its_run(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.step_wait(some_waits(lease, a_sleep(ms=DAY_MS)))
    await store.fail(a_failed_attempt(lease))
    store.now_ms = START_MS + 1000
    await store.promote(10)
    again = await claim_one(store)
    assert await store.suspend(a_suspension(again, a_sleep(ms=DAY_MS))) == WAITING
    assert await status_at(store, lease.run_id, START_MS + DAY_MS) is RunStatus.QUEUED


async def test_a_sleep_that_was_over_in_one_attempt_is_over_in_the_next(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.step_wait(some_waits(lease, a_sleep()))
    await store.fail(a_failed_attempt(lease))
    store.now_ms = START_MS + SLEEP_MS
    await store.fire_timers(10)
    assert (await store.read_run(lease.run_id)).status is RunStatus.SCHEDULED, "it is still its turn to wait"
    await store.promote(10)

    answer = await store.suspend(a_suspension(await claim_one(store), a_sleep()))

    assert (answer.outcome, [step.name for step in answer.resolutions]) == (Outcome.RESOLVED, ["sleep"])


# ---- several waits ----


async def test_the_shortest_of_several_sleeps_wakes_the_run_and_the_others_go_on(store: Store) -> None:
    lease = await suspend_one(store, a_sleep("long", DAY_MS), a_sleep("short"), a_wait("child"))
    assert await status_at(store, lease.run_id, START_MS + SLEEP_MS) is RunStatus.QUEUED
    steps = (await claim_one(store)).steps or ()
    assert {step.name: step.status for step in steps} == {
        "long": StepStatus.WAITING,
        "short": StepStatus.SUCCEEDED,
        "child": StepStatus.WAITING,
    }
    assert (await store.due(0)).timer_at_ms == START_MS + DAY_MS


async def test_sleeps_of_one_length_are_over_in_one_pass_and_numbered(store: Store) -> None:
    lease = await suspend_one(store, *(a_sleep(f"nap {number}") for number in range(3)))
    assert await status_at(store, lease.run_id, START_MS + SLEEP_MS) is RunStatus.QUEUED
    numbers = [step.resolved_seq for step in await store.read_steps(lease.run_id, 100)]
    assert sorted(numbers) == [1, 2, 3]


# ---- ends, refusals, repeats ----


async def test_a_run_that_is_canceled_sleeps_no_longer(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await suspend_one(store, a_sleep())
    await request_cancel(store, lease.run_id)
    assert (await read_step(store, lease.run_id, "sleep")).status is StepStatus.WITHDRAWN
    assert await redis("EXISTS", keys.timers, keys.waits(lease.run_id)) == 0
    store.now_ms = START_MS + SLEEP_MS
    assert await store.fire_timers(100) == Passed(0, None)


async def test_a_repeated_suspension_sleeps_no_longer_and_no_shorter(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    suspension = a_suspension(lease, a_sleep())
    await store.suspend(suspension)
    store.now_ms = START_MS + 1000
    before = await everything(redis, keys)
    assert await store.suspend(suspension) == Suspended(Outcome.DUPLICATE, RunStatus.WAITING)
    assert await everything(redis, keys) == before


async def test_a_run_goes_to_sleep_and_wakes_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    async with memory_is_full(redis):
        assert await store.suspend(a_suspension(lease, a_sleep())) == WAITING
        assert await status_at(store, lease.run_id, START_MS + SLEEP_MS) is RunStatus.QUEUED
