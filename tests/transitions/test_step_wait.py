"""step_wait: what a run is going to wait for begins, while it goes on itself."""

from __future__ import annotations

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import Outcome, Suspended
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    STAMP,
    START_MS,
    Messages,
    a_completion,
    a_failed_attempt,
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
    places,
    put_in_state,
    record_of,
    register,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    a_completed_token,
    a_sleep,
    a_suspension,
    a_token_wait,
    a_wait,
    a_wait_for,
    an_event_wait,
    child_id,
    some_waits,
    token_of,
)

GOES_ON = Suspended(Outcome.OK)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def test_the_child_is_started_and_the_run_keeps_its_lease(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    lease = await start_one(store)
    wait = a_wait()
    async with Messages.on(redis_url, keys.wakeups) as messages:
        assert await store.step_wait(some_waits(lease, wait)) == GOES_ON
        assert [word.split()[0] for word in await messages.so_far()] == ["lane"]

    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(wait)]
    assert (await store.read_run(child_id(wait))).parent_run_id == lease.run_id
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    assert (await record_of(redis, keys, lease.run_id))["leaseToken"] == lease.lease_token


async def test_a_wait_shows_that_the_assignment_arrived(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=5000))
    await enqueue_one(store)
    lease = await claim_one(store)
    await store.step_wait(some_waits(lease))
    assert (await record_of(redis, keys, lease.run_id))["acked"] == "1"
    assert (await store.expire(10)).next_at_ms is None, "it has started in time"


async def test_a_child_that_ends_meanwhile_is_answered_by_the_suspension(store: Store) -> None:
    lease = await start_one(store)
    wait = a_wait()
    await store.step_wait(some_waits(lease, wait))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    answer = await store.suspend(a_suspension(lease, wait))
    assert (answer.outcome, [step.status for step in answer.resolutions]) == (Outcome.RESOLVED, [StepStatus.SUCCEEDED])


async def test_a_repeat_starts_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    command = some_waits(lease)
    await store.step_wait(command)
    before = await everything(redis, keys)
    assert await store.step_wait(command) == GOES_ON
    assert await everything(redis, keys) == before


async def test_a_repeat_after_the_child_has_ended_starts_nothing_and_is_answered_with_its_value(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    command = some_waits(lease)
    await store.step_wait(command)
    await store.complete(a_completion(await claim_one(store, CHILD_LANE), b"7"))
    before = await everything(redis, keys)

    answer = await store.step_wait(command)

    assert (answer.outcome, [step.output for step in answer.resolutions]) == (Outcome.RESOLVED, [Payload(b"7")])
    assert await everything(redis, keys) == before


async def test_after_a_lost_worker_the_next_one_is_led_to_the_same_child(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    wait = a_wait()
    await store.step_wait(some_waits(lease, wait))
    await let_leases_expire(store)
    again = await claim_one(store)
    assert [(step.name, step.status) for step in again.steps or ()] == [("child", StepStatus.WAITING)]
    await store.step_wait(some_waits(again, wait))
    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(wait)]


async def test_a_wait_for_a_run_that_cannot_be_fails_in_its_step_and_does_not_refuse_the_command(store: Store) -> None:
    lease = await start_one(store)
    answer = await store.step_wait(some_waits(lease, a_wait_for("nobody")))
    [step] = answer.resolutions
    assert step.failure is not None
    assert (step.status, step.failure.kind) == (StepStatus.FAILED, FailureKind.RUN_NOT_FOUND)
    assert await store.read_steps(lease.run_id, 1000) == answer.resolutions


async def test_the_token_of_an_open_wait_is_answered_each_time_and_stays_the_same(store: Store) -> None:
    lease = await start_one(store)
    wait = a_token_wait(lease, "ask")
    for again in (wait, wait, a_token_wait(lease, "ask")):
        answer = await store.step_wait(some_waits(lease, a_sleep(), again))
        [step] = answer.resolutions
        assert answer.outcome is Outcome.RESOLVED
        assert (step.name, step.kind, step.status, step.token) == (
            *("ask", StepKind.TOKEN, StepStatus.WAITING),
            token_of(wait),
        )


async def test_one_that_was_completed_is_answered_with_its_value(store: Store) -> None:
    lease = await start_one(store)
    wait = a_token_wait(lease)
    await store.step_wait(some_waits(lease, wait))
    await store.complete_token(a_completed_token(token_of(wait), b"7"))
    answer = await store.step_wait(some_waits(lease, a_token_wait(lease)))
    assert [(step.token, step.output) for step in answer.resolutions] == [(token_of(wait), Payload(b"7"))]


async def test_waits_of_every_kind_begin_at_once(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    waits = a_sleep("timer"), an_event_wait("event"), a_wait("child"), a_token_wait(lease, "token")
    await store.step_wait(some_waits(lease, *waits))
    waiting_for = (await store.read_run(lease.run_id)).waiting_for
    assert {found.step_name: found.kind.value for found in waiting_for} == {wait.name: wait.name for wait in waits}
    assert (await record_of(redis, keys, lease.run_id))["openWaits"] == "4"


async def test_its_worker_hears_in_the_answer_and_by_no_message_of_what_is_over_at_once(
    store: Store, keys: Keys, redis_url: str
) -> None:
    lease = await start_one(store)
    await store.emit_event(an_event())
    waits = a_sleep(ms=0), an_event_wait(), a_wait_for("nobody")
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        answer = await store.step_wait(some_waits(lease, *waits))
        assert await messages.so_far() == []
    assert [step.name for step in answer.resolutions] == ["sleep", "event", "child"]


async def test_a_request_to_cancel_is_passed_on(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    assert await store.step_wait(some_waits(lease)) == Suspended(Outcome.OK, cancel_requested=True)


async def test_a_failure_handler_waits_for_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(has_failure_handler=True))
    lease = await start_one(store)
    await store.fail(a_failed_attempt(lease))
    before = await everything(redis, keys)
    assert await store.step_wait(some_waits(lease)) == Suspended(Outcome.NOT_ALLOWED)
    assert await store.suspend(a_suspension(lease)) == Suspended(Outcome.NOT_ALLOWED)
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_starts_children(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.step_wait(some_waits(a_lease(run_id))) == Suspended(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_after_the_lease_has_ended_the_answer_is_how(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease))
    before = await everything(redis, keys)
    assert await store.step_wait(some_waits(lease)) == Suspended(Outcome.DUPLICATE, RunStatus.WAITING)
    assert await everything(redis, keys) == before


async def test_steps_that_are_missing_and_names_of_other_kinds_refuse_it(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("step")))
    before = await everything(redis, keys)
    answer = await store.step_wait(some_waits(lease, a_wait("step")))
    assert answer == Suspended(Outcome.NON_DETERMINISTIC, step_name="step")
    assert await store.step_wait(some_waits(lease, steps_recorded=2)) == Suspended(Outcome.STEPS_MISSING)
    assert await everything(redis, keys) == before
