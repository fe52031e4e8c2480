"""enqueue with an idempotency key: one run in a window, whatever has become of it."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.domain.errors import IdempotencyKeyReused
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import InputMismatch, RunQuery, StartedRun
from redflow_server.domain.states import RunStatus
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    Places,
    a_completion,
    a_failed_attempt,
    a_run,
    an_abort,
    claim_one,
    enqueue_one,
    everything,
    lane_of,
    let_leases_expire,
    places,
    start_one,
)
from tests.redis_command import RedisCommand

TTL_MS = 1000


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def start(store: Store, key: str = "k", **changes: object) -> StartedRun:
    """Starts a run with a key, whose window is a second."""
    return await store.enqueue(a_run(**{"idempotency_key": key, "idempotency_ttl_ms": TTL_MS, **changes}))


def existing(run: StartedRun, input_differs: bool = False) -> StartedRun:
    """The answer to a request whose key leads to this run."""
    return StartedRun(run.run_id, was_created=False, input_differs=input_differs)


# ---- one run for a key ----


async def test_a_key_answers_the_run_that_was_started_with_it(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first = await start(store)
    assert first.was_created
    assert await start(store) == existing(first)
    assert await lane_of(redis, keys) == [first.run_id]
    assert (await store.read_run(first.run_id)).idempotency_key == "k"


async def test_requests_of_the_same_moment_start_one_run(store: Store) -> None:
    answers = await asyncio.gather(*(start(store) for _ in range(20)))
    assert len({answer.run_id for answer in answers}) == 1
    assert sum(answer.was_created for answer in answers) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("w", "a"), ("w", "b")),
        (("w", "a"), ("v", "a")),
        (("idem:a", "b:c"), ("idem:a:b", "c")),
        (("a:1", "b"), ("a", "1:b")),
        (("é", "x"), ("e", "\u0301x")),
    ],
)
async def test_another_key_or_workflow_is_another_scope(
    store: Store, one: tuple[str, str], other: tuple[str, str]
) -> None:
    first = await start(store, one[1], workflow=one[0])
    second = await start(store, other[1], workflow=other[0])
    assert first.was_created
    assert second.was_created
    assert await start(store, one[1], workflow=one[0]) == existing(first)
    assert await start(store, other[1], workflow=other[0]) == existing(second)


async def test_a_key_answers_whatever_queue_or_time_is_asked_for(store: Store) -> None:
    first = await start(store)
    assert await start(store, queue="other", available_at_ms=START_MS + 500, priority=3) == existing(first)


async def run_in(store: Store, status: RunStatus) -> StartedRun:
    """A run with the key in a status."""
    if status is RunStatus.SCHEDULED:
        return await start(store, available_at_ms=START_MS + 60_000)
    run = await start(store)
    if status is RunStatus.QUEUED:
        return run
    lease = await claim_one(store)
    match status:
        case RunStatus.SUCCEEDED:
            await store.complete(a_completion(lease))
        case RunStatus.FAILED:
            await store.fail(a_failed_attempt(lease))
        case RunStatus.CANCELED:
            await store.abort(an_abort(lease))
    return run


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.WAITING])
async def test_a_run_of_any_status_answers_for_its_key_and_is_not_moved(
    store: Store, redis: RedisCommand, keys: Keys, status: RunStatus
) -> None:
    run = await run_in(store, status)
    before = await places(redis, keys, run.run_id)
    assert before.statuses == (status,)
    await enqueue_one(store)
    order = await lane_of(redis, keys)
    assert await start(store) == existing(run)
    assert await places(redis, keys, run.run_id) == before
    assert await lane_of(redis, keys) == order


# ---- the window ----


async def test_the_window_is_told_by_the_clock_of_the_script(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first = await start(store)
    store.now_ms = START_MS + TTL_MS + 1
    assert await redis("GET", keys.idempotency("w", "k")) == first.run_id, "Redis has not dropped the key yet"
    second = await start(store)
    assert second.was_created
    assert second.run_id != first.run_id
    assert await start(store) == existing(second)


async def test_a_hit_opens_the_window_anew_for_as_long_as_it_says(store: Store) -> None:
    first = await start(store)
    store.now_ms = START_MS + 900
    assert await start(store, idempotency_ttl_ms=5000) == existing(first)
    store.now_ms = START_MS + 900 + 4999
    assert await start(store, idempotency_ttl_ms=100) == existing(first)
    store.now_ms += 101
    assert (await start(store)).was_created


async def test_the_key_goes_by_itself_and_not_before_the_window_ends(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await start(store, idempotency_ttl_ms=3_600_000)
    assert await redis("PTTL", keys.idempotency("w", "k")) >= 3_600_000 - 10_000
    await start(store, idempotency_ttl_ms=7_200_000)
    assert await redis("PTTL", keys.idempotency("w", "k")) >= 7_200_000 - 10_000


async def test_a_window_of_a_hundred_years_is_kept(store: Store) -> None:
    first = await start(store, idempotency_ttl_ms=100 * 366 * 24 * 3600 * 1000)
    store.now_ms = START_MS + 99 * 365 * 24 * 3600 * 1000
    assert await start(store) == existing(first)


# ---- another input under the key ----


async def test_the_answer_says_that_the_input_was_another(store: Store) -> None:
    first = await start(store, input=Payload(b'{"a":1}'))
    assert await start(store, input=Payload(b'{"a": 1}')) == existing(first, input_differs=True)
    assert await start(store, input=Payload(b'{"a":1}')) == existing(first)
    assert (await store.read_run(first.run_id)).input == Payload(b'{"a":1}')


async def test_a_caller_may_ask_to_be_refused_then(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first = await start(store, input=Payload(b"1"))
    before = await everything(redis, keys)
    with pytest.raises(IdempotencyKeyReused) as refusal:
        await start(store, input=Payload(b"2"), on_input_mismatch=InputMismatch.REJECT)
    assert refusal.value.details == {"run_id": first.run_id}
    assert await everything(redis, keys) == before
    assert await start(store, input=Payload(b"1"), on_input_mismatch=InputMismatch.REJECT) == existing(first)


# ---- keys that lead to nothing, or to something unfinished ----


async def test_a_key_of_a_run_that_is_gone_starts_a_new_one_and_leads_to_it(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await redis("SET", keys.idempotency("w", "k"), "run_gone")
    run = await start(store)
    assert run.was_created
    assert await redis("GET", keys.idempotency("w", "k")) == run.run_id
    assert await redis("EXISTS", keys.run("run_gone")) == 0
    assert await start(store) == existing(run)
    assert (await claim_one(store)).run_id == run.run_id


@pytest.mark.leaves_faults
async def test_a_key_that_leads_to_no_record_starts_a_new_run(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await redis("SET", keys.run("run_strange"), "not a hash")
    await redis("SET", keys.idempotency("w", "k"), "run_strange")
    assert (await start(store)).was_created
    assert await redis("GET", keys.run("run_strange")) == "not a hash"


async def write_by_hand(redis: RedisCommand, keys: Keys, run_id: str, **changes: str) -> None:
    """A record as the original engine leaves it when it is cut off: the hash is there, and nothing else."""
    fields = {
        "workflow": "w",
        "queue": "q",
        "status": "queued",
        "inputJson": '{"n":1}',
        "attempt": "0",
        "maxAttempts": "1",
        "createdAt": str(START_MS - 5),
        "availableAt": "",
        "cancelRequestedAt": "",
        "cancelReason": "",
        **changes,
    }
    await redis("HSET", keys.run(run_id), *[part for field in fields.items() for part in field])
    await redis("SET", keys.idempotency("w", "k"), run_id)


@pytest.mark.leaves_faults
async def test_a_half_written_run_is_answered_and_repaired(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await write_by_hand(redis, keys, "run_half")

    answer = await start(store, input=Payload(b'{"n":1}'))

    assert answer == StartedRun("run_half", was_created=False)
    assert await places(redis, keys, "run_half") == Places(("1:q:1:w",), None, None, ("queued",))
    [listed] = (await store.list_runs(RunQuery(workflow="w"))).runs
    assert (listed.run_id, listed.status) == ("run_half", RunStatus.QUEUED)


@pytest.mark.leaves_faults
async def test_a_repaired_run_runs(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await write_by_hand(redis, keys, "run_half")
    await start(store)
    lease = await claim_one(store)
    assert (lease.run_id, lease.attempt, lease.max_attempts) == ("run_half", 1, 1)
    assert lease.input == Payload(b'{"n":1}')
    await store.complete(a_completion(lease))
    run = await store.read_run("run_half")
    assert (run.status, run.created_at_ms) == (RunStatus.SUCCEEDED, START_MS - 5)
    assert await start(store) == existing(StartedRun("run_half", was_created=False), input_differs=False)


@pytest.mark.leaves_faults
async def test_a_half_written_run_for_later_waits_for_its_time(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await write_by_hand(redis, keys, "run_half", status="scheduled", availableAt=str(START_MS + 5000))
    assert (await start(store)).run_id == "run_half"
    assert await places(redis, keys, "run_half") == Places((), START_MS + 5000, None, ("scheduled",))


@pytest.mark.leaves_faults
async def test_a_repair_is_heard_and_happens_once(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await write_by_hand(redis, keys, "run_half")
    await start(store)
    before = await lane_of(redis, keys), await places(redis, keys, "run_half"), await redis("GET", keys.run_seq)
    await start(store)
    assert (
        await lane_of(redis, keys),
        await places(redis, keys, "run_half"),
        await redis("GET", keys.run_seq),
    ) == before


async def test_a_leased_run_that_no_reaper_would_find_is_put_where_one_does(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store, idempotency_key="k")
    await redis("ZREM", keys.leases, lease.run_id)
    assert (await start(store)).run_id == lease.run_id
    assert (await places(redis, keys, lease.run_id)).lease_until_ms == START_MS
    assert (await let_leases_expire(store)).queued == 1
