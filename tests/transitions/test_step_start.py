"""step_start: a run that a step starts without waiting for it, with the step that says so, in one script."""

from __future__ import annotations

import json
from typing import Final

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import ClaimedRun, ClosePolicy, Outcome, StartStep, StepRecorded
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Changes,
    Messages,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_lease,
    a_record,
    a_step,
    a_workflow,
    an_event,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    let_leases_expire,
    memory_is_full,
    put_in_state,
    record_of,
    register,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    a_child,
    a_start,
    a_suspension,
    an_event_wait,
    some_waits,
)

HOUR_MS: Final = 3_600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


def ending_with_it(
    lease: ClaimedRun, name: str = "start", start: NewRun | None = None, **changes: Changes
) -> StartStep:
    """A step that starts a run which is to end with this one."""
    return a_start(lease, name, start, close_policy=ClosePolicy.CANCEL, **changes)


async def children_of(redis: RedisCommand, keys: Keys, lease: ClaimedRun) -> set[str]:
    """The runs that are to end with a run."""
    return set(await redis("SMEMBERS", keys.children(lease.run_id)))


# ---- started ----


async def test_a_run_is_started_and_the_step_has_its_id(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease, child = await start_one(store), a_child(max_attempts=3, priority=7, idempotency_key="key")

    answer = await store.step_start(a_start(lease, "begin it", child))

    assert (answer.outcome, answer.cancel_requested) == (Outcome.OK, False)
    assert answer.stored is not None and answer.stored.output is not None
    assert json.loads(answer.stored.output.data) == child.run_id
    assert (answer.stored.kind, answer.stored.status) == (StepKind.START, StepStatus.SUCCEEDED)
    assert (answer.stored.child_run_id, answer.stored.is_final) == (child.run_id, True)
    assert await store.read_steps(lease.run_id, 100) == (answer.stored,)
    assert (await record_of(redis, keys, lease.run_id))["stepsDone"] == "1"
    run = await store.read_run(child.run_id)
    assert (run.status, run.parent_run_id, run.input) == (RunStatus.QUEUED, lease.run_id, Payload(b'{"n":2}'))
    assert (run.workflow, run.queue, run.max_attempts, run.priority) == ("c", "children", 3, 7)
    assert run.idempotency_key == "key"


async def test_its_parent_goes_on_and_does_not_wait(store: Store) -> None:
    lease = await start_one(store)
    await store.step_start(a_start(lease))
    assert (await store.read_run(lease.run_id)).waiting_for == ()
    assert (await store.complete(a_completion(lease, steps_recorded=1))).status is RunStatus.SUCCEEDED


async def test_it_starts_through_its_registration_when_no_queue_is_named(store: Store) -> None:
    await register(store, a_workflow(name="registered", queue="registered-queue", max_attempts=4))
    child = a_child(workflow="registered", queue=None)
    await store.step_start(a_start(await start_one(store), start=child))
    run = await store.read_run(child.run_id)
    assert (run.queue, run.max_attempts) == ("registered-queue", 4)


async def test_it_sees_the_events_since_its_own_start(store: Store) -> None:
    lease = await start_one(store)
    await store.emit_event(an_event())
    await store.step_start(a_start(lease))
    child = await claim_one(store, CHILD_LANE)
    assert (await store.suspend(a_suspension(child, an_event_wait()))).status is RunStatus.WAITING


async def test_a_step_shows_that_the_assignment_arrived(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=5000))
    await enqueue_one(store)
    lease = await claim_one(store)
    await store.step_start(a_start(lease))
    assert (await record_of(redis, keys, lease.run_id))["acked"] == "1"
    assert (await store.expire(10)).next_at_ms is None, "it has started in time"


async def test_gateways_hear_of_the_lane(store: Store, keys: Keys, redis_url: str) -> None:
    lease = await start_one(store)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.step_start(a_start(lease))
        assert [word.split()[0] for word in await messages.so_far()] == ["lane"]


async def test_a_started_step_is_progress(store: Store) -> None:
    await start_one(store)
    await let_leases_expire(store)
    lease = await claim_one(store)
    assert (await store.read_run(lease.run_id)).losses == 1
    await store.step_start(a_start(lease))
    assert (await store.read_run(lease.run_id)).losses == 0


# ---- said again ----


