"""With a codec nothing that users write is stored or shown as it is, and who lacks the codec is told so."""

from __future__ import annotations

import asyncio
import json
import queue
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redflow_sdk import (
    Client,
    Context,
    Cron,
    FailureContext,
    InputValidationError,
    Middleware,
    Payload,
    RunFailedError,
    StartInfo,
    SyncClient,
    TokenFailedError,
    workflow,
)
from redflow_server.store.keys import Keys
from tests.acceptance.codecs import (
    CARD,
    CARD_JSON,
    MARKER,
    Card,
    Scrambled,
    Zipped,
    charge,
    child,
    declines,
    everything_stored,
)
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand

handled: list[FailureContext] = []


@workflow(name="fails", on_failure=handled.append)
async def fails(ctx: Context, card: Card) -> None:
    try:
        await ctx.step.run("declines", declines, card.number)
    except LookupError as error:
        raise ValueError(f"cannot charge {card.number}") from error


@workflow(name="subscriber", events=["charged"], cron=[Cron("0 0 1 1 *", input={"number": MARKER})])
async def subscriber(ctx: Context, card: Card) -> str:
    return card.number


@workflow(name="pays")
async def pays(ctx: Context, card: Card) -> list[object]:
    token = await ctx.step.token("token", Card)
    await ctx.step.run("hand out", tokens.put, str(token))
    own = await ctx.step.run("charge", charge, card)
    of_child = await ctx.step.run_workflow("child", child, card)
    event = await ctx.step.wait_for_event("paid", "paid", payload_type=Card, timeout=30)
    completed = await token.result()
    started = await ctx.step.emit_event("emit", "charged", card)
    assert event is not None
    return [own, of_child, event.payload, completed, len(started)]


tokens: queue.SimpleQueue[str] = queue.SimpleQueue()


async def play(client: Client) -> list[str]:
    """Values on every way that there is. Gives the ids of the runs."""
    handle = await client.start(pays, CARD)
    token = await asyncio.to_thread(tokens.get, timeout=10)
    await client.emit_event("paid", CARD)
    await client.complete_token(token, CARD)
    assert await handle.result(timeout=20) == [CARD_JSON, CARD_JSON, CARD_JSON, CARD_JSON, 1]
    failing = await client.start(fails, CARD)
    with pytest.raises(RunFailedError, match=f"ValueError: cannot charge {MARKER}"):
        await failing.result(timeout=20)
    waiting = await client.start(child, CARD, available_at=datetime.now(UTC) + timedelta(hours=1))
    misfit = await client.start("child", {"number": {"deep": MARKER}, MARKER: 1})
    with pytest.raises(RunFailedError, match="number must be a str"):
        await misfit.result(timeout=20)
    return [handle.id, failing.id, waiting.id, misfit.id]


