"""read_run: a run as it is on record, with its payloads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redflow_server.domain.errors import RunNotFound
from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.leases import Lane
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import RunQuery
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    LATER_STAMP,
    LEASE_MS,
    STAMP,
    START_MS,
    a_completion,
    a_failed_attempt,
    a_failure,
    a_release,
    a_workflow,
    an_event,
    claim_one,
    enqueue_one,
    everything,
    put_in_state,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import a_suspension, an_event_wait, some_waits

PAYLOADS = [
    Payload(b""),
    Payload(b"null"),
    Payload(b"[]"),
    Payload(b'{"a":[],"b":{},"n":9007199254740993,"f":1.0}'),
    Payload(bytes(range(256))),
    Payload(b"x" * 100_000),
    Payload(b"\x00", "application/x-thing", (("key", "value"), ("é", "🚀"))),
    Payload(b"{}", "", (("only", "metadata"),)),
]


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


@pytest.mark.parametrize("run_id", ["run_nowhere", "x", "a:data"])
async def test_a_run_that_does_not_exist_is_not_found(store: Store, run_id: str) -> None:
    with pytest.raises(RunNotFound) as refusal:
        await store.read_run(run_id)
    assert refusal.value.details == {"run_id": run_id}


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.WAITING])
async def test_reading_tells_the_status_and_writes_nothing(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run_id = await put_in_state(store, redis, keys, status)
    before = await everything(redis, keys)
    run = await store.read_run(run_id)
    assert (run.run_id, run.status, run.workflow, run.queue) == (run_id, status, "w", "q")
    assert (run.finished_at_ms is not None) is status.is_terminal
    assert await everything(redis, keys) == before


async def test_a_queued_run_is_read_as_it_was_enqueued(store: Store) -> None:
    run_id = await enqueue_one(
        store, workflow="a:b 🚀", queue="{q}", priority=-7, max_attempts=9, idempotency_key="k:1", input=Payload(b"1")
    )
    run = await store.read_run(run_id)
    assert (run.workflow, run.queue, run.priority, run.max_attempts) == ("a:b 🚀", "{q}", -7, 9)
    assert (run.idempotency_key, run.created_at_ms, run.attempt) == ("k:1", START_MS, 0)
    assert (run.started_at_ms, run.finished_at_ms, run.available_at_ms, run.cancel_requested_at_ms) == (None,) * 4
    assert (run.input, run.output, run.failure) == (Payload(b"1"), None, None)


async def test_runs_are_numbered_in_the_order_of_their_creation(store: Store) -> None:
    numbers = [(await store.read_run(await enqueue_one(store))).seq for _ in range(3)]
    assert numbers == sorted(set(numbers))


async def test_a_scheduled_run_says_when_it_is_available(store: Store) -> None:
    run = await store.read_run(await enqueue_one(store, available_at_ms=START_MS + 5))
    assert (run.status, run.available_at_ms) == (RunStatus.SCHEDULED, START_MS + 5)


async def test_a_running_run_says_since_when_and_where(store: Store) -> None:
    await enqueue_one(store)
    store.now_ms = START_MS + 7
    lease = await claim_one(store)
    run = await store.read_run(lease.run_id)
    assert (run.started_at_ms, run.attempt, run.deliveries, run.session_id) == (START_MS + 7, 1, 1, STAMP.session_id)

    await renew_one(store, lease, LATER_STAMP)
    assert (await store.read_run(lease.run_id)).session_id == LATER_STAMP.session_id


async def test_a_run_says_since_when_it_stands_in_its_place_once_it_has_moved(store: Store) -> None:
    async def placed_at_ms() -> int | None:
        return (await store.read_run(lease.run_id)).placed_at_ms

    lease = await start_one(store, max_attempts=2)
    assert await placed_at_ms() is None, "since its creation"
    store.now_ms = START_MS + 10
    await store.fail(a_failed_attempt(lease, a_failure(next_retry_delay_ms=5)))
    assert await placed_at_ms() == START_MS + 10, "among the scheduled"
    store.now_ms = START_MS + 15
    await store.promote(10)
    assert await placed_at_ms() == START_MS + 15, "in its lane"
    await store.suspend(a_suspension(await claim_one(store), an_event_wait()))
    store.now_ms = START_MS + 30
    await store.emit_event(an_event())
    assert await placed_at_ms() == START_MS + 30, "there again"
    store.now_ms = START_MS + 40
    await store.release(a_release(await claim_one(store)))
    assert await placed_at_ms() == START_MS + 40
    await store.complete(a_completion(await claim_one(store)))
    assert await placed_at_ms() is None


async def test_a_run_says_when_a_time_out_ends_it_also_in_listings(store: Store) -> None:
    async def deadline_ms() -> int | None:
        run = await store.read_run(run_id)
        [listed] = (await store.list_runs(RunQuery(limit=10))).runs
        assert run.deadline_ms == listed.deadline_ms
        return run.deadline_ms

    limits = a_workflow(
        start_timeout_ms=50, run_timeout_ms=5000, has_failure_handler=True, failure_handler_timeout_ms=9
    )
    await register(store, limits)
    run_id = await enqueue_one(store)
    assert await deadline_ms() == START_MS + 50, "of its start"
    store.now_ms = START_MS + 10
    lease = await claim_one(store)
    await renew_one(store, lease)
    assert await deadline_ms() == START_MS + 10 + 5000, "of the run"
    await store.fail(a_failed_attempt(lease))
    assert await deadline_ms() == START_MS + 10 + 9, "of its failure handler"
    store.now_ms = START_MS + 19
    await store.expire(10)
    assert await deadline_ms() is None, "it has ended"


async def test_a_run_says_until_when_it_is_leased(store: Store) -> None:
    run_id = await enqueue_one(store)
    assert (await store.read_run(run_id)).lease_ends_at_ms is None
    lease = await claim_one(store)
    store.now_ms = START_MS + 7
    await renew_one(store, lease)
    assert (await store.read_run(run_id)).lease_ends_at_ms == START_MS + 7 + LEASE_MS
    await store.release(a_release(lease))
    assert (await store.read_run(run_id)).lease_ends_at_ms is None


async def test_the_number_of_open_waits_is_read_also_in_listings(store: Store) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, an_event_wait("a"), an_event_wait("b", key="k")))
    [listed] = (await store.list_runs(RunQuery(limit=10))).runs
    assert (listed.open_waits, listed.waiting_for) == (2, ())
    await store.emit_event(an_event())
    run = await store.read_run(lease.run_id)
    assert (run.open_waits, [waiting.step_name for waiting in run.waiting_for]) == (1, ["b"])


async def test_the_first_start_stays_when_a_run_is_claimed_again(store: Store) -> None:
    lease = await start_one(store)
    await store.release(a_release(lease))
    store.now_ms = START_MS + 1000
    await claim_one(store)
    run = await store.read_run(lease.run_id)
    assert (run.started_at_ms, run.attempt, run.deliveries) == (START_MS, 1, 2)


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
async def test_payloads_come_back_byte_for_byte(store: Store, payload: Payload) -> None:
    lease = await start_one(store, input=payload)
    await store.complete(replace(a_completion(lease), output=payload))
    run = await store.read_run(lease.run_id)
    assert run.input == payload
    assert run.output == payload


async def test_an_output_is_told_from_none(store: Store) -> None:
    empty, none = await start_one(store), await start_one(store, queue="q2")
    await store.complete(a_completion(empty, output=b""))
    await store.complete(a_completion(none, output=None))
    assert (await store.read_run(empty.run_id)).output == Payload(b"")
    assert (await store.read_run(none.run_id)).output is None


async def test_a_failure_comes_back_with_all_it_says(store: Store) -> None:
    cause = Failure("OSError", "disk", details=Payload(b"\xff\x00", "a/b", (("k", "v"),)))
    failure = a_failure(
        message='no luck\n🚀 "quoted"',
        kind=FailureKind.NON_RETRIABLE,
        traceback="line 1\nline 2",
        language="python",
        hint=RetryHint.NO_RETRY,
        next_retry_delay_ms=250,
        details=Payload(b"{}"),
        cause=cause,
    )
    lease = await start_one(store)
    await store.fail(a_failed_attempt(lease, failure))
    assert (await store.read_run(lease.run_id)).failure == failure


async def test_a_run_between_attempts_says_why_the_last_one_failed(store: Store) -> None:
    lease = await start_one(store, max_attempts=3)
    await store.fail(a_failed_attempt(lease))
    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.failures) == (RunStatus.SCHEDULED, 1, 1)
    assert run.failure == a_failure()
    assert run.available_at_ms is not None
    assert (run.finished_at_ms, run.session_id) == (None, "")


async def test_a_run_that_succeeds_in_a_later_attempt_has_no_failure(store: Store) -> None:
    lease = await start_one(store, max_attempts=3)
    await store.fail(a_failed_attempt(lease))
    store.now_ms = START_MS + 60_000
    await store.promote(100)
    await store.complete(a_completion(await claim_one(store)))
    run = await store.read_run(lease.run_id)
    assert (run.status, run.attempt, run.failure) == (RunStatus.SUCCEEDED, 2, None)


async def test_a_canceled_run_says_who_asked_when(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 5
    await request_cancel(store, lease.run_id, "why not: 🚀")
    store.now_ms = START_MS + 9
    await store.complete(a_completion(lease))
    run = await store.read_run(lease.run_id)
    assert (run.cancel_requested_at_ms, run.cancel_reason) == (START_MS + 5, "why not: 🚀")
    assert (run.finished_at_ms, run.session_id) == (START_MS + 9, "")


async def test_a_run_never_ends_before_it_started(store: Store) -> None:
    """The clock may be set back in between."""
    lease = await start_one(store)
    store.now_ms = START_MS - 60_000
    await store.complete(a_completion(lease))
    run = await store.read_run(lease.run_id)
    assert (run.started_at_ms, run.finished_at_ms) == (START_MS, START_MS)


async def test_an_odd_lane_is_read_as_it_was_named(store: Store) -> None:
    lane = Lane("a:b", "c:d:runs")
    run = await store.read_run(await enqueue_one(store, queue=lane.queue, workflow=lane.workflow))
    assert Lane(run.queue, run.workflow) == lane
