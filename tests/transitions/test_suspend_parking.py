"""suspend: a parked run keeps its lease while its handler waits in the memory of its worker, without a slot."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.leases import (
    ClaimedRun,
    EmitStep,
    LeaseEnded,
    Outcome,
    ReleaseReason,
    Standing,
    StopReason,
    Suspended,
)
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.domain.waits import Wait
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Passed, Reaped
from redflow_server.store.store import Store
from tests.builders import (
    GRACE_MS,
    LATER_STAMP,
    LEASE_MS,
    STAMP,
    START_MS,
    Messages,
    Places,
    a_completion,
    a_failed_attempt,
    a_lease,
    a_record,
    a_release,
    a_step,
    a_workflow,
    an_abort,
    an_event,
    claim_one,
    enqueue_one,
    every_state_but,
    everything,
    lane_of,
    let_leases_expire,
    memory_is_full,
    over,
    places,
    put_in_state,
    record_of,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    a_parking,
    a_sleep,
    a_start,
    a_suspension,
    a_wait,
    a_wait_for,
    an_event_wait,
    child_id,
    some_waits,
)

PARKED: Final = Suspended(Outcome.PARKED)
RUN_TIMEOUT_MS: Final = 600_000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def park_one(store: Store, *waits: Wait, **run: object) -> ClaimedRun:
    """A run of lane `w` that is parked."""
    lease = await start_one(store, **run)
    assert await store.suspend(a_parking(lease, *waits)) == PARKED
    return lease


async def end_child(store: Store, output: bytes = b"7") -> None:
    await store.complete(a_completion(await claim_one(store, CHILD_LANE), output))


async def status_of(store: Store, run_id: str) -> RunStatus:
    return (await store.read_run(run_id)).status


async def is_parked(redis: RedisCommand, keys: Keys, lease: ClaimedRun) -> bool:
    return "parked" in await record_of(redis, keys, lease.run_id)


# ---- parked ----


async def test_a_parked_run_keeps_its_lease_and_says_what_it_waits_for(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    wait = a_wait("step")
    lease = await park_one(store, wait)
    run = await store.read_run(lease.run_id)
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    assert [(waiting.step_name, waiting.run_id) for waiting in run.waiting_for] == [("step", child_id(wait))]
    assert (await renew_one(store, lease)).standing is Standing.HELD
    assert await lane_of(redis, keys, CHILD_LANE) == [child_id(wait)]


async def test_a_repeat_parks_it_once(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lease = await start_one(store)
    parking = a_parking(lease)
    await store.suspend(parking)
    before = await everything(redis, keys)
    assert await store.suspend(parking) == PARKED
    assert await everything(redis, keys) == before


async def test_a_wait_that_is_over_is_answered_and_the_run_is_not_parked(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    answer = await store.suspend(a_parking(lease, a_wait_for("nobody", "known"), a_wait("new")))
    assert (answer.outcome, [step.name for step in answer.resolutions]) == (Outcome.RESOLVED, ["known"])
    assert not await is_parked(redis, keys, lease)


async def test_a_wait_that_its_worker_has_not_heard_of_is_answered_instead(store: Store) -> None:
    lease = await start_one(store)
    waits = a_wait("a"), a_wait("b")
    await store.step_wait(some_waits(lease, *waits))
    await end_child(store)
    answer = await store.suspend(a_parking(lease, waits[1]))
    assert (answer.outcome, [step.name for step in answer.resolutions]) == (Outcome.RESOLVED, ["a"])


@pytest.mark.parametrize("end", ["cancel", "time-out"])
async def test_a_run_whose_end_is_decided_ends_instead(store: Store, end: str) -> None:
    await register(store, a_workflow(run_timeout_ms=RUN_TIMEOUT_MS))
    lease = await start_one(store)
    if end == "cancel":
        await request_cancel(store, lease.run_id)
    else:
        store.now_ms = START_MS + RUN_TIMEOUT_MS
    status = RunStatus.CANCELED if end == "cancel" else RunStatus.FAILED
    assert await store.suspend(a_parking(lease)) == Suspended(Outcome.OK, status)


@pytest.mark.parametrize("state", every_state_but(RunStatus.RUNNING))
async def test_only_a_leased_run_is_parked(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    assert await store.suspend(a_parking(a_lease(run_id))) == Suspended(Outcome.LEASE_LOST)
    assert await everything(redis, keys) == before


async def test_a_run_is_parked_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    async with memory_is_full(redis):
        assert await store.suspend(a_parking(lease, a_sleep())) == PARKED


# ---- what it waits for ----


async def test_its_gateway_is_told_of_the_wait_that_is_over_and_the_run_stays_where_it_is(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    lease = await park_one(store, a_wait("a step"), a_wait("other"))
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await end_child(store)
        assert [over(message) for message in await messages.so_far()] == [f"{lease.lease_token} a step"]
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)
    assert await lane_of(redis, keys) == []


async def test_the_gateway_to_which_its_worker_has_moved_is_told(store: Store, keys: Keys, redis_url: str) -> None:
    lease = await park_one(store)
    await renew_one(store, lease, LATER_STAMP)
    async with Messages.on(redis_url, keys.gateway(LATER_STAMP.gateway_id)) as messages:
        await end_child(store)
        assert [over(message) for message in await messages.so_far()] == [f"{lease.lease_token} child"]


async def test_what_was_not_heard_is_answered_when_it_is_parked_again(store: Store) -> None:
    lease, waits = await start_one(store), (a_wait("a"), a_wait("b"))
    await store.suspend(a_parking(lease, *waits))
    await end_child(store)
    answer = await store.suspend(a_parking(lease, *waits))
    assert (answer.outcome, [step.name for step in answer.resolutions]) == (Outcome.RESOLVED, ["a"])


async def test_at_the_end_of_its_window_it_is_set_aside(store: Store, redis: RedisCommand, keys: Keys) -> None:
    wait = a_wait()
    lease = await park_one(store, wait)
    assert await store.suspend(a_suspension(lease, wait)) == Suspended(Outcome.OK, RunStatus.WAITING)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("waiting",))
    await end_child(store)
    assert await lane_of(redis, keys) == [lease.run_id]


# ---- back at work ----


@pytest.mark.parametrize("what", ["a step", "more waits", "a start", "an event"])
async def test_what_its_worker_writes_next_shows_that_it_is_at_work_again(
    store: Store, redis: RedisCommand, keys: Keys, what: str
) -> None:
    lease = await park_one(store, a_wait("a"), a_wait("b"))
    await end_child(store)
    assert (await record_of(redis, keys, lease.run_id))["woken"] == "1"

    match what:
        case "a step":
            await store.record_step(a_record(lease, a_step("step")))
        case "more waits":
            await store.step_wait(some_waits(lease, a_wait("c")))
        case "a start":
            await store.step_start(a_start(lease))
        case "an event":
            await store.step_emit(EmitStep(lease.run_id, lease.lease_token, 0, "tell", 1, an_event()))

    assert not {"parked", "woken"} & (await record_of(redis, keys, lease.run_id)).keys()
    assert await let_leases_expire(store) == Reaped(queued=1, waiting=0, failed=0, canceled=0)
    assert (await store.read_run(lease.run_id)).losses == 1, "it was lost at work"


@pytest.mark.parametrize("end", ["complete", "fail", "abort"])
async def test_a_lease_that_ends_leaves_nothing_of_it(store: Store, redis: RedisCommand, keys: Keys, end: str) -> None:
    lease = await park_one(store, a_wait("a"), a_wait("b"), max_attempts=2)
    await end_child(store)
    match end:
        case "complete":
            await store.complete(a_completion(lease))
        case "fail":
            await store.fail(a_failed_attempt(lease))
        case "abort":
            await store.abort(an_abort(lease))
    assert not {"parked", "woken"} & (await record_of(redis, keys, lease.run_id)).keys()


# ---- lost and handed back ----


async def test_a_parked_run_whose_worker_is_lost_waits_on_and_has_lost_nothing(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await park_one(store)
    assert await let_leases_expire(store) == Reaped(queued=0, waiting=1, failed=0, canceled=0)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("waiting",))
    run = await store.read_run(lease.run_id)
    assert (run.losses, run.attempt) == (0, 1)
    assert (await renew_one(store, lease)).standing is Standing.LOST
    await end_child(store)
    assert await lane_of(redis, keys) == [lease.run_id]


async def test_however_often_its_worker_is_lost_while_it_is_parked_it_goes_on_in_the_end(store: Store) -> None:
    lease, waits = await start_one(store), [a_wait(f"step {number}") for number in range(60)]
    for number, wait in enumerate(waits):
        assert await store.suspend(a_parking(lease, wait, steps_recorded=number)) == PARKED
        assert (await let_leases_expire(store)).waiting == 1
        await end_child(store)
        lease = await claim_one(store)
        await renew_one(store, lease)
    assert (await store.complete(a_completion(lease))).status is RunStatus.SUCCEEDED


async def test_a_parked_run_that_was_woken_goes_to_its_lane_when_its_worker_is_lost(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await park_one(store, a_wait("a"), a_wait("b"))
    behind = await enqueue_one(store)
    await end_child(store)
    assert await let_leases_expire(store) == Reaped(queued=1, waiting=0, failed=0, canceled=0)
    assert await lane_of(redis, keys) == [lease.run_id, behind], "in its old place"
    assert (await store.read_run(lease.run_id)).losses == 0


@pytest.mark.parametrize("is_woken", [False, True], ids=["asleep", "woken"])
@pytest.mark.parametrize("reason", [ReleaseReason.CLOSED, ReleaseReason.VANISHED, ReleaseReason.UNPARKED])
async def test_a_gateway_that_takes_it_back_leaves_it_where_it_belongs_at_no_cost(
    store: Store, redis: RedisCommand, keys: Keys, reason: ReleaseReason, is_woken: bool
) -> None:
    lease = await park_one(store, a_wait("a"), a_wait("b"))
    if is_woken:
        await end_child(store)
    status = RunStatus.QUEUED if is_woken else RunStatus.WAITING

    assert await store.release(a_release(lease, reason, stamp=STAMP)) == LeaseEnded(Outcome.OK, status)

    assert (await places(redis, keys, lease.run_id)).statuses == (status.value,)
    assert (await store.read_run(lease.run_id)).losses == 0
    assert not {"parked", "woken"} & (await record_of(redis, keys, lease.run_id)).keys()
    assert (await renew_one(store, lease)).standing is Standing.LOST, "its worker is to drop the handler"


@pytest.mark.parametrize("is_woken", [False, True], ids=["asleep", "woken"])
async def test_a_worker_that_drains_hands_it_back_to_its_waits_or_its_lane(store: Store, is_woken: bool) -> None:
    lease = await park_one(store, a_wait("a"), a_wait("b"))
    if is_woken:
        await end_child(store)
    status = RunStatus.QUEUED if is_woken else RunStatus.WAITING
    released = a_release(lease, ReleaseReason.SHUTDOWN, delay_ms=0)
    assert await store.release(released) == LeaseEnded(Outcome.OK, status)
    assert await store.release(released) == LeaseEnded(Outcome.DUPLICATE, status)


@pytest.mark.parametrize("reason", [ReleaseReason.CLOSED, ReleaseReason.UNPARKED, ReleaseReason.SHUTDOWN])
async def test_a_run_that_is_at_work_beside_its_waits_is_handed_back_to_its_lane(
    store: Store, reason: ReleaseReason
) -> None:
    lease = await start_one(store)
    await store.step_wait(some_waits(lease, a_wait("a"), a_sleep("b")))
    stamp = None if reason is ReleaseReason.SHUTDOWN else STAMP
    assert (await store.release(a_release(lease, reason, stamp=stamp))).status is RunStatus.QUEUED


async def test_a_gateway_that_no_longer_has_it_takes_nothing_back(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await park_one(store)
    await renew_one(store, lease, LATER_STAMP)
    before = await everything(redis, keys)
    released = await store.release(a_release(lease, ReleaseReason.UNPARKED, stamp=STAMP))
    assert released == LeaseEnded(Outcome.MOVED)
    assert await everything(redis, keys) == before


# ---- ends ----


async def test_a_parked_run_is_asked_to_stop_like_any_other_that_a_worker_has(
    store: Store, keys: Keys, redis_url: str
) -> None:
    wait = a_wait()
    lease = await park_one(store, wait)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await request_cancel(store, lease.run_id, "enough")
        assert await messages.so_far() == [f"stop {lease.lease_token} {StopReason.USER} enough"]
    assert await status_of(store, lease.run_id) is RunStatus.RUNNING
    assert await status_of(store, child_id(wait)) is RunStatus.QUEUED, "until its parent has ended"
    assert (await store.abort(an_abort(lease))).status is RunStatus.CANCELED
    assert await status_of(store, child_id(wait)) is RunStatus.CANCELED


async def test_one_that_was_to_be_canceled_is_when_its_worker_is_lost(store: Store) -> None:
    lease = await park_one(store)
    await request_cancel(store, lease.run_id)
    assert await let_leases_expire(store) == Reaped(queued=0, waiting=0, failed=0, canceled=1)


async def test_a_parked_run_whose_time_is_over_is_told_to_stop_and_fails(
    store: Store, keys: Keys, redis_url: str
) -> None:
    await register(store, a_workflow(run_timeout_ms=RUN_TIMEOUT_MS))
    lease = await park_one(store)
    store.now_ms = START_MS + RUN_TIMEOUT_MS
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        assert await store.expire(100) == Passed(1, None)
        assert await messages.so_far() == [f"stop {lease.lease_token} {StopReason.TIMEOUT} "]
    assert await store.reap(LEASE_MS, GRACE_MS * 100, 100) == Reaped(queued=0, waiting=0, failed=1, canceled=0)
    [step] = await store.read_steps(lease.run_id, 100)
    assert step.status is StepStatus.WITHDRAWN


# ---- going on by itself ----


async def test_a_handler_that_asks_to_go_on_is_answered_so_and_its_run_is_parked_no_more(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_parking(lease, an_event_wait()))

    answer = await store.suspend(replace(a_parking(lease), waits=()))

    assert (answer.outcome, answer.resolutions) == (Outcome.RESOLVED, ())
    run = await store.read_run(lease.run_id)
    assert (run.status, run.open_waits) == (RunStatus.RUNNING, 1), "what it has given up stays open"
    assert (await store.release(a_release(lease, ReleaseReason.UNPARKED))).status is RunStatus.QUEUED


async def test_one_that_was_to_be_canceled_ends_instead(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_parking(lease, an_event_wait()))
    await request_cancel(store, lease.run_id)

    assert (await store.suspend(replace(a_parking(lease), waits=()))).status is RunStatus.CANCELED
