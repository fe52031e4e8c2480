"""abort: a worker stopped a handler, because the run was to be canceled, or because the worker itself stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import ClaimedRun, LeaseEnded, Outcome
from redflow_server.domain.payloads import Payload
from redflow_server.domain.states import RunStatus, StepKind
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    LEASE_MS,
    START_MS,
    Messages,
    Places,
    a_failed_step,
    a_failure,
    a_lease,
    a_record,
    a_step,
    a_workflow,
    an_abort,
    claim_one,
    every_state_but,
    everything,
    let_leases_expire,
    memory_is_full,
    places,
    put_in_state,
    register,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand

CANCELED = LeaseEnded(Outcome.OK, RunStatus.CANCELED)
FAILED = LeaseEnded(Outcome.OK, RunStatus.FAILED)


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def start_with_time_limit(store: Store) -> ClaimedRun:
    """A run whose time will be over in a minute."""
    await register(store, a_workflow(max_attempts=5, run_timeout_ms=60_000))
    return await start_one(store)


# ---- how the run ends ----


async def test_a_run_that_was_to_be_canceled_is_canceled(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store, max_attempts=3)
    await request_cancel(store, lease.run_id, "changed my mind")
    store.now_ms = START_MS + 900

    answer = await store.abort(an_abort(lease, is_worker_stopped=False, reason="of the worker"))

    assert answer == CANCELED
    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason, run.cancel_requested_at_ms, run.finished_at_ms) == (
        RunStatus.CANCELED,
        "changed my mind",
        START_MS,
        START_MS + 900,
    )
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("canceled",))
    assert await redis("ZSCORE", keys.finished("canceled"), lease.run_id) == START_MS + 900


async def test_a_run_whose_worker_stops_is_canceled_without_a_request(store: Store) -> None:
    lease = await start_one(store, max_attempts=3)
    assert await store.abort(an_abort(lease, reason="worker stopped")) == CANCELED
    run = await store.read_run(lease.run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "worker stopped")


async def test_a_handler_that_ends_as_canceled_though_nobody_asked_has_failed(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, max_attempts=3)
    failure = a_failure(type="CancelledError", kind=FailureKind.CANCELED)

    assert await store.abort(an_abort(lease, is_worker_stopped=False, failure=failure)) == FAILED

    run = await store.read_run(lease.run_id)
    assert (run.status, run.failure, run.cancel_reason) == (RunStatus.FAILED, failure, "")
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))


@pytest.mark.parametrize("is_worker_stopped", [True, False])
async def test_a_cancel_request_wins_over_whatever_the_worker_says(store: Store, is_worker_stopped: bool) -> None:
    lease = await start_with_time_limit(store)
    await request_cancel(store, lease.run_id, "mine")
    store.now_ms = START_MS + 61_000
    assert await store.abort(an_abort(lease, is_worker_stopped=is_worker_stopped)) == CANCELED
    assert (await store.read_run(lease.run_id)).cancel_reason == "mine"


async def test_a_run_that_was_stopped_because_its_time_is_over_has_failed(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_with_time_limit(store)
    store.now_ms = START_MS + 60_000
    await store.expire(10)

    assert await store.abort(an_abort(lease, is_worker_stopped=False)) == FAILED

    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert (run.status, run.failure.kind) == (RunStatus.FAILED, FailureKind.TIMEOUT)
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) is None


async def test_who_watches_hears_of_the_end(store: Store, redis_url: str, keys: Keys) -> None:
    lease = await start_one(store)
    await store.watch_run(lease.run_id, "gateway-9")
    async with Messages.on(redis_url, keys.gateway("gateway-9")) as messages:
        await store.abort(an_abort(lease))
        assert await messages.so_far() == [f"finished {lease.run_id}"]


async def test_runs_are_aborted_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    async with memory_is_full(redis):
        assert await store.abort(an_abort(lease)) == CANCELED


# ---- only under the current lease, and once ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_is_aborted(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.abort(an_abort(a_lease(run_id))) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_aborts_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    await let_leases_expire(store)
    later = await claim_one(store)
    before = await everything(redis, keys)
    assert await store.abort(an_abort(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before
    assert await store.abort(an_abort(later)) == CANCELED


async def test_a_lease_that_is_overdue_but_not_reaped_aborts_its_run(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 10 * LEASE_MS
    assert await store.abort(an_abort(lease)) == CANCELED


@pytest.mark.parametrize(
    ("is_worker_stopped", "status"), [(True, RunStatus.CANCELED), (False, RunStatus.FAILED)], ids=["canceled", "failed"]
)
async def test_a_repeated_report_gets_the_same_answer(
    store: Store, redis: RedisCommand, keys: Keys, is_worker_stopped: bool, status: RunStatus
) -> None:
    lease = await start_one(store)
    await store.abort(an_abort(lease, is_worker_stopped=is_worker_stopped))
    before = await everything(redis, keys)
    assert await store.abort(an_abort(lease)) == LeaseEnded(Outcome.DUPLICATE, status)
    assert await everything(redis, keys) == before


# ---- steps ----


async def test_a_store_with_fewer_steps_than_were_answered_does_not_end_the_run(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    before = await everything(redis, keys)
    end = an_abort(lease, steps_recorded=1, final_steps=(a_step(),))
    assert (await store.abort(end)).outcome is Outcome.STEPS_MISSING
    assert await everything(redis, keys) == before


async def test_final_steps_are_recorded_when_the_run_is_canceled(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    canceled = a_failed_step("b", failure=a_failure(kind=FailureKind.CANCELED), seq=2)

    await store.abort(an_abort(lease, final_steps=(a_step("a", b"1", seq=1), canceled)))

    recorded = await store.read_steps(lease.run_id, 1000)
    assert [(step.name, step.output, step.failure) for step in recorded] == [
        ("a", Payload(b"1"), None),
        ("b", None, canceled.failure),
    ]


async def test_one_final_step_that_cannot_be_recorded_refuses_the_whole_report(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("a")))
    before = await everything(redis, keys)
    steps = (a_step("b"), a_step("a", kind=StepKind.EVENT))
    answer = await store.abort(replace(an_abort(lease), final_steps=steps))
    assert answer == LeaseEnded(Outcome.NON_DETERMINISTIC, step_name="a")
    assert await everything(redis, keys) == before
