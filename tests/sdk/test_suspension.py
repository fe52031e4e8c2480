"""A run that can go on only when another one has ended: its worker has it set aside, and its handler ends there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    answer,
    child_failed,
    child_succeeded,
    forbids_retry,
    kind_of,
    ok,
    resolved,
    suspended,
    value_of,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@pytest.fixture
def connect(connect_without_parking: StartWorker) -> StartWorker:
    return connect_without_parking


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


@workflow(name="child", queue="children")
async def child(ctx: Context, n: int) -> int:
    return n


@workflow(name="parent")
async def parent(ctx: Context) -> list[int]:
    first = await ctx.step.run("first", lambda: 1)
    return [first, await ctx.step.run_workflow("child", child, 7)]


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


def withholding_suspensions(item: Item) -> pb.ItemResult | None:
    return None if isinstance(item, pb.Suspension) else ok(item)


def setting_aside(item: Item) -> pb.ItemResult:
    return suspended(item) if isinstance(item, pb.Suspension) else ok(item)


# ---- what is asked ----


async def test_a_handler_that_waits_for_a_run_asks_once_to_be_set_aside_and_says_what_for(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, parent)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    asked = await scripted.log.suspension(token)
    for _ in range(4):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["StepReport", "Suspension"], "asked once, however long it takes"
    assert scripted.log.open_waits(token) == [], "it is not known yet whether they have begun"
    assert scripted.log.held() == {token: "RUNNING"}
    assert asked.steps_recorded == 1 and not asked.park
    [wait] = asked.waits
    assert (wait.step_name, wait.step_seq, wait.group) == ("child", 2, "")
    start = wait.child.start
    assert (start.workflow, start.queue, start.max_attempts) == ("child", "children", 1)
    assert value_of(start.input) == 7
    assert (start.idempotency_key, start.HasField("idempotency_ttl"), start.HasField("priority")) == ("", False, False)


async def test_a_child_is_started_as_the_handler_says(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="says")
    async def says(ctx: Context) -> Any:
        return await ctx.step.run_workflow(
            "c", "by-name", {"a": 1},
            idempotency_key="k", idempotency_ttl=1.5, queue="q", priority=-7, max_attempts=4,
        )  # fmt: skip

    await connect(scripted, says)
    scripted.script.item = lambda item: (
        resolved(item, child_succeeded("c", {"b": [2]})) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("says")
    start = (await scripted.log.suspension(token)).waits[0].child.start
    assert (start.workflow, start.queue, start.priority, start.max_attempts) == ("by-name", "q", -7, 4)
    assert (start.idempotency_key, start.idempotency_ttl.ToMilliseconds()) == ("k", 1500)
    assert value_of(start.input) == {"a": 1}
    assert value_of((await scripted.log.result(token)).output) == {"b": [2]}


async def test_a_child_by_name_leaves_queue_and_attempts_to_the_gateway(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="by-name")
    async def by_name(ctx: Context) -> None:
        await ctx.step.run_workflow("c", "elsewhere")

    await connect(scripted, by_name)
    scripted.script.item = setting_aside
    start = (await scripted.log.suspension(scripted.assign("by-name"))).waits[0].child.start
    assert (start.queue, start.HasField("max_attempts"), value_of(start.input)) == ("", False, None)


async def test_children_awaited_together_are_asked_for_together(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="many")
    async def many(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", child, n) for n in range(20)))

    await connect(scripted, many)
    scripted.script.item = setting_aside
    token = scripted.assign("many")
    asked = await scripted.log.suspension(token)
    assert [wait.step_name for wait in asked.waits] == [f"c{n}" for n in range(20)]
    assert sorted(wait.step_seq for wait in asked.waits) == list(range(1, 21))
    assert scripted.log.said(token) == ["Suspension"]


async def test_of_more_waits_than_a_suspension_names_the_rest_begins_before(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="very-many")
    async def very_many(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", child, n) for n in range(230)))

    await connect(scripted, very_many)
    scripted.script.item = setting_aside
    token = scripted.assign("very-many")
    asked = await scripted.log.suspension(token)
    assert [wait.step_name for wait in asked.waits] == [f"c{n}" for n in range(100)]
    assert [wait.step_name for wait in scripted.log.begun(token)] == [f"c{n}" for n in range(100, 230)]
    assert [len(heard.message.wait.waits) for heard in scripted.log.commands(token)] == [100, 30]
    assert scripted.log.said(token)[-1] == "Suspension"


async def test_runs_of_large_inputs_begin_one_by_one_before_no_message_is_too_large(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="large")
    async def large(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", "child", str(n) * 600_000) for n in range(9)))

    await connect(scripted, large)
    scripted.script.item = setting_aside
    token = scripted.assign("large")
    asked = await scripted.log.suspension(token)
    assert [wait.step_name for wait in asked.waits] == ["c0"]
    assert [wait.step_name for wait in scripted.log.begun(token)] == [f"c{n}" for n in range(1, 9)]
    assert max(heard.message.ByteSize() for heard in scripted.log.requests) < 4 * 1024 * 1024


# ---- answers ----


async def test_resolved_at_once_the_handler_goes_on_where_it_is(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    begun: list[bool] = []

    @workflow(name="goes-on")
    async def goes_on(ctx: Context) -> int:
        begun.append(True)
        value = await ctx.step.run_workflow("child", child, 7)
        return await ctx.step.run("after", lambda: value + 1)

    await connect(scripted, goes_on)
    scripted.script.item = lambda item: (
        resolved(item, child_succeeded("child", 41)) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("goes-on")
    result = await scripted.log.result(token)
    assert value_of(result.output) == 42 and result.steps_recorded == 2
    assert (await scripted.log.report(token, "after")).steps_recorded == 1
    assert begun == [True]


async def test_what_is_resolved_first_goes_on_and_the_rest_is_asked_for_again(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="one-by-one")
    async def one_by_one(ctx: Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", child, n) for n in range(3))))

    def last_one_first(item: Item) -> pb.ItemResult:
        if not isinstance(item, pb.Suspension):
            return ok(item)
        name = item.waits[-1].step_name
        return resolved(item, child_succeeded(name, int(name[1:]) * 10))

    await connect(scripted, one_by_one)
    scripted.script.item = last_one_first
    token = scripted.assign("one-by-one")
    assert value_of((await scripted.log.result(token)).output) == [0, 10, 20]
    asked = [[wait.step_name for wait in it.message.waits] for it in scripted.log.suspensions(token)]
    assert asked == [["c0", "c1", "c2"], ["c0", "c1"], ["c0"]]
    assert [it.message.steps_recorded for it in scripted.log.suspensions(token)] == [0, 1, 2]


async def test_set_aside_the_handler_ends_there_its_clean_up_runs_and_nothing_more_is_said_of_it(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="cleans-up")
    async def cleans_up(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", child, 7)
            noted.append("went on")
        except Exception:
            noted.append("an exception")
        finally:
            noted.append("finally")
            try:
                await ctx.step.run("too-late", lambda: noted.append("executed"))
            except BaseException as error:
                noted.append(type(error).__name__)
            await asyncio.sleep(0.05)
            noted.append("cleaned up")

    await connect(scripted, cleans_up, quick, concurrency=1)
    scripted.script.item = setting_aside
    token = scripted.assign("cleans-up")
    await scripted.log.suspension(token)
    await eventually(lambda: noted[-1:] == ["cleaned up"])
    assert noted == ["finally", "CancelledError", "cleaned up"]
    assert await takes_the_next_run(scripted)
    await scripted.log.beat()
    assert scripted.log.held() == {}
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_run_that_was_set_aside_leaves_its_slot_to_the_next_at_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, parent, quick, concurrency=1)
    scripted.script.item = setting_aside
    for _ in range(20):
        token = scripted.assign("parent")
        await scripted.log.suspension(token)
        await scripted.log.beat()
        assert await takes_the_next_run(scripted)
    assert [ack.message.reject_reason for ack in scripted.log.acks()] == [0] * 40


async def test_canceled_instead_of_set_aside_the_handler_ends_and_reports_nothing(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    ended: list[type[BaseException]] = []

    @workflow(name="canceled")
    async def canceled(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", child, 7)
        except BaseException as error:
            ended.append(type(error))
            raise

    await connect(scripted, canceled, quick, concurrency=1)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_CANCELED) if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("canceled")
    await eventually(lambda: ended)
    assert ended == [asyncio.CancelledError]
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]


@pytest.mark.parametrize("status", [pb.ITEM_STATUS_LEASE_LOST, pb.ITEM_STATUS_MOVED], ids=["LEASE_LOST", "MOVED"])
async def test_a_run_that_was_lost_when_it_asks_ends_without_a_word(
    status: pb.ItemStatus.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    ended: list[bool] = []

    @workflow(name="lost")
    async def lost(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", child, 7)
        finally:
            ended.append(ctx.canceled)

    await connect(scripted, lost, quick, concurrency=1)
    scripted.script.item = lambda item: answer(item, status) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("lost")
    await eventually(lambda: ended)
    assert ended == [True]
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(pb.ITEM_STATUS_INVALID, "non_retriable"), (pb.ITEM_STATUS_TOO_LARGE, "serialization")],
    ids=["INVALID", "TOO_LARGE"],
)
@pytest.mark.parametrize("count", [1, 3])
async def test_waits_that_the_gateway_refuses_fail_the_run_once(
    count: int, status: pb.ItemStatus.ValueType, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="refused")
    async def refused(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run_workflow(f"c{n}", child, n) for n in range(count)))

    await connect(scripted, refused)
    scripted.script.item = lambda item: (
        answer(item, status, message="the gateway says why") if isinstance(item, pb.Suspension) else ok(item)
    )
    token = scripted.assign("refused", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == kind and forbids_retry(failure)
    assert failure.message == "the gateway says why"
    assert scripted.log.said(token) == ["Suspension", "RunResult"]


async def test_an_input_larger_than_the_gateway_takes_is_not_sent(connect: StartWorker, start_scripted: Any) -> None:
    @workflow(name="large")
    async def large(ctx: Context) -> None:
        await ctx.step.run_workflow("c", "child", "x" * 2000)

    scripted = start_scripted(max_payload_bytes=1000)
    await connect(scripted, large)
    token = scripted.assign("large", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "serialization" and "the input of step 'c'" in failure.message
    assert scripted.log.said(token) == ["RunResult"]


# ---- how it ends ----


@pytest.mark.parametrize("kind", ["ChildFailedError", "ChildCanceledError"])
async def test_a_child_that_did_not_succeed_raises_what_became_of_it(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="raises")
    async def raises(ctx: Context) -> int:
        return await ctx.step.run_workflow("child", child, 7)

    await connect(scripted, raises)
    scripted.script.item = lambda item: (
        resolved(item, child_failed("child", kind)) if isinstance(item, pb.Suspension) else ok(item)
    )
    failure = (await scripted.log.result(scripted.assign("raises", max_attempts=5))).failure
    assert failure.type == kind and "run run-7 has failed" in failure.message
    assert (failure.cause.type, failure.cause.message) == ("ValueError", "no money")
    assert not forbids_retry(failure)


async def test_an_output_that_does_not_fit_the_childs_type_fails_the_run(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, parent)
    scripted.script.item = lambda item: (
        resolved(item, child_succeeded("child", "many")) if isinstance(item, pb.Suspension) else ok(item)
    )
    failure = (await scripted.log.result(scripted.assign("parent"))).failure
    assert failure.type == "InputValidationError" and "int" in failure.message
