"""fire_timers: a wait whose time has come is over, as what it is: a sleep, an event that did not come, a late run."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.errors import NotWaiting
from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.leases import ClaimedRun, StopReason
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import Wait
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Passed
from redflow_server.store.store import Store
from tests.builders import (
    STAMP,
    START_MS,
    Messages,
    a_completion,
    a_failed_attempt,
    an_event,
    claim_one,
    every_state_but,
    everything,
    lane_of,
    memory_is_full,
    over,
    places,
    put_in_state,
    record_of,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    SLEEP_MS,
    a_completed_token,
    a_parking,
    a_sleep,
    a_suspension,
    a_token_wait,
    a_wait,
    a_wait_for,
    an_event_wait,
    child_id,
    in_race,
    read_step,
    some_waits,
    token_of,
    with_timeout,
)

DUE_MS: Final = START_MS + SLEEP_MS


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def waiting_one(store: Store, *waits: Wait) -> ClaimedRun:
    """A run of lane `w` that waits."""
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *waits))
    assert await status_of(store, lease.run_id) is RunStatus.WAITING
    return lease


async def status_of(store: Store, run_id: str) -> RunStatus:
    return (await store.read_run(run_id)).status


async def fire_at(store: Store, at_ms: int, limit: int = 100) -> Passed:
    store.now_ms = at_ms
    return await store.fire_timers(limit)


async def test_nothing_to_fire_is_said_so(store: Store, redis: RedisCommand, keys: Keys) -> None:
    assert await store.fire_timers(100) == Passed(0, None)
    assert await everything(redis, keys) == {}


async def test_a_wait_is_left_alone_before_its_time_and_over_in_the_millisecond_of_it(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await waiting_one(store, a_sleep())
    before = await everything(redis, keys)
    assert await fire_at(store, DUE_MS - 1) == Passed(0, DUE_MS)
    assert await everything(redis, keys) == before

    assert await fire_at(store, DUE_MS) == Passed(1, None)

    assert await lane_of(redis, keys) == [lease.run_id]
    assert (await read_step(store, lease.run_id, "sleep")).finished_at_ms == DUE_MS
    assert await fire_at(store, DUE_MS) == Passed(0, None)


async def test_the_earliest_come_first_as_many_as_were_asked_for(store: Store) -> None:
    runs = [await waiting_one(store, a_sleep(ms=SLEEP_MS + number)) for number in (4, 2, 0, 1, 3)]
    assert await fire_at(store, DUE_MS + 10, limit=2) == Passed(2, DUE_MS + 2)
    woken = [run.run_id for run in runs if await status_of(store, run.run_id) is RunStatus.QUEUED]
    assert woken == [runs[2].run_id, runs[3].run_id]
    assert await store.fire_timers(2) == Passed(2, DUE_MS + 4)
    assert await store.fire_timers(2) == Passed(1, None)


# ---- what a wait comes to ----


async def test_an_event_that_did_not_come_in_time_is_nothing_and_comes_for_the_next_wait(store: Store) -> None:
    lease = await waiting_one(store, with_timeout(an_event_wait("first")))
    await fire_at(store, DUE_MS)
    again = await claim_one(store)
    [step] = again.steps or ()
    assert (step.status, step.output, step.failure, step.event_id) == (StepStatus.SUCCEEDED, None, None, "")

    event = an_event()
    await store.emit_event(event)

    assert await read_step(store, lease.run_id, "first") == step
    answer = await store.suspend(a_suspension(again, an_event_wait("second"), steps_recorded=1))
    assert [(found.name, found.event_id) for found in answer.resolutions] == [("second", event.event_id)]


async def test_a_run_that_took_too_long_is_a_failure_of_the_step_and_ends(store: Store) -> None:
    wait = with_timeout(a_wait("slow"))
    lease = await waiting_one(store, wait)

    await fire_at(store, DUE_MS)

    step = await read_step(store, lease.run_id, "slow")
    message = f'step "slow" has waited for run {child_id(wait)} longer than its time-out'
    assert (step.status, step.failure) == (
        StepStatus.FAILED,
        Failure("TimeoutError", message, FailureKind.TIMEOUT),
    )
    assert (step.is_final, step.child_run_id) == (True, child_id(wait))
    assert await status_of(store, lease.run_id) is RunStatus.QUEUED
    assert await status_of(store, child_id(wait)) is RunStatus.CANCELED


async def test_a_run_that_took_too_long_and_that_a_worker_has_is_told_to_stop(
    store: Store, keys: Keys, redis_url: str
) -> None:
    lease = await waiting_one(store, with_timeout(a_wait("slow")))
    child = await claim_one(store, CHILD_LANE)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await fire_at(store, DUE_MS)
        [order] = await messages.so_far()
    assert order.startswith(f"stop {child.lease_token} {StopReason.PARENT} ")
    await store.complete(a_completion(child))
    assert (await read_step(store, lease.run_id, "slow")).status is StepStatus.FAILED, "what was decided stays"


async def test_a_run_that_took_too_long_for_one_goes_on_for_another_and_when_it_was_not_started_for_it(
    store: Store,
) -> None:
    own, other = with_timeout(a_wait("own")), a_wait("other")
    lease = await waiting_one(store, own)
    second = await waiting_one(store, a_wait_for(child_id(own)), other)
    await waiting_one(store, with_timeout(a_wait_for(child_id(other))))

    await fire_at(store, DUE_MS)

    assert await status_of(store, lease.run_id) is RunStatus.QUEUED
    assert await status_of(store, second.run_id) is RunStatus.WAITING
    for child in (own, other):
        assert await status_of(store, child_id(child)) is RunStatus.QUEUED


async def test_a_token_that_nobody_completed_in_time_is_a_failure_and_can_no_longer_be_completed(store: Store) -> None:
    lease = await start_one(store)
    wait = with_timeout(a_token_wait(lease, 'ask "her"'))
    await store.suspend(a_suspension(lease, wait))

    await fire_at(store, DUE_MS)

    step = await read_step(store, lease.run_id, wait.name)
    message = 'step "ask "her"" has waited for its token longer than its time-out'
    assert step.failure == Failure("TimeoutError", message, FailureKind.TIMEOUT)
    with pytest.raises(NotWaiting):
        await store.complete_token(a_completed_token(token_of(wait)))


async def test_a_time_that_has_come_decides_the_race_that_it_is_in(store: Store) -> None:
    rival = a_wait("rival")
    lease = await waiting_one(store, *in_race(a_sleep(), rival), a_wait("beside"))
    await fire_at(store, DUE_MS)
    statuses = {step.name: step.status for step in await store.read_steps(lease.run_id, 100)}
    assert statuses == {
        "sleep": StepStatus.SUCCEEDED,
        "rival": StepStatus.WITHDRAWN,
        "beside": StepStatus.WAITING,
    }
    assert await status_of(store, child_id(rival)) is RunStatus.CANCELED


async def test_a_wait_that_has_ended_before_has_no_time_left(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    token, event, child = a_token_wait(lease), an_event_wait("event"), a_wait("child")
    await store.suspend(a_suspension(lease, *(with_timeout(wait) for wait in (token, event, child))))
    await store.complete_token(a_completed_token(token_of(token)))
    await store.emit_event(an_event())
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    assert await fire_at(store, DUE_MS) == Passed(0, None)
    assert {step.status for step in await store.read_steps(lease.run_id, 100)} == {StepStatus.SUCCEEDED}


# ---- where its run is ----


async def test_a_run_that_a_worker_has_stays_there_and_its_gateway_is_told(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    at_work, parked = await start_one(store), await start_one(store)
    await store.step_wait(some_waits(at_work, a_sleep("a nap")))
    await store.suspend(a_parking(parked, a_sleep("another")))
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        assert (await fire_at(store, DUE_MS)).count == 2
        told = {over(message) for message in await messages.so_far()}
    assert told == {f"{at_work.lease_token} a nap", f"{parked.lease_token} another"}
    for lease in (at_work, parked):
        assert (await places(redis, keys, lease.run_id)).statuses == ("running",)


async def test_a_run_that_backs_off_does_so_all_the_same(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.step_wait(some_waits(lease, a_sleep(ms=10)))
    await store.fail(a_failed_attempt(lease))
    await fire_at(store, START_MS + 10)
    assert await status_of(store, lease.run_id) is RunStatus.SCHEDULED
    assert (await read_step(store, lease.run_id, "sleep")).status is StepStatus.SUCCEEDED


async def test_a_run_that_has_ended_gets_no_outcome_of_the_waits_that_it_has_left(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    waits = [a_sleep(f"step {number}") for number in range(150)]
    await store.step_wait(some_waits(lease, *waits[:100]))
    await store.suspend(a_suspension(lease, *waits[100:]))
    await request_cancel(store, lease.run_id)
    assert await redis("HLEN", keys.waits(lease.run_id)) == 50, "more than one script withdraws"
    before = await record_of(redis, keys, lease.run_id)

    assert await fire_at(store, DUE_MS) == Passed(50, None)

    assert {step.status for step in await store.read_steps(lease.run_id, 100)} == {StepStatus.WITHDRAWN}
    assert await record_of(redis, keys, lease.run_id) == before
    await store.apply_outbox(100)


# ---- entries that lead nowhere ----


@pytest.mark.parametrize("state", every_state_but())
async def test_an_entry_of_a_run_without_such_a_wait_is_dropped_and_moves_nothing(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    await redis("ZADD", keys.timers, START_MS, f"{run_id} no such step")
    assert await store.fire_timers(100) == Passed(0, None)
    assert await everything(redis, keys) == before


async def test_an_entry_before_the_time_of_its_wait_ends_nothing_and_is_put_right(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await waiting_one(store, a_sleep())
    before = await everything(redis, keys)
    await redis("ZADD", keys.timers, START_MS, f"{lease.run_id} sleep")
    assert await store.fire_timers(100) == Passed(0, DUE_MS)
    assert await everything(redis, keys) == before


async def test_an_entry_of_a_wait_without_a_time_is_dropped(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await waiting_one(store, a_wait())
    before = await everything(redis, keys)
    await redis("ZADD", keys.timers, START_MS, f"{lease.run_id} child")
    assert await store.fire_timers(100) == Passed(0, None)
    assert await everything(redis, keys) == before


async def test_timers_are_fired_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    waits = with_timeout(a_wait("child")), with_timeout(a_token_wait(lease)), with_timeout(an_event_wait())
    await store.suspend(a_suspension(lease, a_sleep(), *waits))
    async with memory_is_full(redis):
        assert await fire_at(store, DUE_MS) == Passed(4, None)
    assert await status_of(store, lease.run_id) is RunStatus.QUEUED
