"""What a `def` handler gets of its steps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

from redflow_sdk import BlockingContext, BlockingToken, Event, JsonValue
from tests.typing.definitions import Address, Order, Receipt, charge, load, price, send, sweep


def functions(ctx: BlockingContext, order: Order) -> None:
    assert_type(ctx.step.run("sync", price, order, discount=0.1), float)
    assert_type(ctx.step.run("async", load, 5), Order)
    assert_type(ctx.step.run("lambda", lambda: 5), int)
    for name, each in ctx.step.each("price each", [order]):
        assert_type(name, str)
        assert_type(ctx.step.run(name, price, each), float)


def waits(ctx: BlockingContext, order: Order) -> Receipt:
    assert_type(ctx.step.sleep("nap", hours=1), None)
    assert_type(ctx.step.sleep_until("morning", datetime.now(UTC)), None)
    assert_type(ctx.step.wait_for_event("any", "paid"), Event[JsonValue] | None)
    assert_type(ctx.step.wait_for_event("paid", "paid", payload_type=Order), Event[Order] | None)
    assert_type(ctx.step.token("any-token").result(), JsonValue)
    assert_type(ctx.step.token("either", Order | Receipt).result(), object)
    token = ctx.step.token("approve", Receipt)
    assert_type(token, BlockingToken[Receipt])
    return token.result()


def runs(ctx: BlockingContext, order: Order) -> None:
    assert_type(ctx.step.run_workflow("typed", charge, order), Receipt)
    assert_type(ctx.step.run_workflow("without", sweep), int)
    assert_type(ctx.step.run_workflow("dict", send, {"street": "Main", "number": 5}), Address)
    assert_type(ctx.step.run_workflow("by-name", "charge", {"id": 1}), JsonValue)
    assert_type(ctx.step.start_workflow("on-its-own", charge, order), str)
    assert_type(ctx.step.emit_event("event", "paid", order), list[str])
    assert_type(ctx.step.schedule_event("later", "paid", available_at=datetime.now(UTC)), list[str])


def misuses(ctx: BlockingContext, order: Order) -> None:
    ctx.step.sleep("nap", "long")  # type: ignore[arg-type]  # pyright: ignore  # no number
    ctx.step.wait_for_event("paid", "paid", key=7)  # type: ignore[call-overload]  # pyright: ignore  # no text
    ctx.step.run_workflow("no-order", charge, 5)  # type: ignore[arg-type]  # pyright: ignore  # no Order
    ctx.step.run_workflow("nothing", charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    ctx.step.start_workflow("no-order", charge, 5)  # type: ignore[arg-type]  # pyright: ignore  # no Order
