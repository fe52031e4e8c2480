"""How a run ends on the wire: outputs as they are, sizes kept, and what cannot be said becomes a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, SerializationError, workflow
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.conftest import StartScripted
from tests.sdk.messages import answer, forbids_retry, kind_of, ok, payload, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import states_of

MESSAGE_BYTES = 4 * 1024 * 1024
LIMIT = 1000


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    result = await gateway.log.result(gateway.assign("quick"))
    return len(gateway.sessions) == 1 and bool(value_of(result.output) == "quick")


# ---- outputs ----


@pytest.mark.parametrize(
    ("output", "data"),
    [
        (None, b"null"),
        ([], b"[]"),
        ({}, b"{}"),
        ([[]], b"[[]]"),
        ({"a": []}, b'{"a":[]}'),
        ("", b'""'),
        (False, b"false"),
        (0, b"0"),
        (-0.0, b"-0.0"),
        (1.0, b"1.0"),
        (0.1 + 0.2, b"0.30000000000000004"),
        (2**53 + 1, b"9007199254740993"),
        (-(2**63), b"-9223372036854775808"),
        (10**40, b"1" + 40 * b"0"),
        ("ü€\U0001f600\0\u2028", '"ü€\U0001f600\\u0000\u2028"'.encode()),
    ],
    ids=repr,
)
async def test_an_output_travels_as_the_json_it_is(
    output: Any, data: bytes, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="gives")
    async def gives(ctx: Context) -> object:
        return output

    await connect(scripted, gives)
    result = await scripted.log.result(scripted.assign("gives"))
    assert result.output.data == data
    assert result.output.content_type == "application/json"


@pytest.mark.parametrize(
    "status", [pb.ITEM_STATUS_OK, pb.ITEM_STATUS_DUPLICATE, pb.ITEM_STATUS_CANCELED, pb.ITEM_STATUS_LEASE_LOST]
)
async def test_an_answered_result_ends_the_lease(
    status: pb.ItemStatus.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, quick)
    scripted.script.item = lambda item: answer(item, status)
    token = scripted.assign("quick")
    await scripted.log.result(token)
    assert states_of((await scripted.log.beat()).leases) == {}
    assert len(scripted.log.items(token)) == 1


# ---- what is not JSON ----


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ({"rows": [{"price": 1.0}, {"price": float("nan")}]}, "$.rows[1].price"),
        ([float("-inf")], "$[0]"),
        ({"raw": b"\0"}, "$.raw"),
        ((1, {2}), "$[1]"),
        ({"open": object()}, "$.open"),
        ({"text": "lone \ud800"}, "$.text"),
        ({"a": {1: 2}}, "$.a"),
    ],
    ids=["nan", "inf", "bytes", "set", "object", "surrogate", "key"],
)
@pytest.mark.parametrize("place", ["output", "step"])
async def test_a_value_that_json_cannot_have_fails_the_run_for_good_and_names_its_place(
    place: str, output: Any, path: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="gives")
    async def gives(ctx: Context) -> object:
        return output if place == "output" else await ctx.step.run("gives", lambda: output)

    await connect(scripted, gives, quick)
    token = scripted.assign("gives", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert (kind_of(failure), failure.type) == ("serialization", "SerializationError")
    assert f"{path} " in failure.message
    assert forbids_retry(failure)
    if place == "step":
        report = await scripted.log.report(token, "gives")
        assert report.status == run_pb2.STEP_STATUS_FAILED and kind_of(report.failure) == "serialization"
    assert await takes_the_next_run(scripted)


# ---- sizes ----


@pytest.mark.parametrize("place", ["output", "step"])
async def test_a_value_at_the_size_limit_passes_and_one_over_it_is_refused_here_and_never_sent(
    place: str, start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(max_payload_bytes=LIMIT)

    @workflow(name="gives")
    async def gives(ctx: Context, size: int) -> str:
        text = "x" * (size - 2)
        return text if place == "output" else await ctx.step.run("gives", lambda: text)

    await connect(scripted, gives, quick)
    at_limit = await scripted.log.result(scripted.assign("gives", payload(LIMIT)))
    assert len(at_limit.output.data) == LIMIT

    token = scripted.assign("gives", payload(LIMIT + 1), max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "serialization" and forbids_retry(failure)
    assert str(LIMIT) in failure.message and str(LIMIT + 1) in failure.message
    sent = [*scripted.log.reports(token), *scripted.log.results(token)]
    assert not any(item.message.HasField("output") for item in sent)
    assert await takes_the_next_run(scripted)


async def test_a_handler_may_catch_that_a_step_value_is_too_large(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(max_payload_bytes=LIMIT)

    @workflow(name="careful")
    def careful(ctx: BlockingContext) -> str:
        try:
            return ctx.step.run("large", lambda: "x" * LIMIT)
        except SerializationError:
            return ctx.step.run("small", lambda: "x")

    await connect(scripted, careful)
    result = await scripted.log.result(scripted.assign("careful"))
    assert value_of(result.output) == "x"


@pytest.mark.parametrize("status", [pb.ITEM_STATUS_TOO_LARGE, pb.ITEM_STATUS_INVALID])
async def test_a_result_that_the_gateway_does_not_take_becomes_a_failure(
    status: pb.ItemStatus.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, quick)
    scripted.script.item = lambda item: (
        answer(item, status, message="the output has 3 MB; at most 1 MB")
        if isinstance(item, pb.RunResult) and item.HasField("output")
        else ok(item)
    )
    token = scripted.assign("quick", max_attempts=5)
    await eventually(lambda: len(scripted.log.results(token)) == 2)
    failure = scripted.log.results(token)[1].message.failure
    assert kind_of(failure) == "serialization" and forbids_retry(failure)
    assert "3 MB" in failure.message
    assert token not in states_of((await scripted.log.beat()).leases)


@pytest.mark.parametrize("status", [pb.ITEM_STATUS_TOO_LARGE, pb.ITEM_STATUS_INVALID])
async def test_a_step_that_the_gateway_does_not_take_is_an_error_in_the_handler_and_not_retried(
    status: pb.ItemStatus.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="steps")
    async def steps(ctx: Context) -> None:
        await ctx.step.run("refused", lambda: 1)

    await connect(scripted, steps)
    scripted.script.item = lambda item: (
        answer(item, status, message="not like this") if isinstance(item, pb.StepReport) else ok(item)
    )
    token = scripted.assign("steps", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert "not like this" in failure.message
    assert forbids_retry(failure)


@pytest.mark.parametrize("fails", [True, False], ids=["of a failure", "of an output"])
async def test_a_lease_whose_result_is_refused_in_every_form_is_not_held_for_ever(
    fails: bool, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="ends")
    async def ends(ctx: Context) -> str:
        if fails:
            raise ValueError("this attempt fails")
        return "fine"

    await connect(scripted, ends)
    scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_INVALID, message="no")
    token = scripted.assign("ends")
    await eventually(lambda: len(scripted.log.results(token)) == 2)
    await scripted.log.beat()
    assert states_of((await scripted.log.beat()).leases) == {}
    assert len(scripted.log.results(token)) == 2


# ---- messages ----


async def test_results_that_are_ready_together_are_written_in_messages_that_the_gateway_takes(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    together = asyncio.Barrier(20)

    @workflow(name="large")
    async def large(ctx: Context) -> str:
        await together.wait()
        return "x" * 500_000

    await connect(scripted, large)
    runs = [scripted.assignment("large") for _ in range(20)]
    scripted.send(assignments=runs)
    for run in runs:
        await scripted.log.result(run.lease_token)
    assert len(scripted.sessions) == 1
    sizes = [heard.message.ByteSize() for heard in scripted.log.requests]
    assert max(sizes) <= 2 * 1024 * 1024


async def test_failures_that_are_ready_together_are_written_in_messages_that_the_gateway_takes(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    together = asyncio.Barrier(100)

    @workflow(name="fails")
    async def fails(ctx: Context) -> None:
        await together.wait()
        raise ValueError("\U0001f4a5" * 16_000)

    await connect(scripted, fails, concurrency=100)
    runs = [scripted.assignment("fails") for _ in range(100)]
    scripted.send(assignments=runs)
    for run in runs:
        await scripted.log.result(run.lease_token, within=2)
    assert len(scripted.sessions) == 1
    assert max(heard.message.ByteSize() for heard in scripted.log.requests) <= MESSAGE_BYTES


async def test_a_message_has_at_most_256_items(scripted: ScriptedGateway, connect: StartWorker) -> None:
    together = asyncio.Barrier(600)

    @workflow(name="ends-with-the-others")
    async def ends_with_the_others(ctx: Context) -> None:
        await together.wait()

    await connect(scripted, ends_with_the_others, concurrency=600)
    runs = [scripted.assignment("ends-with-the-others") for _ in range(600)]
    scripted.send(assignments=runs)
    await eventually(lambda: len(scripted.log.results()) == 600)
    assert max(len(heard.message.run_results) for heard in scripted.log.requests) <= 256
