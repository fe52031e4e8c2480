"""Steps that are tried again within an attempt of their run."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest

from redflow_sdk import (
    BlockingContext,
    Client,
    Context,
    NonRetriableError,
    RetryAfterError,
    RetryPolicy,
    RunFailedError,
    workflow,
)
from tests.acceptance.waits.seen import waits_of
from tests.conftest import StartWorker
from tests.eventually import eventually

QUICK = RetryPolicy(max_attempts=4, initial=0.02, maximum=0.05)
SLOW = RetryPolicy(max_attempts=4, initial=1.1, multiplier=1.0, jitter=0.0)


@dataclass
class Flaky:
    """Raises until it was called so often."""

    good_at: int
    calls: Counter[str] = field(default_factory=Counter)

    def __call__(self, name: str) -> str:
        self.calls[name] += 1
        if self.calls[name] < self.good_at:
            raise ConnectionError(f"call {self.calls[name]} of {name}")
        return f"{name} after {self.calls[name]}"


async def test_a_step_is_called_until_it_succeeds_and_its_run_stays_in_its_attempt(
    client: Client, start_worker: StartWorker
) -> None:
    flaky = Flaky(good_at=3)

    @workflow
    async def calls(ctx: Context) -> list[str]:
        both = await asyncio.gather(
            ctx.step.run("one", flaky, "one", retry=QUICK), ctx.step.run("other", flaky, "other", retry=QUICK)
        )
        await ctx.step.sleep("nap", 0.05)
        return list(both)

    await start_worker(calls)
    handle = await client.start(calls)

    assert await handle.result(timeout=10) == ["one after 3", "other after 3"]
    assert flaky.calls == {"one": 3, "other": 3}
    assert (await handle.get()).attempt == 1


async def test_a_step_raises_its_last_error_when_its_tries_are_used_up(
    client: Client, start_worker: StartWorker
) -> None:
    flaky = Flaky(good_at=100)

    @workflow
    async def calls(ctx: Context) -> str:
        try:
            return await ctx.step.run("down", flaky, "down", retry=QUICK)
        except ConnectionError as error:
            caught = str(error)
        await ctx.step.sleep("nap", 0.05)
        return caught

    await start_worker(calls)

    assert await client.execute(calls, timeout=10) == "call 4 of down"
    assert flaky.calls == {"down": 4}


@pytest.mark.parametrize("kind", [NonRetriableError, ValueError])
async def test_what_is_not_to_be_retried_is_not(
    kind: type[Exception], client: Client, start_worker: StartWorker
) -> None:
    calls: list[str] = []

    def gives_up() -> None:
        calls.append("call")
        if kind is NonRetriableError:
            raise NonRetriableError("for good")
        raise ValueError("without a policy")

    @workflow
    async def calls_once(ctx: Context) -> None:
        retry = QUICK if kind is NonRetriableError else None
        await ctx.step.run("gives up", gives_up, retry=retry)

    await start_worker(calls_once)

    with pytest.raises(RunFailedError):
        await client.execute(calls_once, timeout=10)
    assert calls == ["call"]


async def test_before_a_long_pause_the_run_is_set_aside_and_says_so(client: Client, start_worker: StartWorker) -> None:
    flaky = Flaky(good_at=2)

    @workflow
    async def calls(ctx: Context, name: str) -> str:
        return await ctx.step.run("step", flaky, name, retry=SLOW)

    await start_worker(calls, concurrency=1)
    handles = [await client.start(calls, f"run {number}") for number in range(5)]

    # One after the other they would take more than five seconds.
    for handle in handles:
        await eventually(lambda run_id=handle.id: waits_of(client, run_id))
        [(name, wait)] = (await waits_of(client, handle.id)).items()
        assert (name, wait.kind, wait.until is not None) == ("step (before try 2)", "timer", True)
    outputs = await asyncio.gather(*(handle.result(timeout=10) for handle in handles))
    assert outputs == [f"run {number} after 2" for number in range(5)]


async def test_the_count_of_tries_goes_along_when_the_worker_goes(client: Client, start_worker: StartWorker) -> None:
    flaky = Flaky(good_at=100)

    @workflow
    async def calls(ctx: Context) -> str:
        try:
            return await ctx.step.run("down", flaky, "down", retry=SLOW)
        except ConnectionError as error:
            return str(error)

    worker = await start_worker(calls)
    handle = await client.start(calls)
    for tries in (1, 2, 3):
        await eventually(lambda tries=tries: flaky.calls["down"] == tries, within=10)
        await eventually(lambda: waits_of(client, handle.id))
        await worker.drain()
        worker = await start_worker(calls)

    assert await handle.result(timeout=20) == "call 4 of down"
    assert flaky.calls == {"down": 4}
    assert (await handle.get()).attempt == 1


async def test_a_step_may_say_itself_when_it_is_to_be_tried_again(client: Client, start_worker: StartWorker) -> None:
    calls: list[str] = []

    def busy() -> int:
        calls.append("call")
        if len(calls) == 1:
            raise RetryAfterError("busy", delay=1.2)
        return len(calls)

    @workflow
    def asks(ctx: BlockingContext) -> int:
        return ctx.step.run("busy", busy, retry=QUICK)

    await start_worker(asks)
    handle = await client.start(asks)

    assert await handle.result(timeout=10) == 2
    [pause] = [step for step in await client.get_run_steps(handle.id) if step.kind == "timer"]
    assert pause.started_at is not None
    assert pause.finished_at is not None
    assert (pause.finished_at - pause.started_at).total_seconds() >= 1.2
