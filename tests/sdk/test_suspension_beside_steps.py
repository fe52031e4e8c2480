"""Waits beside steps: in flight together; no step is cut short, and none begins while the run may be set aside."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    answer,
    by_reference,
    child_by_reference,
    child_open,
    child_succeeded,
    forbids_retry,
    kind_of,
    ok,
    payload,
    resolved,
    succeeded,
    suspended,
    value_of,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@pytest.fixture
def connect(connect_without_parking: StartWorker) -> StartWorker:
    return connect_without_parking


async def both(form: str, *work: Awaitable[object]) -> list[object]:
    if form == "gather":
        return list(await asyncio.gather(*work))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]  # type: ignore[arg-type]  # they are coroutines
    return [task.result() for task in tasks]


def resolving(item: Item) -> pb.ItemResult:
    """Every run that is waited for has ended with the output 7."""
    if not isinstance(item, pb.Suspension):
        return ok(item)
    return resolved(item, *(child_succeeded(wait.step_name, 7) for wait in item.waits))


def withholding_suspensions(item: Item) -> pb.ItemResult | None:
    return None if isinstance(item, pb.Suspension) else ok(item)


@pytest.mark.parametrize("form", ["gather", "TaskGroup"])
async def test_a_run_begins_while_a_step_is_at_work_which_is_not_cut_short(
    form: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed = Counter[str]()
    go_on = asyncio.Event()

    async def slow() -> str:
        executed["slow"] += 1
        await go_on.wait()
        return "slow"

    @workflow(name="both")
    async def handler(ctx: Context) -> list[object]:
        return await both(form, ctx.step.run_workflow("child", "child"), ctx.step.run("slow", slow))

    await connect(scripted, handler)
    scripted.script.item = resolving
    token = scripted.assign("both")
    [begun] = (await scripted.log.command(token)).wait.waits
    assert (begun.step_name, begun.child.start.workflow) == ("child", "child")
    for _ in range(3):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["StepCommand"], "registered once, and not set aside while a step is at work"
    go_on.set()
    assert value_of((await scripted.log.result(token)).output) == [7, "slow"]
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "Suspension", "RunResult"]
    [asked] = scripted.log.suspensions(token)
    assert asked.message.waits[0] == begun and asked.message.steps_recorded == 1
    assert executed == {"slow": 1}


async def test_a_wait_that_is_refused_while_a_step_is_at_work_fails_the_run_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="both")
    async def handler(ctx: Context) -> None:
        await both("TaskGroup", ctx.step.run_workflow("child", "child"), ctx.step.run("slow", asyncio.Event().wait))

    await connect(scripted, handler)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_INVALID, message="why") if isinstance(item, pb.StepCommand) else ok(item)
    )
    token = scripted.assign("both", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert (failure.cause.type, failure.cause.message) == ("NonRetriableError", "why")
    assert forbids_retry(failure)
    assert scripted.log.said(token) == ["StepCommand", "StepReport", "RunResult"]


async def test_a_run_is_not_set_aside_before_its_waits_are_known_to_be_registered(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="both")
    async def handler(ctx: Context) -> None:
        await both("gather", ctx.step.run_workflow("child", "child"), ctx.step.run("slow", go_on.wait))

    await connect(scripted, handler)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepCommand) else resolving(item)
    token = scripted.assign("both")
    command = await scripted.log.command(token)
    go_on.set()
    await scripted.log.report(token, "slow")
    for _ in range(3):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["StepCommand", "StepReport"]
    scripted.answer(ok(command))
    assert (await scripted.log.result(token)).HasField("output")


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("form", ["gather", "TaskGroup"])
async def test_a_step_that_other_tasks_lead_up_to_is_run_before_the_run_is_set_aside(
    form: str, depth: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="nested")
    async def nested(ctx: Context) -> None:
        async def inner(levels: int) -> None:
            if levels:
                await both(form, inner(levels - 1))
            else:
                await ctx.step.run("first", lambda: None)

        async def branch() -> None:
            await inner(depth)
            await ctx.step.run("second", lambda: None)

        await both(form, ctx.step.run_workflow("child", "child"), branch())

    await connect(scripted, nested)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("nested")
    await scripted.log.suspension(token)
    assert [it.message.step_name for it in scripted.log.reports(token)] == ["first", "second"]


@pytest.mark.parametrize("is_set_aside", [False, True], ids=["resolved", "set aside"])
@pytest.mark.parametrize("kind", ["step", "run", "event"])
async def test_what_would_begin_while_the_run_may_be_set_aside_waits_for_the_answer(
    kind: str,
    is_set_aside: bool,
    hold_for: Callable[[float], None],
    scripted: ScriptedGateway,
    connect: StartWorker,
) -> None:
    hold_for(0)
    executed: list[bool] = []
    woken = asyncio.Event()
    come = asyncio.Event()

    @workflow(name="late")
    async def late(ctx: Context) -> None:
        async def branch() -> None:
            await woken.wait()  # nothing that the SDK knows of
            come.set()
            if kind == "step":
                await ctx.step.run("late", lambda: executed.append(True))
            elif kind == "run":
                await ctx.step.run_workflow("late", "child")
            else:
                await ctx.step.emit_event("late", "e")

        await both("gather", ctx.step.run_workflow("child", "child"), branch())

    await connect(scripted, late)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("late")
    asked = await scripted.log.suspension(token)
    woken.set()
    await come.wait()
    for _ in range(3):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["Suspension"] and executed == []
    if is_set_aside:
        scripted.answer(suspended(asked))
        await eventually(lambda: scripted.log.held() == {})
        assert scripted.log.said(token) == ["Suspension"] and executed == []
    else:
        scripted.script.item = lambda item: (
            answer(item, pb.ITEM_STATUS_OK, resolutions=[succeeded("late", [])])
            if isinstance(item, pb.StepCommand)
            else resolving(item)
        )
        scripted.answer(resolved(asked, child_succeeded("child", 7)))
        assert (await scripted.log.result(token)).HasField("output")
        assert executed == [True] * (kind == "step")


async def test_a_step_may_begin_in_the_very_turn_in_which_the_run_asks_a_second_time(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="in-turn")
    async def in_turn(ctx: Context, turns: int) -> None:
        await ctx.step.run_workflow("first", "child")

        async def branch() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await ctx.step.run("step", lambda: None)

        await both("gather", ctx.step.run_workflow("second", "child"), branch())

    await connect(scripted, in_turn)
    scripted.script.item = resolving
    for turns in range(25):
        token = scripted.assign("in-turn", payload(turns))
        assert (await scripted.log.result(token)).HasField("output"), turns


async def test_values_on_record_are_fetched_before_the_run_is_set_aside(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Else a run whose outputs are large would come no further as long as it waits for another."""

    def slowly(request: pb.GetStepOutputsRequest) -> pb.GetStepOutputsResponse:
        time.sleep(0.3)
        [name] = request.step_names
        step = child_succeeded(name, "large") if name == "done" else succeeded(name, "large")
        return pb.GetStepOutputsResponse(steps=[step])

    @workflow(name="fetches")
    async def fetches(ctx: Context) -> None:
        async def branch(name: str, work: Awaitable[object]) -> None:
            assert await work == "large"
            await ctx.step.run(f"after-{name}", lambda: None)

        await both(
            "TaskGroup",
            ctx.step.run_workflow("child", "child"),
            branch("step", ctx.step.run("step", lambda: "new")),
            branch("done", ctx.step.run_workflow("done", "child")),
        )

    await connect(scripted, fetches)
    scripted.script.outputs = slowly
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    steps = [by_reference("step", 70_000), child_by_reference("done", 70_000, seq=2), child_open("child", seq=3)]
    token = scripted.assign("fetches", steps=steps)
    await scripted.log.suspension(token)
    assert sorted(it.message.step_name for it in scripted.log.reports(token)) == ["after-done", "after-step"]
    assert scripted.log.said(token)[-1] == "Suspension"


