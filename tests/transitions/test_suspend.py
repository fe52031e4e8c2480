"""suspend: a run waits for the end of other runs, without a worker, and goes on when one of them has ended."""

from __future__ import annotations

import pytest

from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.leases import CompleteRun, LeaseStanding, Outcome, Standing, Suspended
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    START_MS,
    Messages,
    Places,
    a_completion,
    a_failed_attempt,
    a_failure,
    a_lease,
    a_record,
    a_step,
    a_workflow,
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
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, a_wait_for, child_id, some_waits

WAITING = Suspended(Outcome.OK, RunStatus.WAITING)
RUN_TIMEOUT_MS = 600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def end_child(store: Store, output: bytes | None = b'"done"') -> str:
    """Claims the first child in its lane and completes it; its id."""
    child = await claim_one(store, CHILD_LANE)
    await store.complete(a_completion(child, output))
    return child.run_id


# ---- waiting ----


async def test_a_suspended_run_has_no_lease_and_stands_nowhere(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)

    assert await store.suspend(a_suspension(lease)) == WAITING

    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("waiting",))
    assert not {"leaseToken", "leaseOwner", "acked"} & (await record_of(redis, keys, lease.run_id)).keys()
    assert await renew_one(store, lease) == LeaseStanding(lease.lease_token, Standing.FINISHED)


async def test_the_run_that_it_waits_for_is_started_as_its_child(store: Store) -> None:
    lease = await start_one(store)
    wait = a_wait("step", max_attempts=3, priority=7, idempotency_key="key")

    await store.suspend(a_suspension(lease, wait))

    child = await store.read_run(child_id(wait))
    assert (child.workflow, child.queue) == (CHILD_LANE.workflow, CHILD_LANE.queue)
    assert (child.status, child.parent_run_id) == (RunStatus.QUEUED, lease.run_id)
    assert (child.input, child.max_attempts, child.priority) == (Payload(b'{"n":2}'), 3, 7)
    assert child.idempotency_key == "key"


async def test_the_run_says_in_which_step_and_since_when_it_waits_for_which_run(store: Store) -> None:
    lease = await start_one(store)
    wait = a_wait("step")
    store.now_ms = START_MS + 5
    await store.suspend(a_suspension(lease, wait))

    [waiting_for] = (await store.read_run(lease.run_id)).waiting_for
    assert (waiting_for.step_name, waiting_for.since_ms) == ("step", START_MS + 5)
    assert child_id(wait) in waiting_for.detail
    [step] = await store.read_steps(lease.run_id, 100)
    assert (step.name, step.kind, step.status) == ("step", StepKind.CHILD, StepStatus.WAITING)
    assert (step.child_run_id, step.started_at_ms, step.finished_at_ms) == (child_id(wait), START_MS + 5, None)


async def test_a_child_starts_through_its_registration_when_no_queue_is_named(store: Store) -> None:
    await register(store, a_workflow(name="registered", queue="registered-queue", max_attempts=4))
    wait = a_wait(workflow="registered", queue=None)
    await store.suspend(a_suspension(await start_one(store), wait))
    child = await store.read_run(child_id(wait))
    assert (child.queue, child.max_attempts) == ("registered-queue", 4)


# ---- going on ----


@pytest.mark.parametrize("output", [None, *AWKWARD_BYTES.values()], ids=["nothing", *AWKWARD_BYTES])
async def test_a_run_goes_on_in_its_old_place_with_what_its_child_returned(
    store: Store, redis: RedisCommand, keys: Keys, output: bytes | None
) -> None:
    lease = await start_one(store)
    behind = await enqueue_one(store)
    wait = a_wait("step")
    await store.suspend(a_suspension(lease, wait))
    store.now_ms = START_MS + 9

    await end_child(store, output)

    assert await lane_of(redis, keys) == [lease.run_id, behind]
    again = await claim_one(store)
    assert (again.run_id, again.attempt, again.deliveries) == (lease.run_id, 1, 2)
    [step] = await store.read_steps(again.run_id, 2**21)
    assert (step.status, step.is_final, step.finished_at_ms) == (StepStatus.SUCCEEDED, True, START_MS + 9)
    assert step.output == (None if output is None else Payload(output))
    assert step.child_run_id == child_id(wait)


async def test_what_goes_with_an_output_comes_along(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease))
    output = Payload(b"\x00", "application/x", (("a|b", "c"),))
    child = await claim_one(store, CHILD_LANE)
    await store.complete(CompleteRun(child.run_id, child.lease_token, 0, output))
    [step] = await store.read_steps(lease.run_id, 100)
    assert step.output == output


