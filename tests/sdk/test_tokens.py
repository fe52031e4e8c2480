"""Completion tokens: a string at once, and what it was completed with when somebody has."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from redflow_sdk import BlockingContext, BlockingToken, Context, Token, TokenFailedError, workflow
from redflow_sdk.proto.v1 import failure_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.messages import (
    answer,
    forbids_retry,
    kind_of,
    ok,
    open_wait,
    resolution,
    resolved,
    timed_out,
    value_of,
    wait_over,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

TEXT = "tok_run-1.YXBwcm92ZQ.secret"


@dataclass(frozen=True)
class Decision:
    approved: bool


@workflow(name="approves-async")
async def approves(ctx: Context) -> list[Any]:
    token = await ctx.step.token("approve", Decision, timeout=90)
    assert isinstance(token, Token)
    sent = await ctx.step.run("ask", lambda given: given, token)
    return [token, sent, await token.result()]


@workflow(name="approves-def")
def approves_blocking(ctx: BlockingContext) -> list[Any]:
    token = ctx.step.token("approve", Decision, timeout=90)
    assert isinstance(token, BlockingToken)
    sent = ctx.step.run("ask", lambda given: given, token)
    return [token, sent, token.result()]


BOTH = pytest.mark.parametrize("kind", ["async", "def"])


def completing(*steps: pb.StepSnapshot) -> Any:
    """A script that makes tokens, and has them completed when a run waits for them."""

    def answers(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.StepCommand):
            made = [open_wait("token", wait.step_name, seq=wait.step_seq, token=TEXT) for wait in item.wait.waits]
            return resolved(item, *made)
        return resolved(item, *steps) if isinstance(item, pb.Suspension) else ok(item)

    return answers


def token_failed(name: str, failure: failure_pb2.Failure) -> pb.StepSnapshot:
    step = timed_out("token", name)
    step.failure.CopyFrom(failure)
    return step


@BOTH
async def test_a_token_begins_to_wait_when_it_is_made_and_is_a_string_for_others_and_for_steps(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, approves, approves_blocking)
    scripted.script.item = completing(wait_over("token", "approve", {"approved": True}))
    token = scripted.assign(f"approves-{kind}")
    result = await scripted.log.result(token)
    assert value_of(result.output) == [TEXT, TEXT, {"approved": True}]
    assert result.steps_recorded == 2
    [begun] = scripted.log.begun(token)
    assert (begun.step_name, begun.step_seq, begun.group, begun.WhichOneof("wait")) == ("approve", 1, "", "token")
    assert begun.token.timeout.ToMilliseconds() == 90_000
    assert value_of((await scripted.log.report(token, "ask")).output) == TEXT
    [asked] = scripted.log.suspensions(token)
    assert list(asked.message.waits) == [begun], "the same wait, with its time-out, should the store have lost it"
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "Suspension", "RunResult"]


@BOTH
async def test_the_result_is_of_the_type_that_the_handler_names(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    results: list[object] = []

    @workflow(name="typed-async")
    async def typed(ctx: Context) -> None:
        results.append(await (await ctx.step.token("it", Decision)).result())

    @workflow(name="typed-def")
    def typed_blocking(ctx: BlockingContext) -> None:
        results.append(ctx.step.token("it", Decision).result())

    await connect(scripted, typed, typed_blocking)
    scripted.script.item = completing(wait_over("token", "it", {"approved": False}))
    token = scripted.assign(f"typed-{kind}")
    await scripted.log.result(token)
    assert results == [Decision(approved=False)]
    assert not scripted.log.begun(token)[0].token.HasField("timeout"), "it waits as long as it takes"


async def test_a_result_may_be_asked_for_twice_also_at_once(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="twice")
    async def twice(ctx: Context) -> list[Any]:
        token = await ctx.step.token("it")
        together = await asyncio.gather(token.result(), token.result())
        return [*together, await token.result()]

    await connect(scripted, twice)
    scripted.script.item = completing(wait_over("token", "it", 7))
    token = scripted.assign("twice")
    assert value_of((await scripted.log.result(token)).output) == [7, 7, 7]
    assert [len(it.message.waits) for it in scripted.log.suspensions(token)] == [1]


async def test_one_that_waits_for_a_result_may_stop_and_another_gets_it(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="twice")
    async def twice(ctx: Context) -> Any:
        token = await ctx.step.token("it")
        first, second = asyncio.create_task(token.result()), asyncio.create_task(token.result())
        await asyncio.sleep(0)
        first.cancel()
        return await second

    await connect(scripted, twice)
    scripted.script.item = completing(wait_over("token", "it", 7))
    assert value_of((await scripted.log.result(scripted.assign("twice"))).output) == 7


@BOTH
async def test_a_token_that_somebody_fails_raises_how(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[TokenFailedError] = []

    @workflow(name="catches-async")
    async def catches(ctx: Context) -> None:
        try:
            await (await ctx.step.token("it")).result()
        except TokenFailedError as error:
            raised.append(error)

    @workflow(name="catches-def")
    def catches_blocking(ctx: BlockingContext) -> None:
        try:
            ctx.step.token("it").result()
        except TokenFailedError as error:
            raised.append(error)

    await connect(scripted, catches, catches_blocking)
    failure = failure_pb2.Failure(type="Rejected", message="too dear", failure_kind=failure_pb2.FAILURE_KIND_ERROR)
    scripted.script.item = completing(token_failed("it", failure))
    await scripted.log.result(scripted.assign(f"catches-{kind}"))
    [error] = raised
    assert str(error) == "Rejected: too dear" and error.failure.type == "Rejected"


async def test_a_token_that_nobody_completes_in_time_raises_a_timeout_error_in_every_attempt(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, approves)
    scripted.script.item = completing(timed_out("token", "approve"))
    token = scripted.assign("approves-async", max_attempts=3)
    failure = (await scripted.log.result(token)).failure
    assert (failure.type, failure.message, kind_of(failure)) == ("TimeoutError", "approve took too long", "timeout")
    step = timed_out("token", "approve", token=TEXT)
    again = scripted.assign("approves-async", attempt=2, max_attempts=3, steps=[step])
    assert (await scripted.log.result(again)).failure.type == "TimeoutError"
    assert scripted.log.said(again) == ["StepReport", "RunResult"]


@pytest.mark.parametrize("is_over", [False, True], ids=["open", "completed"])
async def test_a_replay_gives_the_same_token_without_asking_for_it(
    is_over: bool, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, approves)
    over = wait_over("token", "approve", {"approved": True}, token=TEXT)
    scripted.script.item = completing(over)
    step = over if is_over else open_wait("token", "approve", seq=3, token=TEXT)
    token = scripted.assign("approves-async", attempt=2, max_attempts=2, steps=[step])
    assert value_of((await scripted.log.result(token)).output) == [TEXT, TEXT, {"approved": True}]
    assert scripted.log.said(token) == ["StepReport", *["Suspension"] * (not is_over), "RunResult"]
    assert scripted.log.begun(token) == []


async def test_a_token_that_was_completed_before_it_is_asked_for_is_not_waited_for(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="late")
    async def late(ctx: Context) -> Any:
        token = await ctx.step.token("it")
        return [token, await token.result()]

    await connect(scripted, late)
    over = wait_over("token", "it", 7, token=TEXT)
    scripted.script.item = lambda item: resolved(item, over) if isinstance(item, pb.StepCommand) else ok(item)
    token = scripted.assign("late")
    result = await scripted.log.result(token)
    assert value_of(result.output) == [TEXT, 7] and result.steps_recorded == 1
    assert scripted.log.said(token) == ["StepCommand", "RunResult"]


async def test_a_token_that_is_completed_while_nobody_waits_for_it_is_asked_for_beside_a_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Else its result would come only when the step is done, which may take long."""
    go_on, is_made = asyncio.Event(), asyncio.Event()
    values: list[Any] = []

    @workflow(name="busy")
    async def busy(ctx: Context) -> None:
        token = await ctx.step.token("it")
        is_made.set()

        async def waits() -> None:
            await ctx.step.run("first", asyncio.sleep, 0.2)
            values.append(await token.result())
            go_on.set()

        await asyncio.gather(waits(), ctx.step.run("slow", go_on.wait))

    over = wait_over("token", "it", 7, token=TEXT)
    made: list[str] = []

    def answers(item: Item) -> pb.ItemResult:
        if not isinstance(item, pb.StepCommand):
            return ok(item)
        made.append(item.lease_token)
        return resolved(item, open_wait("token", "it", token=TEXT) if len(made) == 1 else over)

    await connect(scripted, busy)
    scripted.script.item = answers
    token = scripted.assign("busy")
    await asyncio.wait_for(is_made.wait(), 5)
    scripted.send(wait_resolutions=[resolution(token, over)])
    assert (await scripted.log.result(token)).HasField("output")
    assert values == [7] and scripted.log.suspensions(token) == []


async def test_a_token_that_the_gateway_refuses_fails_the_run_for_good(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, approves)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_INVALID, message="why") if isinstance(item, pb.StepCommand) else ok(item)
    )
    failure = (await scripted.log.result(scripted.assign("approves-async", max_attempts=3))).failure
    assert failure.message == "why" and kind_of(failure) == "non_retriable" and forbids_retry(failure)


@pytest.mark.parametrize("place", ["making", "waiting"])
async def test_within_a_step_no_token_is_made_or_waited_for(
    place: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="nested")
    async def nested(ctx: Context) -> None:
        token = await ctx.step.token("outside")

        async def inner() -> None:
            await (ctx.step.token("inside") if place == "making" else token.result())

        await ctx.step.run("outer", inner)

    await connect(scripted, nested)
    scripted.script.item = completing()
    failure = (await scripted.log.result(scripted.assign("nested", max_attempts=3))).failure
    assert kind_of(failure) == "non_retriable" and "within step 'outer'" in failure.message


async def test_a_token_on_record_as_another_kind_of_step_fails_the_run_for_good(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, approves)
    token = scripted.assign("approves-async", max_attempts=3, steps=[wait_over("timer", "approve")])
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "non_deterministic" and "'approve'" in failure.message
