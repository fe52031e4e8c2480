"""What JSON cannot have is refused with its place, on every way out of a client or a run, and is never stored."""

from __future__ import annotations

import asyncio
import math

import pytest

from redflow_sdk import Client, Context, Cron, RetryPolicy, RunFailedError, SerializationError, workflow
from redflow_server.store.keys import Keys
from tests.acceptance.ways import FROM_A_CLIENT, FROM_A_RUN, sent_by_a_client, sent_by_a_run, takes
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand


def circular() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


class Custom:
    """A class without a JSON form, as those of missing values are elsewhere."""


class Float64(float):
    """A float that is not Python's own, as there are elsewhere."""


REFUSED: dict[str, tuple[object, str]] = {
    "NaN": (math.nan, "nan"),
    "Infinity": (math.inf, "inf"),
    "-Infinity": (-math.inf, "-inf"),
    "another's NaN": (Float64("nan"), "nan"),
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


def rows_with(value: object) -> object:
    return {"rows": [{"price": 1}, {"price": value}]}


async def test_a_client_is_refused_what_is_no_json_with_its_place_and_nothing_is_stored(
    client: Client, redis: RedisCommand, keys: Keys
) -> None:
    for name, (value, culprit) in REFUSED.items():
        for way, what in FROM_A_CLIENT.items():
            with pytest.raises(SerializationError) as refusal:
                await sent_by_a_client(client, way, rows_with(value))
            assert str(refusal.value).startswith(f"{what} cannot be written as JSON: $.rows[1].price"), (name, way)
            assert culprit in str(refusal.value), (name, way)
    assert await redis("KEYS", f"{keys.prefix}:run*") == []


@workflow(name="sends-no-json", retry=RetryPolicy(max_attempts=3))
async def sends_no_json(ctx: Context, sending: tuple[str, str]) -> object:
    way, name = sending
    return await sent_by_a_run(ctx, way, rows_with(REFUSED[name][0]))


async def test_a_run_that_gives_what_is_no_json_fails_with_its_place_at_its_first_attempt(
    client: Client, start_worker: StartWorker
) -> None:
    await start_worker(sends_no_json, takes, concurrency=100)

    async def check(way: str, what: str, name: str, culprit: str) -> None:
        handle = await client.start(sends_no_json, (way, name))
        with pytest.raises(RunFailedError):
            await handle.result(timeout=20)
        run = await handle.get()
        assert run.failure is not None
        assert (run.status, run.attempt, run.output, run.failure.kind) == ("failed", 1, None, "serialization")
        assert run.failure.message.startswith(f"{what} cannot be written as JSON: $.rows[1].price"), (name, way)
        assert culprit in run.failure.message, (name, way)
        if way == "step":
            [step] = await client.get_run_steps(handle.id)
            assert step.failure is not None
            assert (step.status, step.failure.kind, step.output) == ("failed", "serialization", None)

    for way, what in FROM_A_RUN.items():
        await asyncio.gather(*(check(way, what, name, culprit) for name, (_, culprit) in REFUSED.items()))
    assert await client.list_runs(workflow="takes").page() == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_schedule_whose_input_is_no_json_is_refused_where_it_is_defined(name: str) -> None:
    value, culprit = REFUSED[name]
    with pytest.raises(SerializationError) as refusal:
        workflow(name="scheduled", cron=[Cron("0 9 * * *", input=rows_with(value))])(sends_no_json.function)
    assert "$.rows[1].price" in str(refusal.value)
    assert culprit in str(refusal.value)
