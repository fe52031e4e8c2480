"""Waits on record: what is over stays so in every attempt, what is open is asked for again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from redflow_sdk import ChildCanceledError, ChildFailedError, Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.messages import (
    child_by_reference,
    child_failed,
    child_open,
    child_succeeded,
    emitted,
    failed,
    forbids_retry,
    kind_of,
    ok,
    resolved,
    succeeded,
    suspended,
    value_of,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

KIND_OF_A_LATER_REVISION = b"\x18\x63"
"""`step_kind = 99` of a step on record: the last one counts."""


@pytest.fixture
def connect(connect_without_parking: StartWorker) -> StartWorker:
    return connect_without_parking


@dataclass(frozen=True)
class Receipt:
    total: float
    lines: tuple[str, ...]


@workflow(name="render", queue="pdf")
async def render(ctx: Context, order: int) -> Receipt:
    return Receipt(1.0, ())


def setting_aside(item: Item) -> pb.ItemResult:
    return suspended(item) if isinstance(item, pb.Suspension) else ok(item)


async def test_an_open_wait_is_asked_for_again_as_the_same_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        await ctx.step.run("first", lambda: executed.append(True))
        await ctx.step.run_workflow("child", render, 7)

    await connect(scripted, waits)
    scripted.script.item = setting_aside
    token = scripted.assign("waits", steps=[succeeded("first", None), child_open("child", seq=5)], delivery_count=2)
    asked = await scripted.log.suspension(token)
    assert [(wait.step_name, wait.step_seq) for wait in asked.waits] == [("child", 5)]
    assert asked.waits[0].child.start.workflow == "render"
    assert asked.steps_recorded == 1, "an open wait is not finished"
    assert executed == [] and scripted.log.said(token) == ["Suspension"]


async def test_an_open_wait_is_not_registered_again_while_a_step_is_at_work(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        await asyncio.gather(
            *(ctx.step.run_workflow(name, render, 7) for name in ("old", "new")),
            ctx.step.run("slow", asyncio.sleep, 0.2),
        )

    await connect(scripted, waits)
    scripted.script.item = setting_aside
    token = scripted.assign("waits", steps=[child_open("old")])
    asked = await scripted.log.suspension(token)
    assert [wait.step_name for wait in scripted.log.begun(token)] == ["new"]
    assert [wait.step_name for wait in asked.waits] == ["old", "new"]


@pytest.mark.parametrize("attempt", [1, 3])
async def test_a_wait_that_is_over_is_not_asked_for(
    attempt: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="waits")
    async def waits(ctx: Context) -> int:
        value: int = await ctx.step.run_workflow("child", "by-name", 7)
        return value + await ctx.step.run("after", lambda: 1)

    await connect(scripted, waits)
    token = scripted.assign("waits", attempt=attempt, max_attempts=3, steps=[child_succeeded("child", 41, seq=4)])
    result = await scripted.log.result(token)
    assert value_of(result.output) == 42 and result.steps_recorded == 2
    assert scripted.log.said(token) == ["StepReport", "RunResult"]
    assert (await scripted.log.report(token, "after")).step_seq == 5


async def test_the_value_of_a_child_is_the_same_when_it_is_new_and_when_it_is_on_record(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    seen: list[Any] = []

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        seen.append((await ctx.step.run_workflow("typed", render, 7), await ctx.step.run_workflow("named", "render")))

    output = {"total": 9.5, "lines": ["a", "b"]}
    await connect(scripted, waits)
    scripted.script.item = lambda item: (
        resolved(item, *(child_succeeded(wait.step_name, output) for wait in item.waits))
        if isinstance(item, pb.Suspension)
        else ok(item)
    )
    await scripted.log.result(scripted.assign("waits"))
    steps = [child_succeeded("typed", output), child_by_reference("named", 70_000, seq=2)]
    scripted.script.outputs = lambda request: pb.GetStepOutputsResponse(steps=[child_succeeded("named", output)])
    await scripted.log.result(scripted.assign("waits", steps=steps))
    assert seen == [(Receipt(9.5, ("a", "b")), output)] * 2


async def test_a_child_without_an_output_gives_none(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="waits")
    async def waits(ctx: Context) -> list[Any]:
        return [await ctx.step.run_workflow("child", "render")]

    await connect(scripted, waits)
    step = child_succeeded("child", None)
    step.ClearField("output")
    token = scripted.assign("waits", steps=[step])
    assert value_of((await scripted.log.result(token)).output) == [None]


@pytest.mark.parametrize("attempt", [1, 2, 5])
@pytest.mark.parametrize("error", [ChildFailedError, ChildCanceledError])
async def test_a_child_that_did_not_succeed_raises_again_in_every_attempt(
    error: type[ChildFailedError | ChildCanceledError], attempt: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[BaseException] = []

    @workflow(name="catches")
    async def catches(ctx: Context) -> str:
        try:
            await ctx.step.run_workflow("child", render, 7)
        except Exception as caught:
            raised.append(caught)
        return "went on"

    await connect(scripted, catches)
    steps = [child_failed("child", error.__name__, attempt=1)]
    token = scripted.assign("catches", attempt=attempt, max_attempts=5, steps=steps)
    assert value_of((await scripted.log.result(token)).output) == "went on"
    [caught] = raised
    assert type(caught) is error and str(caught) == "run run-7 has failed: ValueError: no money"
    assert caught.failure.cause is not None
    assert (caught.failure.cause.type, caught.failure.cause.message) == ("ValueError", "no money")
    assert scripted.log.said(token) == ["RunResult"]


ON_RECORD = {
    "function": succeeded("it", None),
    "failed function": failed("it", "ValueError", "no", attempt=1),
    "open child": child_open("it"),
    "ended child": child_succeeded("it", None),
    "emit": emitted("it", "run-8"),
}


@pytest.mark.parametrize(
    ("was", "now"),
    [(was, now) for was in ON_RECORD for now in ("function", "child", "emit") if now not in was],
)
async def test_another_kind_under_a_name_on_record_fails_the_run_for_good(
    now: str, was: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[bool] = []

    @workflow(name="changed")
    async def changed(ctx: Context) -> None:
        if now == "function":
            await ctx.step.run("it", lambda: executed.append(True))
        elif now == "child":
            await ctx.step.run_workflow("it", render, 7)
        else:
            await ctx.step.emit_event("it", "e")

    await connect(scripted, changed)
    token = scripted.assign("changed", max_attempts=5, steps=[ON_RECORD[was]])
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "non_deterministic" and forbids_retry(failure)
    assert all(word in failure.message for word in ("'it'", was.split()[-1], now))
    assert executed == [] and scripted.log.said(token) == ["RunResult"]


async def test_a_name_is_used_once_by_steps_runs_and_events_alike(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="repeats")
    async def repeats(ctx: Context) -> None:
        await ctx.step.run("it", lambda: None)
        await ctx.step.run_workflow("it", render, 7)

    await connect(scripted, repeats)
    token = scripted.assign("repeats", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert failure.type == "DuplicateStepError" and forbids_retry(failure)
    assert scripted.log.said(token) == ["StepReport", "RunResult"]


async def test_waits_that_did_not_fit_into_the_assignment_are_on_record_all_the_same(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="many")
    async def many(ctx: Context) -> None:
        await ctx.step.run_workflow("ended", render, 1)
        await ctx.step.run_workflow("open", render, 2)

    await connect(scripted, many)
    receipt = {"total": 1.0, "lines": []}
    scripted.script.outputs = lambda request: pb.GetStepOutputsResponse(
        steps=[child_succeeded("ended", receipt, seq=7), child_open("open", seq=9)]
    )
    scripted.script.item = setting_aside
    asked = await scripted.log.suspension(scripted.assign("many", steps_truncated=True))
    assert [(wait.step_name, wait.step_seq) for wait in asked.waits] == [("open", 9)]


async def test_a_step_of_a_kind_that_this_sdk_does_not_know_is_no_step_of_its_handler(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="one-step")
    async def one_step(ctx: Context) -> None:
        await ctx.step.run("a", lambda: None)

    await connect(scripted, one_step)
    known = pb.StepSnapshot.FromString(succeeded("a", "old a").SerializeToString() + KIND_OF_A_LATER_REVISION)
    failure = (await scripted.log.result(scripted.assign("one-step", steps=[known]))).failure
    assert kind_of(failure) == "non_deterministic" and "of the kind unknown" in failure.message
    assert scripted.log.reports() == []
