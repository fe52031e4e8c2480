"""complete: a handler returned, so its run has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import AbortRun, ClaimedRun, CompleteRun, FailAttempt, LeaseEnded, Outcome, Release
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    LATER_STAMP,
    LEASE_MS,
    START_MS,
    Messages,
    Places,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_lease,
    a_record,
    a_release,
    a_step,
    a_workflow,
    an_abort,
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
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


# ---- the run has succeeded ----


async def test_a_run_succeeds_with_its_output(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 700

    answer = await store.complete(a_completion(lease, b'{"ok": true}'))

    assert answer == LeaseEnded(Outcome.OK, RunStatus.SUCCEEDED)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.output, run.failure) == (RunStatus.SUCCEEDED, Payload(b'{"ok": true}'), None)
    assert (run.attempt, run.started_at_ms, run.finished_at_ms) == (1, START_MS, START_MS + 700)
    assert run.available_at_ms is None


async def test_a_run_that_has_ended_stands_nowhere(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(start_timeout_ms=60_000, run_timeout_ms=60_000))
    lease = await start_one(store)

    await store.complete(a_completion(lease))

    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("succeeded",))
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) is None
    assert await redis("ZSCORE", keys.workflow_status("running", "w"), lease.run_id) is None
    assert await redis("ZSCORE", keys.workflow_status("succeeded", "w"), lease.run_id) is not None
    assert await redis("ZSCORE", keys.finished("succeeded"), lease.run_id) == START_MS
    record = await record_of(redis, keys, lease.run_id)
    assert not {"leaseToken", "leaseOwner"} & record.keys()


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES)
async def test_an_output_comes_back_as_it_was(store: Store, data: bytes) -> None:
    lease = await start_one(store)
    output = Payload(data, "text/plain; charset=none", (("", "é"), ("codec", "[]")))
    await store.complete(replace(a_completion(lease), output=output))
    assert (await store.read_run(lease.run_id)).output == output


async def test_no_output_is_told_from_an_empty_one(store: Store) -> None:
    nothing, empty = await start_one(store), await start_one(store)
    await store.complete(a_completion(nothing, None))
    await store.complete(a_completion(empty, b""))
    assert (await store.read_run(nothing.run_id)).output is None
    assert (await store.read_run(empty.run_id)).output == Payload(b"")


async def test_a_run_that_failed_before_it_succeeded_shows_no_failure(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.fail(a_failed_attempt(lease))
    store.now_ms = START_MS + 60_000
    await store.promote(10)
    lease = await claim_one(store)
    await store.complete(a_completion(lease))
    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.failure) == (RunStatus.SUCCEEDED, 2, None)


async def test_who_watches_hears_of_the_end(store: Store, redis_url: str, keys: Keys) -> None:
    lease = await start_one(store)
    assert await store.watch_run(lease.run_id, "gateway-9") is RunStatus.RUNNING
    async with Messages.on(redis_url, keys.gateway("gateway-9"), keys.gateway("gateway-8"), keys.wakeups) as messages:
        await store.complete(a_completion(lease))
        assert await messages.so_far() == [f"finished {lease.run_id}"]


async def test_a_run_does_not_end_before_it_starts(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS - 5000
    await store.complete(a_completion(lease))
    run = await store.read_run(lease.run_id)
    assert run.finished_at_ms == run.started_at_ms == START_MS


async def test_a_run_completes_without_a_receipt_of_its_assignment(store: Store) -> None:
    await enqueue_one(store)
    lease = await claim_one(store)
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.OK, RunStatus.SUCCEEDED)


async def test_runs_complete_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    async with memory_is_full(redis):
        answer = await store.complete(replace(a_completion(lease, b"x" * 10_000), final_steps=(a_step(),)))
    assert answer == LeaseEnded(Outcome.OK, RunStatus.SUCCEEDED)
    assert (await store.read_run(lease.run_id)).output == Payload(b"x" * 10_000)


# ---- cancel wins, then the run's time-out ----


async def test_a_run_with_a_cancel_request_ends_as_canceled(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id, "first reason")
    store.now_ms = START_MS + 100

    answer = await store.complete(a_completion(lease))

    assert answer == LeaseEnded(Outcome.OK, RunStatus.CANCELED)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason, run.cancel_requested_at_ms) == (
        RunStatus.CANCELED,
        "first reason",
        START_MS,
    )
    assert run.finished_at_ms == START_MS + 100
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("canceled",))


async def test_a_run_that_returns_after_its_time_is_over_has_failed(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(run_timeout_ms=60_000))
    lease = await start_one(store)
    store.now_ms = START_MS + 60_000
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.OK, RunStatus.FAILED)
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TIMEOUT
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))


# ---- only under the current lease ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_completes(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.complete(a_completion(a_lease(run_id))) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("token", ["", "x", "of another claim"])
async def test_a_wrong_token_is_refused(store: Store, redis: RedisCommand, keys: Keys, token: str) -> None:
    lease = await start_one(store)
    wrong = a_lease(lease.run_id).lease_token if token == "of another claim" else token
    before = await everything(redis, keys)
    answer = await store.complete(replace(a_completion(lease), lease_token=wrong, final_steps=(a_step(),)))
    assert answer == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_completes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await let_leases_expire(store)
    before = await everything(redis, keys)
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before

    later = await claim_one(store)
    before = await everything(redis, keys)
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before
    assert await store.complete(a_completion(later)) == LeaseEnded(Outcome.OK, RunStatus.SUCCEEDED)


async def test_a_lease_that_is_overdue_but_not_reaped_completes_its_run(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 10 * LEASE_MS
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.OK, RunStatus.SUCCEEDED)


# ---- repeats ----


async def test_a_repeated_result_gets_the_same_answer_and_changes_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.complete(a_completion(lease))
    before = await everything(redis, keys)
    store.now_ms = START_MS + 60_000
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.DUPLICATE, RunStatus.SUCCEEDED)
    assert await store.complete(a_completion(lease, b"other")) == LeaseEnded(Outcome.DUPLICATE, RunStatus.SUCCEEDED)
    assert await everything(redis, keys) == before


async def test_a_repeated_result_of_a_canceled_run_gets_the_same_answer(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    await store.complete(a_completion(lease))
    assert await store.complete(a_completion(lease)) == LeaseEnded(Outcome.DUPLICATE, RunStatus.CANCELED)


LATER_ITEMS = {
    "complete": a_completion,
    "fail": a_failed_attempt,
    "abort": an_abort,
    "release": a_release,
}


@pytest.mark.parametrize("item", LATER_ITEMS.values(), ids=LATER_ITEMS)
async def test_whatever_else_comes_under_the_token_that_ended_the_run_is_a_duplicate(
    store: Store,
    redis: RedisCommand,
    keys: Keys,
    item: Callable[[ClaimedRun], CompleteRun | FailAttempt | AbortRun | Release],
) -> None:
    lease = await start_one(store, max_attempts=5)
    await store.complete(a_completion(lease))
    before = await everything(redis, keys)

    match item(lease):
        case CompleteRun() as end:
            answer = await store.complete(end)
        case FailAttempt() as end:
            answer = await store.fail(end)
        case AbortRun() as end:
            answer = await store.abort(end)
        case Release() as release:
            answer = await store.release(release)

    assert answer == LeaseEnded(Outcome.DUPLICATE, RunStatus.SUCCEEDED)
    assert await everything(redis, keys) == before


# ---- steps that come with the result ----


async def test_a_store_with_fewer_steps_than_were_answered_does_not_end_the_run(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    before = await everything(redis, keys)
    end = replace(a_completion(lease), steps_recorded=2, final_steps=(a_step("c"),))
    assert (await store.complete(end)).outcome is Outcome.STEPS_MISSING
    assert await everything(redis, keys) == before

    await store.record_step(a_record(lease, a_step("b")))
    assert (await store.complete(end)).outcome is Outcome.OK


@pytest.mark.parametrize("cancels", ["succeeds", "is canceled"])
async def test_final_steps_are_recorded_when_the_run(store: Store, cancels: str) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a", b"1", seq=1)))
    if cancels == "is canceled":
        await request_cancel(store, lease.run_id)
    steps = (a_step("a", b"1", seq=1), a_step("b", b"2", seq=2), a_failed_step("c", seq=3))

    answer = await store.complete(replace(a_completion(lease), steps_recorded=1, final_steps=steps))

    assert (answer.outcome, answer.conflicts) == (Outcome.OK, ())
    recorded = await store.read_steps(lease.run_id, 1000)
    assert [(step.name, step.output) for step in recorded] == [
        ("a", Payload(b"1")),
        ("b", Payload(b"2")),
        ("c", None),
    ]
    assert recorded[2].failure == steps[2].failure


async def test_final_steps_count_as_steps(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    steps = (a_step("a"), a_step("b"), a_step("c"))
    await store.complete(replace(a_completion(lease), final_steps=steps))
    assert (await record_of(redis, keys, lease.run_id))["stepsDone"] == "3"


async def test_a_final_step_with_another_value_keeps_the_first_and_is_named(store: Store) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a", b"1", seq=1)))
    await store.record_step(a_record(lease, a_failed_step("b", seq=2)))
    steps = (a_step("a", b"other", seq=1), a_step("b", b"2", seq=2), a_step("c", b"3", seq=3))

    answer = await store.complete(replace(a_completion(lease), final_steps=steps))

    assert (answer.outcome, answer.status) == (Outcome.OK, RunStatus.SUCCEEDED)
    [stored] = answer.conflicts
    assert (stored.name, stored.seq, stored.status, stored.is_left_out) == ("a", 1, StepStatus.SUCCEEDED, True)
    recorded = await store.read_steps(lease.run_id, 1000)
    assert [step.output for step in recorded] == [Payload(b"1"), Payload(b"2"), Payload(b"3")]


async def test_one_final_step_that_cannot_be_recorded_refuses_the_whole_result(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    before = await everything(redis, keys)
    steps = (a_step("b"), a_step("a", kind=StepKind.TIMER), a_step("c"))

    answer = await store.complete(replace(a_completion(lease), final_steps=steps))

    assert answer == LeaseEnded(Outcome.NON_DETERMINISTIC, step_name="a")
    assert await everything(redis, keys) == before
    assert (await store.complete(a_completion(lease))).outcome is Outcome.OK


async def test_two_final_steps_of_one_name_are_one_step(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    steps = (a_step("a", b"1"), a_step("a", b"1"), a_step("a", b"2"))
    answer = await store.complete(replace(a_completion(lease), final_steps=steps))
    assert answer.status is RunStatus.SUCCEEDED
    assert [step.output for step in await store.read_steps(lease.run_id, 100)] == [Payload(b"1")]
    assert (await record_of(redis, keys, lease.run_id))["stepsDone"] == "1"
    assert [step.name for step in answer.conflicts] == ["a"]


# ---- nothing leaves a terminal state ----


async def test_a_run_that_has_ended_never_changes(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=3)
    await store.complete(a_completion(lease))
    before = await everything(redis, keys)

    assert not await store.cancel(lease.run_id, "too late", "cancel-1")
    assert (await store.record_step(a_record(lease))).outcome is Outcome.LEASE_LOST
    await store.fail(a_failed_attempt(lease))
    await renew_one(store, lease, LATER_STAMP)
    await store.promote(10)
    await store.expire(10)

    assert await everything(redis, keys) == before
