"""record_step: what a step function did becomes durable, under the run's current lease only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from redflow_server.domain.leases import ClaimedRun, Outcome, ReleaseReason, StepRecord
from redflow_server.domain.names import MAX_STEPS
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    LEASE_MS,
    STAMP,
    START_MS,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_failure,
    a_lease,
    a_record,
    a_release,
    a_step,
    a_workflow,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    let_leases_expire,
    memory_is_full,
    places,
    put_in_state,
    record_of,
    register,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand

ANY_BYTES = 10 * 1024 * 1024


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def steps_of(store: Store, lease: ClaimedRun) -> list[Step]:
    return list(await store.read_steps(lease.run_id, ANY_BYTES))


# ---- what is on record ----


async def test_a_step_is_on_record_with_its_value_and_times(store: Store) -> None:
    lease = await start_one(store)

    answer = await store.record_step(a_record(lease, a_step("a", b'{"n": 1}', seq=7, elapsed_ms=40)))

    assert (answer.outcome, answer.cancel_requested, answer.stored) == (Outcome.OK, False, None)
    [step] = await steps_of(store, lease)
    assert step == Step(
        name="a",
        seq=7,
        kind=StepKind.FUNCTION,
        status=StepStatus.SUCCEEDED,
        attempt=1,
        started_at_ms=START_MS - 40,
        finished_at_ms=START_MS,
        output=Payload(b'{"n": 1}'),
        size_bytes=8,
    )


async def test_a_step_that_is_tried_again_has_started_with_its_first_try_in_the_attempt(store: Store) -> None:
    lease = await start_one(store)
    for number, step in ((1, a_failed_step()), (2, a_failed_step()), (3, a_step())):
        store.now_ms = START_MS + number * 100
        one = a_record(lease, replace(step, elapsed_ms=40, tries=number))
        assert (await store.record_step(one)).outcome is Outcome.OK
    [step] = await steps_of(store, lease)
    assert (step.tries, step.started_at_ms, step.finished_at_ms) == (3, START_MS + 60, START_MS + 300)


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES)
async def test_a_value_comes_back_as_it_was(store: Store, data: bytes) -> None:
    lease = await start_one(store)
    output = Payload(data, "application/x-awkward", (("codec", "none|really"), ("é", "")))

    await store.record_step(a_record(lease, replace(a_step(), output=output)))

    [step] = await steps_of(store, lease)
    assert step.output == output


async def test_a_step_without_output_is_told_from_one_with_an_empty_output(store: Store) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("nothing", None, seq=1)))
    await store.record_step(a_record(lease, a_step("empty", b"", seq=2)))
    nothing, empty = await steps_of(store, lease)
    assert (nothing.output, empty.output) == (None, Payload(b""))


async def test_a_failed_step_is_on_record_with_its_failure(store: Store) -> None:
    lease = await start_one(store)
    cause = a_failure(type="OSError", message="\x00 | \U0001f300")
    step = a_failed_step(failure=a_failure(message="ünlucky", traceback="line 1", cause=cause), is_final=True)

    await store.record_step(a_record(lease, step))

    [stored] = await steps_of(store, lease)
    assert (stored.status, stored.failure, stored.output) == (StepStatus.FAILED, step.failure, None)
    assert stored.is_final


@pytest.mark.parametrize("other", ["s:a", "o:a", "A", "a ", "a:", "a|b", "s:s:a", "步"])
async def test_no_step_sees_the_value_of_another(store: Store, other: str) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a", b"1", seq=1)))
    assert (await store.record_step(a_record(lease, a_step(other, b"2", seq=2)))).outcome is Outcome.OK
    assert [(step.name, step.output) for step in await steps_of(store, lease)] == [
        ("a", Payload(b"1")),
        (other, Payload(b"2")),
    ]


async def test_a_step_carries_the_attempt_it_ran_in(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.fail(a_failed_attempt(lease, a_failure(next_retry_delay_ms=0)))
    lease = await claim_one(store)
    await store.record_step(a_record(lease))
    [step] = await steps_of(store, lease)
    assert step.attempt == 2


async def test_recording_leaves_run_and_lease_where_they_are(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    before = await places(redis, keys, lease.run_id)
    store.now_ms = START_MS + 1000
    await store.record_step(a_record(lease))
    assert await places(redis, keys, lease.run_id) == before


# ---- the first success is for ever ----


async def test_the_same_report_again_is_a_duplicate(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    before = await everything(redis, keys)
    store.now_ms = START_MS + 1000

    again = await store.record_step(a_record(lease))

    assert again.outcome is Outcome.DUPLICATE
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES)
async def test_another_value_is_a_conflict_and_the_stored_one_is_answered(store: Store, data: bytes) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step(output=data)))

    answer = await store.record_step(a_record(lease, a_step(output=b"other")))

    assert answer.outcome is Outcome.CONFLICT
    assert answer.stored is not None
    assert (answer.stored.name, answer.stored.output) == ("a", Payload(data))
    [step] = await steps_of(store, lease)
    assert step == answer.stored


async def test_a_failure_does_not_replace_a_success(store: Store) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step(output=b"1")))
    answer = await store.record_step(a_record(lease, a_failed_step()))
    assert answer.outcome is Outcome.CONFLICT
    assert answer.stored is not None
    assert answer.stored.output == Payload(b"1")


@pytest.mark.parametrize(
    "later", [a_step(output=b"1"), a_failed_step(message="again")], ids=["a success", "another failure"]
)
async def test_a_failure_may_be_replaced(store: Store, later: StepRecord) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_failed_step(is_final=True)))

    assert (await store.record_step(a_record(lease, later))).outcome is Outcome.OK

    [step] = await steps_of(store, lease)
    assert (step.status, step.output, step.failure, step.is_final) == (later.status, later.output, later.failure, False)


async def test_a_name_keeps_its_kind(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    before = await everything(redis, keys)
    answer = await store.record_step(a_record(lease, a_step(kind=StepKind.TIMER)))
    assert answer.outcome is Outcome.NON_DETERMINISTIC
    assert await everything(redis, keys) == before


# ---- only under the current lease ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_no_run_that_is_not_leased_takes_a_step(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert (await store.record_step(a_record(a_lease(run_id)))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before


async def test_a_wrong_token_is_refused(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    before = await everything(redis, keys)
    assert (await store.record_step(a_record(a_lease(lease.run_id)))).outcome is Outcome.LEASE_LOST
    assert (await store.record_step(a_record(lease, lease_token=""))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before


async def test_the_token_of_a_lease_that_was_reaped_is_refused(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    await let_leases_expire(store)
    before = await everything(redis, keys)
    assert (await store.record_step(a_record(lease))).outcome is Outcome.LEASE_LOST
    assert (await store.record_step(a_record(lease, a_step("b")))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before


async def test_the_token_of_an_earlier_lease_is_refused(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await let_leases_expire(store)
    later = await claim_one(store)
    assert later.run_id == lease.run_id
    before = await everything(redis, keys)
    assert (await store.record_step(a_record(lease))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before
    assert (await store.record_step(a_record(later))).outcome is Outcome.OK


async def test_a_lease_that_is_overdue_but_not_reaped_still_takes_steps(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 10 * LEASE_MS
    assert (await store.record_step(a_record(lease))).outcome is Outcome.OK


async def test_after_the_end_a_recorded_step_is_a_duplicate_and_another_is_lost(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    await store.complete(a_completion(lease))
    before = await everything(redis, keys)
    assert (await store.record_step(a_record(lease, a_step("a")))).outcome is Outcome.DUPLICATE
    assert (await store.record_step(a_record(lease, a_step("b")))).outcome is Outcome.LEASE_LOST
    assert await everything(redis, keys) == before


# ---- what the answer tells, and what it counts for ----


async def test_a_store_with_fewer_steps_than_were_answered_asks_for_them(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    await store.record_step(a_record(lease, a_step("b"), steps_recorded=1))
    before = await everything(redis, keys)
    assert (await store.record_step(a_record(lease, a_step("c"), steps_recorded=3))).outcome is Outcome.STEPS_MISSING
    assert await everything(redis, keys) == before
    assert (await store.record_step(a_record(lease, a_step("c"), steps_recorded=2))).outcome is Outcome.OK


async def test_a_step_that_is_recorded_again_counts_once(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    for step in (a_failed_step("a"), a_failed_step("a", "again"), a_step("a"), a_step("a"), a_step("b")):
        await store.record_step(a_record(lease, step))
    assert (await record_of(redis, keys, lease.run_id))["stepsDone"] == "2"


async def test_the_answer_says_that_a_cancel_was_requested(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    answer = await store.record_step(a_record(lease))
    assert (answer.outcome, answer.cancel_requested) == (Outcome.OK, True)
    again = await store.record_step(a_record(lease))
    assert (again.outcome, again.cancel_requested) == (Outcome.DUPLICATE, True)


@pytest.mark.parametrize(
    ("report", "losses"),
    [
        (lambda: a_step("new"), 0),
        (lambda: a_step("old"), 1),
        (lambda: a_step("old", b"other"), 1),
        (lambda: a_failed_step("new"), 1),
    ],
    ids=["first success", "repeated success", "conflict", "failure"],
)
async def test_only_the_first_success_of_a_step_is_progress(
    store: Store, report: Callable[[], StepRecord], losses: int
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("old")))
    await store.release(a_release(lease, ReleaseReason.VANISHED))
    lease = await claim_one(store)
    assert (await store.read_run(lease.run_id)).losses == 1

    await store.record_step(a_record(lease, report()))

    assert (await store.read_run(lease.run_id)).losses == losses


async def test_a_success_after_failures_of_the_step_is_progress(store: Store) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_failed_step("a")))
    await store.release(a_release(lease, ReleaseReason.VANISHED))
    lease = await claim_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    assert (await store.read_run(lease.run_id)).losses == 0


async def test_a_step_is_a_receipt_of_the_assignment(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000))
    await enqueue_one(store)
    lease = await claim_one(store)
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) is not None

    await store.record_step(a_record(lease))

    undelivered = a_release(lease, ReleaseReason.UNDELIVERED, stamp=STAMP)
    assert (await store.release(undelivered)).outcome is not Outcome.OK
    assert (await store.read_run(lease.run_id)).status is RunStatus.RUNNING
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) is None, "it has started, so it need not start any more"


async def test_a_run_has_a_limited_number_of_steps(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    for first in range(0, MAX_STEPS, 2000):
        calls = [store.record_step(a_record(lease, a_step(f"s{n}", seq=n))) for n in range(first, first + 2000)]
        assert {(await call).outcome for call in calls} == {Outcome.OK}

    assert (await store.record_step(a_record(lease, a_step("more")))).outcome is Outcome.TOO_MANY_STEPS
    assert (await store.record_step(a_record(lease, a_step("s7", seq=7)))).outcome is Outcome.DUPLICATE
    assert (await record_of(redis, keys, lease.run_id))["stepsDone"] == str(MAX_STEPS)
    assert len(await steps_of(store, lease)) == MAX_STEPS


async def test_steps_are_recorded_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    async with memory_is_full(redis):
        answer = await store.record_step(a_record(lease))
    assert answer.outcome is Outcome.OK
    assert [step.name for step in await steps_of(store, lease)] == ["a"]