async def test_gateways_hear_of_the_lane_in_which_it_goes_on(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    await store.suspend(a_suspension(await start_one(store)))
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await end_child(store)
        number = int(await redis("ZSCORE", keys.lanes, "1:q:1:w"))
        assert await messages.so_far() == [f"lane {number} 1:q:1:w"]


async def test_a_child_that_failed_is_a_failure_of_the_step_with_its_cause(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease))
    child = await claim_one(store, CHILD_LANE)
    failure = a_failure(message='it "broke"\n')

    await store.fail(a_failed_attempt(child, failure))

    [step] = await store.read_steps(lease.run_id, 1000)
    message = f"run {child.run_id} has failed"
    assert step.status is StepStatus.FAILED
    assert step.failure == Failure("ChildFailedError", message, FailureKind.ERROR, cause=failure)


async def test_a_child_that_is_retried_has_not_ended(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, a_wait(max_attempts=2)))
    await store.fail(a_failed_attempt(await claim_one(store, CHILD_LANE)))
    assert (await store.read_run(lease.run_id)).status is RunStatus.WAITING
    assert await lane_of(redis, keys) == []


async def test_a_child_that_was_canceled_is_a_failure_of_the_step(store: Store) -> None:
    lease = await start_one(store)
    wait = a_wait()
    await store.suspend(a_suspension(lease, wait))
    await request_cancel(store, child_id(wait))
    [step] = await store.read_steps(lease.run_id, 1000)
    message = f"run {child_id(wait)} was canceled"
    assert step.failure == Failure("ChildCanceledError", message, FailureKind.CANCELED)
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED


async def test_the_first_of_several_waits_that_ends_is_enough_and_the_others_stay_open(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    waits = a_wait("a"), a_wait("b"), a_wait("c")
    await store.suspend(a_suspension(lease, *waits))
    first = await end_child(store)
    again = await claim_one(store)
    await renew_one(store, again)

    second = await end_child(store)

    assert (await places(redis, keys, again.run_id)).statuses == ("running",), "it hears of it when it asks"
    statuses = {step.child_run_id: step.status for step in await store.read_steps(again.run_id, 1000)}
    assert statuses == {first: StepStatus.SUCCEEDED, second: StepStatus.SUCCEEDED, child_id(waits[2]): "waiting"}

    told = await store.suspend(a_suspension(again, waits[2], steps_recorded=1))
    assert told.outcome is Outcome.RESOLVED, "its worker knows of one, and names only the open one"
    assert {step.child_run_id for step in told.resolutions} == {first, second}
    assert await store.suspend(a_suspension(again, waits[2], steps_recorded=2)) == WAITING


async def test_an_ended_wait_is_progress(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease))
    await let_leases_expire(store)
    assert (await store.read_run(lease.run_id)).losses == 1
    await end_child(store)
    assert (await store.read_run(lease.run_id)).losses == 0


