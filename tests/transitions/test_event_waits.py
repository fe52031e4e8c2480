"""Waits for events: a run gets on each channel every event since its creation, each once and in order."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.events import NewEvent
from redflow_server.domain.leases import ClaimedRun, EmitStep, Lane, Outcome, Suspended
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import WaitingKind
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.waits import Wait, event_channel
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    STAMP,
    START_MS,
    Changes,
    Messages,
    Places,
    a_completion,
    a_failed_attempt,
    a_workflow,
    an_event,
    claim_one,
    everything,
    let_leases_expire,
    memory_is_full,
    over,
    places,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import a_parking, a_suspension, an_event_wait, read_step, some_waits

WAITING: Final = Suspended(Outcome.OK, RunStatus.WAITING)
HOUR_MS: Final = 3_600_000
ODD_NAMES: Final = ("", "a:b", "4:paid", "{a}", "%d", "🚀 é", "a b\n|", "x" * 256)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def emit(store: Store, data: bytes = b'{"n":1}', name: str = "paid", **changes: Changes) -> NewEvent:
    event = an_event(name, data, **changes)
    assert (await store.emit_event(event)).was_created
    return event


async def suspend_one(store: Store, *waits: Wait) -> ClaimedRun:
    """A run of lane `w` that waits."""
    lease = await start_one(store)
    assert await store.suspend(a_suspension(lease, *waits)) == WAITING
    return lease


async def take(store: Store, lease: ClaimedRun, name: str, **wait: Changes) -> bytes | None:
    """What the run gets at once when it waits in a step of this name; None when it has to wait."""
    over = (await store.step_wait(some_waits(lease, an_event_wait(name, **wait)))).resolutions
    return over[0].output.data if over and over[0].output else None


async def statuses(store: Store, run_id: str) -> dict[str, StepStatus]:
    return {step.name: step.status for step in await store.read_steps(run_id, 1000)}


# ---- one event, one wait ----


@pytest.mark.parametrize("kind", AWKWARD_BYTES)
async def test_a_run_that_waits_goes_on_with_the_event_byte_for_byte(
    store: Store, redis: RedisCommand, keys: Keys, kind: str
) -> None:
    lease = await suspend_one(store, an_event_wait("step"))
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("waiting",))
    store.now_ms = START_MS + 7
    payload = Payload(AWKWARD_BYTES[kind], "application/x-odd", (("a|b", "é"),))

    event = await emit(store, payload=payload)

    again = await claim_one(store)
    assert (again.run_id, again.attempt) == (lease.run_id, 1)
    step = await read_step(store, lease.run_id, "step")
    assert (step.kind, step.status, step.output) == (StepKind.EVENT, StepStatus.SUCCEEDED, payload)
    assert (step.event_id, step.event_at_ms, step.finished_at_ms) == (event.event_id, START_MS + 7, START_MS + 7)
    assert (step.is_final, step.resolved_seq) == (True, 1)


async def test_it_says_since_when_it_waits_for_which_event(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 5
    plain, keyed = an_event_wait("a"), an_event_wait("b", key="k", timeout_ms=10)
    await store.suspend(a_suspension(lease, plain, keyed))
    waiting = {found.step_name: found for found in (await store.read_run(lease.run_id)).waiting_for}
    assert {found.kind for found in waiting.values()} == {WaitingKind.EVENT}
    assert (waiting["a"].since_ms, waiting["a"].until_ms) == (START_MS + 5, None)
    assert waiting["a"].detail == "event 'paid' without a key"
    assert (waiting["b"].until_ms, waiting["b"].detail) == (START_MS + 15, "event 'paid' with the key 'k'")


@pytest.mark.parametrize("how", ["at work", "parked"])
async def test_the_gateway_of_a_run_that_a_worker_has_is_told(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str, how: str
) -> None:
    lease, wait = await start_one(store), an_event_wait("a step")
    if how == "parked":
        await store.suspend(a_parking(lease, wait))
    else:
        await store.step_wait(some_waits(lease, wait))
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await emit(store)
        assert [over(message) for message in await messages.so_far()] == [f"{lease.lease_token} a step"]
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)


async def test_an_event_reaches_every_run_that_waits_for_it(store: Store) -> None:
    leases = [await suspend_one(store, an_event_wait()) for _ in range(5)]
    event = await emit(store)
    for lease in leases:
        assert (await read_step(store, lease.run_id, "event")).event_id == event.event_id


# ---- which events are meant ----


async def test_the_key_has_to_be_the_same_and_no_key_is_one_of_its_own(store: Store) -> None:
    wanted: list[str | None] = [None, "", "k", "K", "k "]
    leases = [await suspend_one(store, an_event_wait(key=key)) for key in wanted]
    for number, key in enumerate(wanted):
        await emit(store, key=key)
        found = [(await statuses(store, lease.run_id))["event"] for lease in leases]
        over, open_ = number + 1, len(wanted) - number - 1
        assert found == [StepStatus.SUCCEEDED] * over + [StepStatus.WAITING] * open_, f"the key {key!r}"


async def test_the_name_has_to_be_the_same(store: Store) -> None:
    lease = await suspend_one(store, an_event_wait())
    for name in ("Paid", "paid ", "paid:0:", "pai", "paid.late"):
        await emit(store, name=name)
    assert await statuses(store, lease.run_id) == {"event": StepStatus.WAITING}


@pytest.mark.parametrize("odd", ODD_NAMES)
async def test_names_and_keys_are_only_data(store: Store, odd: str) -> None:
    name = odd or "e"
    lease = await suspend_one(store, an_event_wait("step", name, odd), an_event_wait("other", name, f"{odd}:1:k"))
    await emit(store, name=name, key=odd)
    assert await statuses(store, lease.run_id) == {"step": StepStatus.SUCCEEDED, "other": StepStatus.WAITING}


async def test_another_event_under_the_name_of_an_open_wait_refuses_it(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, an_event_wait("step")))
    before = await everything(redis, keys)
    for other in (an_event_wait("step", key="k"), an_event_wait("step", "sent")):
        answer = await store.suspend(a_suspension(lease, other))
        assert answer == Suspended(Outcome.NON_DETERMINISTIC, step_name="step")
    assert await everything(redis, keys) == before


# ---- events that came before their wait ----


async def test_an_event_since_the_creation_of_a_run_is_not_lost_when_its_wait_begins_later(store: Store) -> None:
    await emit(store, b"before")
    lease = await start_one(store)
    event = await emit(store, b"after")
    store.now_ms = START_MS + 10

    answer = await store.suspend(a_suspension(lease, an_event_wait("step")))

    [step] = answer.resolutions
    assert (answer.outcome, step.output) == (Outcome.RESOLVED, Payload(b"after"))
    assert (step.event_id, step.event_at_ms, step.finished_at_ms) == (event.event_id, START_MS, START_MS + 10)


async def test_each_event_is_seen_once_and_in_the_order_of_the_emissions(store: Store) -> None:
    lease = await start_one(store)
    for data in (b"1", b"2"):
        await emit(store, data)
    assert [await take(store, lease, "a"), await take(store, lease, "b")] == [b"1", b"2"]
    assert await take(store, lease, "c") is None
    await emit(store, b"3")
    assert (await read_step(store, lease.run_id, "c")).output == Payload(b"3")
    assert await take(store, lease, "d") is None


async def test_what_was_seen_on_one_channel_takes_nothing_from_another(store: Store) -> None:
    lease = await start_one(store)
    await emit(store, b"first", key="a")
    await emit(store, b"second")
    await emit(store, b"third", key="a")
    assert await take(store, lease, "1") == b"second"
    assert await take(store, lease, "2", key="a") == b"first"
    assert await take(store, lease, "3", key="a") == b"third"
    assert await take(store, lease, "4") is None


async def test_what_a_run_has_seen_another_still_sees(store: Store) -> None:
    leases = [await start_one(store), await start_one(store)]
    await emit(store, b"1")
    await emit(store, b"2")
    for lease in leases:
        assert [await take(store, lease, "a"), await take(store, lease, "b")] == [b"1", b"2"]


async def test_of_several_waits_of_a_run_for_one_event_each_gets_another_one_the_first_to_begin_first(
    store: Store,
) -> None:
    lease = await suspend_one(store, an_event_wait("z"), an_event_wait("a"), an_event_wait("m"))
    await emit(store, b"1")
    assert await statuses(store, lease.run_id) == {"z": "succeeded", "a": "waiting", "m": "waiting"}
    await emit(store, b"2")
    await emit(store, b"3")
    found = [(await read_step(store, lease.run_id, name)).output for name in "zam"]
    assert found == [Payload(b"1"), Payload(b"2"), Payload(b"3")]


async def test_waits_that_begin_together_share_out_what_is_remembered(store: Store) -> None:
    lease = await start_one(store)
    await emit(store, b"1")
    await emit(store, b"2")
    waits = [an_event_wait(name) for name in "cab"]
    answer = await store.suspend(a_suspension(lease, *waits))
    assert [(step.name, step.output) for step in answer.resolutions] == [("c", Payload(b"1")), ("a", Payload(b"2"))]
    assert (await statuses(store, lease.run_id))["b"] is StepStatus.WAITING


async def test_a_child_sees_what_came_since_its_own_creation(store: Store) -> None:
    await emit(store, b"before")
    lease = await start_one(store)
    await emit(store, b"between")
    child = await start_one(store, workflow="other")
    assert await take(store, lease, "a") == b"between"
    assert await take(store, child, "a") is None


async def test_a_run_that_an_event_has_started_does_not_see_it_but_the_next_one(store: Store) -> None:
    await register(store, a_workflow(event_names=("paid",)))
    await emit(store, b"trigger")
    lease = await claim_one(store)
    assert await take(store, lease, "step") is None
    await emit(store, b"next")
    assert (await read_step(store, lease.run_id, "step")).output == Payload(b"next")


async def test_also_one_that_was_started_only_when_other_events_had_come_sees_these(store: Store) -> None:
    await register(store, *(a_workflow(name=f"w{number:03}", event_names=("paid",)) for number in range(150)))
    await emit(store, b"trigger")
    await emit(store, b"meanwhile", name="sent")
    while (await store.fan_out()).has_more:
        pass
    lease = await claim_one(store, Lane("q", "w149"))
    assert await take(store, lease, "a") is None
    assert await take(store, lease, "b", event="sent") == b"meanwhile"


# ---- lost workers, attempts, ends ----


async def test_an_event_that_a_wait_has_got_is_its_own_for_ever(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=2)
    await emit(store, b"1")
    assert await take(store, lease, "step") == b"1"
    await let_leases_expire(store)
    again = await claim_one(store)
    await renew_one(store, again)
    await emit(store, b"2")
    before = await everything(redis, keys)
    assert await take(store, again, "step") == b"1"
    assert await everything(redis, keys) == before
    await store.fail(a_failed_attempt(again))
    store.now_ms = (store.now_ms or 0) + 1000
    await store.promote(10)
    third = await claim_one(store)
    assert [await take(store, third, "step"), await take(store, third, "next")] == [b"1", b"2"]


async def test_a_run_that_backs_off_gets_its_event_and_stays_there(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.step_wait(some_waits(lease, an_event_wait()))
    await store.fail(a_failed_attempt(lease))
    await emit(store)
    assert (await store.read_run(lease.run_id)).status is RunStatus.SCHEDULED
    assert await statuses(store, lease.run_id) == {"event": StepStatus.SUCCEEDED}


@pytest.mark.parametrize("end", ["canceled", "succeeded"])
async def test_a_run_that_has_ended_waits_for_no_event_and_leaves_nothing(
    store: Store, redis: RedisCommand, keys: Keys, end: str
) -> None:
    lease = await start_one(store)
    await emit(store)
    await take(store, lease, "got")
    await store.step_wait(some_waits(lease, an_event_wait("open")))
    if end == "canceled":
        await store.suspend(a_suspension(lease, an_event_wait("open"), steps_recorded=1))
        await request_cancel(store, lease.run_id)
    else:
        await store.complete(a_completion(lease))
    left = keys.waits(lease.run_id), keys.cursors(lease.run_id), keys.event_waits(event_channel("paid", None))
    assert await redis("EXISTS", *left) == 0

    await emit(store)

    assert await statuses(store, lease.run_id) == {"got": StepStatus.SUCCEEDED, "open": StepStatus.WITHDRAWN}


# ---- emissions that no wait sees ----


async def test_a_repeat_of_an_emission_wakes_nobody_and_is_not_remembered(store: Store) -> None:
    event = await emit(store, idempotency_key="k", idempotency_ttl_ms=HOUR_MS)
    lease = await suspend_one(store, an_event_wait())
    for repeat in (event, an_event(idempotency_key="k", idempotency_ttl_ms=HOUR_MS)):
        assert (await store.emit_event(repeat)).event_id == event.event_id
    assert await statuses(store, lease.run_id) == {"event": StepStatus.WAITING}
    assert (await store.read_stats()).events_remembered == 1


async def test_an_event_for_later_wakes_nobody_now_and_not_then(store: Store) -> None:
    await register(store, a_workflow(name="subscriber", event_names=("paid",)))
    lease = await suspend_one(store, an_event_wait())
    await emit(store, available_at_ms=START_MS + 1000)
    store.now_ms = START_MS + 2000
    assert (await store.promote(10)).count == 1
    assert await statuses(store, lease.run_id) == {"event": StepStatus.WAITING}
    await emit(store, b"now", available_at_ms=START_MS + 2000)
    assert (await read_step(store, lease.run_id, "event")).output == Payload(b"now")


# ---- runs that emit ----


async def test_a_run_sees_the_event_that_it_has_emitted_itself(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, an_event_wait("open")))
    for name, data in (("tell", b"1"), ("tell again", b"2")):
        event = EmitStep(lease.run_id, lease.lease_token, 0, name, 1, an_event(data=data))
        assert (await store.step_emit(event)).outcome is Outcome.OK
    assert (await read_step(store, lease.run_id, "open")).output == Payload(b"1")
    assert await take(store, lease, "next") == b"2"


async def test_an_event_of_a_step_reaches_other_runs_once_however_often_it_is_said(store: Store) -> None:
    waiting = await suspend_one(store, an_event_wait("a"), an_event_wait("b"))
    lease = await start_one(store)
    event = EmitStep(lease.run_id, lease.lease_token, 0, "tell", 1, an_event())
    for _ in range(2):
        await store.step_emit(event)
    assert await statuses(store, waiting.run_id) == {"a": StepStatus.SUCCEEDED, "b": StepStatus.WAITING}


async def test_a_run_waits_for_events_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    remembered, waiting = await start_one(store), await start_one(store)
    await emit(store, name="sent")
    async with memory_is_full(redis):
        assert await take(store, remembered, "step", event="sent") is not None
        assert await store.suspend(a_suspension(waiting, an_event_wait())) == WAITING
