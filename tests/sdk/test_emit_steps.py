"""Events that a handler emits: a step each, whose value is the runs that it started."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import answer, emitted, forbids_retry, kind_of, ok, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item


@workflow(name="announces")
async def announces(ctx: Context) -> list[str]:
    await ctx.step.run("before", lambda: None)
    return await ctx.step.emit_event("announce", "order.paid", {"id": 7})


@workflow(name="announces-in-a-thread")
def announces_in_a_thread(ctx: BlockingContext) -> list[str]:
    ctx.step.run("before", lambda: None)
    return ctx.step.emit_event("announce", "order.paid", {"id": 7})


BOTH = pytest.mark.parametrize("name", ["announces", "announces-in-a-thread"])


def emitting(item: Item) -> pb.ItemResult:
    """Two runs subscribe to every event."""
    if not isinstance(item, pb.StepCommand):
        return ok(item)
    return answer(item, pb.ITEM_STATUS_OK, resolutions=[emitted(item.step_name, "run-8", "run-9", seq=item.step_seq)])


@BOTH
async def test_an_event_is_emitted_by_the_gateway_which_says_what_it_started(
    name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, announces, announces_in_a_thread)
    scripted.script.item = emitting
    token = scripted.assign(name)
    result = await scripted.log.result(token)
    assert value_of(result.output) == ["run-8", "run-9"] and result.steps_recorded == 2
    [command] = [heard.message for heard in scripted.log.commands(token)]
    assert (command.step_name, command.step_seq, command.steps_recorded) == ("announce", 2, 1)
    emit = command.emit_event
    assert (emit.event_name, value_of(emit.payload)) == ("order.paid", {"id": 7})
    assert (emit.idempotency_key, emit.HasField("idempotency_ttl"), emit.HasField("delay")) == ("", False, False)
    assert scripted.log.said(token) == ["StepReport", "StepCommand", "RunResult"]


@BOTH
async def test_an_event_on_record_is_not_emitted_again(
    name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, announces, announces_in_a_thread)
    token = scripted.assign(name, attempt=3, max_attempts=3, steps=[emitted("announce", "run-8")])
    assert value_of((await scripted.log.result(token)).output) == ["run-8"]
    assert scripted.log.said(token) == ["StepReport", "RunResult"]


async def test_an_event_that_nobody_subscribes_to_starts_no_run(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, announces)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_OK, resolutions=[emitted("announce")])
        if isinstance(item, pb.StepCommand)
        else ok(item)
    )
    assert value_of((await scripted.log.result(scripted.assign("announces"))).output) == []


async def test_an_answer_that_was_lost_with_the_stream_comes_to_the_same_command(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, announces)
    scripted.script.item = lambda item: None if isinstance(item, pb.StepCommand) else ok(item)
    token = scripted.assign("announces")
    first = await scripted.log.command(token)
    scripted.script.item = emitting
    scripted.session.cut()
    assert value_of((await scripted.log.result(token)).output) == ["run-8", "run-9"]
    assert [heard.message for heard in scripted.log.commands(token)] == [first, first]


async def test_a_key_and_its_time_come_along(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="keyed")
    async def keyed(ctx: Context) -> None:
        await ctx.step.emit_event("announce", "e", idempotency_key="k", idempotency_ttl=0.25)

    await connect(scripted, keyed)
    scripted.script.item = emitting
    emit = (await scripted.log.command(scripted.assign("keyed"))).emit_event
    assert (emit.idempotency_key, emit.idempotency_ttl.ToMilliseconds()) == ("k", 250)
    assert value_of(emit.payload) is None


@pytest.mark.parametrize("key", [None, "", "o-7"])
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_no_key_of_the_event_and_an_empty_one_are_different(
    kind: str, key: str | None, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="async")
    async def keyed(ctx: Context) -> None:
        await ctx.step.emit_event("announce", "e", key=key)

    @workflow(name="def")
    def keyed_in_a_thread(ctx: BlockingContext) -> None:
        ctx.step.emit_event("announce", "e", key=key)

    await connect(scripted, keyed, keyed_in_a_thread)
    scripted.script.item = emitting
    emit = (await scripted.log.command(scripted.assign(kind))).emit_event
    assert (emit.key if emit.HasField("key") else None) == key


@pytest.mark.parametrize(
    "at",
    [
        datetime(2031, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC),
        datetime(2031, 5, 6, 12, 38, 9, 250_000, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2001, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC),
    ],
    ids=["in UTC", "in another zone", "in the past"],
)
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_a_scheduled_event_says_when_its_runs_start(
    kind: str, at: datetime, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="async")
    async def schedules(ctx: Context) -> list[str]:
        return await ctx.step.schedule_event("remind", "e", {"a": 1}, available_at=at, idempotency_key="k")

    @workflow(name="def")
    def schedules_in_a_thread(ctx: BlockingContext) -> list[str]:
        return ctx.step.schedule_event("remind", "e", {"a": 1}, available_at=at, idempotency_key="k")

    await connect(scripted, schedules, schedules_in_a_thread)
    scripted.script.item = emitting
    token = scripted.assign(kind)
    emit = (await scripted.log.command(token)).emit_event
    assert emit.available_time.ToMilliseconds() == at.timestamp() * 1000
    assert (emit.event_name, emit.idempotency_key, value_of(emit.payload)) == ("e", "k", {"a": 1})
    assert value_of((await scripted.log.result(token)).output) == ["run-8", "run-9"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(pb.ITEM_STATUS_INVALID, "non_retriable"), (pb.ITEM_STATUS_TOO_LARGE, "serialization")],
    ids=["INVALID", "TOO_LARGE"],
)
async def test_an_event_that_the_gateway_refuses_fails_the_run(
    status: pb.ItemStatus.ValueType, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, announces)
    scripted.script.item = lambda item: (
        answer(item, status, message="why") if isinstance(item, pb.StepCommand) else ok(item)
    )
    failure = (await scripted.log.result(scripted.assign("announces", max_attempts=5))).failure
    assert (kind_of(failure), failure.message) == (kind, "why") and forbids_retry(failure)


async def test_a_payload_larger_than_the_gateway_takes_is_not_sent(connect: StartWorker, start_scripted: Any) -> None:
    @workflow(name="large")
    async def large(ctx: Context) -> None:
        await ctx.step.emit_event("announce", "e", "x" * 2000)

    scripted = start_scripted(max_payload_bytes=1000)
    await connect(scripted, large)
    token = scripted.assign("large")
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "serialization" and "the payload of step 'announce'" in failure.message
    assert scripted.log.said(token) == ["RunResult"]


async def test_a_run_that_was_lost_when_it_emits_ends_without_a_word(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    ended: list[type[BaseException]] = []

    @workflow(name="lost")
    async def lost(ctx: Context) -> None:
        try:
            await ctx.step.emit_event("announce", "e")
        except BaseException as error:
            ended.append(type(error))
            raise

    await connect(scripted, lost)
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_LEASE_LOST) if isinstance(item, pb.StepCommand) else ok(item)
    )
    token = scripted.assign("lost")
    await eventually(lambda: ended)
    assert [kind.__name__ for kind in ended] == ["CancelledError"]
    assert scripted.log.said(token) == ["StepCommand"]
