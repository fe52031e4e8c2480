"""Who lacks a codec, or has one that does not work, is told so, and is shown nothing of what is encoded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import (
    Client,
    CodecError,
    Context,
    InvalidInputError,
    Payload,
    PayloadCodec,
    RetryPolicy,
    RunFailedError,
    Worker,
    workflow,
)
from redflow_server.cli import main
from redflow_server.store.keys import Keys
from tests.acceptance.codecs import CARD, MARKER, Card, Scrambled, Zipped, child, declines, everything_stored
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.redis_command import RedisCommand


@workflow(name="fails")
async def fails(ctx: Context, card: Card) -> None:
    declines(card.number)


async def test_a_worker_without_the_codec_says_which_one_it_lacks_and_the_next_attempt_may_have_it(
    target: str, start_worker: StartWorker
) -> None:
    @workflow(name="again", retry=RetryPolicy(max_attempts=2, initial=0.05, maximum=0.05, jitter=0.0))
    async def again(ctx: Context, card: Card) -> str:
        return card.number

    codec = Scrambled()
    blind = await start_worker(again)
    async with Client(target, codec=codec) as client:
        handle = await client.start(again, CARD)

        async def has_failed() -> bool:
            return (await handle.get()).failure is not None

        await eventually(has_failed, within=10)
        failure = (await handle.get()).failure
        await blind.stop()
        assert failure is not None and failure.type == "CodecError" and failure.kind == "error"
        assert failure.message == (
            "the input was encoded by codec 'scrambled', and this worker has none; "
            "give it the codec by Worker(codec=...)"
        )


async def test_a_client_without_the_codec_is_given_payloads_and_a_result_says_what_is_missing(
    target: str, start_worker: StartWorker
) -> None:
    codec = Scrambled()
    await start_worker(child, fails, codec=codec)
    async with Client(target, codec=codec) as client, Client(target) as blind, Client(target, codec=Zipped()) as other:
        handle = await client.start(child, CARD)
        await handle.result(timeout=10)
        run = await blind.get_run(handle.id)
        assert isinstance(run.input, Payload) and isinstance(run.output, Payload)
        assert run.output.codec == "scrambled" and MARKER.encode() not in run.output.data
        [step] = await blind.get_run_steps(handle.id)
        assert isinstance(step.output, Payload)
        with pytest.raises(CodecError, match=r"the output was encoded by codec 'scrambled', and this client has none"):
            await blind.handle(handle.id).result(timeout=10)
        with pytest.raises(CodecError, match="has codec 'zlib'"):
            await other.handle(handle.id).result(timeout=10)
        with pytest.raises(RunFailedError, match="LookupError: encoded by codec 'scrambled'"):
            await blind.handle((await client.start(fails, CARD)).id).result(timeout=10)


async def test_a_wrong_key_is_told_without_anything_of_the_payload(target: str, start_worker: StartWorker) -> None:
    await start_worker(child, codec=Scrambled())
    async with Client(target, codec=Scrambled()) as client, Client(target, codec=Scrambled(key=0x33)) as wrong:
        handle = await client.start(child, CARD)
        await handle.result(timeout=10)
        with pytest.raises(CodecError) as raised:
            await wrong.handle(handle.id).result(timeout=10)
        assert str(raised.value) == "codec 'scrambled' does not take the output: ValueError"
        assert raised.value.__cause__ is None
        assert isinstance((await wrong.get_run(handle.id)).output, Payload)
        with pytest.raises(RunFailedError) as failed:
            await client.handle((await wrong.start(child, CARD)).id).result(timeout=10)
        assert failed.value.failure is not None and failed.value.failure.type == "CodecError"


async def test_the_command_line_shows_that_a_value_is_encoded_and_nothing_of_it(
    target: str, start_worker: StartWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    await start_worker(child, fails, codec=Scrambled())
    async with Client(target, codec=Scrambled()) as client:
        done = await client.start(child, CARD)
        await done.result(timeout=10)
        failed = await client.start(fails, CARD)
        with pytest.raises(RunFailedError):
            await failed.result(timeout=10)
    commands = [
        ("get", done.id), ("get", done.id, "-o", "json"), ("steps", done.id), ("get", failed.id),
        ("get", failed.id, "-o", "json"), ("result", done.id), ("watch", failed.id),
    ]  # fmt: skip
    for command in commands:
        await asyncio.to_thread(main, ["run", *command, "--target", target])
    shown = capsys.readouterr()
    assert MARKER not in shown.out + shown.err
    assert "bytes, encoded by codec scrambled)" in shown.out and '"codec": "scrambled"' in shown.out
    assert "LookupError: encoded by codec 'scrambled'" in shown.out
    assert "the output was encoded by codec 'scrambled'" in shown.err


# ---- codecs that do not work ----


class Panic(BaseException):
    """As extensions in Rust raise."""


class Broken:
    name = "broken"

    def __init__(self, error: type[BaseException] = KeyError) -> None:
        self.error = error

    def encode(self, data: bytes) -> bytes:
        raise self.error(MARKER)

    def decode(self, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize("error", [KeyError, Panic, asyncio.CancelledError, SystemExit])
async def test_a_codec_that_raises_fails_the_step_and_nothing_leaves_as_it_is(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys, error: type[BaseException]
) -> None:
    @workflow(name="hides")
    async def hides(ctx: Context) -> str:
        return await ctx.step.run("step", lambda: MARKER)

    await start_worker(hides, codec=Broken(error))
    with pytest.raises(RunFailedError) as failed:
        await client.execute(hides, timeout=10)
    failure = failed.value.failure
    assert failure is not None and failure.type == "CodecError"
    assert failure.message == f"not shown, because codec 'broken' does not take a failure: {error.__name__}"
    assert MARKER not in await everything_stored(redis, keys)


NO_CODEC: Any = [object(), Scrambled(name=""), Scrambled(name="x" * 300)]  # Any: what is wrong with it


@pytest.mark.parametrize("codec", NO_CODEC, ids=["no methods", "no name", "long name"])
def test_what_is_no_codec_is_refused_when_it_is_given(codec: PayloadCodec) -> None:
    with pytest.raises(InvalidInputError, match="codec"):
        Client(codec=codec)
    with pytest.raises(InvalidInputError, match="codec"):
        Worker(workflows=[child], codec=codec)
