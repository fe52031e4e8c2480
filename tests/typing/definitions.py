"""How workflows are defined: what the checkers see of their inputs and outputs.

These programs are for type checkers: `assert_type` says what they have to see. A line that must be an error carries an
ignore of each of them; an ignore that nothing needs is an error too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, assert_type

from pydantic import BaseModel

from redflow_sdk import (
    BlockingContext,
    Context,
    Cron,
    Failure,
    FailureContext,
    JsonValue,
    RetryPolicy,
    RunInfo,
    Workflow,
    workflow,
)


@dataclass
class Order:
    id: int


class Receipt(BaseModel):
    total: float


class Address(TypedDict):
    street: str
    number: int


async def load(order_id: int) -> Order:
    return Order(order_id)


def price(order: Order, *, discount: float = 0.0) -> float:
    return 1.0 - discount


@workflow(name="charge", retry=RetryPolicy(max_attempts=3), run_timeout=60)
async def charge(ctx: Context, order: Order) -> Receipt:
    assert_type(ctx.run, RunInfo)
    assert_type(ctx.run.attempt, int)
    assert_type(ctx.canceled, bool)
    return Receipt(total=1.0)


@workflow(name="sweep")
async def sweep(ctx: Context) -> int:
    return 5


@workflow(name="resize")
def resize(ctx: BlockingContext, size: int) -> list[int]:
    ctx.raise_if_canceled()
    return [size, size]


@workflow(name="tidy")
def tidy(ctx: BlockingContext) -> None: ...


@workflow
async def bare(ctx: Context, receipt: Receipt) -> Order:
    return Order(1)


@workflow
async def bare_without_input(ctx: Context) -> int:
    return 5


@workflow
def bare_in_a_thread(ctx: BlockingContext, size: int) -> str:
    return ""


@workflow
def bare_in_a_thread_without_input(ctx: BlockingContext) -> str:
    return ""


@workflow(name="send")
async def send(ctx: Context, address: Address) -> Address:
    return address


@workflow(name="look")
async def look(ctx: Context, order: Order | None) -> Order | None:
    return order


@workflow(name="mean")
async def mean(ctx: Context, numbers: list[float]) -> float:
    return sum(numbers)


@workflow(name="turn")
async def turn(ctx: Context, way: Literal["left", "right"]) -> Literal["left", "right"]:
    return way


@workflow(name="any-json")
async def any_json(ctx: Context, document: dict[str, JsonValue]) -> JsonValue:
    return document["id"]


assert_type(charge, Workflow[Order, Receipt])
assert_type(sweep, Workflow[None, int])
assert_type(resize, Workflow[int, list[int]])
assert_type(tidy, Workflow[None, None])
assert_type(bare, Workflow[Receipt, Order])
assert_type(bare_without_input, Workflow[None, int])
assert_type(bare_in_a_thread, Workflow[int, str])
assert_type(bare_in_a_thread_without_input, Workflow[None, str])
assert_type(send, Workflow[Address, Address])
assert_type(look, Workflow[Order | None, Order | None])
assert_type(turn, Workflow[Literal["left", "right"], Literal["left", "right"]])
assert_type(any_json, Workflow[dict[str, JsonValue], JsonValue])


# ---- what stands beside the function ----


async def notify(failed: FailureContext) -> None:
    assert_type(failed.run, RunInfo)
    assert_type(failed.input, object)
    assert_type(failed.error, BaseException)
    assert_type(failed.failure, Failure)


def note(failed: FailureContext) -> None: ...


@workflow(name="daily", cron=[Cron("0 9 * * 1-5", timezone="Europe/Berlin", input={"id": 1})], on_failure=notify)
async def daily(ctx: Context, order: Order) -> None: ...


@workflow(name="paid", events=["paid"], on_failure=note, failure_handler_timeout=5)
def paid(ctx: BlockingContext, order: Order) -> None: ...


assert_type(daily, Workflow[Order, None])
assert_type(paid, Workflow[Order, None])


def misuses() -> None:
    async def of_three(ctx: Context, order: Order, more: int) -> None: ...

    def in_a_thread(ctx: Context, order: Order) -> None: ...

    workflow(of_three)  # type: ignore[arg-type]  # pyright: ignore  # three arguments
    workflow(in_a_thread)  # type: ignore[arg-type]  # pyright: ignore  # a `def` has a BlockingContext
    workflow(name="three")(of_three)  # type: ignore[arg-type]  # pyright: ignore  # three arguments
    Cron(5)  # type: ignore[arg-type]  # pyright: ignore  # no text
    workflow(cron=["@hourly"])  # type: ignore[list-item]  # pyright: ignore  # no Cron
    workflow(on_failure=price)  # type: ignore[arg-type]  # pyright: ignore  # takes no FailureContext
    charge(Order(1))  # type: ignore[operator]  # pyright: ignore  # a run is started by a client
    charge.delay(Order(1))  # type: ignore[attr-defined]  # pyright: ignore  # as above
    workflow(retry=3)  # type: ignore[call-overload]  # pyright: ignore  # no policy
