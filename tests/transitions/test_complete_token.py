"""complete_token: whoever was given a token ends the wait for it, once."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.errors import NotWaiting, TokenNotFound
from redflow_server.domain.leases import ClaimedRun, Outcome, Suspended
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import WaitingKind
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.tokens import Completion, TokenStep, new_token, step_of
from redflow_server.domain.waits import Wait
from redflow_server.store.codec import encode_failure
from redflow_server.store.keys import Keys
from redflow_server.store.replies import Passed
from redflow_server.store.store import Store
from tests.builders import (
    AWKWARD_BYTES,
    STAMP,
    START_MS,
    Messages,
    a_completion,
    a_failed_attempt,
    a_failure,
    a_record,
    a_step,
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
    request_cancel,
    start_one,
)
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    SLEEP_MS,
    a_completed_token,
    a_parking,
    a_suspension,
    a_token_wait,
    a_wait,
    an_event_wait,
    in_race,
    read_step,
    some_waits,
    token_of,
    with_timeout,
)

KEEP_MS: Final = {RunStatus.CANCELED: 1000}


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


async def waiting_one(store: Store, name: str = "token", **run: object) -> tuple[ClaimedRun, str]:
    """A run of lane `w` that waits for a token, and the token."""
    lease = await start_one(store, **run)
    wait = a_token_wait(lease, name)
    assert await store.suspend(a_suspension(lease, wait)) == Suspended(Outcome.OK, RunStatus.WAITING)
    return lease, token_of(wait)


async def begin(store: Store, lease: ClaimedRun, wait: Wait | None = None) -> str:
    """Begins a wait for a token of a run that goes on; the token."""
    wait = wait or a_token_wait(lease)
    answer = await store.step_wait(some_waits(lease, wait))
    assert answer.outcome is Outcome.RESOLVED
    return token_of(wait)


# ---- the outcome ----


@pytest.mark.parametrize("output", [None, *AWKWARD_BYTES.values()], ids=["nothing", *AWKWARD_BYTES])
async def test_a_run_goes_on_in_its_old_place_with_what_its_token_was_completed_with(
    store: Store, redis: RedisCommand, keys: Keys, output: bytes | None
) -> None:
    lease, token = await waiting_one(store, "ask")
    behind = await enqueue_one(store)
    store.now_ms = START_MS + 9

    await store.complete_token(a_completed_token(token, output))

    assert await lane_of(redis, keys) == [lease.run_id, behind]
    step = await read_step(store, lease.run_id, "ask")
    assert step.output == (None if output is None else Payload(output))
    assert (step.kind, step.status, step.is_final) == (StepKind.TOKEN, StepStatus.SUCCEEDED, True)
    assert (step.finished_at_ms, step.resolved_seq, step.token) == (START_MS + 9, 1, token)


async def test_what_goes_with_an_output_comes_along(store: Store) -> None:
    lease, token = await waiting_one(store)
    output = Payload(b"\x00", "application/x", (("a|b", "c"),))
    await store.complete_token(Completion(token, step_of(token), output, None))
    assert (await read_step(store, lease.run_id, "token")).output == output


async def test_a_token_that_was_failed_is_a_failure_of_the_step(store: Store) -> None:
    lease, token = await waiting_one(store)
    failure = a_failure(message='he said "no"\n', cause=a_failure(message="deeper"))
    await store.complete_token(a_completed_token(token, failure=failure))
    step = await read_step(store, lease.run_id, "token")
    assert (step.status, step.failure, step.is_final) == (StepStatus.FAILED, failure, True)
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED


async def test_it_says_since_when_and_until_when_it_waits_for_somebody(store: Store) -> None:
    lease = await start_one(store)
    wait = with_timeout(a_token_wait(lease, "ask"))
    await store.suspend(a_suspension(lease, wait))
    [waiting_for] = (await store.read_run(lease.run_id)).waiting_for
    assert (waiting_for.kind, waiting_for.step_name) == (WaitingKind.TOKEN, "ask")
    assert (waiting_for.since_ms, waiting_for.until_ms) == (START_MS, START_MS + SLEEP_MS)
    assert token_of(wait) not in waiting_for.detail, "whoever may look at a run may not complete it therefore"


async def test_only_the_step_of_the_token_ends(store: Store) -> None:
    lease = await start_one(store)
    first, second = a_token_wait(lease, "a"), a_token_wait(lease, "b")
    await store.suspend(a_suspension(lease, first, second, an_event_wait("c"), a_wait("d")))
    await store.complete_token(a_completed_token(token_of(second)))
    statuses = {step.name: step.status for step in await store.read_steps(lease.run_id, 1000)}
    assert statuses == {"a": "waiting", "b": "succeeded", "c": "waiting", "d": "waiting"}


async def test_completing_one_of_a_race_withdraws_the_others(store: Store) -> None:
    lease = await start_one(store)
    first, second = in_race(a_token_wait(lease, "a"), a_token_wait(lease, "b"))
    await store.suspend(a_suspension(lease, first, second))
    await store.complete_token(a_completed_token(token_of(second)))
    assert (await read_step(store, lease.run_id, "a")).status is StepStatus.WITHDRAWN
    with pytest.raises(NotWaiting):
        await store.complete_token(a_completed_token(token_of(first)))


# ---- where the run is ----


@pytest.mark.parametrize("how", ["at work", "parked"])
async def test_the_gateway_of_a_run_that_a_worker_has_is_told(
    store: Store, redis: RedisCommand, keys: Keys, redis_url: str, how: str
) -> None:
    lease = await start_one(store)
    wait = a_token_wait(lease, "a step")
    if how == "parked":
        await store.suspend(a_parking(lease, wait))
    else:
        await begin(store, lease, wait)
    async with Messages.on(redis_url, keys.gateway(STAMP.gateway_id)) as messages:
        await store.complete_token(a_completed_token(token_of(wait)))
        assert [over(message) for message in await messages.so_far()] == [f"{lease.lease_token} a step"]
    assert (await places(redis, keys, lease.run_id)).statuses == ("running",)


@pytest.mark.parametrize("state", [RunStatus.QUEUED, RunStatus.SCHEDULED])
async def test_a_run_that_no_worker_has_gets_it_and_stays_where_it_is(store: Store, state: RunStatus) -> None:
    lease = await start_one(store, max_attempts=2)
    token = await begin(store, lease)
    if state is RunStatus.QUEUED:
        await let_leases_expire(store)
    else:
        await store.fail(a_failed_attempt(lease))
    await store.complete_token(a_completed_token(token))
    assert (await store.read_run(lease.run_id)).status is state
    assert (await read_step(store, lease.run_id, "token")).status is StepStatus.SUCCEEDED


async def test_the_token_of_a_step_stays_the_same_in_every_attempt(store: Store) -> None:
    lease = await start_one(store, max_attempts=2)
    token = await begin(store, lease)
    await store.fail(a_failed_attempt(lease))
    store.now_ms = START_MS + 1000
    await store.promote(10)
    again = await claim_one(store)
    [step] = (await store.step_wait(some_waits(again, a_token_wait(again)))).resolutions
    assert (step.token, step.status) == (token, StepStatus.WAITING)
    await store.complete_token(a_completed_token(token))


# ---- once ----


@pytest.mark.parametrize("failure", [None, a_failure()], ids=["completed", "failed"])
async def test_the_same_once_more_is_taken_and_changes_nothing(
    store: Store, redis: RedisCommand, keys: Keys, failure: object
) -> None:
    _, token = await waiting_one(store)
    completion = a_completed_token(token, failure=failure)  # type: ignore[arg-type]  # a Failure, of a parameter
    await store.complete_token(completion)
    before = await everything(redis, keys)
    store.now_ms = START_MS + 5
    await store.complete_token(completion)
    assert await everything(redis, keys) == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Payload(b"1"), Payload(b"2")),
        (Payload(b"1"), Payload(b"1", "application/x")),
        (Payload(b""), None),
        (None, Payload(b"")),
        (Payload(b"1"), a_failure()),
        (a_failure(), Payload(b"1")),
        (a_failure(), a_failure(message="another")),
        (a_failure(), Payload(encode_failure(a_failure()))),
    ],
    ids=["value", "type", "then nothing", "nothing first", "then failed", "failed first", "failed otherwise", "same"],
)
async def test_another_outcome_is_refused_and_changes_nothing(
    store: Store, redis: RedisCommand, keys: Keys, first: object, second: object
) -> None:
    def completion(outcome: object) -> Completion:
        if outcome is None or isinstance(outcome, Payload):
            return Completion(token, step_of(token), outcome, None)
        return a_completed_token(token, failure=outcome)  # type: ignore[arg-type]  # a Failure, of a parameter

    _, token = await waiting_one(store)
    await store.complete_token(completion(first))
    before = await everything(redis, keys)
    with pytest.raises(NotWaiting):
        await store.complete_token(completion(second))
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("end", ["succeeded", "failed", "canceled", "timed out"])
async def test_a_wait_that_is_over_takes_no_outcome(store: Store, redis: RedisCommand, keys: Keys, end: str) -> None:
    lease = await start_one(store)
    wait = with_timeout(a_token_wait(lease))
    await store.suspend(a_parking(lease, wait))
    match end:
        case "succeeded":
            await store.complete(a_completion(lease))
        case "failed":
            await store.fail(a_failed_attempt(lease))
        case "canceled":
            await request_cancel(store, lease.run_id)
            await let_leases_expire(store)
        case "timed out":
            store.now_ms = START_MS + SLEEP_MS
            assert await store.fire_timers(100) == Passed(1, None)
    before = await everything(redis, keys)
    with pytest.raises(NotWaiting):
        await store.complete_token(a_completed_token(token_of(wait)))
    assert await everything(redis, keys) == before


async def test_a_run_that_has_ended_takes_no_outcome_before_its_waits_are_withdrawn(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    lease = await start_one(store)
    waits = [a_token_wait(lease, f"step {number}") for number in range(120)]
    for first in (0, 100):
        await store.step_wait(some_waits(lease, *waits[first : first + 100]))
    await store.complete(a_completion(lease))
    left = await redis("HKEYS", keys.waits(lease.run_id))
    assert len(left) == 20
    for wait in waits:
        with pytest.raises(NotWaiting):
            await store.complete_token(a_completed_token(token_of(wait)))
    assert await store.apply_outbox(100) == Passed(1, None)
    assert {step.status for step in await store.read_steps(lease.run_id, 100)} == {StepStatus.WITHDRAWN}


# ---- tokens that lead nowhere ----


@pytest.mark.parametrize("state", every_state_but())
async def test_a_run_without_such_a_step_has_no_such_token(
    store: Store, redis: RedisCommand, keys: Keys, state: str
) -> None:
    run_id = await put_in_state(store, redis, keys, state)
    before = await everything(redis, keys)
    with pytest.raises(TokenNotFound):
        await store.complete_token(a_completed_token(new_token(run_id, "token")))
    assert await everything(redis, keys) == before


@pytest.mark.parametrize("kind", ["another secret", "function", "child", "event"])
async def test_a_step_that_has_another_token_or_none_is_left_alone(
    store: Store, redis: RedisCommand, keys: Keys, kind: str
) -> None:
    lease = await start_one(store)
    match kind:
        case "another secret":
            await begin(store, lease, a_token_wait(lease, "step"))
        case "function":
            await store.record_step(a_record(lease, a_step("step")))
        case "child":
            await store.step_wait(some_waits(lease, a_wait("step")))
        case "event":
            await store.step_wait(some_waits(lease, an_event_wait("step")))
    before = await everything(redis, keys)
    for token in (new_token(lease.run_id, "step"), ""):
        completion = Completion(token, TokenStep(lease.run_id, "step"), Payload(b"1"), None)
        with pytest.raises(TokenNotFound):
            await store.complete_token(completion)
    assert await everything(redis, keys) == before


async def test_a_run_that_was_purged_has_no_token(store: Store) -> None:
    lease, token = await waiting_one(store)
    await request_cancel(store, lease.run_id)
    store.now_ms = START_MS + 1001
    assert (await store.purge(KEEP_MS, 10)).purged == 1
    with pytest.raises(TokenNotFound):
        await store.complete_token(a_completed_token(token))


async def test_a_token_is_completed_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    lease, token = await waiting_one(store)
    async with memory_is_full(redis):
        await store.complete_token(a_completed_token(token))
    assert (await store.read_run(lease.run_id)).status is RunStatus.QUEUED