async def test_a_child_may_end_between_two_attempts_of_its_parent(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    wait = a_wait("step")
    await store.step_wait(some_waits(lease, wait))
    await store.fail(a_failed_attempt(lease))
    await end_child(store)
    assert (await store.read_run(lease.run_id)).status is RunStatus.SCHEDULED
    store.now_ms = START_MS + 1000
    await store.promote(10)
    again = await claim_one(store)
    answer = await store.suspend(a_suspension(again, wait))
    assert (answer.outcome, [step.name for step in answer.resolutions]) == (Outcome.RESOLVED, ["step"])


# ---- waits that are over when they are registered ----


async def test_a_wait_that_is_over_keeps_the_lease_and_is_answered_with_its_value(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    ended = await start_one(store)
    await store.complete(a_completion(ended, b"[1]"))
    lease = await start_one(store)

    answer = await store.suspend(a_suspension(lease, a_wait_for(ended.run_id, "known"), a_wait("new")))

    assert (answer.outcome, answer.status) == (Outcome.RESOLVED, None)
    [step] = answer.resolutions
    assert (step.name, step.status, step.output) == ("known", StepStatus.SUCCEEDED, Payload(b"[1]"))
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    assert len(await lane_of(redis, keys, CHILD_LANE)) == 1, "the others are started all the same"
    assert (await renew_one(store, lease)).standing is Standing.HELD


@pytest.mark.parametrize(
    ("wait", "type_", "kind"),
    [
        (a_wait_for("nobody", "step"), "RunNotFoundError", FailureKind.RUN_NOT_FOUND),
        (a_wait("step", workflow="unheard-of", queue=None), "UnknownWorkflowError", FailureKind.UNKNOWN_WORKFLOW),
    ],
    ids=["no such run", "no such workflow"],
)
async def test_a_wait_for_a_run_that_cannot_be_fails_in_its_step(
    store: Store, wait: object, type_: str, kind: FailureKind
) -> None:
    lease = await start_one(store)
    answer = await store.suspend(a_suspension(lease, wait))  # type: ignore[arg-type]  # a Wait, of a parameter
    [step] = answer.resolutions
    assert step.failure is not None
    assert (answer.outcome, step.failure.type, step.failure.kind) == (Outcome.RESOLVED, type_, kind)


async def test_a_wait_that_is_over_stays_what_it_was(store: Store) -> None:
    lease = await start_one(store)
    missing = a_wait_for("later", "step")
    first = await store.suspend(a_suspension(lease, missing))
    await enqueue_one(store, run_id="later", workflow="other")
    assert await store.suspend(a_suspension(lease, missing)) == first


async def test_values_are_left_out_where_they_are_too_large_for_the_answer(store: Store) -> None:
    waits = []
    for number, size in enumerate((600_000, 600_000, 10)):
        ended = await start_one(store)
        await store.complete(a_completion(ended, b"1" * size))
        waits.append(a_wait_for(ended.run_id, str(number)))
    answer = await store.suspend(a_suspension(await start_one(store), *waits))
    assert [step.is_left_out for step in answer.resolutions] == [False, True, False]


# ---- settling instead ----


async def test_a_run_with_a_cancel_request_is_canceled_and_starts_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    assert await store.suspend(a_suspension(lease)) == Suspended(Outcome.OK, RunStatus.CANCELED)
    assert await lane_of(redis, keys, CHILD_LANE) == []


async def test_a_run_whose_time_is_over_fails_and_starts_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(run_timeout_ms=RUN_TIMEOUT_MS))
    lease = await start_one(store)
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    assert await store.suspend(a_suspension(lease)) == Suspended(Outcome.OK, RunStatus.FAILED)
    assert await lane_of(redis, keys, CHILD_LANE) == []


# ---- refusals, repeats ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_is_suspended(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.suspend(a_suspension(a_lease(run_id))) == Suspended(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_suspends_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await let_leases_expire(store)
    before = await everything(redis, keys)
    assert await store.suspend(a_suspension(lease)) == Suspended(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_repeated_suspension_gets_the_same_answer_and_starts_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    suspension = a_suspension(lease)
    await store.suspend(suspension)
    before = await everything(redis, keys)
    assert await store.suspend(suspension) == Suspended(Outcome.DUPLICATE, RunStatus.WAITING)
    assert await everything(redis, keys) == before


async def test_a_repeat_after_the_run_went_on_does_not_suspend_it_again(store: Store) -> None:
    lease = await start_one(store)
    suspension = a_suspension(lease)
    await store.suspend(suspension)
    await end_child(store)
    again = await claim_one(store)
    assert await store.suspend(suspension) == Suspended(Outcome.DUPLICATE, RunStatus.WAITING)
    assert (await renew_one(store, again)).standing is Standing.HELD


async def test_a_store_with_fewer_steps_than_were_answered_suspends_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    before = await everything(redis, keys)
    assert await store.suspend(a_suspension(lease, steps_recorded=1)) == Suspended(Outcome.STEPS_MISSING)
    assert await everything(redis, keys) == before


async def test_one_wait_under_the_name_of_a_step_of_another_kind_refuses_all(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("step")))
    before = await everything(redis, keys)
    answer = await store.suspend(a_suspension(lease, a_wait("other"), a_wait("step")))
    assert answer == Suspended(Outcome.NON_DETERMINISTIC, step_name="step")
    assert await everything(redis, keys) == before


async def test_waits_count_among_the_steps_that_there_may_be(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    fields = [
        field
        for number in range(9_999)
        for field in (f"s:{number}", "failed|function|1|1|1|1|1|0||||", f"o:{number}", "")
    ]
    await redis("HSET", keys.steps(lease.run_id), *fields)
    await redis("HSET", keys.run(lease.run_id), "stepsDone", 9_999)
    answer = await store.suspend(a_suspension(lease, a_wait("fits"), a_wait("does not")))
    assert answer == Suspended(Outcome.TOO_MANY_STEPS, step_name="does not")
    assert await lane_of(redis, keys, CHILD_LANE) == []
    assert await store.suspend(a_suspension(lease, a_wait("fits"))) == WAITING
