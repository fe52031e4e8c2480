"""What an `async def` handler gets of its steps."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import assert_type

from redflow_sdk import (
    ChildCanceledError,
    ChildFailedError,
    Context,
    Event,
    Failure,
    JsonValue,
    Raced,
    RetryPolicy,
    Token,
    TokenFailedError,
)
from tests.typing.definitions import (
    Address,
    Order,
    Receipt,
    any_json,
    charge,
    load,
    look,
    mean,
    price,
    resize,
    send,
    sweep,
    tidy,
    turn,
)


class Shop:
    async def find(self, order_id: int, *, is_open: bool) -> Order:
        return Order(order_id)


async def functions(ctx: Context, order: Order) -> None:
    assert_type(await ctx.step.run("async", load, order.id), Order)
    assert_type(await ctx.step.run("sync", price, order, discount=0.1, timeout=5.0), float)
    assert_type(await ctx.step.run("method", Shop().find, 5, is_open=True), Order)
    assert_type(await ctx.step.run("lambda", lambda: 5), int)
    assert_type(await ctx.step.run("async lambda", lambda: load(5)), Order)
    assert_type(await ctx.step.run("partial", partial(price, order)), float)
    assert_type(await ctx.step.run("nothing", print, "a", "b"), None)
    assert_type(await ctx.step.run("class", Order, 5), Order)
    assert_type(await ctx.step.run("tries", load, order.id, retry=RetryPolicy(max_attempts=3)), Order)
    prices = [await ctx.step.run(name, price, each) for name, each in ctx.step.each("price", [order])]
    assert_type(prices, list[float])


async def times(ctx: Context) -> None:
    assert_type(await ctx.step.sleep("nap", minutes=5), None)
    assert_type(await ctx.step.sleep_until("morning", datetime.now(UTC)), None)


async def events(ctx: Context, order: Order) -> None:
    event = await ctx.step.wait_for_event("any", "paid", key="o-7", timeout=3600)
    assert_type(event, Event[JsonValue] | None)
    if event is not None and isinstance(event.payload, dict):
        known: dict[str, JsonValue] = event.payload
        assert_type(list(known), list[str])

    paid = await ctx.step.wait_for_event("paid", "paid", payload_type=Order)
    assert_type(paid, Event[Order] | None)
    if paid is not None:
        assert_type(paid.payload, Order)
        assert_type(paid.time, datetime | None)
    assert_type(await ctx.step.wait_for_event("model", "paid", payload_type=Receipt), Event[Receipt] | None)
    assert_type(await ctx.step.wait_for_event("dict", "paid", payload_type=Address), Event[Address] | None)
    assert_type(await ctx.step.wait_for_event("list", "paid", payload_type=list[Order]), Event[list[Order]] | None)

    either = await ctx.step.wait_for_event("either", "paid", payload_type=Order | Receipt)
    if either is not None and isinstance(either.payload, Order):
        assert_type(either.payload, Order)

    assert_type(await ctx.step.emit_event("event", "paid", order, key="o-7", idempotency_ttl=5), list[str])
    assert_type(await ctx.step.schedule_event("later", "paid", available_at=datetime.now(UTC)), list[str])


async def tokens(ctx: Context) -> None:
    token = await ctx.step.token("approve", Receipt, timeout=86400)
    assert_type(token, Token[Receipt])
    assert_type(await ctx.step.run("ask", str.upper, token), str)
    assert_type(await (await ctx.step.token("any-token")).result(), JsonValue)
    either = await (await ctx.step.token("union", Order | None)).result()
    if isinstance(either, Order):
        assert_type(either, Order)
    try:
        assert_type(await token.result(), Receipt)
    except TokenFailedError as error:
        assert_type(error.failure, Failure)


async def runs(ctx: Context, order: Order) -> None:
    assert_type(await ctx.step.run_workflow("typed", charge, order, timeout=5), Receipt)
    assert_type(await ctx.step.run_workflow("without", sweep), int)
    assert_type(await ctx.step.run_workflow("in-a-thread", resize, 5, queue="q", priority=5, max_attempts=2), list[int])
    assert_type(await ctx.step.run_workflow("nothing", tidy), None)
    assert_type(await ctx.step.run_workflow("dict", send, {"street": "Main", "number": 5}), Address)
    assert_type(await ctx.step.run_workflow("none", look, None), Order | None)
    assert_type(await ctx.step.run_workflow("by-name", "charge", {"id": 1}, idempotency_key="k"), JsonValue)
    try:
        await ctx.step.run_workflow("fails", charge, order)
    except (ChildFailedError, ChildCanceledError) as error:
        assert_type(error.failure, Failure)

    assert_type(await ctx.step.start_workflow("on-its-own", charge, order, parent_close="cancel"), str)
    assert_type(await ctx.step.start_workflow("without input", sweep), str)
    assert_type(await ctx.step.start_workflow("numbers", mean, [1, 2]), str)
    assert_type(await ctx.step.start_workflow("literal", turn, "left"), str)
    assert_type(await ctx.step.start_workflow("json", any_json, {"id": [1, {"of": "a"}]}), str)
    assert_type(await ctx.step.start_workflow("name", "charge", {"id": 1}), str)


async def races(ctx: Context) -> None:
    same = await ctx.step.race("same", a=ctx.step.run("a", load, 1), b=ctx.step.run("b", load, 2))
    assert_type(same, Raced[Order])
    assert_type(same.winner, str)
    assert_type(same.value, Order)
    # What members of several types have in common, the checkers do not agree on.
    first = await ctx.step.race("or late", paid=ctx.step.token("paid", Receipt), late=ctx.step.sleep("l", 5))
    assert_type(first.winner, str)


async def misuses(ctx: Context, order: Order) -> None:
    await ctx.step.run("no function", 5)  # type: ignore[call-overload]  # pyright: ignore  # no function
    await ctx.step.run("tries", load, 5, retry=3)  # type: ignore[call-overload]  # pyright: ignore  # no policy
    await ctx.step.sleep("nap", "long")  # type: ignore[arg-type]  # pyright: ignore  # no number
    await ctx.step.wait_for_event("paid", "paid", key=7)  # type: ignore[call-overload]  # pyright: ignore  # no text
    await ctx.step.schedule_event("never", "paid")  # type: ignore[call-arg]  # pyright: ignore  # no time
    await ctx.step.emit_event("k", "paid", idempotency_key=5)  # type: ignore[arg-type]  # pyright: ignore  # no text
    await ctx.step.race("values", a=1)  # type: ignore[arg-type]  # pyright: ignore  # no step
    await ctx.step.race("unnamed", ctx.step.sleep("l", 5))  # type: ignore[arg-type]  # pyright: ignore  # no name


async def misuses_of_runs(ctx: Context, order: Order) -> None:
    await ctx.step.run_workflow("no-order", charge, 5)  # type: ignore[arg-type]  # pyright: ignore  # no Order
    await ctx.step.run_workflow("nothing", charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    await ctx.step.run_workflow("other", send, {"street": 5})  # type: ignore[arg-type]  # pyright: ignore  # no Address
    await ctx.step.run_workflow("something", sweep, 5)  # type: ignore[misc]  # pyright: ignore  # takes no input
    await ctx.step.run_workflow("no-workflow", load, 5)  # type: ignore[call-overload]  # pyright: ignore  # no workflow
    await ctx.step.run_workflow("loud", charge, order, priority="high")  # type: ignore[call-overload]  # pyright: ignore  # no int
    await ctx.step.start_workflow("no-order", charge, 5)  # type: ignore[arg-type]  # pyright: ignore  # no Order
    await ctx.step.start_workflow("nothing", charge)  # type: ignore[arg-type]  # pyright: ignore  # no input
    await ctx.step.start_workflow("stop", charge, order, parent_close="stop")  # type: ignore[call-overload]  # pyright: ignore  # neither
