"""Runs that a handler starts, with and without waiting for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.messages import (
    answer,
    forbids_retry,
    kind_of,
    ok,
    resolved,
    started,
    succeeded,
    timed_out,
    value_of,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@dataclass(frozen=True)
class Parcel:
    id: int


@workflow(name="watch", queue="parcels")
async def watch(ctx: Context, parcel: Parcel) -> None: ...


@workflow(name="starts-async")
async def starts(ctx: Context) -> str:
    await ctx.step.run("before", lambda: None)
    return await ctx.step.start_workflow("watch", watch, Parcel(7))


@workflow(name="starts-def")
def starts_blocking(ctx: BlockingContext) -> str:
    ctx.step.run("before", lambda: None)
    return ctx.step.start_workflow("watch", watch, Parcel(7))


BOTH = pytest.mark.parametrize("kind", ["async", "def"])


def starting(item: Item) -> pb.ItemResult:
    if not isinstance(item, pb.StepCommand):
        return ok(item)
    return answer(item, pb.ITEM_STATUS_OK, resolutions=[started(item.step_name, "run-8", seq=item.step_seq)])


def refused(name: str) -> pb.StepSnapshot:
    step = started(name, "")
    step.status = run_pb2.STEP_STATUS_FAILED
    step.failure.type, step.failure.message = "UnknownWorkflowError", "workflow watch is not registered"
    step.failure.failure_kind = failure_pb2.FAILURE_KIND_UNKNOWN_WORKFLOW
    return step


# ---- without waiting ----


@BOTH
async def test_a_run_is_started_as_a_step_whose_value_is_its_id(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, starts, starts_blocking)
    scripted.script.item = starting
    token = scripted.assign(f"starts-{kind}")
    result = await scripted.log.result(token)
    assert value_of(result.output) == "run-8" and result.steps_recorded == 2
    command = await scripted.log.command(token)
    assert (command.step_name, command.step_seq, command.steps_recorded) == ("watch", 2, 1)
    start = command.start_child
    assert (start.workflow, start.queue, start.max_attempts, value_of(start.input)) == (
        "watch",
        "parcels",
        1,
        {"id": 7},
    )
    assert start.parent_close_policy == pb.PARENT_CLOSE_POLICY_ABANDON
    assert scripted.log.said(token) == ["StepReport", "StepCommand", "RunResult"], "it is not set aside for it"


@BOTH
@pytest.mark.parametrize("attempt", [1, 3])
async def test_a_run_on_record_is_not_started_again(
    attempt: int, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, starts, starts_blocking)
    steps = [succeeded("before", None), started("watch", "run-8", seq=2)]
    token = scripted.assign(f"starts-{kind}", attempt=attempt, max_attempts=3, steps=steps)
    assert value_of((await scripted.log.result(token)).output) == "run-8"
    assert scripted.log.said(token) == ["RunResult"]


@pytest.mark.parametrize(
    ("close", "policy"), [("abandon", pb.PARENT_CLOSE_POLICY_ABANDON), ("cancel", pb.PARENT_CLOSE_POLICY_CANCEL)]
)
@BOTH
async def test_a_run_is_started_as_the_handler_says(
    kind: str, close: Any, policy: pb.ParentClosePolicy.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    options: dict[str, Any] = {
        "parent_close": close, "idempotency_key": "k", "idempotency_ttl": 1.5,
        "queue": "q", "priority": -7, "max_attempts": 4,
    }  # fmt: skip

    @workflow(name="says-async")
    async def says(ctx: Context) -> None:
        await ctx.step.start_workflow("s", "by-name", {"a": 1}, **options)

    @workflow(name="says-def")
    def says_blocking(ctx: BlockingContext) -> None:
        ctx.step.start_workflow("s", "by-name", {"a": 1}, **options)

    await connect(scripted, says, says_blocking)
    scripted.script.item = starting
    start = (await scripted.log.command(scripted.assign(f"says-{kind}"))).start_child
    assert start.parent_close_policy == policy
    assert (start.workflow, start.queue, start.priority, start.max_attempts) == ("by-name", "q", -7, 4)
    assert (start.idempotency_key, start.idempotency_ttl.ToMilliseconds()) == ("k", 1500)
    assert value_of(start.input) == {"a": 1}


@pytest.mark.parametrize("is_on_record", [False, True])
async def test_a_run_that_cannot_be_started_raises_now_and_in_every_attempt(
    is_on_record: bool, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, starts)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_OK, resolutions=[refused("watch")])
        if isinstance(item, pb.StepCommand)
        else ok(item)
    )
    steps = [refused("watch")] if is_on_record else []
    token = scripted.assign("starts-async", attempt=2, max_attempts=3, steps=steps)
    failure = (await scripted.log.result(token)).failure
    assert (failure.type, failure.message) == ("UnknownWorkflowError", "workflow watch is not registered")
    assert failure.failure_kind == failure_pb2.FAILURE_KIND_UNKNOWN_WORKFLOW, "so no attempt follows"
    assert len(scripted.log.commands(token)) == (not is_on_record)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(pb.ITEM_STATUS_INVALID, "non_retriable"), (pb.ITEM_STATUS_TOO_LARGE, "serialization")],
    ids=["INVALID", "TOO_LARGE"],
)
async def test_a_start_that_the_gateway_refuses_fails_the_run_for_good(
    status: pb.ItemStatus.ValueType, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, starts)
    scripted.script.item = lambda item: (
        answer(item, status, message="why") if isinstance(item, pb.StepCommand) else ok(item)
    )
    failure = (await scripted.log.result(scripted.assign("starts-async", max_attempts=5))).failure
    assert (kind_of(failure), failure.message) == (kind, "why") and forbids_retry(failure)


async def test_a_start_that_was_lost_with_the_stream_comes_again_as_the_same_command(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, starts)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepCommand) else ok(item)
    token = scripted.assign("starts-async")
    first = await scripted.log.command(token)
    scripted.script.item = starting
    scripted.session.cut()
    assert value_of((await scripted.log.result(token)).output) == "run-8"
    assert [heard.message for heard in scripted.log.commands(token)] == [first, first]


@pytest.mark.parametrize(
    ("start", "word"),
    [
        (lambda step: step.start_workflow("s", watch, 5), "the input of workflow 'watch'"),
        (lambda step: step.start_workflow("s", "other", parent_close="stop"), "parent_close"),
        (lambda step: step.start_workflow("", "other"), "step name"),
        (lambda step: step.start_workflow("s", "other", priority=5000), "priority"),
        (lambda step: step.run_workflow("s", "other", timeout=-1), "timeout"),
    ],
)
async def test_a_start_that_makes_no_sense_is_not_sent(
    start: Any, word: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="senseless")
    async def senseless(ctx: Context) -> None:
        await start(ctx.step)

    await connect(scripted, senseless)
    token = scripted.assign("senseless", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "validation" and forbids_retry(failure)
    assert word in failure.message
    assert scripted.log.said(token) == ["RunResult"]


# ---- waiting for at most so long ----


@BOTH
async def test_a_run_that_takes_longer_than_its_time_out_raises_a_timeout_error(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="waits-async")
    async def waits(ctx: Context) -> str:
        try:
            await ctx.step.run_workflow("watch", watch, Parcel(7), timeout=2.5)
        except TimeoutError as error:
            return str(error)
        return "in time"

    @workflow(name="waits-def")
    def waits_blocking(ctx: BlockingContext) -> str:
        try:
            ctx.step.run_workflow("watch", watch, Parcel(7), timeout=2.5)
        except TimeoutError as error:
            return str(error)
        return "in time"

    await connect(scripted, waits, waits_blocking)
    late = timed_out("child", "watch")
    scripted.script.item = lambda item: resolved(item, late) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign(f"waits-{kind}")
    assert value_of((await scripted.log.result(token)).output) == "watch took too long"
    [wait] = (await scripted.log.suspension(token)).waits
    assert wait.child.timeout.ToMilliseconds() == 2500
    again = scripted.assign(f"waits-{kind}", attempt=2, max_attempts=2, steps=[late])
    assert value_of((await scripted.log.result(again)).output) == "watch took too long"
    assert scripted.log.said(again) == ["RunResult"]
