"""Races: of the waits of one group the first to end withdraws the others, in the script of its end."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, Outcome, StopReason, Suspended
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import Wait, event_channel
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
    enqueue_one,
    lane_of,
    record_of,
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
    some_waits,
    token_of,
)

WAITING: Final = Suspended(Outcome.OK, RunStatus.WAITING)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def steps_of(store: Store, run_id: str) -> dict[str, Step]:
    return {step.name: step for step in await store.read_steps(run_id, 100_000)}


async def statuses(store: Store, run_id: str) -> dict[str, str]:
    return {name: step.status.value for name, step in (await steps_of(store, run_id)).items()}


async def all_kinds(store: Store) -> tuple[ClaimedRun, dict[str, Wait]]:
    """A run that waits for the first of one wait of each kind."""
    lease = await start_one(store)
    waits = in_race(a_sleep("timer"), an_event_wait("event"), a_wait("child"), a_token_wait(lease, "token"))
    assert await store.suspend(a_suspension(lease, *waits)) == WAITING
    return lease, {wait.name: wait for wait in waits}


async def end(store: Store, wait: Wait) -> None:
    """What a wait is for happens."""
    match wait.name:
        case "timer":
            store.now_ms = START_MS + SLEEP_MS
            await store.fire_timers(100)
        case "event":
            await store.emit_event(an_event())
        case "child":
            await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
        case "token":
            await store.complete_token(a_completed_token(token_of(wait)))


# ---- between waits ----


@pytest.mark.parametrize("first", ["timer", "event", "child", "token"])
async def test_the_first_to_end_withdraws_the_others_and_leaves_nothing_of_them(
    store: Store, redis: RedisCommand, keys: Keys, first: str
) -> None:
    lease, waits = await all_kinds(store)

    await end(store, waits[first])

    withdrawn = dict.fromkeys(waits, "withdrawn")
    assert await statuses(store, lease.run_id) == withdrawn | {first: "succeeded"}
    assert "openWaits" not in await record_of(redis, keys, lease.run_id)
    left = (keys.waits(lease.run_id), keys.timers, keys.event_waits(event_channel("paid", None)))
    assert await redis("EXISTS", *left, keys.awaiters(child_id(waits["child"]))) == 0
    assert await lane_of(redis, keys) == [lease.run_id]
    child = await store.read_run(child_id(waits["child"]))
    assert child.status is (RunStatus.SUCCEEDED if first == "child" else RunStatus.CANCELED)


async def test_a_loser_never_gets_a_value_whatever_happens_then(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    token = a_token_wait(lease, "token")
    await store.suspend(a_suspension(lease, *in_race(a_sleep("a", 10), token, a_sleep("b"), an_event_wait("event"))))
    await store.complete_token(a_completed_token(token_of(token)))
    before = await store.read_steps(lease.run_id, 1000)
    await store.emit_event(an_event())
    store.now_ms = START_MS + SLEEP_MS
    assert await store.fire_timers(100) == Passed(0, None)
    assert await store.read_steps(lease.run_id, 1000) == before


async def test_the_event_that_a_loser_waited_for_comes_to_the_next_wait(store: Store) -> None:
    _, waits = await all_kinds(store)
    await end(store, waits["token"])
    again = await claim_one(store)
    event = an_event()
    await store.emit_event(event)
    answer = await store.suspend(a_suspension(again, an_event_wait("next"), steps_recorded=1))
    assert [(step.name, step.event_id) for step in answer.resolutions] == [("next", event.event_id)]


async def test_one_event_ends_only_the_first_of_two_waits_for_it(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *in_race(an_event_wait("a"), an_event_wait("b"))))
    await store.emit_event(an_event(data=b"1"))
    await store.emit_event(an_event(data=b"2"))
    steps = await steps_of(store, lease.run_id)
    assert (steps["a"].output, steps["b"].status) == (Payload(b"1"), StepStatus.WITHDRAWN)


async def test_a_failure_decides_a_race_too(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *in_race(a_wait("child"), a_sleep())))
    await store.fail(a_failed_attempt(await claim_one(store, CHILD_LANE)))
    assert await statuses(store, lease.run_id) == {"child": "failed", "sleep": "withdrawn"}


async def test_waits_beside_the_race_and_of_another_one_go_on(store: Store) -> None:
    lease = await start_one(store)
    waits = (*in_race(a_sleep("a", 10), a_wait("b")), *in_race(a_sleep("c", 20), a_wait("d"), group="second"))
    await store.suspend(a_suspension(lease, *waits, a_wait("beside")))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    expected = {"a": "succeeded", "b": "withdrawn", "c": "waiting", "d": "waiting", "beside": "waiting"}
    assert await statuses(store, lease.run_id) == expected
    store.now_ms = START_MS + 20
    await store.fire_timers(100)
    assert await statuses(store, lease.run_id) == expected | {"c": "succeeded", "d": "withdrawn"}


async def test_a_race_under_the_same_name_in_another_run_goes_on(store: Store) -> None:
    leases = [await start_one(store) for _ in range(2)]
    for number, lease in enumerate(leases):
        await store.suspend(a_suspension(lease, *in_race(a_sleep(ms=10 + number), an_event_wait())))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    assert await statuses(store, leases[1].run_id) == {"sleep": "waiting", "event": "waiting"}


@pytest.mark.parametrize("group", ["a|b", "3:x", "timer|1|2|1:xy", "🚀 é", "x" * 256])
async def test_names_of_races_are_only_data(store: Store, group: str) -> None:
    lease = await start_one(store)
    waits = (*in_race(a_sleep(), an_event_wait(), group=group), an_event_wait("beside", key=group))
    await store.suspend(a_suspension(lease, *waits))
    [event] = [found for found in (await store.read_run(lease.run_id)).waiting_for if found.step_name == "event"]
    assert event.detail == "event 'paid' without a key"
    await store.emit_event(an_event())
    assert await statuses(store, lease.run_id) == {"event": "succeeded", "sleep": "withdrawn", "beside": "waiting"}


# ---- children that have lost ----


async def test_a_child_that_has_lost_and_that_a_worker_has_is_told_to_stop(
    store: Store, keys: Keys, redis_url: str
) -> None:
    _, waits = await all_kinds(store)
    child = await claim_one(store, CHILD_LANE)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await end(store, waits["event"])
        [order] = await messages.so_far()
    assert order.startswith(f"stop {child.lease_token} {StopReason.PARENT} ")


async def test_a_child_that_has_lost_goes_on_for_another_run_or_when_it_was_there_before(store: Store) -> None:
    lease, other = await start_one(store), await start_one(store)
    shared, existing = a_wait("shared"), await enqueue_one(store, workflow="other")
    race = in_race(shared, a_wait_for(existing, "existing"), a_sleep(ms=10))
    await store.suspend(a_suspension(lease, *race))
    await store.suspend(a_suspension(other, a_wait_for(child_id(shared))))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    assert await statuses(store, lease.run_id) == {
        "shared": "withdrawn",
        "existing": "withdrawn",
        "sleep": "succeeded",
    }
    for run_id in (child_id(shared), existing):
        assert (await store.read_run(run_id)).status is RunStatus.QUEUED


# ---- the order of ends ----


async def test_ends_are_numbered_in_the_order_in_which_they_came_about(store: Store) -> None:
    lease = await start_one(store)
    token = a_token_wait(lease, "token")
    waits = a_sleep("sleep", 10), an_event_wait("event"), a_wait("child"), token
    await store.step_wait(some_waits(lease, *waits))
    await store.complete_token(a_completed_token(token_of(token)))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    await store.emit_event(an_event())
    numbers = {name: step.resolved_seq for name, step in (await steps_of(store, lease.run_id)).items()}
    assert numbers == {"token": 1, "sleep": 2, "child": 3, "event": 4}

    answer = await store.suspend(a_suspension(lease, *waits))
    assert [step.name for step in answer.resolutions] == ["token", "sleep", "child", "event"]


async def test_what_is_open_or_withdrawn_has_no_number(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, *in_race(a_sleep("a", 0), a_sleep("b")), a_sleep("c")))
    numbers = {name: step.resolved_seq for name, step in (await steps_of(store, lease.run_id)).items()}
    assert numbers == {"a": 1, "b": 0, "c": 0}


# ---- races that are decided when they begin ----


async def test_of_a_race_that_is_over_at_once_the_rest_does_not_begin(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    waits = in_race(a_sleep("over", 0), a_wait("child"), an_event_wait("event"), a_sleep("long"))

    answer = await store.suspend(a_suspension(lease, *waits, a_wait("beside")))

    assert answer.outcome is Outcome.RESOLVED
    assert {step.name: step.status.value for step in answer.resolutions} == {
        "over": "succeeded",
        "child": "withdrawn",
        "event": "withdrawn",
        "long": "withdrawn",
    }
    beside = (await steps_of(store, lease.run_id))["beside"].child_run_id
    assert await lane_of(redis, keys, CHILD_LANE) == [beside]
    assert (await record_of(redis, keys, lease.run_id))["openWaits"] == "1"


async def test_also_those_that_had_begun_before_it_was_seen(store: Store) -> None:
    lease = await start_one(store)
    child = a_wait("child")
    answer = await store.suspend(a_parking(lease, *in_race(child, a_sleep("long"), a_wait_for("nobody", "over"))))
    assert answer.outcome is Outcome.RESOLVED
    expected = {"child": "withdrawn", "long": "withdrawn", "over": "failed"}
    assert {step.name: step.status.value for step in answer.resolutions} == expected
    assert (await store.read_run(child_id(child))).status is RunStatus.CANCELED


async def test_waits_that_come_to_a_race_that_is_decided_do_not_begin(store: Store) -> None:
    lease = await start_one(store)
    first, second = in_race(a_sleep("first", 10), an_event_wait("second"))
    await store.step_wait(some_waits(lease, first))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    await store.emit_event(an_event())
    answer = await store.suspend(a_suspension(lease, first, second))
    assert [(step.name, step.status.value) for step in answer.resolutions] == [
        ("second", "withdrawn"),
        ("first", "succeeded"),
    ]


# ---- open waits that come to be in a race ----


@pytest.mark.parametrize("first", ["token", "sleep"])
async def test_a_wait_that_was_open_before_may_be_in_a_race_from_then_on(store: Store, first: str) -> None:
    lease = await start_one(store)
    token, sleep = a_token_wait(lease, "token"), a_sleep()
    await store.step_wait(some_waits(lease, token))
    assert await store.suspend(a_suspension(lease, *in_race(token, sleep))) == WAITING
    if first == "token":
        await store.complete_token(a_completed_token(token_of(token)))
    else:
        store.now_ms = START_MS + SLEEP_MS
        await store.fire_timers(100)
    expected = {"token": "withdrawn", "sleep": "withdrawn"} | {first: "succeeded"}
    assert await statuses(store, lease.run_id) == expected


async def test_a_wait_that_was_open_before_is_withdrawn_when_its_race_is_decided_at_once(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    open_, over = a_token_wait(lease, "open"), a_token_wait(lease, "over")
    await store.step_wait(some_waits(lease, open_, over))
    await store.complete_token(a_completed_token(token_of(over)))
    answer = await store.suspend(a_suspension(lease, *in_race(open_, over)))
    assert {step.name: step.status.value for step in answer.resolutions} == {"open": "withdrawn", "over": "succeeded"}
    assert "openWaits" not in await record_of(redis, keys, lease.run_id)


async def test_said_without_its_race_a_wait_stays_in_it(store: Store) -> None:
    lease = await start_one(store)
    sleep, event = in_race(a_sleep(ms=10), an_event_wait())
    await store.step_wait(some_waits(lease, sleep, event))
    await store.suspend(a_suspension(lease, an_event_wait()))
    store.now_ms = START_MS + 10
    await store.fire_timers(100)
    assert await statuses(store, lease.run_id) == {"sleep": "succeeded", "event": "withdrawn"}