async def test_a_value_too_large_for_the_answer_is_fetched(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="fetches")
    async def fetches(ctx: Context) -> list[object]:
        return await both("gather", *(ctx.step.run_workflow(name, "child") for name in ("large", "other")))

    def one_by_one(item: Item) -> pb.ItemResult:
        if not isinstance(item, pb.Suspension):
            return ok(item)
        if len(item.waits) == 2:
            return resolved(item, child_by_reference("large", 2_000_000))
        return resolved(item, child_succeeded("other", "small"))

    await connect(scripted, fetches)
    scripted.script.outputs = lambda request: pb.GetStepOutputsResponse(steps=[child_succeeded("large", "x" * 1000)])
    scripted.script.item = one_by_one
    assert value_of((await scripted.log.result(scripted.assign("fetches"))).output) == ["x" * 1000, "small"]


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_a_wait_within_a_step_is_refused_as_it_would_never_end(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="nested-async")
    async def nested(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step.run_workflow("inner", "child")

        await ctx.step.run("outer", outer)

    @workflow(name="nested-def")
    def nested_blocking(ctx: BlockingContext) -> None:
        ctx.step.run("outer", lambda: ctx.step.run_workflow("inner", "child"))

    await connect(scripted, nested, nested_blocking)
    token = scripted.assign(f"nested-{kind}", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "non_retriable" and "'inner'" in failure.message and "'outer'" in failure.message
    assert scripted.log.said(token) == ["StepReport", "RunResult"]


async def test_a_wait_after_a_step_is_none_within_it(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="after")
    async def after(ctx: Context) -> int:
        async def fails() -> None:
            raise LookupError

        with contextlib.suppress(LookupError):
            await ctx.step.run("fails", fails)
        await ctx.step.run("a", lambda: None)
        return await ctx.step.run_workflow("child", "child")  # type: ignore[no-any-return]  # by name it is Any

    await connect(scripted, after)
    scripted.script.item = resolving
    assert value_of((await scripted.log.result(scripted.assign("after"))).output) == 7
