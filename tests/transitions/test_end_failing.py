"""end_failing: the failure handler of a run has run, so the run ends as failed with the failure it had."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.leases import ClaimedRun, LeaseEnded, Outcome
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Messages,
    Places,
    a_failed_attempt,
    a_failure,
    a_lease,
    a_workflow,
    claim_one,
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
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, an_end_of_failing, child_id, some_waits

FAILED: Final = LeaseEnded(Outcome.OK, RunStatus.FAILED)
LOST: Final = LeaseEnded(Outcome.LEASE_LOST)
VERDICT: Final = a_failure(message="why it failed")


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def failing_one(store: Store) -> ClaimedRun:
    """A run whose failure handler is to be run under this lease."""
    await register(store, a_workflow(has_failure_handler=True))
    lease = await start_one(store)
    await store.fail(a_failed_attempt(lease, VERDICT))
    return lease


async def test_the_run_ends_with_the_failure_that_it_had(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await failing_one(store)
    store.now_ms = START_MS + 50

    assert await store.end_failing(an_end_of_failing(lease)) == FAILED

    run = await store.read_run(lease.run_id)
    assert (run.status, run.failure, run.finished_at_ms) == (RunStatus.FAILED, VERDICT, START_MS + 50)
    assert (run.failure_handler, run.failure_handler_failure) == (HandlerState.DONE, None)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))
    left = {"phase", "failingDeadline", "handlerMs", "leaseToken"} & (await record_of(redis, keys, lease.run_id)).keys()
    assert not left
    assert await redis("ZSCORE", keys.deadlines, lease.run_id) is None


async def test_a_handler_that_failed_itself_is_not_run_again_and_its_failure_stands_beside_the_other(
    store: Store,
) -> None:
    lease = await failing_one(store)
    assert await store.end_failing(an_end_of_failing(lease, a_failure(message="the handler too"))) == FAILED
    run = await store.read_run(lease.run_id)
    assert (run.failure, run.failure_handler) == (VERDICT, HandlerState.FAILED)
    assert run.failure_handler_failure == a_failure(message="the handler too")


async def test_those_who_wait_hear_of_the_end_and_not_of_the_verdict(store: Store, keys: Keys, redis_url: str) -> None:
    lease = await failing_one(store)
    await store.watch_run(lease.run_id, "gateway-9")
    async with Messages.on(redis_url, keys.gateway("gateway-9")) as messages:
        await store.end_failing(an_end_of_failing(lease))
        assert await messages.so_far() == [f"finished {lease.run_id}"]


async def test_a_parent_goes_on_when_the_handler_of_its_child_has_run(store: Store) -> None:
    await register(store, a_workflow(name=CHILD_LANE.workflow, queue=CHILD_LANE.queue, has_failure_handler=True))
    parent = await start_one(store)
    await store.suspend(a_suspension(parent))
    child = await claim_one(store, CHILD_LANE)
    await store.fail(a_failed_attempt(child, VERDICT))
    assert (await store.read_run(parent.run_id)).status is RunStatus.WAITING

    await store.end_failing(an_end_of_failing(child))

    assert (await store.read_run(parent.run_id)).status is RunStatus.QUEUED
    [step] = await store.read_steps(parent.run_id, 1000)
    assert step.failure is not None
    assert step.failure.cause == VERDICT


async def test_children_that_it_still_waited_for_are_canceled_now_and_not_before(store: Store) -> None:
    await register(store, a_workflow(has_failure_handler=True))
    lease, wait = await start_one(store), a_wait()
    await store.step_wait(some_waits(lease, wait))
    await store.fail(a_failed_attempt(lease))
    assert (await store.read_run(child_id(wait))).status is RunStatus.QUEUED
    await store.end_failing(an_end_of_failing(lease))
    assert (await store.read_run(child_id(wait))).status is RunStatus.CANCELED


async def test_a_request_to_cancel_wins_and_the_failure_stays(store: Store) -> None:
    lease = await failing_one(store)
    await request_cancel(store, lease.run_id)
    assert await store.end_failing(an_end_of_failing(lease)) == LeaseEnded(Outcome.OK, RunStatus.CANCELED)
    run = await store.read_run(lease.run_id)
    assert (run.failure, run.failure_handler) == (VERDICT, HandlerState.DONE)


async def test_a_repeat_gets_the_same_answer(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await failing_one(store)
    await store.end_failing(an_end_of_failing(lease))
    before = await everything(redis, keys)
    repeated = await store.end_failing(an_end_of_failing(lease, a_failure()))
    assert repeated == LeaseEnded(Outcome.DUPLICATE, RunStatus.FAILED)
    assert await everything(redis, keys) == before


async def test_a_lease_that_was_reaped_ends_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await failing_one(store)
    await let_leases_expire(store)
    before = await everything(redis, keys)
    assert await store.end_failing(an_end_of_failing(lease)) == LOST
    assert await everything(redis, keys) == before


async def test_a_run_that_has_not_failed_is_not_ended_so(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(has_failure_handler=True))
    lease = await start_one(store)
    before = await everything(redis, keys)
    assert await store.end_failing(an_end_of_failing(lease)) == LeaseEnded(Outcome.NOT_ALLOWED)
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_ends(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.end_failing(an_end_of_failing(a_lease(run_id))) == LOST
    assert await everything(redis, keys) == before


async def test_a_run_ends_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await failing_one(store)
    async with memory_is_full(redis):
        assert await store.end_failing(an_end_of_failing(lease, a_failure())) == FAILED
