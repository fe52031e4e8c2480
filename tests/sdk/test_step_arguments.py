"""Arguments of runs and events that a handler asks for: what makes no sense is refused before anything is said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from redflow_sdk import BlockingContext, Context, workflow
from tests.conftest import StartWorker
from tests.sdk.messages import forbids_retry, kind_of
from tests.sdk.scripted_gateway import ScriptedGateway

LATER = datetime(2100, 1, 1, tzinfo=UTC)
NAIVE = datetime(2100, 1, 1)  # noqa: DTZ001  # that is the case


@dataclass(frozen=True)
class Order:
    id: int


@workflow(name="child")
async def child(ctx: Context, order: Order) -> None: ...


@workflow(name="sweep")
async def sweep(ctx: Context) -> None: ...


async def undecorated(ctx: Context) -> None: ...


RUNS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no step name": ("step name", lambda step: step.run_workflow("", child, Order(1))),
    "a long step name": ("step name", lambda step: step.run_workflow("x" * 257, child, Order(1))),
    "a step name that is no text": ("step name", lambda step: step.run_workflow(5, child, Order(1))),
    "no workflow name": ("workflow", lambda step: step.run_workflow("s", "", 1)),
    "a plain function": ("workflow", lambda step: step.run_workflow("s", undecorated)),
    "no workflow": ("workflow", lambda step: step.run_workflow("s", None)),
    "an empty queue": ("queue", lambda step: step.run_workflow("s", child, Order(1), queue="")),
    "a queue with a line break": ("queue", lambda step: step.run_workflow("s", child, Order(1), queue="a\nb")),
    "a high priority": ("priority", lambda step: step.run_workflow("s", child, Order(1), priority=1001)),
    "a low priority": ("priority", lambda step: step.run_workflow("s", child, Order(1), priority=-1001)),
    "a priority between": ("priority", lambda step: step.run_workflow("s", child, Order(1), priority=0.5)),
    "no attempt": ("max_attempts", lambda step: step.run_workflow("s", child, Order(1), max_attempts=0)),
    "a true attempt": ("max_attempts", lambda step: step.run_workflow("s", child, Order(1), max_attempts=True)),
    "an empty key": ("idempotency_key", lambda step: step.run_workflow("s", child, Order(1), idempotency_key="")),
    "a time of nothing": ("idempotency_ttl", lambda step: step.run_workflow("s", child, Order(1), idempotency_ttl=0)),
    "input of another type": ("child", lambda step: step.run_workflow("s", child, {"id": "seven"})),
    "input for none": ("sweep", lambda step: step.run_workflow("s", sweep, 1)),
}
EVENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no step name": ("step name", lambda step: step.emit_event("", "e")),
    "no event name": ("event", lambda step: step.emit_event("s", "")),
    "an event name that is no text": ("event", lambda step: step.emit_event("s", 5)),
    "an empty key": ("idempotency_key", lambda step: step.emit_event("s", "e", idempotency_key="")),
    "an endless time": ("idempotency_ttl", lambda step: step.emit_event("s", "e", idempotency_ttl=float("inf"))),
    "a naive time": ("available_at", lambda step: step.schedule_event("s", "e", available_at=NAIVE)),
    "no time": ("available_at", lambda step: step.schedule_event("s", "e", available_at=None)),
    "seconds": ("available_at", lambda step: step.schedule_event("s", "e", available_at=5.0)),
    "a scheduled event without a name": ("event", lambda step: step.schedule_event("s", "", available_at=LATER)),
}
ALL = [pytest.param(*asks, id=f"run: {what}") for what, asks in RUNS.items()]
ALL += [pytest.param(*asks, id=f"event: {what}") for what, asks in EVENTS.items()]


@pytest.mark.parametrize(("field", "ask"), ALL)
async def test_what_makes_no_sense_fails_the_run_for_good_and_says_which_argument_it_was(
    field: str, ask: Callable[[Any], Any], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="async")
    async def asks(ctx: Context) -> None:
        awaited: Awaitable[object] = ask(ctx.step)
        await awaited

    @workflow(name="def")
    def asks_in_a_thread(ctx: BlockingContext) -> None:
        ask(ctx.step)

    await connect(scripted, asks, asks_in_a_thread)
    for name in ("async", "def"):
        token = scripted.assign(name, max_attempts=5)
        failure = (await scripted.log.result(token)).failure
        assert kind_of(failure) == "validation" and forbids_retry(failure)
        assert field in failure.message
        assert scripted.log.said(token) == ["RunResult"]


@pytest.mark.parametrize("name", ["run", "event"])
async def test_what_is_no_json_fails_the_run_for_good(
    name: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="run")
    async def runs(ctx: Context) -> None:
        await ctx.step.run_workflow("s", "child", {"tags": {1, 2}})

    @workflow(name="event")
    async def emits(ctx: Context) -> None:
        await ctx.step.emit_event("s", "e", {"tags": {1, 2}})

    await connect(scripted, runs, emits)
    token = scripted.assign(name, max_attempts=5)
    failure = (await scripted.log.result(token)).failure
    assert kind_of(failure) == "serialization" and forbids_retry(failure)
    assert "tags" in failure.message
    assert scripted.log.said(token) == ["RunResult"]
