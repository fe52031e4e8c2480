"""The workflows of the demo. What they do to the world is a line in the journal, so that it can be counted."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

from redflow_sdk import Context, Cron, FailureContext, RetryPolicy, workflow

WORKER = os.environ.get("REDFLOW_DEMO_WORKER", "worker")
JOURNAL = os.environ.get("REDFLOW_DEMO_JOURNAL", os.devnull)

PATIENT = RetryPolicy(max_attempts=5, initial=0.3, multiplier=2.0, maximum=2.0)


@dataclass(frozen=True)
class Order:
    """What the client orders."""

    id: str
    items: list[str]
    cents: int


def note(run_id: str, what: str) -> None:
    """One line in the journal, whole, with the moment of the machine's clock that all its processes share."""
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, f"{time.monotonic()}\t{WORKER}\t{run_id}\t{what}\n".encode())
    finally:
        os.close(journal)


@workflow(name="invoice", queue="office")
async def invoice(ctx: Context, order: Order) -> str:
    """A run of its own, for which the order waits without taking up a slot."""
    await ctx.step.run("write", note, ctx.run.id, f"invoice over {order.cents} cents")
    return f"invoice-{order.id}"


@workflow(name="order", queue="shop", retry=PATIENT)
async def order(ctx: Context, order: Order) -> dict[str, object]:
    """Reserves, charges, packs and ships."""
    run_id, attempt = ctx.run.id, ctx.run.attempt

    def reserve() -> int:
        note(run_id, f"reserve {len(order.items)} items")
        return len(order.items)

    def charge() -> str:
        note(run_id, f"charge card, attempt {attempt}")
        if attempt <= 2:
            raise ConnectionError("the bank does not answer")
        return f"receipt-{order.id}"

    async def pack() -> int:
        note(run_id, "pack begins")
        await asyncio.sleep(2.0)
        note(run_id, "pack ends")
        return len(order.items)

    def ship() -> str:
        note(run_id, "ship")
        return f"parcel-{order.id}"

    reserved = await ctx.step.run("reserve", reserve)
    receipt = await ctx.step.run("charge", charge)
    billed = await ctx.step.run_workflow("invoice", invoice, order)
    await ctx.step.run("pack", pack)
    parcel = await ctx.step.run("ship", ship)
    return {"reserved": reserved, "receipt": receipt, "invoice": billed, "parcel": parcel}


@workflow(name="remind", queue="shop")
async def remind(ctx: Context, customer: str) -> str:
    """A run that is started for later."""
    await ctx.step.run("send", note, ctx.run.id, f"remind {customer}")
    return f"reminded {customer}"


@workflow(name="inventory", queue="shop")
async def inventory(ctx: Context) -> int:
    """Takes for ever, unless it is canceled."""
    await ctx.step.run("count", count_for_ever, ctx.run.id)
    return 0


async def count_for_ever(run_id: str) -> None:
    """Ends only by a cancellation."""
    note(run_id, "count begins")
    try:
        await asyncio.Event().wait()
    finally:
        note(run_id, "count is interrupted")


@workflow(name="close-till", queue="shop", events=["shop.closing"])
async def close_till(ctx: Context, closing: dict[str, int]) -> str:
    """One of two subscribers of an event."""
    await ctx.step.run("close", note, ctx.run.id, f"close till {closing['till']}")
    return f"closed till {closing['till']}"


@workflow(name="lights-out", queue="shop", events=["shop.closing"])
async def lights_out(ctx: Context) -> str:
    """The other one."""
    await ctx.step.run("switch", note, ctx.run.id, "lights out")
    return "lights out"


@workflow(name="pulse", queue="office", cron=[Cron("* * * * * *")])
async def pulse(ctx: Context) -> str:
    """Once a second, whoever is there to run it."""
    return ctx.run.id


def tell_support(context: FailureContext) -> None:
    """Is called when a refund has failed for good, before anybody sees it as failed."""
    note(context.run.id, f"support is told: {context.error}")


@workflow(name="refund", queue="office", retry=RetryPolicy(max_attempts=2, initial=0.2), on_failure=tell_support)
async def refund(ctx: Context, cents: int) -> None:
    """Never succeeds."""
    raise ConnectionError(f"nobody takes {cents} cents")


app = [order, invoice, remind, inventory, close_till, lights_out, pulse, refund]
