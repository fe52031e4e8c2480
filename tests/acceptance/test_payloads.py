"""Values come back as they were given, by every path; what JSON cannot have or is too large is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from redflow_sdk import (
    Client,
    Context,
    InvalidInputError,
    RetryPolicy,
    RunFailedError,
    SerializationError,
    Worker,
    Workflow,
    converter,
    workflow,
)
from redflow_server.domain.names import Limits
from redflow_server.store.keys import Keys
from tests.conftest import StartGateway, StartWorker
from tests.redis_command import RedisCommand

Json = Any  # Any: JSON of all kinds


def nested(depth: int) -> Json:
    value: Json = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


AWKWARD: dict[str, Json] = {
    "2**53+1": 2**53 + 1,
    "2**63-1": 2**63 - 1,
    "-2**63": -(2**63),
    "2**64": 2**64,
    "10**40": 10**40,
    "0.1+0.2": 0.1 + 0.2,
    "-0.0": -0.0,
    "1.0": 1.0,
    "1": 1,
    "the smallest float": 5e-324,
    "the largest float": 1.7976931348623157e308,
    "an empty list": [],
    "an empty object": {},
    "an empty list in a list": [[]],
    "an empty list in an object": {"a": []},
    "an empty object in a list": [{}],
    "empty text": "",
    "None": None,
    "None in a list": [None],
    "False": False,
    "0": 0,
    "nested 50 deep": nested(50),
    "text beyond the first plane": "🧾𝄞\U0010ffff",
    "text with a zero": "a\0b",
    "text with all separators": "a\n\r\t\u2028\u2029\x7f\x85b",
    "text that looks like a number": "9007199254740993",
    "text with a combining mark": "e\u0301é",
    "names that are odd": {"": 1, " ": 2, "a.b": 3, "$": 4, "\0": 5, "🧾": 6, "__proto__": 7},
    "names out of order": {"b": 1, "a": 2},
}


def circular() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


class Custom:
    """A class without a JSON form."""


REFUSED: dict[str, tuple[object, str]] = {
    "NaN": (math.nan, "nan"),
    "Infinity": (math.inf, "inf"),
    "-Infinity": (-math.inf, "-inf"),
    "bytes": (b"abc", "bytes"),
    "a bytearray": (bytearray(b"abc"), "bytearray"),
    "a set": ({1, 2}, "set"),
    "a custom class": (Custom(), "Custom"),
    "a class": (Custom, "type"),
    "a complex number": (1j, "complex"),
    "a function": (print, "builtin_function"),
    "a lone surrogate": ("\ud800", "surrogate"),
    "a number as name": ({1: "a"}, "1"),
    "None as name": ({None: "a"}, "None"),
    "a lone surrogate as name": ({"\ud800": 1}, "surrogate"),
    "itself": (circular(), "itself"),
}

refused = pytest.mark.parametrize(("value", "culprit"), REFUSED.values(), ids=REFUSED.keys())


def exactly(value: Json) -> str:
    """Tells 1 from 1.0 and True, and 0.0 from -0.0, which are equal."""
    return repr(value)


@pytest.mark.parametrize("value", AWKWARD.values(), ids=AWKWARD.keys())
async def test_an_awkward_value_survives_every_path(
    value: Json, client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    inputs: list[Json] = []
    values: list[Json] = []

    @workflow(name="keeps", retry=RetryPolicy(max_attempts=2, initial=0.01))
    async def keeps(ctx: Context, input: Json) -> Json:
        inputs.append(input)
        values.append(await ctx.step.run("keep", lambda: input))
        if ctx.run.attempt == 1:
            raise RuntimeError("once more, from what is recorded")
        return values[-1]

    await start_worker(keeps)

    handle = await client.start(keeps, value)

    assert exactly(await handle.result(timeout=5)) == exactly(value)
    assert exactly(inputs) == exactly([value, value])
    assert exactly(values) == exactly([value, value])
    run = await handle.get()
    assert (exactly(run.input), exactly(run.output)) == (exactly(value), exactly(value))
    [step] = await client.get_run_steps(handle.id)
    assert exactly(step.output) == exactly(value)
    [listed] = await client.list_runs(workflow="keeps").page()
    assert (listed.id, listed.input, listed.output) == (handle.id, None, None)

    text = converter.encode(value).decode()
    assert await redis("HMGET", keys.data(handle.id), "inputJson", "outputJson") == [text, text]
    assert await redis("HGET", keys.steps(handle.id), "o:keep") == text


async def test_no_output_and_the_output_none_are_told_apart_by_the_status(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="none")
    async def none(ctx: Context) -> None:
        return None

    handle = await client.start(none)
    assert ((await handle.get()).status, (await handle.get()).output) == ("queued", None)
    await start_worker(none)
    assert await handle.result(timeout=5) is None
    assert ((await handle.get()).status, (await handle.get()).output) == ("succeeded", None)


@refused
async def test_input_that_is_no_json_is_refused_with_its_place_and_nothing_is_stored(
    value: object, culprit: str, client: Client, redis: RedisCommand, keys: Keys
) -> None:
    with pytest.raises(SerializationError) as refusal:
        await client.start("any", {"items": [0, value]}, queue="any")

    assert "$.items[1]" in str(refusal.value)
    assert culprit in str(refusal.value)
    assert await redis("KEYS", f"{keys.prefix}:run*") == []


@refused
async def test_a_step_value_that_is_no_json_fails_the_run_with_its_place(
    value: object, culprit: str, client: Client, start_worker: StartWorker
) -> None:
    calls: list[str] = []

    def gives() -> object:
        calls.append("called")
        return {"items": [0, value]}

    @workflow(name="no-json-step", retry=RetryPolicy(max_attempts=3))
    async def no_json_step(ctx: Context) -> None:
        await ctx.step.run("gives", gives)

    await start_worker(no_json_step)

    handle = await client.start(no_json_step)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=5)

    run = await handle.get()
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.failure is not None
    assert run.failure.kind == "serialization"
    for word in ("gives", "$.items[1]", culprit):
        assert word in run.failure.message
    [step] = await client.get_run_steps(handle.id)
    assert step.failure is not None
    assert (step.status, step.failure.kind, step.output) == ("failed", "serialization", None)
    assert calls == ["called"]


@refused
async def test_an_output_that_is_no_json_fails_the_run_with_its_place(
    value: object, culprit: str, client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="no-json-output", retry=RetryPolicy(max_attempts=3))
    async def no_json_output(ctx: Context) -> object:
        return {"items": [0, value]}

    await start_worker(no_json_output)

    handle = await client.start(no_json_output)
    with pytest.raises(RunFailedError):
        await handle.result(timeout=5)

    run = await handle.get()
    assert (run.status, run.attempt, run.output) == ("failed", 1, None)
    assert run.failure is not None
    assert run.failure.kind == "serialization"
    for word in ("output", "$.items[1]", culprit):
        assert word in run.failure.message


def json_of_size(size: int) -> str:
    """Text that is so many bytes as JSON."""
    return "x" * (size - 2)


LIMITS = pytest.mark.parametrize("limit", [1000, Limits().max_payload_bytes])


def sized(limit: int, place: str, inputs: list[str]) -> Workflow[int, str]:
    """Gives a value of the size that its input asks for: as a step twice, or as its output."""

    @workflow(name="sized", retry=RetryPolicy(max_attempts=3, initial=0.01))
    async def handler(ctx: Context, input: int) -> str:
        inputs.append(place)
        if place == "output":
            return json_of_size(input)
        kept = await ctx.step.run("large", json_of_size, input)
        if ctx.run.attempt == 1:
            raise RuntimeError("once more, from what is recorded")
        return kept[:10]

    return handler


@LIMITS
@pytest.mark.parametrize("beyond", [-1, 0])
async def test_a_payload_up_to_the_limit_passes_by_every_path(
    limit: int, beyond: int, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(limits=Limits(max_payload_bytes=limit))
    target = f"127.0.0.1:{gateway.port}"
    value = json_of_size(limit + beyond)
    calls: list[str] = []

    def gives() -> str:
        calls.append("called")
        return value

    @workflow(name="large", retry=RetryPolicy(max_attempts=2, initial=0.01))
    async def large(ctx: Context, input: str) -> str:
        kept = [await ctx.step.run("first", gives), await ctx.step.run("second", gives)]
        if ctx.run.attempt == 1:
            raise RuntimeError("once more, from what is recorded")
        assert kept == [input, input]
        return kept[0]

    async with Worker(target, workflows=[large]), Client(target) as client:
        handle = await client.start(large, value)
        assert await handle.result(timeout=15) == value
        run = await handle.get()
        assert (run.input, run.output, run.attempt) == (value, value, 2)
        assert [step.output for step in await client.get_run_steps(handle.id)] == [value, value]
    assert calls == ["called", "called"]


@LIMITS
async def test_an_input_over_the_limit_is_refused_by_the_call(
    limit: int, start_gateway: StartGateway, redis: RedisCommand, keys: Keys
) -> None:
    gateway = await start_gateway(limits=Limits(max_payload_bytes=limit))

    async with Client(f"127.0.0.1:{gateway.port}") as client:
        with pytest.raises(InvalidInputError) as refusal:
            await client.start("any", json_of_size(limit + 1), queue="any")

    for word in ("input", str(limit), str(limit + 1), "bytes"):
        assert word in str(refusal.value)
    assert await redis("KEYS", f"{keys.prefix}:run*") == []


@LIMITS
@pytest.mark.parametrize("place", ["step", "output"])
async def test_a_value_over_the_limit_fails_its_run_alone(limit: int, place: str, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limits=Limits(max_payload_bytes=limit))
    target = f"127.0.0.1:{gateway.port}"
    calls: list[str] = []
    workflow = sized(limit, place, calls)

    async with Worker(target, workflows=[workflow], concurrency=1), Client(target) as client:
        too_large = await client.start(workflow, limit + 1)
        next_one = await client.start(workflow, limit)

        with pytest.raises(RunFailedError):
            await too_large.result(timeout=10)
        run = await too_large.get()
        assert (run.status, run.attempt) == ("failed", 1)
        assert run.failure is not None
        assert run.failure.kind == "serialization"
        for word in (place, str(limit), str(limit + 1), "bytes"):
            assert word in run.failure.message

        assert len(await next_one.result(timeout=10)) in (10, limit - 2)
    assert len(calls) == (2 if place == "output" else 3)


async def test_a_failure_that_says_more_than_a_payload_may_hold_still_ends_its_run(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="numbers", queue="numbers", retry=RetryPolicy(max_attempts=3))
    async def numbers(ctx: Context, input: list[int]) -> int:
        return len(input)

    await start_worker(numbers, concurrency=1)

    # Each item is a fault of its own: together they are larger than what they were found in.
    all_wrong = await client.start("numbers", ["x"] * 50_000, queue="numbers")
    with pytest.raises(RunFailedError):
        await all_wrong.result(timeout=10)

    run = await all_wrong.get()
    assert (run.status, run.attempt) == ("failed", 1)
    assert run.failure is not None
    assert run.failure.kind == "validation"
    assert "$[0]" in run.failure.message
    assert await client.execute(numbers, [1, 2, 3], timeout=10) == 3
