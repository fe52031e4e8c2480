"""Failure handlers: called when a run has failed for good, where that was seen or elsewhere; then the run ends."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from redflow_sdk import (
    BlockingContext,
    ChildFailedError,
    Context,
    FailureContext,
    InvalidInputError,
    StepFailedError,
    workflow,
)
from redflow_sdk.proto.v1 import failure_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.failing_runs import (
    HANDLER,
    RECORDED,
    Order,
    failing,
    failing_for_good,
    handled,
    quick,
    takes_the_next_run,
)
from tests.sdk.messages import answer, child_failed, kind_of, payload
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

# ---- what it is told ----


@pytest.mark.parametrize("form", ["async def", "def"])
async def test_it_is_called_under_the_same_lease_with_the_exception_itself(
    form: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    thread: list[int] = []
    error = LookupError("no such card")

    async def asynchronous(context: FailureContext) -> None:
        await asyncio.sleep(0.01)
        note(context)

    def note(context: FailureContext) -> str:
        told.append(context)
        thread.append(threading.get_ident())
        return "what it returns changes nothing"

    await connect(scripted, failing(asynchronous if form == "async def" else note, error=error), quick, concurrency=1)
    scripted.script.item = failing_for_good
    token = scripted.assign("fails", payload({"id": 7}), attempt=3, max_attempts=3, delivery_count=5, run_id="run-77")
    result = await handled(scripted, token)
    assert not result.HasField("failure") and not result.HasField("output")
    [context] = told
    assert context.error is error and context.input == Order(7)
    run = context.run
    assert (run.id, run.workflow, run.queue) == ("run-77", "fails", "default")
    assert (run.attempt, run.max_attempts, run.delivery) == (3, 3, 5)
    failure = context.failure
    assert (failure.type, failure.message, failure.kind) == ("LookupError", "no such card", "error")
    assert (thread == [threading.get_ident()]) is (form == "async def")
    assert scripted.log.said(token) == ["RunResult", "RunResult"]
    assert await takes_the_next_run(scripted)


async def test_it_is_not_called_as_long_as_another_attempt_follows(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    await connect(scripted, failing(told.append), quick, concurrency=1)
    token = scripted.assign("fails", payload({"id": 7}), max_attempts=3)
    await scripted.log.result(token)
    assert await takes_the_next_run(scripted)
    assert told == [] and scripted.log.said(token) == ["RunResult"]


async def test_at_another_worker_it_is_called_with_what_is_on_record_instead_of_the_handler(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    called: list[bool] = []

    @workflow(name="fails", on_failure=told.append)
    def fails(ctx: BlockingContext, order: Order) -> None:
        called.append(True)

    await connect(scripted, fails)
    token = scripted.assign("fails", payload({"id": 7}), assignment_kind=HANDLER, failure=RECORDED, attempt=2)
    result = await handled(scripted, token)
    assert not result.HasField("failure")
    [context] = told
    assert type(context.error) is StepFailedError and str(context.error) == "CardDeclined: no money"
    assert (context.failure.type, context.failure.language) == ("CardDeclined", "typescript")
    assert (context.input, context.run.attempt) == (Order(7), 2)
    assert called == [] and scripted.log.said(token) == ["RunResult"]


async def test_a_built_in_exception_comes_back_as_itself_from_the_record(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    await connect(scripted, failing(told.append))
    failure = failure_pb2.Failure(type="KeyError", message="x", failure_kind=failure_pb2.FAILURE_KIND_ERROR)
    await handled(scripted, scripted.assign("fails", payload({"id": 7}), assignment_kind=HANDLER, failure=failure))
    assert type(told[0].error) is KeyError


async def test_a_child_that_failed_is_told_with_its_cause(scripted: ScriptedGateway, connect: StartWorker) -> None:
    told: list[FailureContext] = []

    @workflow(name="parent", on_failure=told.append)
    async def parent(ctx: Context) -> None:
        await ctx.step.run_workflow("child", "child")

    await connect(scripted, parent)
    scripted.script.item = failing_for_good
    await handled(scripted, scripted.assign("parent", steps=[child_failed("child")]))
    [context] = told
    assert type(context.error) is ChildFailedError and context.input is None
    assert context.failure.cause is not None and context.failure.cause.type == "ValueError"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (payload({"id": "seven"}), {"id": "seven"}),
        (payload([1, 2]), [1, 2]),
        (None, None),
    ],
    ids=["another type", "another form", "none at all"],
)
@pytest.mark.parametrize("way", ["same lease", "another delivery"])
async def test_input_that_does_not_fit_is_given_as_it_came(
    way: str, sent: Any, expected: Any, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    await connect(scripted, failing(told.append))
    scripted.script.item = failing_for_good
    if way == "same lease":
        token = scripted.assign("fails", sent)
    else:
        token = scripted.assign("fails", sent, assignment_kind=HANDLER, failure=RECORDED)
    assert not (await handled(scripted, token)).HasField("failure")
    assert told[0].input == expected


async def test_input_that_is_no_json_is_given_as_bytes(scripted: ScriptedGateway, connect: StartWorker) -> None:
    told: list[FailureContext] = []
    await connect(scripted, failing(told.append))
    scripted.script.item = failing_for_good
    broken = payload(None)
    broken.data = b"{broken"
    await handled(scripted, scripted.assign("fails", broken))
    assert told[0].input == b"{broken" and told[0].failure.kind == "validation"


# ---- how it ends ----


def raises(context: FailureContext) -> None:
    raise KeyError("in the failure handler")


async def raises_async(context: FailureContext) -> None:
    raise KeyError("in the failure handler")


def exits(context: FailureContext) -> None:
    sys.exit(3)


async def exits_async(context: FailureContext) -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (raises, "KeyError"),
        (raises_async, "KeyError"),
        (exits, "SystemExit"),
        (exits_async, "SystemExit"),
    ],
)
async def test_a_failure_handler_that_fails_ends_and_says_how_and_the_worker_goes_on(
    handler: Any, kind: str, scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    await connect(scripted, failing(handler), quick, concurrency=1)
    scripted.script.item = failing_for_good
    token = scripted.assign("fails", payload({"id": 7}))
    result = await handled(scripted, token)
    assert result.failure.type == kind
    assert "the failure handler of fails" in caplog.text
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["RunResult", "RunResult"]


async def test_a_worker_without_one_says_that_it_has_none(scripted: ScriptedGateway, connect: StartWorker) -> None:
    called: list[bool] = []

    @workflow(name="fails")
    async def fails(ctx: Context) -> None:
        called.append(True)

    await connect(scripted, fails, quick, concurrency=1)
    token = scripted.assign("fails", assignment_kind=HANDLER, failure=RECORDED)
    failure = (await handled(scripted, token)).failure
    assert failure.type == "LookupError" and "no failure handler of workflow 'fails'" in failure.message
    assert called == []
    assert await takes_the_next_run(scripted)


async def test_an_end_that_the_gateway_does_not_take_is_told_as_a_smaller_one(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def refusing(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.RunResult) and item.failure.type == "KeyError":
            return answer(item, pb.ITEM_STATUS_TOO_LARGE, message="why")
        return failing_for_good(item)

    await connect(scripted, failing(raises), quick, concurrency=1)
    scripted.script.item = refusing
    token = scripted.assign("fails", payload({"id": 7}))
    await eventually(lambda: len(scripted.log.results(token)) == 3)
    last = scripted.log.results(token)[-1].message
    assert last.failure_handler_done and kind_of(last.failure) == "serialization" and "why" in last.failure.message
    assert await takes_the_next_run(scripted)


async def test_a_result_that_the_gateway_does_not_take_is_a_failure_to_handle_too(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []

    @workflow(name="returns", on_failure=told.append)
    async def returns(ctx: Context) -> str:
        return "output"

    def refusing(item: Item) -> pb.ItemResult:
        if isinstance(item, pb.RunResult) and item.HasField("output"):
            return answer(item, pb.ITEM_STATUS_INVALID, message="why")
        return failing_for_good(item)

    await connect(scripted, returns)
    scripted.script.item = refusing
    result = await handled(scripted, scripted.assign("returns"))
    assert not result.HasField("failure")
    assert told[0].failure.kind == "serialization" and "why" in told[0].failure.message


def test_a_failure_handler_that_cannot_be_called_with_its_context_is_refused_where_it_is_defined() -> None:
    def takes_nothing() -> None: ...

    with pytest.raises(InvalidInputError, match="on_failure is called with a FailureContext: too many positional"):
        workflow(on_failure=takes_nothing)(quick.function)  # type: ignore[arg-type]  # what is to be refused
