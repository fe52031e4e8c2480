"""record_step: a step function that has run against waits withdraws them, or hears which of them was first."""

from __future__ import annotations

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import ClaimedRun, Outcome, RecordStep
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    a_failed_step,
    a_record,
    a_step,
    an_event,
    everything,
    memory_is_full,
    record_of,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    a_sleep,
    a_suspension,
    a_wait,
    a_wait_for,
    an_event_wait,
    child_id,
    in_race,
    read_step,
    some_waits,
)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def steps_of(store: Store, run_id: str) -> dict[str, Step]:
    return {step.name: step for step in await store.read_steps(run_id, 100_000)}


async def statuses(store: Store, run_id: str) -> dict[str, str]:
    return {name: step.status.value for name, step in (await steps_of(store, run_id)).items()}


def a_winner(lease: ClaimedRun, *rivals: str) -> RecordStep:
    """The report of a step function that has run against waits."""
    return a_record(lease, a_step("work"), rivals=rivals)


async def test_a_function_that_succeeds_withdraws_the_waits_that_it_names(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease, child = await start_one(store), a_wait("child")
    await store.step_wait(some_waits(lease, *in_race(a_sleep(), child), an_event_wait("beside")))

    answer = await store.record_step(a_winner(lease, "sleep", "child"))

    assert (answer.outcome, answer.rivals_over) == (Outcome.OK, ())
    assert await statuses(store, lease.run_id) == {
        "work": "succeeded",
        "sleep": "withdrawn",
        "child": "withdrawn",
        "beside": "waiting",
    }
    assert (await record_of(redis, keys, lease.run_id))["openWaits"] == "1"
    assert (await store.read_run(child_id(child))).status is RunStatus.CANCELED
    assert (await read_step(store, lease.run_id, "work")).resolved_seq == 1


async def test_a_function_that_failed_withdraws_nothing(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(a_sleep(), a_wait())))
    record = a_record(lease, a_failed_step("work"), rivals=("sleep", "child"))
    assert (await store.record_step(record)).outcome is Outcome.OK
    assert await statuses(store, lease.run_id) == {"work": "failed", "sleep": "waiting", "child": "waiting"}


async def test_the_end_of_a_function_that_failed_for_good_is_numbered_with_the_others(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(a_sleep(ms=10), an_event_wait())))
    for name, is_final in (("retried", False), ("given up", True)):
        await store.record_step(a_record(lease, a_failed_step(name, is_final=is_final), rivals=("sleep", "event")))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    numbers = {name: step.resolved_seq for name, step in (await steps_of(store, lease.run_id)).items()}
    assert numbers == {"retried": 0, "given up": 1, "sleep": 2, "event": 0}


async def test_a_failure_that_is_reported_again_keeps_its_number_also_when_a_rival_has_ended_meanwhile(
    store: Store,
) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, a_sleep(ms=10), an_event_wait()))
    failure = a_record(lease, a_failed_step("work", is_final=True), rivals=("sleep", "event"))
    await store.record_step(failure)
    store.now_ms = START_MS + 10
    await store.fire_timers(100)

    await store.record_step(failure)

    numbers = {name: step.resolved_seq for name, step in (await steps_of(store, lease.run_id)).items()}
    assert numbers == {"work": 1, "sleep": 2, "event": 0}


async def test_another_failure_of_a_function_gets_a_number_of_its_own(store: Store) -> None:
    lease = await start_one(store)
    for message in ("first", "second"):
        failed = a_failed_step("work", message, is_final=True)
        await store.record_step(a_record(lease, failed, rivals=("sleep",)))
    assert (await read_step(store, lease.run_id, "work")).resolved_seq == 2


async def test_a_function_is_told_of_the_rival_that_was_first_with_its_value(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(an_event_wait("event"), a_sleep())))
    await store.emit_event(an_event(data=b"7"))

    answer = await store.record_step(a_winner(lease, "event", "sleep"))

    assert answer.outcome is Outcome.OK
    [rival] = answer.rivals_over
    assert (rival.name, rival.output, rival.resolved_seq) == ("event", Payload(b"7"), 1)
    assert (await read_step(store, lease.run_id, "work")).resolved_seq == 2, "what it did stays on record"


async def test_also_one_that_failed_and_one_that_is_no_longer_new(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(a_wait_for("nobody", "child"), a_sleep())))
    for record in (a_record(lease, a_failed_step("work"), rivals=("child",)), a_winner(lease, "child")):
        [rival] = (await store.record_step(record)).rivals_over
        assert rival.failure is not None
        assert rival.failure.kind is FailureKind.RUN_NOT_FOUND


async def test_rivals_that_were_first_come_in_the_order_in_which_they_ended(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, an_event_wait("a"), a_sleep("b", 10), a_wait_for("nobody", "c")))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    await store.emit_event(an_event())
    answer = await store.record_step(a_winner(lease, "a", "b", "c"))
    assert [step.name for step in answer.rivals_over] == ["c", "b", "a"]


async def test_rivals_that_have_not_begun_are_no_matter(store: Store) -> None:
    lease = await start_one(store)
    answer = await store.record_step(a_winner(lease, "not yet"))
    assert (answer.outcome, answer.rivals_over) == (Outcome.OK, ())


async def test_a_repeat_is_answered_alike_and_withdraws_nothing_more(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(an_event_wait("event"), a_sleep())))
    await store.emit_event(an_event())
    first = await store.record_step(a_winner(lease, "event", "sleep"))
    before = await everything(redis, keys)
    again = await store.record_step(a_winner(lease, "event", "sleep"))
    assert (again.outcome, again.rivals_over) == (Outcome.DUPLICATE, first.rivals_over)
    assert await everything(redis, keys) == before


async def test_the_store_refuses_a_function_whose_lease_is_lost_and_the_race_goes_on(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    race = in_race(a_sleep(), a_wait())
    await store.suspend(a_suspension(lease, *race))
    before = await everything(redis, keys)
    assert (await store.record_step(a_winner(lease, "sleep", "child"))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before


async def test_a_function_withdraws_its_rivals_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(a_sleep(), a_wait())))
    async with memory_is_full(redis):
        assert (await store.record_step(a_winner(lease, "sleep", "child"))).outcome is Outcome.OK
