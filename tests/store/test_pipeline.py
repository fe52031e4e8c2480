"""The pipeline: calls share round trips, keep their order within a run, and survive what happens to a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.leases import LeaseEnded, Outcome
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import StartedRun
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import ScriptFault
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import (
    START_MS,
    a_claim,
    a_completion,
    a_failed_attempt,
    a_record,
    a_release,
    a_run,
    a_step,
    claim_one,
    enqueue_one,
    lane_of,
    places,
    start_one,
)
from tests.line import Line, to_redis
from tests.redis_command import RedisCommand
from tests.store.pipelines import WITHIN_S, call_is_postponed, pipeline_to
from tests.wait_builders import a_sleep, some_waits

SUCCEEDED = LeaseEnded(Outcome.OK, RunStatus.SUCCEEDED)

SCRIPTS = load_scripts()


@pytest.fixture(autouse=True)
def _time_stands_still(store: Store) -> None:
    store.now_ms = START_MS


@pytest_asyncio.fixture
async def line(redis_url: str) -> AsyncIterator[Line]:
    async with Line(to_redis(redis_url)) as line:
        yield line


async def evalsha_calls(redis: RedisCommand) -> int:
    stats = await redis("INFO", "commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])


# ---- sharing ----


async def test_calls_of_one_turn_share_a_round_trip(store: Store, redis: RedisCommand) -> None:
    leases = [await start_one(store) for _ in range(60)]
    reads_before = (await redis("INFO", "stats"))["total_reads_processed"]
    calls_before = await evalsha_calls(redis)

    answers = await asyncio.gather(*(store.record_step(a_record(lease)) for lease in leases))

    assert {answer.outcome for answer in answers} == {Outcome.OK}
    assert await evalsha_calls(redis) - calls_before == 1
    reads = (await redis("INFO", "stats"))["total_reads_processed"] - reads_before
    assert reads <= 5, "the batch is one of them, our own looks the others"


async def test_calls_of_different_scripts_share_a_round_trip(store: Store, redis: RedisCommand) -> None:
    leases = [await start_one(store) for _ in range(40)]
    reads_before = (await redis("INFO", "stats"))["total_reads_processed"]
    await asyncio.gather(
        *(store.record_step(a_record(lease)) for lease in leases[:10]),
        *(store.complete(a_completion(lease)) for lease in leases[10:20]),
        *(store.fail(a_failed_attempt(lease)) for lease in leases[20:30]),
        *(store.read_run(lease.run_id) for lease in leases[30:]),
        *(store.enqueue(a_run()) for _ in range(10)),
    )
    reads = (await redis("INFO", "stats"))["total_reads_processed"] - reads_before
    assert reads <= 4


async def test_many_and_large_calls_are_all_answered(store: Store) -> None:
    runs = [a_run(input=Payload(b"x" * 100_000)) for _ in range(50)] + [a_run() for _ in range(1500)]
    answers = await asyncio.gather(*(store.enqueue(run) for run in runs))
    assert answers == [StartedRun(run.run_id, was_created=True) for run in runs]


@pytest.mark.leaves_faults
async def test_a_call_that_raises_in_redis_fails_alone(store: Store, redis: RedisCommand, keys: Keys) -> None:
    leases = [await start_one(store) for _ in range(3)]
    await redis("DEL", keys.steps(leases[1].run_id))
    await redis("SET", keys.steps(leases[1].run_id), "not a hash")

    calls = [store.record_step(a_record(lease)) for lease in leases]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(answers[1], ScriptFault)
    assert [getattr(answer, "outcome", answer) for answer in (answers[0], answers[2])] == [Outcome.OK] * 2


async def test_a_call_that_cannot_be_sent_fails_alone(redis_url: str, prefix: str) -> None:
    async with pipeline_to(redis_url, prefix) as (_, store):
        calls = [store.enqueue(a_run()), store.enqueue(a_run(workflow="\udcff")), store.enqueue(a_run())]
        async with asyncio.timeout(WITHIN_S):
            answers = await asyncio.gather(*calls, return_exceptions=True)
            later = await store.enqueue(a_run())
    assert isinstance(answers[1], Exception)
    assert [type(answer) for answer in (answers[0], answers[2], later)] == [StartedRun] * 3


async def test_a_caller_that_goes_away_takes_no_answer_from_others(store: Store) -> None:
    calls = [store.enqueue(a_run()) for _ in range(3)]
    calls[1].cancel()
    first, _, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, StartedRun)
    assert isinstance(third, StartedRun)


# ---- scripts that Redis has forgotten ----


async def test_forgotten_scripts_are_loaded_again_and_nobody_notices(store: Store, redis: RedisCommand) -> None:
    lease = await start_one(store)
    await redis("SCRIPT", "FLUSH")
    answers = await asyncio.gather(
        store.record_step(a_record(lease)), store.enqueue(a_run()), store.read_run(lease.run_id), store.claim(a_claim())
    )
    assert len(answers) == 4


@pytest.mark.parametrize("known", ["complete", "record_step"])
async def test_a_result_does_not_pass_a_step_whose_script_is_forgotten(
    store: Store, redis: RedisCommand, known: str
) -> None:
    lease = await start_one(store)
    await redis("SCRIPT", "FLUSH")
    await redis("SCRIPT", "LOAD", load_scripts()[known].source.decode())
    step = store.record_step(a_record(lease, a_step("a")))
    result = store.complete(a_completion(lease, steps_recorded=1))
    assert ((await step).outcome, await result) == (Outcome.OK, SUCCEEDED)


# ---- order within a run ----


async def test_a_result_comes_after_the_steps_reported_before_it(store: Store) -> None:
    lease = await start_one(store)
    calls = (
        store.record_step(a_record(lease, a_step("a"))),
        store.record_step(a_record(lease, a_step("b"), steps_recorded=1)),
        store.complete(a_completion(lease, steps_recorded=2)),
        store.record_step(a_record(lease, a_step("late"))),
    )
    first, second, result, late = await asyncio.gather(*calls)
    assert (first.outcome, second.outcome, result) == (Outcome.OK, Outcome.OK, SUCCEEDED)
    assert late.outcome is Outcome.LEASE_LOST


async def test_a_step_reported_after_the_result_does_not_slip_in_before_it(store: Store) -> None:
    other, lease = await start_one(store), await start_one(store)
    calls = (
        store.record_step(a_record(other, a_step("a"))),
        store.complete(a_completion(lease)),
        store.record_step(a_record(lease, a_step("late"))),
    )
    _, result, late = await asyncio.gather(*calls)
    assert (result, late.outcome) == (SUCCEEDED, Outcome.LEASE_LOST)
    assert await store.read_steps(lease.run_id, 100) == ()


async def test_what_a_run_says_by_different_scripts_keeps_its_order(store: Store) -> None:
    """Although calls of the same script go together, and another run had each of them called before."""
    other, lease = await start_one(store), await start_one(store)
    calls = (
        store.record_step(a_record(other, a_step("a"))),
        store.step_wait(some_waits(lease, a_sleep())),
        store.record_step(replace(a_record(lease, a_step("function")), rivals=("sleep",))),
    )
    await asyncio.gather(*calls)
    steps = {step.name: step.status for step in await store.read_steps(lease.run_id, 100)}
    assert steps == {"sleep": StepStatus.WITHDRAWN, "function": StepStatus.SUCCEEDED}


@pytest.mark.parametrize("end", ["complete", "fail", "release"])
async def test_what_ends_a_lease_does_not_pass_a_step_whose_answer_was_lost(
    line: Line, store: Store, redis_url: str, prefix: str, end: str
) -> None:
    lease = await start_one(store)
    async with pipeline_to(line.through(redis_url), prefix) as (_, cut_off):
        line.lose_reply_to(SCRIPTS["record_step"].sha)
        step = cut_off.record_step(a_record(lease, a_step("a")))
        match end:
            case "complete":
                last = cut_off.complete(a_completion(lease, steps_recorded=1))
            case "fail":
                last = cut_off.fail(a_failed_attempt(lease, steps_recorded=1))
            case _:
                last = cut_off.release(a_release(lease, steps_recorded=1))
        async with asyncio.timeout(WITHIN_S):
            assert ((await step).outcome, (await last).outcome) == (Outcome.DUPLICATE, Outcome.OK)
    assert line.lost_replies == 1


# ---- answers that are lost ----


async def test_calls_that_may_be_repeated_are_answered_and_have_their_effect_once(
    line: Line, store: Store, redis: RedisCommand, redis_url: str, keys: Keys
) -> None:
    failing = await start_one(store, max_attempts=5)
    releasing = await start_one(store)
    run = a_run(idempotency_key="k")
    async with pipeline_to(line.through(redis_url), keys.prefix) as (_, cut_off), asyncio.timeout(WITHIN_S):
        line.lose_reply_to(SCRIPTS["fail"].sha)
        assert await cut_off.fail(a_failed_attempt(failing)) == LeaseEnded(Outcome.DUPLICATE, RunStatus.SCHEDULED)
        line.lose_reply_to(SCRIPTS["release"].sha)
        assert await cut_off.release(a_release(releasing)) == LeaseEnded(Outcome.DUPLICATE, RunStatus.QUEUED)
        line.lose_reply_to(SCRIPTS["enqueue"].sha)
        assert await cut_off.enqueue(run) == StartedRun(run.run_id, was_created=True, is_repeat=True)
        line.lose_reply_to(SCRIPTS["cancel"].sha)
        assert await cut_off.cancel(run.run_id, "", "cancel-1")
    assert line.lost_replies == 4
    assert (await store.read_run(failing.run_id)).failures == 1
    assert await lane_of(redis, keys) == [releasing.run_id]


async def test_a_claim_whose_answer_was_lost_is_not_repeated(
    line: Line, store: Store, redis: RedisCommand, redis_url: str, keys: Keys
) -> None:
    first = await enqueue_one(store)
    async with pipeline_to(line.through(redis_url), keys.prefix) as (_, cut_off), asyncio.timeout(WITHIN_S):
        line.lose_reply_to(SCRIPTS["claim"].sha)
        with pytest.raises(StoreUnavailable):
            await cut_off.claim(a_claim())
        assert (await store.read_run(first)).status is RunStatus.RUNNING, "the end of its lease brings it back"
        second = await enqueue_one(cut_off)
        assert (await claim_one(cut_off)).run_id == second
    assert (await store.read_run(first)).deliveries == 1


async def test_connections_may_be_killed_while_calls_are_under_way(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    leases = [await start_one(store) for _ in range(20)]
    recorded = [0] * len(leases)
    kills, progress = 0, asyncio.Event()

    async def work_off(number: int) -> None:
        while kills < 3:
            step = recorded[number]
            report = a_record(leases[number], a_step(f"s{step}", seq=step), steps_recorded=step)
            assert (await store.record_step(report)).outcome in (Outcome.OK, Outcome.DUPLICATE)
            recorded[number] += 1
            progress.set()
        result = await store.complete(a_completion(leases[number], steps_recorded=recorded[number]))
        assert (result.outcome in (Outcome.OK, Outcome.DUPLICATE), result.status) == (True, RunStatus.SUCCEEDED)

    async def kill() -> None:
        nonlocal kills
        while kills < 3:
            # More than may be under way: so all of them are sent over a connection made since the last time.
            least = sum(recorded) + 2 * len(leases)
            while sum(recorded) < least:
                await progress.wait()
                progress.clear()
            assert await redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 1
            kills += 1

    async with asyncio.timeout(3 * WITHIN_S):
        await asyncio.gather(kill(), *(work_off(number) for number in range(20)))

    for lease, count in zip(leases, recorded, strict=True):
        assert (await places(redis, keys, lease.run_id)).statuses == ("succeeded",)
        assert [step.name for step in await store.read_steps(lease.run_id, 1000)] == [f"s{n}" for n in range(count)]


async def test_of_several_batches_under_way_none_is_lost_and_none_passes_another_of_its_run(
    redis_url: str, prefix: str, store: Store, redis: RedisCommand
) -> None:
    leases = [await start_one(store) for _ in range(20)]
    async with pipeline_to(redis_url, prefix) as (pipeline, cut_off):
        await redis("CLIENT", "PAUSE", 60_000, "WRITE")
        calls = []
        try:
            for step in range(2):
                for number in range(0, len(leases), 2):
                    both = leases[number : number + 2]
                    calls += [cut_off.record_step(a_record(one, a_step(f"s{step}", seq=step))) for one in both]
                    await asyncio.sleep(0)
            results = [cut_off.complete(a_completion(lease, steps_recorded=2)) for lease in leases]
            await call_is_postponed(redis)
            under_way = [batch.runs for batch in pipeline._under_way]
            await redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        finally:
            await redis("CLIENT", "UNPAUSE")
        async with asyncio.timeout(WITHIN_S):
            assert {(await call).outcome for call in calls} == {Outcome.OK}
            assert [await result for result in results] == [SUCCEEDED] * len(leases)
    assert len(under_way) > 1
    assert len(frozenset().union(*under_way)) == sum(map(len, under_way)), "each run is in one of them"


async def test_a_claim_is_refused_when_its_connection_is_killed_before_it_is_executed(
    store: Store, redis: RedisCommand
) -> None:
    run_id = await enqueue_one(store)
    await redis("CLIENT", "PAUSE", 60_000, "WRITE")
    try:
        claim, step = store.claim(a_claim()), store.read_run(run_id)
        await call_is_postponed(redis)
        await redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    finally:
        await redis("CLIENT", "UNPAUSE")
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(StoreUnavailable):
            await claim
        assert (await step).status is RunStatus.QUEUED
    assert (await claim_one(store)).run_id == run_id
