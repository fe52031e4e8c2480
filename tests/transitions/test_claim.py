"""claim: queued runs are leased to a session, with everything their handlers need."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import Claimed, ClaimedRun, Lane, ReleaseReason
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import Registration, RetryPolicy
from redflow_server.domain.runs import Step
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    DELIVERY_MS,
    HALF_WRITTEN,
    LANE,
    MISSING,
    STAMP,
    START_MS,
    Messages,
    Places,
    a_claim,
    a_failed_attempt,
    a_failed_step,
    a_failure,
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
    start_one,
)
from tests.redis_command import RedisCommand

LANE_KEY = lane_name(LANE.queue, LANE.workflow)
KIB = 1024


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


def ids(claimed: Claimed) -> list[str]:
    return [run.run_id for run in claimed.runs]


async def again(store: Store, lease: ClaimedRun) -> ClaimedRun:
    """The run after it was handed back and claimed once more."""
    await store.release(a_release(lease))
    return await claim_one(store)


# ---- a leased run ----


async def test_a_claimed_run_comes_with_what_its_handler_needs(store: Store) -> None:
    run_id = await enqueue_one(store, max_attempts=3, input=Payload(b"[1]", "text/x", (("k", "v"),)))

    claimed = await store.claim(a_claim(secret="the-secret-made"))

    assert claimed.emptied == (LANE,)
    assert claimed.runs == (
        ClaimedRun(
            run_id=run_id,
            lease_token=f"{run_id}.the-secret-made",
            lane=LANE,
            attempt=1,
            max_attempts=3,
            deliveries=1,
            input=Payload(b"[1]", "text/x", (("k", "v"),)),
            steps=(),
        ),
    )


async def test_a_claimed_run_is_leased_until_its_delivery_is_overdue(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store)
    store.now_ms = START_MS + 50
    lease = await claim_one(store)
    assert await places(redis, keys, run_id) == Places((), None, START_MS + 50 + DELIVERY_MS, ("running",))
    record = await record_of(redis, keys, run_id)
    assert (record["leaseToken"], record["leaseOwner"]) == (lease.lease_token, "session-1 1 gateway-1")
    run = await store.read_run(run_id)
    assert (run.status, run.attempt, run.started_at_ms) == (RunStatus.RUNNING, 1, START_MS + 50)
    assert run.session_id == STAMP.session_id


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES)
async def test_input_and_steps_come_as_they_were(store: Store, data: bytes) -> None:
    lease = await start_one(store, input=Payload(data))
    step = Payload(data[: 32 * KIB], "application/x", (("é", "|"),))
    await store.record_step(a_record(lease, replace(a_step(), output=step)))
    lease = await again(store, lease)
    assert lease.input == Payload(data)
    assert lease.steps is not None
    assert [found.output for found in lease.steps] == [step]


async def test_a_run_keeps_its_first_start_and_counts_its_deliveries(store: Store) -> None:
    lease = await start_one(store)
    store.now_ms = START_MS + 1000
    lease = await again(store, lease)
    assert (lease.deliveries, lease.attempt) == (2, 1)
    assert (await store.read_run(lease.run_id)).started_at_ms == START_MS


async def test_an_attempt_ends_with_a_failure_and_not_with_a_lost_lease(store: Store) -> None:
    lease = await start_one(store, max_attempts=3)
    await let_leases_expire(store)
    lease = await claim_one(store)
    assert lease.attempt == 1
    await store.fail(a_failed_attempt(lease, a_failure(next_retry_delay_ms=0)))
    lease = await claim_one(store)
    assert lease.attempt == 2
    await store.release(a_release(lease, ReleaseReason.VANISHED))
    assert (await claim_one(store)).attempt == 2


async def test_the_time_that_a_run_has_left_counts_from_its_first_claim(store: Store) -> None:
    await register(store, a_workflow(run_timeout_ms=60_000))
    await enqueue_one(store)
    store.now_ms = START_MS + 5000
    lease = await claim_one(store)
    assert lease.run_time_left_ms == 60_000
    store.now_ms = START_MS + 6000
    assert (await again(store, lease)).run_time_left_ms == 59_000


async def test_a_run_keeps_the_policy_that_it_was_claimed_with(store: Store) -> None:
    run_id = await enqueue_one(store, max_attempts=3)
    await register(store, a_workflow(retry_policy=RetryPolicy(1000, 1.0, 1000, 0.0)))
    lease = await claim_one(store)
    store.now_ms = START_MS + 1000
    later = a_workflow(digest="digest-2", retry_policy=RetryPolicy(9000, 1.0, 9000, 0.0))
    await store.register(Registration("owner-1", "build-2", (later,)))
    await store.fail(a_failed_attempt(lease))
    assert (await store.read_run(run_id)).available_at_ms == START_MS + 1000 + 1000


# ---- steps that are there already ----


async def test_recorded_steps_come_in_order_with_their_values(store: Store) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease, a_step("b", b"2", seq=2)))
    await store.record_step(a_record(lease, a_step("a", None, seq=1)))
    failed = a_failed_step("c", seq=3, is_final=True)
    await store.record_step(a_record(lease, failed))
    lease = await again(store, lease)
    steps = lease.steps
    assert steps is not None
    assert [(step.name, step.output, step.failure, step.status, step.is_final) for step in steps] == [
        ("a", None, None, StepStatus.SUCCEEDED, False),
        ("b", Payload(b"2"), None, StepStatus.SUCCEEDED, False),
        ("c", None, failed.failure, StepStatus.FAILED, True),
    ]


@pytest.mark.parametrize(
    ("count", "size", "is_inline"),
    [(64, 10, True), (65, 10, False), (2, 30 * KIB, True), (2, 33 * KIB, False)],
    ids=["64 steps", "65 steps", "60 KiB", "66 KiB"],
)
async def test_large_sets_of_steps_are_left_to_be_read_afterwards(
    store: Store, count: int, size: int, is_inline: bool
) -> None:
    lease = await start_one(store)
    for number in range(count):
        await store.record_step(a_record(lease, a_step(f"s{number}", b"x" * size, seq=number)))

    lease = await again(store, lease)

    steps: tuple[Step, ...] | None = lease.steps
    assert (steps is not None) == is_inline
    if steps is not None:
        assert [step.size_bytes for step in steps] == [size] * count


# ---- which runs, and how many ----


async def test_runs_come_in_the_order_in_which_they_were_queued(store: Store) -> None:
    queued = [await enqueue_one(store) for _ in range(5)]
    first, rest = await store.claim(a_claim(count=2)), await store.claim(a_claim(count=10))
    assert ids(first) + ids(rest) == queued
    assert (first.emptied, rest.emptied) == ((), (LANE,))


async def test_a_higher_priority_comes_first_and_equals_in_order(store: Store) -> None:
    order = [0, 1000, -1000, 1, 0, 1000, -1, -1000]
    queued = [(await enqueue_one(store, priority=priority), priority) for priority in order]
    expected = [run_id for run_id, _ in sorted(queued, key=lambda entry: -entry[1])]
    assert ids(await store.claim(a_claim())) == expected


async def test_no_more_are_claimed_than_asked_for(store: Store, redis: RedisCommand, keys: Keys) -> None:
    queued = [await enqueue_one(store) for _ in range(4)]
    claimed = await store.claim(a_claim(count=3))
    assert (ids(claimed), claimed.emptied) == (queued[:3], ())
    assert await lane_of(redis, keys) == queued[3:]
    assert await redis("ZSCORE", keys.lanes, LANE_KEY) is not None


async def test_claims_of_the_same_moment_share_the_runs(store: Store) -> None:
    queued = [await enqueue_one(store) for _ in range(7)]
    claims = await asyncio.gather(*(store.claim(a_claim(count=3)) for _ in range(4)))
    assert [len(claim.runs) for claim in claims] == [3, 3, 1, 0]
    assert [run_id for claim in claims for run_id in ids(claim)] == queued


async def test_lanes_take_turns(store: Store, redis: RedisCommand, keys: Keys) -> None:
    lanes = [Lane("q", "x"), Lane("q", "y"), Lane("r", "x"), Lane("q", "empty")]
    for lane, depth in zip(lanes, (9, 9, 1, 0), strict=True):
        for _ in range(depth):
            await enqueue_one(store, queue=lane.queue, workflow=lane.workflow)

    claimed = await store.claim(a_claim(*lanes, count=8))

    shares = {lane: sum(run.lane == lane for run in claimed.runs) for lane in lanes}
    assert len(claimed.runs) == 8
    assert (shares[lanes[2]], shares[lanes[3]]) == (1, 0)
    assert min(shares[lanes[0]], shares[lanes[1]]) >= 2
    assert claimed.emptied == (lanes[2], lanes[3])
    assert set(await redis("ZRANGE", keys.lanes, 0, -1)) == {"1:q:1:x", "1:q:1:y"}


async def test_names_with_colons_do_not_share_a_lane(store: Store) -> None:
    here, there = Lane("a:b", "c"), Lane("a", "b:c")
    run_id = await enqueue_one(store, queue=here.queue, workflow=here.workflow)
    assert ids(await store.claim(a_claim(there))) == []
    claimed = await store.claim(a_claim(there, here))
    assert [(run.run_id, run.lane) for run in claimed.runs] == [(run_id, here)]


async def test_a_claim_that_empties_a_lane_takes_it_off_the_list(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str
) -> None:
    await enqueue_one(store)
    async with Messages.on(redis_url, keys.wakeups) as messages:
        await store.claim(a_claim())
        assert await messages.so_far() == []
        assert await redis("ZRANGE", keys.lanes, 0, -1) == []
        await enqueue_one(store)
        number = int(await redis("ZSCORE", keys.lanes, LANE_KEY))
        assert await messages.so_far() == [f"lane {number} {LANE_KEY}"]


async def test_an_answer_holds_at_most_one_mebibyte(store: Store, redis: RedisCommand, keys: Keys) -> None:
    queued = [await enqueue_one(store, input=Payload(b"x" * 300 * KIB)) for _ in range(5)]
    claimed = await store.claim(a_claim())
    assert (ids(claimed), claimed.emptied) == (queued[:3], ())
    assert await lane_of(redis, keys) == queued[3:]


async def test_steps_count_for_the_size_of_an_answer(store: Store) -> None:
    leases = []
    for _ in range(3):
        lease = await start_one(store, input=Payload(b"x" * 500 * KIB))
        await store.record_step(a_record(lease, a_step(output=b"y" * 60 * KIB)))
        leases.append(lease)
    for lease in leases:
        await store.release(a_release(lease))
    assert len((await store.claim(a_claim())).runs) == 1


async def test_a_run_that_fills_an_answer_alone_is_claimed_alone(store: Store) -> None:
    large = await enqueue_one(store, input=Payload(b"x" * 1024 * KIB))
    small = await enqueue_one(store)
    assert ids(await store.claim(a_claim())) == [large]
    assert ids(await store.claim(a_claim())) == [small]


async def test_a_full_claim_is_answered(store: Store) -> None:
    await asyncio.gather(*(enqueue_one(store) for _ in range(150)))
    claimed = await store.claim(a_claim(count=128))
    assert (len(set(ids(claimed))), claimed.emptied) == (128, ())


async def test_a_lane_that_nobody_has_used_is_empty(store: Store, redis: RedisCommand, keys: Keys) -> None:
    before = await everything(redis, keys)
    assert await store.claim(a_claim(Lane("q", "nobody"))) == Claimed((), (Lane("q", "nobody"),), 0)
    assert await everything(redis, keys) == before


# ---- entries that do not belong into the lane ----


@pytest.mark.parametrize("state", every_state_but(RunStatus.QUEUED))
async def test_only_a_queued_run_is_claimed(store: Store, redis: RedisCommand, keys: Keys, state: str) -> None:
    stale = await put_in_state(store, redis, keys, state)
    good = await enqueue_one(store)
    before = await everything(redis, keys)
    await redis("ZADD", keys.lane(LANE_KEY), 0, stale)

    claimed = await store.claim(a_claim(count=1))
    claimed = claimed if claimed.runs else await store.claim(a_claim(count=1))

    assert (ids(claimed), claimed.emptied) == ([good], (LANE,))
    assert await lane_of(redis, keys) == []
    after = await everything(redis, keys)
    of_stale = [key for key in before | after if stale in key]
    assert {key: before.get(key) for key in of_stale} == {key: after.get(key) for key in of_stale}
    if state not in (MISSING, HALF_WRITTEN):
        assert (await places(redis, keys, stale)).statuses == (state,)


async def test_a_run_of_another_queue_is_not_claimed_from_this_one(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id = await enqueue_one(store, queue="other")
    await redis("ZADD", keys.lane(LANE_KEY), 0, run_id)
    assert ids(await store.claim(a_claim())) == []
    assert await lane_of(redis, keys) == []
    assert ids(await store.claim(a_claim(Lane("other", "w")))) == [run_id]


@pytest.mark.leaves_faults
async def test_a_key_of_another_type_is_left_alone(store: Store, redis: RedisCommand, keys: Keys) -> None:
    good = await enqueue_one(store)
    await redis("SET", keys.run("run_strange"), "not a hash")
    await redis("ZADD", keys.lane(LANE_KEY), 0, "run_strange")
    assert ids(await store.claim(a_claim())) == [good]
    assert await lane_of(redis, keys) == []
    assert await redis("GET", keys.run("run_strange")) == "not a hash"


async def test_a_lane_full_of_stale_entries_does_not_hide_the_run_behind_them(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    good = await enqueue_one(store)
    for number in range(1000):
        await redis("ZADD", keys.lane(LANE_KEY), -number, f"run_gone{number}")
    for _ in range(20):
        claimed = await store.claim(a_claim(count=1))
        if claimed.runs:
            break
        assert claimed.emptied == (), "there is a run in it still"
    assert ids(claimed) == [good]


async def test_a_queued_run_with_a_cancel_request_is_canceled_instead(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    run_id, other = await enqueue_one(store), await enqueue_one(store)
    await redis("HSET", keys.run(run_id), "cancelRequestedAt", START_MS, "cancelReason", "enough")
    assert ids(await store.claim(a_claim())) == [other]
    run = await store.read_run(run_id)
    assert (run.status, run.cancel_reason) == (RunStatus.CANCELED, "enough")
    assert await places(redis, keys, run_id) == Places((), None, None, ("canceled",))


async def test_a_queued_run_whose_time_is_over_fails_instead(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(run_timeout_ms=60_000))
    lease = await start_one(store)
    await store.release(a_release(lease))
    store.now_ms = START_MS + 60_000
    assert ids(await store.claim(a_claim())) == []
    run = await store.read_run(lease.run_id)
    assert run.failure is not None
    assert (run.status, run.failure.kind) == (RunStatus.FAILED, FailureKind.TIMEOUT)
    assert await places(redis, keys, lease.run_id) == Places((), None, None, ("failed",))


async def test_runs_are_claimed_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    run_id = await enqueue_one(store)
    async with memory_is_full(redis):
        assert ids(await store.claim(a_claim())) == [run_id]
