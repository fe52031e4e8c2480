"""Behaviours of the original engine's suite: values as JSON, and what may look like more than a value."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from grpc.aio import insecure_channel

from redflow_sdk import Client, Context, converter, workflow
from redflow_sdk.proto.api.v1 import run_service_pb2, run_service_pb2_grpc
from redflow_server.store.keys import Keys
from tests.conftest import StartWorker
from tests.redis_command import RedisCommand

LOOK_ALIKES: tuple[Any, ...] = (  # Any: JSON of all kinds
    {"__redflow_undefined__": True},
    {"__redflow_undefined__": True, "__redflow_kind__": "undefined:v2"},
    {"type": "WorkerLostError", "message": "workers were lost", "kind": "worker_lost"},
    {"status": "canceled", "cancelRequestedAt": "1"},
    {"data": "bnVsbA==", "content_type": "application/json", "metadata": {}},
    "succeeded|function|1|1||0|0|2|",
    "null",
    "undefined",
    '{"__redflow_undefined__":true}',
)
"""What stands for something in our store, in the original's, or on the wire."""


@dataclass(frozen=True)
class Options:
    """A value in which an absent field and None mean different things."""

    retries: int | None = 3
    tags: list[str] = field(default_factory=lambda: ["default"])


@pytest.mark.parametrize("value", LOOK_ALIKES, ids=repr)
def test_json_that_looks_like_a_marker_is_preserved_as_data(value: Any) -> None:  # Any: as above
    assert converter.decode(converter.encode(value)) == value
    assert json.loads(converter.encode(value)) == value


def test_raw_json_of_the_originals_marker_is_read_as_the_object_it_is() -> None:
    raw = b'{"__redflow_undefined__":true,"__redflow_kind__":"undefined:v2"}'
    assert converter.decode(raw) == {"__redflow_undefined__": True, "__redflow_kind__": "undefined:v2"}


def test_none_is_null_and_comes_back_as_none() -> None:
    assert converter.encode(None) == b"null"
    assert converter.decode(b"null") is None
    assert converter.encode({"a": None}) == b'{"a":null}'
    assert converter.encode([None]) == b"[null]"


def test_an_absent_field_is_not_a_field_that_is_none() -> None:
    assert converter.decode(b"{}") == {}
    assert converter.decode(b"{}", Options) == Options(3, ["default"])
    assert converter.decode(b'{"retries":null}', Options) == Options(None, ["default"])
    assert converter.decode(converter.encode(Options(None, [])), Options) == Options(None, [])


async def test_values_that_look_like_markers_survive_a_run(client: Client, start_worker: StartWorker) -> None:
    @workflow(name="look-alikes")
    async def look_alikes(ctx: Context, input: list[Any]) -> Any:  # Any: JSON of all kinds
        return [await ctx.step.run(f"step {i}", lambda value=value: value) for i, value in enumerate(input)]

    await start_worker(look_alikes)

    handle = await client.start(look_alikes, list(LOOK_ALIKES))

    assert await handle.result(timeout=5) == list(LOOK_ALIKES)
    run = await handle.get()
    assert (run.input, run.output) == (list(LOOK_ALIKES), list(LOOK_ALIKES))
    assert [step.output for step in await client.get_run_steps(handle.id)] == list(LOOK_ALIKES)


async def test_a_handler_that_returns_nothing_and_a_run_that_has_no_output_yet_differ_in_what_is_stored(
    client: Client, start_worker: StartWorker, redis: RedisCommand, keys: Keys
) -> None:
    @workflow(name="returns-nothing")
    async def returns_nothing(ctx: Context) -> None:
        await ctx.step.run("nothing", lambda: None)

    handle = await client.start(returns_nothing)
    assert await redis("HEXISTS", keys.data(handle.id), "outputJson") == 0

    await start_worker(returns_nothing)

    assert await handle.result(timeout=5) is None
    assert await redis("HGET", keys.data(handle.id), "outputJson") == "null"
    assert await redis("HGET", keys.steps(handle.id), "o:nothing") == "null"


async def test_input_none_is_stored_as_null_and_an_absent_input_as_an_empty_object(
    client: Client, target: str, redis: RedisCommand, keys: Keys
) -> None:
    given = await client.start("any", None, queue="any")
    async with insecure_channel(target) as channel:
        stub = run_service_pb2_grpc.RunServiceStub(channel)
        absent = await stub.StartRun(run_service_pb2.StartRunRequest(workflow="any", queue="any"), timeout=5)

    assert await redis("HGET", keys.data(given.id), "inputJson") == "null"
    assert await redis("HGET", keys.data(absent.run_id), "inputJson") == "{}"
    assert (await given.get()).input is None
    assert (await client.get_run(absent.run_id)).input == {}