async def test_a_repeat_starts_nothing_and_answers_what_is_on_record(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    step = a_start(lease)
    first = await store.step_start(step)
    before = await everything(redis, keys)
    for repeat in (step, a_start(lease), ending_with_it(lease)):
        assert await store.step_start(repeat) == first
    assert await everything(redis, keys) == before


async def test_a_run_is_started_once_also_when_its_step_was_lost(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    step = ending_with_it(lease)
    first = await store.step_start(step)
    await redis("DEL", keys.steps(lease.run_id))
    await redis("HDEL", keys.run(lease.run_id), "stepsDone", "stepsBytes")
    assert await store.step_start(step) == first
    assert await lane_of(redis, keys, CHILD_LANE) == [step.start.run_id]
    assert await children_of(redis, keys, lease) == {step.start.run_id}


async def test_the_next_delivery_and_the_next_attempt_are_led_to_the_same_run(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    first = await store.step_start(a_start(lease))
    await let_leases_expire(store)
    again = await claim_one(store)
    assert (await store.step_start(a_start(again))).stored == first.stored
    await store.fail(a_failed_attempt(again))
    store.now_ms = (store.now_ms or 0) + 1000
    await store.promote(10)
    assert (await store.step_start(a_start(await claim_one(store)))).stored == first.stored


# ---- runs that cannot be ----


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (a_child(workflow="unheard-of", queue=None), FailureKind.UNKNOWN_WORKFLOW),
        (NewRun("nobody", "", Payload(b"{}")), FailureKind.RUN_NOT_FOUND),
    ],
    ids=["no such workflow", "no such run"],
)
async def test_a_run_that_cannot_be_is_a_failure_of_the_step_for_ever(
    store: Store, start: NewRun, kind: FailureKind
) -> None:
    lease = await start_one(store)
    answer = await store.step_start(a_start(lease, start=start))
    assert answer.stored is not None and answer.stored.failure is not None
    assert (answer.outcome, answer.stored.status, answer.stored.failure.kind) == (Outcome.OK, StepStatus.FAILED, kind)

    await register(store, a_workflow(name="unheard-of"))
    await enqueue_one(store, run_id="nobody", workflow="other")

    assert await store.step_start(a_start(lease, start=start)) == answer


# ---- refused ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_starts_another(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.step_start(ending_with_it(a_lease(run_id))) == StepRecorded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_after_the_lease_has_ended_or_passed_on_nothing_is_started(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    ended, lost = await start_one(store), await start_one(store)
    await store.complete(a_completion(ended))
    await let_leases_expire(store)
    before = await everything(redis, keys)
    assert (await store.step_start(a_start(ended))).outcome is Outcome.DUPLICATE
    assert (await store.step_start(a_start(lost))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before


async def test_a_failure_handler_starts_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(has_failure_handler=True))
    lease = await start_one(store)
    await store.fail(a_failed_attempt(lease))
    before = await everything(redis, keys)
    assert await store.step_start(a_start(lease)) == StepRecorded(Outcome.NOT_ALLOWED)
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("what", ["a step", "a failed step", "an open wait"])
async def test_a_step_of_another_kind_by_that_name_starts_nothing(
    store: Store, redis: RedisCommand, keys: Keys, what: str
) -> None:
    lease = await start_one(store)
    if what == "an open wait":
        await store.step_wait(some_waits(lease, an_event_wait("start")))
    else:
        await store.record_step(a_record(lease, a_step("start") if what == "a step" else a_failed_step("start")))
    before = await everything(redis, keys)
    assert await store.step_start(a_start(lease)) == StepRecorded(Outcome.NON_DETERMINISTIC, step_name="start")
    assert await everything(redis, keys) == before


async def test_a_store_with_fewer_steps_than_were_answered_starts_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    before = await everything(redis, keys)
    assert await store.step_start(a_start(lease, steps_recorded=1)) == StepRecorded(Outcome.STEPS_MISSING)
    assert await everything(redis, keys) == before


async def test_no_run_is_started_by_one_step_too_many(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    fields = [
        field
        for number in range(9_999)
        for field in (f"s:{number}", "failed|function|1|1|1|1|1|0||||", f"o:{number}", "")
    ]
    await redis("HSET", keys.steps(lease.run_id), *fields)
    await redis("HSET", keys.run(lease.run_id), "stepsDone", 9_999)
    assert (await store.step_start(a_start(lease, "fits"))).outcome is Outcome.OK
    answer = await store.step_start(a_start(lease, "does not"))
    assert answer == StepRecorded(Outcome.TOO_MANY_STEPS, step_name="does not")
    assert len(await lane_of(redis, keys, CHILD_LANE)) == 1


async def test_when_memory_is_full_neither_run_nor_step_is_stored(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    step = ending_with_it(lease, start=a_child(idempotency_key="key", idempotency_ttl_ms=HOUR_MS))
    before = await everything(redis, keys)
    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await store.step_start(step)
    assert await everything(redis, keys) == before
    assert (await store.step_start(step)).outcome is Outcome.OK
