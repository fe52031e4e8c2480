"""step_emit: an event that a run emits, with the step that says so, in one script: emitted once, whatever happens."""

from __future__ import annotations

import json

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.events import NewEvent
from redflow_server.domain.leases import ClaimedRun, EmitStep, Outcome
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Changes,
    a_completion,
    a_failed_step,
    a_lease,
    a_record,
    a_step,
    a_workflow,
    an_event,
    everything,
    memory_is_full,
    places,
    record_of,
    register,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


def emission(lease: ClaimedRun, event: NewEvent | None = None, name: str = "tell", **fields: Changes) -> EmitStep:
    return EmitStep(lease.run_id, lease.lease_token, 0, name, 1, event or an_event(), **fields)


async def subscribe(store: Store, *names: str) -> None:
    await register(store, *(a_workflow(name=name, queue="others", event_names=("paid",)) for name in names))


async def started(redis: RedisCommand, keys: Keys) -> list[str]:
    """The subscribers' runs that are queued or scheduled."""
    queued = await redis("ZRANGE", keys.status("queued"), 0, -1)
    return [*queued, *await redis("ZRANGE", keys.status("scheduled"), 0, -1)]


async def test_the_subscribers_are_started_and_the_step_has_their_ids(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a", "b")
    lease = await start_one(store)

    answer = await store.step_emit(emission(lease))

    run_ids = await started(redis, keys)
    assert len(run_ids) == 2
    assert (answer.outcome, answer.cancel_requested) == (Outcome.OK, False)
    assert answer.stored is not None and answer.stored.output is not None
    assert (answer.stored.kind, answer.stored.status) == (StepKind.EMIT, StepStatus.SUCCEEDED)
    assert json.loads(answer.stored.output.data) == run_ids
    [step] = await store.read_steps(lease.run_id, 1_000_000)
    assert step.output == answer.stored.output
    assert (await record_of(redis, keys, lease.run_id))["stepsDone"] == "1"


async def test_an_event_that_nobody_listens_to_is_a_step_with_an_empty_list(store: Store) -> None:
    answer = await store.step_emit(emission(await start_one(store)))
    assert answer.stored is not None and answer.stored.output is not None
    assert answer.stored.output.data == b"[]"


async def test_said_again_it_emits_nothing_and_answers_what_is_on_record(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    event = an_event()
    first = await store.step_emit(emission(lease, event))
    before = await everything(redis, keys)

    for repeated in (event, an_event(data=b"another")):
        again = await store.step_emit(emission(lease, repeated))
        assert again.stored == first.stored

    assert await everything(redis, keys) == before
    assert len(await started(redis, keys)) == 1


async def test_an_event_is_emitted_once_also_when_its_step_was_lost(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    event = an_event()
    first = await store.step_emit(emission(lease, event))
    await redis("DEL", keys.steps(lease.run_id))
    await redis("HDEL", keys.run(lease.run_id), "stepsDone", "stepsBytes")

    again = await store.step_emit(emission(lease, event))

    assert first.stored is not None and again.stored is not None
    assert again.stored.output == first.stored.output
    assert len(await started(redis, keys)) == 1


async def test_steps_of_two_names_emit_two_events(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    await store.step_emit(emission(lease, name="one"))
    await store.step_emit(emission(lease, name="two"))
    assert len(await started(redis, keys)) == 2


async def test_an_events_key_names_one_event_for_steps_and_clients_alike(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    emitted = await store.emit_event(an_event(idempotency_key="k"))
    answer = await store.step_emit(emission(lease, an_event(idempotency_key="k")))
    assert answer.stored is not None and answer.stored.output is not None
    assert json.loads(answer.stored.output.data) == list(emitted.run_ids)
    assert len(await started(redis, keys)) == 1


@pytest.mark.parametrize(
    ("event", "delay_ms"), [(an_event(available_at_ms=START_MS + 500), None), (an_event(), 500)], ids=["time", "delay"]
)
async def test_an_event_for_later_makes_its_runs_now_and_they_are_due_then(
    store: Store, redis: RedisCommand, keys: Keys, event: NewEvent, delay_ms: int | None
) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    await store.step_emit(emission(lease, event, delay_ms=delay_ms))
    [run_id] = await started(redis, keys)
    assert (await places(redis, keys, run_id)).scheduled_at_ms == START_MS + 500


async def test_many_subscribers_are_left_to_the_fan_out_and_the_step_has_all_ids_at_once(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, *(f"w{number:03}" for number in range(150)))
    lease = await start_one(store)
    answer = await store.step_emit(emission(lease))
    assert answer.stored is not None and answer.stored.output is not None
    run_ids = json.loads(answer.stored.output.data)
    assert len(run_ids) == 150
    assert await started(redis, keys) == []

    await store.complete(a_completion(lease, steps_recorded=1))
    assert [(await store.fan_out()).count for _ in range(2)] == [100, 50]
    assert await started(redis, keys) == run_ids


async def test_a_run_may_start_its_own_workflow_by_an_event(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(event_names=("paid",)))
    lease = await start_one(store)
    await store.step_emit(emission(lease))
    [run_id] = await started(redis, keys)
    assert (await record_of(redis, keys, run_id))["workflow"] == "w"
    assert run_id != lease.run_id


# ---- refused ----


@pytest.mark.parametrize("why", ["another token", "no such run", "ended"])
async def test_who_does_not_hold_the_run_emits_nothing(store: Store, redis: RedisCommand, keys: Keys, why: str) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    if why == "ended":
        await store.complete(a_completion(lease))
    held = {"another token": a_lease(lease.run_id), "no such run": a_lease("run_none")}.get(why, lease)
    before = await everything(redis, keys)
    answer = await store.step_emit(emission(held))
    assert answer.outcome is (Outcome.DUPLICATE if why == "ended" else Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_when_earlier_steps_are_missing_nothing_is_emitted(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    answer = await store.step_emit(EmitStep(lease.run_id, lease.lease_token, 1, "tell", 1, an_event()))
    assert answer.outcome is Outcome.STEPS_MISSING
    assert await started(redis, keys) == []


@pytest.mark.parametrize("before", [a_step("tell"), a_failed_step("tell")], ids=["succeeded", "failed"])
async def test_a_step_of_another_kind_by_that_name_emits_nothing(
    store: Store, redis: RedisCommand, keys: Keys, before: Changes
) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    await store.record_step(a_record(lease, before))
    answer = await store.step_emit(emission(lease))
    assert (answer.outcome, answer.step_name) == (Outcome.NON_DETERMINISTIC, "tell")
    assert await started(redis, keys) == []


async def test_a_run_that_is_to_be_canceled_hears_so_and_its_event_is_emitted(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a")
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    answer = await store.step_emit(emission(lease))
    assert (answer.outcome, answer.cancel_requested) == (Outcome.OK, True)
    assert len(await started(redis, keys)) == 1


async def test_when_memory_is_full_neither_event_nor_step_is_stored(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await subscribe(store, "a", "b")
    lease = await start_one(store)
    event = an_event(idempotency_key="k")
    before = await everything(redis, keys)
    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await store.step_emit(emission(lease, event))
    assert await everything(redis, keys) == before
    assert (await store.step_emit(emission(lease, event))).outcome is Outcome.OK
