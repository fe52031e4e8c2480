"""What is too large is refused by size and limit, and ends at most its own run; what is not passes to the last byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from redflow_sdk import (
    Client,
    Context,
    Failure,
    InvalidInputError,
    RetryPolicy,
    RunFailedError,
    Worker,
    Workflow,
    workflow,
)
from redflow_server.config import Config
from redflow_server.domain.names import Limits
from redflow_server.domain.timing import Timing
from tests.acceptance.ways import FROM_A_CLIENT, FROM_A_RUN, sent_by_a_client, sent_by_a_run, takes
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually

MIB: Final = 1024 * 1024
LIMITS: Final = (1000, Limits().max_payload_bytes)


@pytest.fixture
def config(config: Config) -> Config:
    """With the leases of a gateway that is not under test: what is large keeps this process busy for a while."""
    return replace(config, timing=Timing())


def json_of_size(size: int) -> str:
    """Text that is so many bytes as JSON."""
    return "x" * (size - 2)


@workflow(name="repeats", retry=RetryPolicy(max_attempts=2, initial=0.01))
async def repeats(ctx: Context, input: str) -> str:
    kept = [await ctx.step.run(f"step {number}", lambda: input) for number in range(6)]
    if ctx.run.attempt == 1:
        raise RuntimeError("once more, from what is recorded")
    assert kept == [input] * 6
    return kept[0]


@workflow(name="sends", retry=RetryPolicy(max_attempts=3, initial=0.01))
async def sends(ctx: Context, sending: tuple[str, int]) -> object:
    way, size = sending
    return await sent_by_a_run(ctx, way, json_of_size(size))


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


@workflow(name="raises-text")
async def raises_text(ctx: Context, size: int) -> None:
    raise ValueError(json_of_size(size))


async def failure_of(client: Client, handler: Workflow[Any, Any], input: object, attempts: int = 1) -> Failure:
    """How a run has failed; the worker takes the next one."""
    handle = await client.start(handler, input)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=30)
    run = await handle.get()
    assert (run.status, run.attempt, run.output) == ("failed", attempts, None)
    assert await client.execute(quick, timeout=10) == "quick"
    assert run.failure is not None
    return run.failure


@pytest.mark.parametrize("limit", LIMITS)
async def test_up_to_the_limit_a_payload_passes_on_every_way_and_above_it_ends_its_own_run_at_most(
    limit: int, start_gateway: StartGateway
) -> None:
    tokens: list[str] = []

    @workflow(name="asks")
    async def asks(ctx: Context) -> str:
        token = await ctx.step.token("asks", str, timeout=60)
        tokens.append(token)
        return await token.result()

    gateway = await start_gateway(limits=Limits(max_payload_bytes=limit))
    target = f"127.0.0.1:{gateway.port}"
    handlers = [repeats, sends, takes, asks, quick]
    async with Worker(target, workflows=handlers, concurrency=1), Client(target) as client:
        [before] = await client.list_workers()
        for size in (limit - 1, limit):
            value = json_of_size(size)
            handle = await client.start(repeats, value)
            assert await handle.result(timeout=20) == value
            run, steps = await handle.get(), await client.get_run_steps(handle.id)
            assert [run.input, run.output, *(step.output for step in steps)] == [value] * 8
            for way in FROM_A_RUN:
                assert await client.execute(sends, (way, size), timeout=20) == (value if way == "output" else "sent")
            waiting = await client.start(asks)
            await eventually(lambda: tokens)
            for way in FROM_A_CLIENT:
                await sent_by_a_client(client, way, value, token=tokens[-1])
            assert await waiting.result(timeout=20) == value
            tokens.clear()

        asking = await client.start(asks)
        await eventually(lambda: tokens)
        for size in (limit + 1, 10 * limit):
            for way in FROM_A_RUN:
                failure = await failure_of(client, sends, (way, size))
                place = "the output" if way == "output" else "step 'sends'"
                assert failure.kind == "serialization"
                assert [word for word in (place, str(limit), str(size), "bytes") if word not in failure.message] == []
            for way in FROM_A_CLIENT:
                with pytest.raises(InvalidInputError) as refusal:
                    await sent_by_a_client(client, way, json_of_size(size), token=tokens[-1])
                assert refusal.value.reason == "PAYLOAD_TOO_LARGE"
                if size == limit + 1:
                    for word in (str(limit), str(size), "bytes"):
                        assert word in str(refusal.value), way
        await client.complete_token(tokens[-1], "small")
        assert await asking.result(timeout=10) == "small"
        [after] = await client.list_workers()
        assert after.session_id == before.session_id


async def test_100_mib_are_refused_without_being_sent_and_end_their_own_run_at_most(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(sends, takes, quick, raises_text, concurrency=1)
    [before] = await client.list_workers()
    value = json_of_size(100 * MIB)
    for way in ("start", "event"):
        with pytest.raises(InvalidInputError, match="10485"):
            await sent_by_a_client(client, way, value)
    failure = await failure_of(client, sends, ("output", 100 * MIB))
    assert failure.kind == "serialization" and f"at most {MIB} bytes of JSON; it has {100 * MIB}" in failure.message
    failure = await failure_of(client, raises_text, 100 * MIB)
    assert failure.kind == "error" and len(failure.message) < 20_000
    assert [worker.session_id for worker in await client.list_workers()] == [before.session_id]


@workflow(name="numbers", queue="numbers", retry=RetryPolicy(max_attempts=3))
async def numbers(ctx: Context, input: list[int]) -> int:
    return len(input)


async def test_a_failure_that_says_more_than_a_payload_may_hold_still_ends_its_run(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(numbers, quick, concurrency=1)
    # Each item is a fault of its own: together they are larger than what they were found in.
    all_wrong = await client.start("numbers", ["x"] * 50_000, queue="numbers")
    with pytest.raises(RunFailedError):
        await all_wrong.result(timeout=10)
    run = await all_wrong.get()
    assert run.failure is not None
    assert (run.status, run.attempt, run.failure.kind) == ("failed", 1, "validation")
    assert "$[0]" in run.failure.message
    assert await client.execute(quick, timeout=10) == "quick"