async def test_nothing_that_was_given_or_said_is_stored_as_it_is(
    target: str, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    codec = Scrambled()
    handled.clear()
    await start_worker(pays, child, fails, subscriber, codec=codec)
    async with Client(target, codec=codec) as client:
        paid, failed, waiting, _ = await play(client)
        stored = await everything_stored(redis, keys)
        assert paid in stored and "scrambled" in stored and MARKER not in stored

        assert (await client.get_run(waiting)).input == CARD_JSON
        steps = {step.name: step.output for step in await client.get_run_steps(paid)}
        assert [steps[name] for name in ("charge", "child", "paid", "token")] == [CARD_JSON] * 4
        [schedule] = await client.list_schedules()
        assert schedule.cron.input == CARD_JSON
        assert (await client.get_workflow("subscriber")).cron[0].input == CARD_JSON

        failure = (await client.get_run(failed)).failure
        assert failure is not None and failure.cause is not None
        assert (failure.type, failure.message) == ("ValueError", f"cannot charge {MARKER}")
        assert (failure.cause.type, failure.cause.message) == ("LookupError", f"no card {MARKER}")
        assert "test_codec.py" in failure.traceback
        [context] = handled
        assert (context.input, context.failure.message) == (CARD, f"cannot charge {MARKER}")


async def test_without_a_codec_the_same_is_found(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    """The search finds what there is to find."""
    await start_worker(pays, child, fails, subscriber)
    await play(client)
    assert MARKER in await everything_stored(redis, keys)


async def test_what_the_sdk_says_of_a_value_shows_nothing_of_it(
    target: str, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(name="parent")
    async def parent(ctx: Context) -> None:
        untyped: Any = {"number": [MARKER], "owner": MARKER}
        try:
            await ctx.step.run_workflow("child", child, untyped)
        except InputValidationError as error:
            raise RuntimeError(str(error)) from None

    codec = Scrambled()
    await start_worker(parent, child, codec=codec)
    async with Client(target, codec=codec) as client:
        untyped: Any = {"number": 5, "owner": MARKER}
        with pytest.raises(InputValidationError) as refused:
            await client.start(child, untyped)
        assert "$.number must be a str" in str(refused.value) and "5" not in str(refused.value)
        with pytest.raises(RunFailedError, match="number must be a str"):
            await client.execute(parent, timeout=10)
        with pytest.raises(RunFailedError, match="number must be a str") as failed:
            await client.execute("child", {"number": [MARKER]}, timeout=10)
        assert failed.value.failure is not None
        assert failed.value.failure.details == [{"path": "$.number", "problem": "must be a str"}]
    assert "failed in attempt" in caplog.text and MARKER not in caplog.text


async def test_a_codec_may_come_into_use_with_runs_on_their_way(
    client: Client, target: str, start_worker: StartWorker
) -> None:
    before = await client.start(child, CARD)
    await start_worker(child, codec=Zipped())
    async with Client(target, codec=Zipped()) as later:
        assert await later.handle(before.id).result(timeout=10) == CARD_JSON
        assert (await later.get_run(before.id)).input == CARD_JSON


async def test_what_fits_only_compressed_is_taken_and_what_grows_beyond_the_limit_is_refused(
    target: str, start_worker: StartWorker
) -> None:
    class Doubles(Zipped):
        name = "doubles"

        def encode(self, data: bytes) -> bytes:
            return data * 2

    @workflow(name="large")
    async def large(ctx: Context) -> int:
        return len(await ctx.step.run("large", lambda: "x" * 3_000_000))

    worker = await start_worker(large, codec=Zipped())
    async with Client(target, codec=Zipped()) as client:
        assert await client.execute(large, timeout=20) == 3_000_000
        await worker.stop()
        await start_worker(large, codec=Doubles())
        async with Client(target, codec=Doubles()) as other:
            with pytest.raises(RunFailedError, match="SerializationError") as failed:
                await other.handle((await other.start(large)).id).result(timeout=20)
    assert failed.value.failure is not None and failed.value.failure.kind == "serialization"


async def test_a_token_that_is_failed_tells_its_reason_to_the_handler_alone(
    target: str, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    @workflow(name="asks")
    async def asks(ctx: Context) -> str:
        token = await ctx.step.token("token")
        await ctx.step.run("hand out", tokens.put, str(token))
        try:
            await token.result()
        except TokenFailedError as error:
            return str(error)
        return ""

    await start_worker(asks, codec=Scrambled())
    async with Client(target, codec=Scrambled()) as client:
        handle = await client.start(asks)
        await client.fail_token(await asyncio.to_thread(tokens.get, timeout=10), f"no card {MARKER}", type="Declined")
        assert await handle.result(timeout=10) == f"Declined: no card {MARKER}"
    assert MARKER not in await everything_stored(redis, keys)


async def test_the_schedules_of_two_workers_with_the_codec_are_one(
    target: str, client: Client, start_worker: StartWorker
) -> None:
    await start_worker(subscriber, codec=Scrambled())
    await start_worker(subscriber, codec=Scrambled(), name="second")
    [schedule] = await client.list_schedules()
    assert isinstance(schedule.cron.input, Payload)
    assert json.loads(Scrambled().decode(schedule.cron.input.data)) == CARD_JSON


async def test_a_client_that_blocks_has_codec_and_middleware_too(
    target: str, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    class Sends(Middleware):
        def start(self, start: StartInfo) -> None:
            start.headers["from"] = "afar"

    @workflow(name="echoes")
    async def echoes(ctx: Context, card: Card) -> dict[str, str]:
        return {**ctx.run.headers, "number": card.number}

    def use() -> tuple[object, object]:
        with SyncClient(target, codec=Scrambled(), middleware=[Sends()]) as client:
            handle = client.start(echoes, CARD)
            output = handle.result(timeout=10)
            return output, client.get_run(handle.id).input

    await start_worker(echoes, codec=Scrambled())
    assert await asyncio.to_thread(use) == ({"from": "afar", "number": MARKER}, CARD_JSON)
    assert MARKER not in await everything_stored(redis, keys)
