"""Waiting for an event: which one is asked for, and what a handler gets of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, Event, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.sdk.messages import forbids_retry, kind_of, ok, open_wait, resolved, timed_out, value_of, wait_over
from tests.sdk.scripted_gateway import ScriptedGateway


@dataclass(frozen=True)
class Payment:
    amount: float
    parts: tuple[str, ...] = ()


got: list[Event[Any] | None] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    got.clear()


@workflow(name="waits-async")
async def waits(ctx: Context) -> None:
    got.append(await ctx.step.wait_for_event("paid", "payment.received", key="o-7", timeout=1.5))


@workflow(name="waits-def")
def waits_blocking(ctx: BlockingContext) -> None:
    got.append(ctx.step.wait_for_event("paid", "payment.received", key="o-7", timeout=1.5))


BOTH = pytest.mark.parametrize("kind", ["async", "def"])


def answered(*steps: pb.StepSnapshot) -> Any:
    """A script that answers the suspension with these."""
    return lambda item: resolved(item, *steps) if isinstance(item, pb.Suspension) else ok(item)


@BOTH
async def test_a_wait_names_event_key_and_time_out_and_gets_the_event(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, waits, waits_blocking)
    scripted.script.item = answered(wait_over("event", "paid", {"amount": 5}))
    token = scripted.assign(f"waits-{kind}")
    assert (await scripted.log.result(token)).HasField("output")
    [wait] = (await scripted.log.suspension(token)).waits
    assert (wait.step_name, wait.event.event_name, wait.event.key) == ("paid", "payment.received", "o-7")
    assert wait.event.timeout.ToMilliseconds() == 1500
    emitted_at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert got == [Event("event of paid", "payment.received", "o-7", {"amount": 5}, emitted_at)]


@BOTH
async def test_a_wait_whose_time_is_over_gives_none(kind: str, scripted: ScriptedGateway, connect: StartWorker) -> None:
    await connect(scripted, waits, waits_blocking)
    scripted.script.item = answered(timed_out("event", "paid"))
    assert (await scripted.log.result(scripted.assign(f"waits-{kind}"))).HasField("output")
    assert got == [None]


@BOTH
async def test_an_event_whose_payload_is_none_is_not_the_end_of_the_time(
    kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, waits, waits_blocking)
    scripted.script.item = answered(wait_over("event", "paid", None))
    assert (await scripted.log.result(scripted.assign(f"waits-{kind}"))).HasField("output")
    [event] = got
    assert event is not None and event.payload is None


@pytest.mark.parametrize("attempt", [1, 4])
@pytest.mark.parametrize("is_in_time", [True, False])
async def test_what_is_on_record_of_a_wait_is_not_asked_for_again(
    is_in_time: bool, attempt: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, waits)
    step = wait_over("event", "paid", [1]) if is_in_time else timed_out("event", "paid")
    token = scripted.assign("waits-async", attempt=attempt, max_attempts=4, steps=[step])
    assert (await scripted.log.result(token)).HasField("output")
    assert [event and event.payload for event in got] == [[1] if is_in_time else None]
    assert scripted.log.said(token) == ["RunResult"]


async def test_a_wait_that_is_open_on_record_is_asked_for_as_the_same_step(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, waits)
    scripted.script.item = answered(wait_over("event", "paid"))
    token = scripted.assign("waits-async", steps=[open_wait("event", "paid", seq=3)])
    await scripted.log.result(token)
    assert [wait.step_seq for wait in (await scripted.log.suspension(token)).waits] == [3]


@pytest.mark.parametrize("key", [None, "", "k"])
async def test_no_key_and_an_empty_one_are_different(
    key: str | None, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="keyed")
    async def keyed(ctx: Context) -> None:
        got.append(await ctx.step.wait_for_event("it", "e", key=key))

    await connect(scripted, keyed)
    scripted.script.item = answered(wait_over("event", "it"))
    token = scripted.assign("keyed")
    await scripted.log.result(token)
    [wait] = (await scripted.log.suspension(token)).waits
    assert (wait.event.key if wait.event.HasField("key") else None) == key
    assert not wait.event.HasField("timeout"), "it waits as long as it takes"
    assert [event and event.key for event in got] == [key]


async def test_the_payload_is_of_the_type_that_the_handler_names(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="typed")
    async def typed(ctx: Context) -> None:
        got.append(await ctx.step.wait_for_event("it", "e", payload_type=Payment))

    await connect(scripted, typed)
    scripted.script.item = answered(wait_over("event", "it", {"amount": 5, "parts": ["a"]}))
    await scripted.log.result(scripted.assign("typed"))
    assert [event and event.payload for event in got] == [Payment(5.0, ("a",))]


async def test_a_payload_of_another_shape_fails_the_run(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="typed")
    async def typed(ctx: Context) -> None:
        await ctx.step.wait_for_event("it", "e", payload_type=Payment)

    await connect(scripted, typed)
    scripted.script.item = answered(wait_over("event", "it", {"amount": "much"}))
    failure = (await scripted.log.result(scripted.assign("typed", max_attempts=3))).failure
    assert kind_of(failure) == "validation" and "amount" in failure.message
    assert "step 'it'" in failure.message


async def test_an_event_without_a_payload_has_none_and_is_an_event_all_the_same(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, waits)
    scripted.script.item = answered(wait_over("event", "paid"))
    await scripted.log.result(scripted.assign("waits-async"))
    assert [(event.id, event.payload) for event in got if event] == [("event of paid", None)]


async def test_an_event_can_be_what_a_handler_returns(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="returns")
    async def returns(ctx: Context) -> Any:
        return await ctx.step.wait_for_event("it", "e", key="k")

    await connect(scripted, returns)
    scripted.script.item = answered(wait_over("event", "it", {"amount": 5}))
    output = value_of((await scripted.log.result(scripted.assign("returns"))).output)
    assert (output["name"], output["key"], output["payload"]) == ("e", "k", {"amount": 5})


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda step: step.wait_for_event("it", ""), "event"),
        (lambda step: step.wait_for_event("it", "e", key=0), "key"),
        (lambda step: step.wait_for_event("it", "e", key=b""), "key"),
        (lambda step: step.wait_for_event("it", "e", key="k" * 257), "key"),
        (lambda step: step.wait_for_event("it", "e", timeout=0), "timeout"),
        (lambda step: step.wait_for_event("it", "e", timeout="soon"), "timeout"),
        (lambda step: step.emit_event("it", "e", key=0), "key"),
    ],
)
async def test_a_wait_that_makes_no_sense_is_not_asked_for(
    ask: Any, word: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="senseless")
    async def senseless(ctx: Context) -> None:
        await ask(ctx.step)

    await connect(scripted, senseless)
    token = scripted.assign("senseless", max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert failure.type == "InvalidInputError" and word in failure.message and forbids_retry(failure)
    assert scripted.log.said(token) == ["RunResult"]
