"""fail: an attempt raised, so the run is tried again after a delay, or has failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redflow_server.domain.failures import NOT_RETRIED, Failure, FailureKind, RetryHint
from redflow_server.domain.leases import ClaimedRun, LeaseEnded, Outcome, ReleaseReason
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import RetryPolicy
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    Places,
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
    lane_of,
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

RETRIED = LeaseEnded(Outcome.OK, RunStatus.SCHEDULED)
FAILED = LeaseEnded(Outcome.OK, RunStatus.FAILED)
AT_ONCE = a_failure(next_retry_delay_ms=0)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def in_attempt(store: Store, attempt: int, **run: object) -> ClaimedRun:
    """A lease of a run that has failed so often that this is the attempt it is in."""
    lease = await start_one(store, **run)
    for _ in range(1, attempt):
        await store.fail(a_failed_attempt(lease, AT_ONCE))
        lease = await claim_one(store)
    assert lease.attempt == attempt
    return lease


async def delay_after(store: Store, lease: ClaimedRun, failure: Failure | None = None, jitter: float = 0.0) -> int:
    """Fails the attempt; how long the run has to wait for the next one, in milliseconds."""
    assert await store.fail(a_failed_attempt(lease, failure, jitter=jitter)) == RETRIED
    available_at_ms = (await store.read_run(lease.run_id)).available_at_ms
    assert available_at_ms is not None
    assert store.now_ms is not None
    return available_at_ms - store.now_ms


# ---- another attempt ----


async def test_a_failed_attempt_with_attempts_left_is_scheduled_again(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=2)
    store.now_ms = START_MS + 500

    assert await store.fail(a_failed_attempt(lease)) == RETRIED

    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.failures) == (RunStatus.SCHEDULED, 1, 1)
    assert (run.failure, run.finished_at_ms) == (a_failure(), None)
    assert await places(redis, keys, lease.run_id) == Places((), START_MS + 750, None, ("scheduled",))
    assert not {"leaseToken", "leaseOwner"} & (await record_of(redis, keys, lease.run_id)).keys()


async def test_the_next_attempt_counts_one_more_and_keeps_the_first_start(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    store.now_ms = START_MS + 500
    await store.fail(a_failed_attempt(lease))
    store.now_ms = START_MS + 750
    await store.promote(10)
    lease = await claim_one(store)
    assert (lease.attempt, lease.max_attempts) == (2, 2)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.started_at_ms) == (RunStatus.RUNNING, 2, START_MS)
    assert run.available_at_ms is None


@pytest.mark.parametrize(
    ("attempt", "delay_ms"), [(1, 250), (2, 500), (3, 1000), (7, 16_000), (8, 30_000), (9, 30_000), (60, 30_000)]
)
async def test_delays_double_up_to_30_s(store: Store, attempt: int, delay_ms: int) -> None:
    lease = await in_attempt(store, attempt, max_attempts=100)
    assert await delay_after(store, lease) == delay_ms


@pytest.mark.parametrize(("jitter", "more_ms"), [(0.0, 0), (0.5, 50), (0.999_999, 99)])
async def test_jitter_adds_less_than_100_ms(store: Store, jitter: float, more_ms: int) -> None:
    lease = await start_one(store, max_attempts=2)
    assert await delay_after(store, lease, jitter=jitter) == 250 + more_ms


@pytest.mark.parametrize(("attempt", "delay_ms"), [(1, 1000), (2, 3000), (3, 5000), (40, 5000)])
async def test_a_policy_sets_the_delays(store: Store, attempt: int, delay_ms: int) -> None:
    await register(store, a_workflow(max_attempts=100, retry_policy=RetryPolicy(1000, 3.0, 5000, 0.5)))
    lease = await in_attempt(store, attempt)
    assert await delay_after(store, lease) == delay_ms


async def test_the_jitter_of_a_policy_is_a_part_of_the_delay(store: Store) -> None:
    await register(store, a_workflow(max_attempts=2, retry_policy=RetryPolicy(1000, 2.0, 5000, 0.5)))
    lease = await start_one(store)
    assert await delay_after(store, lease, jitter=0.5) == 1250


async def test_a_policy_of_no_delay_puts_the_run_into_its_lane_at_once(store: Store) -> None:
    await register(store, a_workflow(max_attempts=2, retry_policy=RetryPolicy(0, 1.0, 0, 0.0)))
    lease = await start_one(store)
    assert await store.fail(a_failed_attempt(lease)) == LeaseEnded(Outcome.OK, RunStatus.QUEUED)


async def test_a_delay_hint_stands_instead_of_the_policy(store: Store) -> None:
    await register(store, a_workflow(max_attempts=3, retry_policy=RetryPolicy(1000, 2.0, 5000, 1.0)))
    lease = await in_attempt(store, 2)
    assert await delay_after(store, lease, a_failure(next_retry_delay_ms=70_000), jitter=0.9) == 70_000


async def test_a_delay_hint_of_nothing_puts_the_run_into_its_lane_at_once(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    lease = await start_one(store, max_attempts=2)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        answer = await store.fail(a_failed_attempt(lease, AT_ONCE))
        number = int(await redis("ZSCORE", keys.lanes, "1:q:1:w"))
        assert await messages.so_far() == [f"lane {number} 1:q:1:w"]
    assert answer == LeaseEnded(Outcome.OK, RunStatus.QUEUED)
    assert await places(redis, keys, lease.run_id) == Places(("1:q:1:w",), None, None, ("queued",))
    assert (await store.read_run(lease.run_id)).available_at_ms is None


async def test_a_retried_run_goes_to_the_end_of_its_lane(store: Store, redis: RedisCommand, keys: Keys) -> None:
    at_once, later = await start_one(store, max_attempts=2), await start_one(store, max_attempts=2)
    waiting = await enqueue_one(store)
    await store.fail(a_failed_attempt(at_once, AT_ONCE))
    await store.fail(a_failed_attempt(later))
    store.now_ms = START_MS + 250
    await store.promote(10)
    assert await lane_of(redis, keys) == [waiting, at_once.run_id, later.run_id]


async def test_a_retried_run_keeps_its_priority(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=2, priority=5)
    plain, urgent = await enqueue_one(store), await enqueue_one(store, priority=6)
    await store.fail(a_failed_attempt(lease, AT_ONCE))
    assert await lane_of(redis, keys) == [urgent, lease.run_id, plain]


async def test_gateways_hear_when_a_retry_is_due_before_anything_else(store: Store, keys: Keys, redis_url: str) -> None:
    first, second = await start_one(store, max_attempts=2), await start_one(store, max_attempts=2)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.fail(a_failed_attempt(first))
        assert await messages.so_far() == [f"due scheduled {START_MS + 250}"]
        await store.fail(a_failed_attempt(second, a_failure(next_retry_delay_ms=9000)))
        assert await messages.so_far() == []


async def test_losses_are_forgotten_when_another_attempt_follows(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.release(a_release(lease, ReleaseReason.VANISHED))
    lease = await claim_one(store)
    assert lease.attempt == 1, "a lost lease is not a failed attempt"
    await store.fail(a_failed_attempt(lease))
    assert (await store.read_run(lease.run_id)).losses == 0


# ---- no other attempt ----


async def test_the_last_attempt_fails_the_run(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(max_attempts=2, start_timeout_ms=60_000, run_timeout_ms=60_000))
    lease = await in_attempt(store, 2)
    store.now_ms = START_MS + 100

    assert await store.fail(a_failed_attempt(lease, a_failure(message="the last"))) == FAILED

    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.max_attempts) == (RunStatus.FAILED, 2, 2)
    assert (run.failure, run.output) == (a_failure(message="the last"), None)
    assert (run.finished_at_ms, run.available_at_ms) == (START_MS + 100, None)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) is None
    assert await redis("ZSCORE", keys.finished("failed"), lease.run_id) == START_MS + 100


@pytest.mark.parametrize("kind", sorted(NOT_RETRIED))
async def test_some_kinds_of_failure_are_not_retried(store: Store, kind: FailureKind) -> None:
    lease = await start_one(store, max_attempts=5)
    assert await store.fail(a_failed_attempt(lease, a_failure(kind=kind))) == FAILED
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert (run.status, run.attempt, run.failure.kind) == (RunStatus.FAILED, 1, kind)


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - NOT_RETRIED))
async def test_the_other_kinds_are_retried(store: Store, kind: FailureKind) -> None:
    lease = await start_one(store, max_attempts=2)
    assert await store.fail(a_failed_attempt(lease, a_failure(kind=kind))) == RETRIED


async def test_a_hint_decides_against_the_kind(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    unwanted = a_failure(hint=RetryHint.NO_RETRY, next_retry_delay_ms=5)
    assert await store.fail(a_failed_attempt(lease, unwanted)) == FAILED
    lease = await start_one(store, max_attempts=2)
    wanted = a_failure(kind=FailureKind.VALIDATION, hint=RetryHint.RETRY)
    assert await store.fail(a_failed_attempt(lease, wanted)) == RETRIED


async def test_a_failure_comes_back_as_it_was(store: Store) -> None:
    lease = await start_one(store)
    failure = a_failure(
        type='Weird"Error\\',
        message="\x00 no \u2028 luck \U0001f300",
        traceback="line 1\nline 2",
        language="python",
        hint=RetryHint.RETRY,
        details=Payload(b"\xff\x00", "application/x", (("k", "v"),)),
        cause=a_failure(message="inner", cause=a_failure(message="innermost")),
    )
    await store.fail(a_failed_attempt(lease, failure))
    assert (await store.read_run(lease.run_id)).failure == failure


async def test_who_watches_hears_of_the_end_and_not_of_a_retry(store: Store, redis_url: str, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.watch_run(lease.run_id, "gateway-9")
    async with Messages.on(redis_url, keys.gateway("gateway-9")) as messages:
        await store.fail(a_failed_attempt(lease, AT_ONCE))
        assert await messages.so_far() == []
        await store.fail(a_failed_attempt(await claim_one(store)))
        assert await messages.so_far() == [f"finished {lease.run_id}"]


async def test_runs_fail_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    retried, at_once, last = [await start_one(store, max_attempts=attempts) for attempts in (2, 2, 1)]
    async with memory_is_full(redis):
        assert await store.fail(a_failed_attempt(retried)) == RETRIED
        assert (await store.fail(a_failed_attempt(at_once, AT_ONCE))).status is RunStatus.QUEUED
        assert await store.fail(a_failed_attempt(last)) == FAILED


# ---- cancel wins, then the run's time-out ----


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_run_with_a_cancel_request_ends_as_canceled(
    store: Store, redis: RedisCommand, keys: Keys, attempts: int
) -> None:
    lease = await start_one(store, max_attempts=attempts)
    await request_cancel(store, lease.run_id, "enough")
    answer = await store.fail(a_failed_attempt(lease, a_failure(kind=FailureKind.CANCELED)))
    assert answer == LeaseEnded(Outcome.OK, RunStatus.CANCELED)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason, run.attempt) == (RunStatus.CANCELED, "enough", 1)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("canceled",))


async def test_a_run_whose_time_is_over_is_not_tried_again(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(max_attempts=5, run_timeout_ms=60_000))
    lease = await start_one(store)
    store.now_ms = START_MS + 60_000
    assert await store.fail(a_failed_attempt(lease)) == FAILED
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TIMEOUT
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))


async def test_the_time_of_a_run_goes_on_during_its_back_off(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(max_attempts=5, run_timeout_ms=60_000))
    lease = await start_one(store)
    store.now_ms = START_MS + 59_000
    assert await store.fail(a_failed_attempt(lease)) == RETRIED
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) == START_MS + 60_000


async def test_a_cancel_request_wins_over_the_time_out(store: Store) -> None:
    await register(store, a_workflow(run_timeout_ms=60_000))
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    store.now_ms = START_MS + 61_000
    assert (await store.fail(a_failed_attempt(lease))).status is RunStatus.CANCELED


# ---- only under the current lease, and once ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_fails(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.fail(a_failed_attempt(a_lease(run_id))) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_fails_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=3)
    await let_leases_expire(store)
    later = await claim_one(store)
    before = await everything(redis, keys)
    assert await store.fail(a_failed_attempt(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before
    assert later.attempt == 1
    assert await store.fail(a_failed_attempt(later)) == RETRIED


async def test_a_repeated_report_costs_one_attempt(store: Store, redis: RedisCommand, keys: Keys) -> None:
    async def repeats_change_nothing() -> None:
        before = await everything(redis, keys)
        repeated = LeaseEnded(Outcome.DUPLICATE, RunStatus.SCHEDULED)
        assert await store.fail(a_failed_attempt(lease)) == repeated
        assert await store.complete(a_completion(lease)) == repeated
        assert await everything(redis, keys) == before

    lease = await start_one(store, max_attempts=3)
    await store.fail(a_failed_attempt(lease))
    await repeats_change_nothing()
    store.now_ms = START_MS + 250
    await store.promote(10)
    await repeats_change_nothing()
    assert (await claim_one(store)).attempt == 2
    await repeats_change_nothing()


async def test_a_repeated_last_failure_gets_the_same_answer(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await store.fail(a_failed_attempt(lease))
    before = await everything(redis, keys)
    assert await store.fail(a_failed_attempt(lease)) == LeaseEnded(Outcome.DUPLICATE, RunStatus.FAILED)
    assert await everything(redis, keys) == before


# ---- steps ----


async def test_a_store_with_fewer_steps_than_were_answered_does_not_end_the_attempt(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=2)
    before = await everything(redis, keys)
    end = replace(a_failed_attempt(lease), steps_recorded=1, final_steps=(a_step("b"),))
    assert (await store.fail(end)).outcome is Outcome.STEPS_MISSING
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_final_steps_are_recorded_with_a_failure(store: Store, max_attempts: int) -> None:
    lease = await start_one(store, max_attempts=max_attempts)
    await store.record_step(a_record(lease, a_step("a", b"1", seq=1)))
    steps = (a_step("a", b"other", seq=1), a_step("b", b"2", seq=2), a_failed_step("c", seq=3, is_final=True))

    answer = await store.fail(replace(a_failed_attempt(lease), final_steps=steps))

    assert (answer.outcome, [step.name for step in answer.conflicts]) == (Outcome.OK, ["a"])
    recorded = await store.read_steps(lease.run_id, 1000)
    assert [(step.output, step.status) for step in recorded] == [
        (Payload(b"1"), StepStatus.SUCCEEDED),
        (Payload(b"2"), StepStatus.SUCCEEDED),
        (None, StepStatus.FAILED),
    ]


async def test_one_final_step_that_cannot_be_recorded_refuses_the_whole_report(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=2)
    await store.record_step(a_record(lease, a_step("a")))
    before = await everything(redis, keys)
    steps = (a_step("b"), a_step("a", kind=StepKind.TIMER))
    answer = await store.fail(replace(a_failed_attempt(lease), final_steps=steps))
    assert answer == LeaseEnded(Outcome.NON_DETERMINISTIC, step_name="a")
    assert await everything(redis, keys) == before
