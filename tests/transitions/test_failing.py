"""Phase failing: a run that has failed stays open until its failure handler has run, or its time for that is up."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.leases import ClaimedRun, Lane, LeaseEnded, LeaseStanding, Outcome, Standing, StopReason
from redflow_server.domain.registry import FAILURE_HANDLER_MS
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Passed, Reaped, Repair, Swept
from redflow_server.store.store import Store
from tests.builders import (
    LANE,
    STAMP,
    START_MS,
    Messages,
    Places,
    a_claim,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_failure,
    a_release,
    a_workflow,
    an_abort,
    claim_one,
    enqueue_one,
    everything,
    let_leases_expire,
    memory_is_full,
    places,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import CHILD_LANE, a_suspension, an_end_of_failing

HANDLER_MS: Final = 60_000
RUN_TIMEOUT_MS: Final = 600_000
START_TIMEOUT_MS: Final = 5_000
VERDICT: Final = a_failure(message="why it failed")
RUN_HANDLER: Final = LeaseEnded(Outcome.RUN_FAILURE_HANDLER)
NAME: Final = lane_name(LANE.queue, LANE.workflow)
TIMED_OUT: Final = "RunTimeoutError"


@pytest.fixture(autouse=True)
async def _a_workflow_with_a_failure_handler(store: Store) -> None:
    store.now_ms = START_MS
    await register(
        store,
        a_workflow(
            has_failure_handler=True,
            failure_handler_timeout_ms=HANDLER_MS,
            run_timeout_ms=RUN_TIMEOUT_MS,
            start_timeout_ms=START_TIMEOUT_MS,
        ),
    )


async def failing_one(store: Store, **run: object) -> ClaimedRun:
    """A run whose failure handler is to be run under this lease."""
    lease = await start_one(store, **run)
    assert await store.fail(a_failed_attempt(lease, VERDICT)) == RUN_HANDLER
    return lease


async def lose_until_it_fails(store: Store) -> None:
    """Has the only run of the lane lose its workers until it has failed of it, or its verdict is that."""
    for _ in range(4):
        await renew_one(store, await claim_one(store))
        await let_leases_expire(store)


# ---- how it begins ----


async def test_the_last_failure_is_answered_with_the_order_to_run_the_handler_under_the_same_lease(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 70

    assert await store.fail(a_failed_attempt(lease, VERDICT, final_steps=(a_failed_step(),))) == RUN_HANDLER

    run = await store.read_run(lease.run_id)
    assert (run.status, run.failure, run.finished_at_ms) == (RunStatus.RUNNING, VERDICT, None)
    assert run.failure_handler is HandlerState.PENDING
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    assert int(await redis("ZSCORE", keys.deadlines, lease.run_id)) == START_MS + 70 + HANDLER_MS
    assert (await renew_one(store, lease)).standing is Standing.HELD
    assert len(await store.read_steps(lease.run_id, 1000)) == 1


async def test_five_minutes_are_given_where_nothing_else_was_registered(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(has_failure_handler=True, digest="digest-2"))
    lease = await failing_one(store)
    assert (
        int(await redis("ZSCORE", keys.deadlines, lease.run_id)) == START_MS + FAILURE_HANDLER_MS == START_MS + 300_000
    )


async def test_a_repeated_report_is_answered_again_and_gives_no_more_time(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await failing_one(store)
    before = await everything(redis, keys)
    store.now_ms = START_MS + 1
    assert await store.fail(a_failed_attempt(lease, a_failure(message="another"))) == RUN_HANDLER
    assert await store.complete(a_completion(lease)) == RUN_HANDLER, "a result is none of its failure handler"
    assert await everything(redis, keys) == before


async def test_an_attempt_that_is_retried_has_no_verdict(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    assert await store.fail(a_failed_attempt(lease)) == LeaseEnded(Outcome.OK, RunStatus.SCHEDULED)


async def test_the_verdict_is_the_runs_own_workflow_as_it_was_claimed(store: Store) -> None:
    lease = await start_one(store)
    await register(store, a_workflow(digest="digest-2"))
    assert await store.fail(a_failed_attempt(lease)) == RUN_HANDLER


async def test_a_run_that_is_to_be_canceled_has_no_failure_handler(store: Store) -> None:
    lease = await start_one(store)
    await request_cancel(store, lease.run_id)
    assert await store.fail(a_failed_attempt(lease)) == LeaseEnded(Outcome.OK, RunStatus.CANCELED)
    assert (await store.read_run(lease.run_id)).failure_handler is None


async def test_a_run_that_never_started_has_no_failure_handler(store: Store) -> None:
    run_id = await enqueue_one(store)
    store.now_ms = START_MS + START_TIMEOUT_MS
    await store.expire(10)
    run = await store.read_run(run_id)
    assert (run.status, run.failure_handler) == (RunStatus.FAILED, None)


async def test_a_run_whose_workers_are_lost_goes_back_to_its_lane_for_its_handler_with_new_counts(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    await lose_until_it_fails(store)

    assert await places(redis, keys, run_id) == Places((NAME,), None, None, ("queued",))
    run = await store.read_run(run_id)
    assert run.failure is not None
    assert (run.failure.kind, run.losses, run.failure_handler) == (FailureKind.WORKER_LOST, 0, HandlerState.PENDING)


@pytest.mark.parametrize("end", ["expire", "claim", "fail", "complete", "release", "suspend", "promote"])
async def test_a_run_whose_time_is_over_goes_back_to_its_lane_for_its_handler(
    store: Store, redis: RedisCommand, keys: Keys, end: str
) -> None:
    lease = await start_one(store)
    if end in ("expire", "claim"):
        await store.release(a_release(lease))
    if end == "promote":
        await store.release(a_release(lease, delay_ms=RUN_TIMEOUT_MS))
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    ends = {
        "expire": lambda: store.expire(10),
        "claim": lambda: store.claim(a_claim(count=1)),
        "fail": lambda: store.fail(a_failed_attempt(lease)),
        "complete": lambda: store.complete(a_completion(lease)),
        "release": lambda: store.release(a_release(lease)),
        "suspend": lambda: store.suspend(a_suspension(lease)),
        "promote": lambda: store.promote(10),
    }
    await ends[end]()
    if end == "claim":  # it comes back at once, with the order to run the handler
        assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    else:
        assert await places(redis, keys, lease.run_id) == Places((NAME,), None, None, ("queued",))
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert (run.failure.type, run.failure_handler) == (TIMED_OUT, HandlerState.PENDING)
    assert int(await redis("ZSCORE", keys.deadlines, lease.run_id)) == store.now_ms + HANDLER_MS


async def test_a_run_whose_time_is_over_before_it_was_due_again_is_due_at_no_time(store: Store) -> None:
    lease = await start_one(store)
    await store.release(a_release(lease, delay_ms=2 * RUN_TIMEOUT_MS))
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    assert (await store.expire(10)).count == 1
    run = await store.read_run(lease.run_id)
    assert (run.status, run.available_at_ms) == (RunStatus.QUEUED, None)


async def test_a_waiting_run_whose_time_is_over_goes_back_to_its_lane_and_waits_no_more(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease))
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    assert (await store.expire(10)).count == 1
    assert await places(redis, keys, lease.run_id) == Places((NAME,), None, None, ("queued",))
    child = await claim_one(store, CHILD_LANE)
    await store.complete(a_completion(child))
    assert await places(redis, keys, lease.run_id) == Places((NAME,), None, None, ("queued",))


# ---- while it lasts ----


async def test_the_next_worker_is_told_to_run_the_handler_and_why(store: Store) -> None:
    lease = await failing_one(store)
    await store.release(a_release(lease))
    again = await claim_one(store)
    assert (again.run_id, again.failure, again.attempt) == (lease.run_id, VERDICT, 1)
    assert again.run_time_left_ms is None
    assert await store.end_failing(an_end_of_failing(again)) == LeaseEnded(Outcome.OK, RunStatus.FAILED)


async def test_a_run_that_has_no_verdict_comes_without_one(store: Store) -> None:
    assert (await start_one(store)).failure is None


async def test_a_lost_worker_repeats_the_handler_until_that_happened_too_often(store: Store) -> None:
    lease = await failing_one(store)
    for _ in range(3):
        assert await let_leases_expire(store) == Reaped(queued=1, waiting=0, failed=0, canceled=0)
        store.now_ms = START_MS  # its time is not the point
        lease = await claim_one(store)
        await renew_one(store, lease)
    assert await let_leases_expire(store) == Reaped(queued=0, waiting=0, failed=1, canceled=0)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.failure, run.failure_handler) == (RunStatus.FAILED, VERDICT, HandlerState.NOT_RUN)


async def test_the_run_time_out_does_not_count_any_more(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + RUN_TIMEOUT_MS - 1
    await store.fail(a_failed_attempt(lease, VERDICT))
    store.now_ms = START_MS + RUN_TIMEOUT_MS + 1
    assert (await store.expire(10)).count == 0
    assert (await renew_one(store, lease)) == LeaseStanding(lease.lease_token, Standing.HELD)


async def test_a_handler_that_its_worker_stops_has_failed_and_the_failure_of_the_run_stays(store: Store) -> None:
    lease = await failing_one(store)
    stopped = Failure("CanceledError", "stopped", FailureKind.CANCELED)
    answer = await store.abort(an_abort(lease, is_worker_stopped=False, failure=stopped))
    assert answer == LeaseEnded(Outcome.OK, RunStatus.FAILED)
    run = await store.read_run(lease.run_id)
    assert (run.failure, run.failure_handler, run.failure_handler_failure) == (VERDICT, HandlerState.FAILED, stopped)


async def test_a_run_whose_failure_handler_was_stopped_with_its_worker_has_failed_as_before(store: Store) -> None:
    lease = await failing_one(store)
    assert await store.abort(an_abort(lease)) == LeaseEnded(Outcome.OK, RunStatus.FAILED)
    run = await store.read_run(lease.run_id)
    assert (run.failure, run.failure_handler) == (VERDICT, HandlerState.FAILED)


@pytest.mark.parametrize("is_leased", [True, False])
async def test_a_cancel_wins_and_the_failure_stays(store: Store, is_leased: bool) -> None:
    lease = await failing_one(store)
    if not is_leased:
        await store.release(a_release(lease))
    await request_cancel(store, lease.run_id)
    if is_leased:
        await store.release(a_release(lease))
    run = await store.read_run(lease.run_id)
    assert (run.status, run.failure, run.failure_handler) == (RunStatus.CANCELED, VERDICT, HandlerState.NOT_RUN)


async def test_an_unknown_workflow_does_not_take_the_place_of_the_failure(store: Store) -> None:
    await register(store, a_workflow(name="gone", has_failure_handler=True), owner="owner-2")
    lease = await failing_one(store, workflow="gone")
    await store.release(a_release(lease))
    store.now_ms = START_MS + 30_000
    await register(store, a_workflow(name="other"), owner="owner-2")
    await store.fail_unknown(Lane(LANE.queue, "gone"), 0, 0, 10)
    assert (await store.read_run(lease.run_id)).failure == VERDICT


# ---- when its time is up ----


@pytest.mark.parametrize("where", ["leased", "queued", "scheduled"])
async def test_when_the_time_of_the_handler_is_up_the_run_has_failed_with_its_failure(
    store: Store, redis: RedisCommand, keys: Keys, where: str
) -> None:
    lease = await failing_one(store)
    if where != "leased":
        await store.release(a_release(lease, delay_ms=HANDLER_MS * 2 if where == "scheduled" else 0))
    store.now_ms = START_MS + HANDLER_MS - 1
    assert await store.expire(10) == Passed(0, START_MS + HANDLER_MS)

    store.now_ms = START_MS + HANDLER_MS
    assert await store.expire(10) == Passed(1, None)

    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))
    run = await store.read_run(lease.run_id)
    assert (run.failure, run.failure_handler) == (VERDICT, HandlerState.NOT_RUN)


async def test_a_holder_is_told_that_its_lease_is_lost_and_ends_nothing_any_more(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    lease = await failing_one(store)
    store.now_ms = START_MS + HANDLER_MS
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await store.expire(10)
        assert await messages.so_far() == [f"stop {lease.lease_token} {StopReason.LEASE_LOST} "]
    before = await everything(redis, keys)
    assert await store.end_failing(an_end_of_failing(lease)) == LeaseEnded(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_cancel_that_was_asked_for_wins_when_the_time_is_up(store: Store) -> None:
    lease = await failing_one(store)
    await request_cancel(store, lease.run_id)
    store.now_ms = START_MS + HANDLER_MS
    await store.expire(10)
    run = await store.read_run(lease.run_id)
    assert (run.status, run.failure) == (RunStatus.CANCELED, VERDICT)


async def test_a_deadline_that_is_lost_is_found_by_the_sweep(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await failing_one(store)
    await redis("DEL", keys.deadlines)
    assert await store.sweep(RunStatus.RUNNING, None, 10) == Swept(None, (Repair(lease.run_id, "deadline"),))
    assert int(await redis("ZSCORE", keys.deadlines, lease.run_id)) == START_MS + HANDLER_MS


async def test_it_begins_and_ends_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    async with memory_is_full(redis):
        assert await store.fail(a_failed_attempt(lease, VERDICT)) == RUN_HANDLER
        store.now_ms = START_MS + HANDLER_MS
        assert (await store.expire(10)).count == 1
