"""A program as users write it, for the type checker alone: `assert_type` says what it has to see.

Lines that must be an error carry an ignore; an ignore that nothing needs is an error too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_type

from pydantic import BaseModel

from redflow_sdk import (
    BlockingContext,
    BlockingToken,
    CallNext,
    ChildCanceledError,
    ChildFailedError,
    Client,
    Context,
    Cron,
    Event,
    Failure,
    FailureContext,
    Middleware,
    Raced,
    RetryPolicy,
    Run,
    RunFailedError,
    RunHandle,
    RunInfo,
    Schedule,
    StartInfo,
    Step,
    StepInfo,
    SyncClient,
    SyncRunHandle,
    Token,
    TokenFailedError,
    Worker,
    Workflow,
    workflow,
)
from redflow_sdk.records import RunStatus
from redflow_sdk.testing import ExternalEvent, InlineResult, run_inline


@dataclass
class Order:
    id: int


class Receipt(BaseModel):
    total: float


async def load(order_id: int) -> Order:
    return Order(order_id)


def price(order: Order, *, discount: float = 0.0) -> float:
    return 1.0 - discount


# ---- definitions ----


@workflow(name="charge", retry=RetryPolicy(max_attempts=3))
async def charge(ctx: Context, order: Order) -> Receipt:
    assert_type(await ctx.step.run("load", load, order.id), Order)
    assert_type(await ctx.step.run("price", price, order, discount=0.1, timeout=5.0), float)
    assert_type(await ctx.step.run("count", lambda: 5), int)
    assert_type(ctx.run.attempt, int)
    assert_type(ctx.canceled, bool)
    return Receipt(total=1.0)


@workflow(name="sweep")
async def sweep(ctx: Context) -> int:
    return 5


@workflow(name="resize")
def resize(ctx: BlockingContext, size: int) -> list[int]:
    assert_type(ctx.step.run("price", price, Order(size)), float)
    assert_type(ctx.step.run("load", load, size), Order)
    for name, order in ctx.step.each("price each", [Order(1)]):
        assert_type(name, str)
        assert_type(ctx.step.run(name, price, order), float)
    ctx.raise_if_canceled()
    return [size, size]


@workflow(name="tidy")
def tidy(ctx: BlockingContext) -> None: ...


@workflow
async def bare(ctx: Context, order: Order) -> Receipt:
    return Receipt(total=1.0)


@workflow
async def bare_without_input(ctx: Context) -> int:
    return 5


@workflow
def bare_in_a_thread(ctx: BlockingContext, size: int) -> str:
    return ""


@workflow
def bare_in_a_thread_without_input(ctx: BlockingContext) -> str:
    return ""


@workflow(name="each")
async def each(ctx: Context, orders: list[Order]) -> list[float]:
    prices = [await ctx.step.run(name, price, order) for name, order in ctx.step.each("price", orders)]
    assert_type(prices, list[float])
    return prices


# ---- around it, and on its way ----


class Trace(Middleware):
    def start(self, start: StartInfo) -> None:
        assert_type(start.headers, dict[str, str])
        start.headers["trace"] = start.name

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        assert_type(run.headers, Mapping[str, str])
        return await call_next()

    async def step(self, step: StepInfo, call_next: CallNext) -> object:
        assert_type(step.tries, int)
        return await call_next()


class Reversed:
    name = "reversed"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


Client(codec=Reversed(), middleware=[Trace()])
Worker(workflows=[each], codec=Reversed(), middleware=[Trace()])
SyncClient(codec=Reversed(), middleware=[Trace()])


def wrong_codec_and_middleware() -> None:
    Client(codec="reversed")  # type: ignore[arg-type]  # has to be refused
    Worker(workflows=[each], middleware=[print])  # type: ignore[list-item]  # has to be refused


# ---- waits ----


@workflow(name="waits")
async def waits(ctx: Context, order: Order) -> Receipt:
    assert_type(await ctx.step.sleep("nap", minutes=5), None)
    assert_type(await ctx.step.sleep_until("morning", datetime.now(UTC)), None)
    assert_type(await ctx.step.run("tries", load, order.id, retry=RetryPolicy(max_attempts=3)), Order)

    event = await ctx.step.wait_for_event("any", "paid", key="o-7", timeout=3600)
    assert_type(event, Event[Any] | None)
    paid = await ctx.step.wait_for_event("paid", "paid", payload_type=Order)
    assert_type(paid, Event[Order] | None)
    if paid is not None:
        assert_type(paid.payload, Order)
        assert_type(paid.time, datetime | None)

    token = await ctx.step.token("approve", Receipt, timeout=86400)
    assert_type(token, Token[Receipt])
    assert_type(await ctx.step.run("ask", str.upper, token), str)
    assert_type(await (await ctx.step.token("any-token")).result(), Any)
    try:
        assert_type(await token.result(), Receipt)
    except TokenFailedError as error:
        assert_type(error.failure, Failure)

    assert_type(await ctx.step.run_workflow("in-time", charge, order, timeout=5), Receipt)
    assert_type(await ctx.step.start_workflow("on-its-own", charge, order, parent_close="cancel"), str)

    same = await ctx.step.race("same", a=ctx.step.run("a", load, 1), b=ctx.step.run("b", load, 2))
    assert_type(same, Raced[Order])
    assert_type(same.winner, str)
    assert_type(same.value, Order)
    first = await ctx.step.race("or-late", paid=ctx.step.wait_for_event("p", "paid"), late=ctx.step.sleep("l", 5))
    assert_type(first.winner, str)
    return Receipt(total=1.0)


async def misuses(ctx: Context, order: Order) -> None:
    await ctx.step.sleep("nap", "long")  # type: ignore[arg-type]  # no number
    await ctx.step.wait_for_event("paid", "paid", key=7)  # type: ignore[call-overload]  # no text
    await ctx.step.start_workflow("stop", charge, order, parent_close="stop")  # type: ignore[arg-type]  # neither
    await ctx.step.race("values", a=1, b=2)  # type: ignore[arg-type]  # no steps
    await ctx.step.race("unnamed", ctx.step.sleep("l", 5))  # type: ignore[arg-type]  # no name
    await ctx.step.run("tries", load, 5, retry=3)  # type: ignore[call-overload]  # no policy


@workflow(name="waits-in-a-thread")
def waits_in_a_thread(ctx: BlockingContext, order: Order) -> Receipt:
    assert_type(ctx.step.sleep("nap", hours=1), None)
    assert_type(ctx.step.wait_for_event("any", "paid"), Event[Any] | None)
    assert_type(ctx.step.wait_for_event("paid", "paid", payload_type=Order), Event[Order] | None)
    token = ctx.step.token("approve", Receipt)
    assert_type(token, BlockingToken[Receipt])
    assert_type(ctx.step.start_workflow("on-its-own", charge, order), str)
    return token.result()


# ---- runs and events within runs ----


async def notify(context: FailureContext) -> None:
    assert_type(context.run, RunInfo)
    assert_type(context.input, Any)
    assert_type(context.error, BaseException)
    assert_type(context.failure, Failure)


def note(context: FailureContext) -> None: ...


@workflow(
    name="parent", cron=[Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"id": 1}, id="d")], on_failure=notify
)
async def parent(ctx: Context, order: Order) -> float:
    assert_type(await ctx.step.run_workflow("typed", charge, order), Receipt)
    assert_type(await ctx.step.run_workflow("without", sweep), int)
    assert_type(await ctx.step.run_workflow("in-a-thread", resize, 5, queue="q", priority=5, max_attempts=2), list[int])
    assert_type(await ctx.step.run_workflow("nothing", tidy), None)
    assert_type(await ctx.step.run_workflow("by-name", "charge", {"id": 1}, idempotency_key="k"), Any)
    assert_type(await ctx.step.emit_event("event", "paid", order, key="o-7", idempotency_ttl=5), list[str])
    assert_type(await ctx.step.schedule_event("later", "paid", available_at=datetime.now(UTC)), list[str])
    try:
        await ctx.step.run_workflow("fails", charge, order)
    except (ChildFailedError, ChildCanceledError) as error:
        assert_type(error.failure, Failure)

    await ctx.step.run_workflow("no-order", charge, 5)  # type: ignore[misc]  # no Order
    await ctx.step.run_workflow("no-workflow", load, 5)  # type: ignore[call-overload]  # no workflow
    await ctx.step.run_workflow("loud", charge, order, priority="high")  # type: ignore[call-overload]  # no int
    await ctx.step.schedule_event("never", "paid")  # type: ignore[call-arg]  # no time
    await ctx.step.emit_event("k", "paid", idempotency_key=5)  # type: ignore[arg-type]  # no text
    return 1.0


@workflow(name="parent-in-a-thread", events=["paid"], on_failure=note, failure_handler_timeout=5)
def parent_in_a_thread(ctx: BlockingContext, order: Order) -> None:
    assert_type(ctx.step.run_workflow("typed", charge, order), Receipt)
    assert_type(ctx.step.run_workflow("by-name", "charge", {"id": 1}), Any)
    assert_type(ctx.step.emit_event("event", "paid", order), list[str])
    assert_type(ctx.step.schedule_event("later", "paid", available_at=datetime.now(UTC)), list[str])
    ctx.step.run_workflow("no-order", charge, 5)  # type: ignore[misc]  # no Order


def defines() -> None:
    Cron("@hourly", input=Order(1))
    Cron("@hourly", input=None)
    Cron(5)  # type: ignore[arg-type]  # no text
    workflow(cron=["@hourly"])  # type: ignore[list-item]  # no Cron
    workflow(on_failure=price)  # type: ignore[arg-type]  # takes no FailureContext


assert_type(parent, Workflow[Order, float])
assert_type(parent_in_a_thread, Workflow[Order, None])
assert_type(charge, Workflow[Order, Receipt])
assert_type(sweep, Workflow[None, int])
assert_type(resize, Workflow[int, list[int]])
assert_type(tidy, Workflow[None, None])
assert_type(bare, Workflow[Order, Receipt])
assert_type(bare_without_input, Workflow[None, int])
assert_type(bare_in_a_thread, Workflow[int, str])
assert_type(bare_in_a_thread_without_input, Workflow[None, str])


# ---- clients ----


async def starts(client: Client) -> None:
    handle = await client.start(charge, Order(1), idempotency_key="k", priority=5)
    assert_type(handle, RunHandle[Receipt])
    assert_type(await handle.result(timeout=30), Receipt)
    assert_type(await client.execute(charge, Order(1)), Receipt)
    assert_type(await client.execute(sweep), int)
    assert_type(await client.execute(resize, 7), list[int])
    assert_type(await client.start(tidy), RunHandle[None])
    assert_type(await client.start("charge", {"id": 1}), RunHandle[Any])
    assert_type(await client.cancel_run(handle.id, reason="customer left"), bool)

    await client.start(charge, Receipt(total=1.0))  # type: ignore[misc]  # no Order
    await client.start(resize, "large")  # type: ignore[misc]  # no int
    await client.start(charge, Order(1), on_input_mismatch="ignore")  # type: ignore[call-overload]  # neither of the two
    await client.start(charge, Order(1), priority="high")  # type: ignore[call-overload]  # no int


async def looks(client: Client) -> None:
    run = await client.get_run("run-1")
    assert_type(run, Run)
    assert_type(run.failure, Failure | None)
    assert_type(await client.get_run_steps("run-1"), list[Step])
    assert_type(await client.list_runs(status="failed").page(limit=5), list[Run])
    async for listed in client.list_runs(workflow="charge"):
        assert_type(listed, Run)
    client.list_runs(status="lost")  # type: ignore[arg-type]  # no status
    try:
        await client.execute(charge, Order(1))
    except RunFailedError as error:
        assert_type(error.failure, Failure | None)


async def emits(client: Client) -> None:
    assert_type(await client.emit_event("paid", Order(1), idempotency_key="k"), list[str])
    assert_type(await client.schedule_event("paid", available_at=datetime.now(UTC)), list[str])
    assert_type(await client.list_schedules(), list[Schedule])
    assert_type(await client.emit_event("paid", key="o-7"), list[str])
    await client.complete_token("tok", Receipt(total=1.0))
    await client.fail_token("tok", "too dear", type="Rejected")


def blocks(client: SyncClient) -> None:
    handle = client.start(charge, Order(1), idempotency_key="k", priority=5)
    assert_type(handle, SyncRunHandle[Receipt])
    assert_type(handle.result(timeout=30), Receipt)
    assert_type(handle.get(), Run)
    assert_type(client.execute(charge, Order(1)), Receipt)
    assert_type(client.execute(sweep), int)
    assert_type(client.execute(resize, 7, timeout=5), list[int])
    assert_type(client.execute("charge", {"id": 1}), Any)
    assert_type(client.start(tidy), SyncRunHandle[None])
    assert_type(client.start("charge", {"id": 1}), SyncRunHandle[Any])
    assert_type(client.handle(handle.id), SyncRunHandle[Any])
    assert_type(client.list_runs(status="failed").page(limit=5), list[Run])
    for listed in client.list_runs(workflow="charge"):
        assert_type(listed, Run)
    assert_type(client.wait_run(handle.id, 5), Run | None)
    assert_type(client.emit_event("paid", Order(1), key="o-7"), list[str])
    with client as same:
        assert_type(same, SyncClient)

    client.start(charge, Receipt(total=1.0))  # type: ignore[misc]  # no Order
    client.execute(resize, "large")  # type: ignore[misc]  # no int
    client.start(charge, Order(1), on_input_mismatch="ignore")  # type: ignore[call-overload]  # neither of the two
    client.list_runs(status="lost")  # type: ignore[arg-type]  # no status


# ---- workers ----


async def works() -> None:
    worker = Worker("localhost:7379", workflows=[charge, sweep, resize, tidy], concurrency=50, park_window=10)
    async with worker as same:
        assert_type(same, Worker)
    await worker.drain(grace=5)
    await worker.stop()
    await worker.run()
    Worker(workflows=[load])  # type: ignore[list-item]  # no workflow
    Worker(workflows=[charge], concurrency="many")  # type: ignore[arg-type]  # no int


# ---- tests ----


async def tests() -> None:
    result = await run_inline(charge, Order(1), steps={"charge": Receipt(total=1.0)}, events=[ExternalEvent("paid")])
    assert_type(result, InlineResult[Receipt])
    assert_type(result.output, Receipt)
    assert_type(result.failure, Failure | None)
    assert_type((await run_inline(sweep)).status, RunStatus)
    await run_inline(charge, 1)  # type: ignore[misc]  # no order
    await run_inline(charge, Order(1), events=["paid"])  # type: ignore[list-item]  # no event
