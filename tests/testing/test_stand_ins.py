"""What stands in the place of steps, child workflows and whoever completes tokens."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from redflow_sdk import (
    BlockingContext,
    CallNext,
    ChildFailedError,
    Context,
    InvalidInputError,
    Middleware,
    RetryPolicy,
    RunFailedError,
    RunInfo,
    StartInfo,
    StepInfo,
    workflow,
)
from redflow_sdk.testing import ExternalEvent, run_inline


@dataclass(frozen=True)
class Receipt:
    id: str
    cents: int


async def charge(order: str, *, cents: int) -> Receipt:
    raise AssertionError("it is not to be called")


class Shop:
    def charge(self, order: str, *, cents: int) -> Receipt:
        raise AssertionError("it is not to be called")


@workflow(retry=RetryPolicy(max_attempts=3))
async def order(ctx: Context, id: str) -> Receipt:
    receipt = await ctx.step.run("charge", charge, id, cents=5)
    assert isinstance(receipt, Receipt)
    return receipt


@workflow
def blocking_order(ctx: BlockingContext, id: str) -> Receipt:
    receipt = ctx.step.run("charge", functools.partial(Shop().charge, cents=5), id)
    assert isinstance(receipt, Receipt)
    return receipt


@pytest.mark.parametrize("played", [order, blocking_order], ids=lambda played: played.name)
async def test_a_value_stands_in_the_place_of_a_function_and_has_its_type(played: object) -> None:
    for value in (Receipt("r-1", 7), {"id": "r-1", "cents": 7}):
        result = await run_inline(played, "A-17", steps={"charge": value})  # type: ignore[call-overload]  # either kind
        assert result.output == Receipt("r-1", 7)


async def test_a_function_is_called_with_the_same_arguments() -> None:
    result = await run_inline(order, "A-17", steps={"charge": lambda order, cents: Receipt(order, cents)})
    assert result.output == Receipt("A-17", 5)
    mock = AsyncMock(return_value=Receipt("r-1", 7))
    assert (await run_inline(order, "A-17", steps={"charge": mock})).output == Receipt("r-1", 7)
    mock.assert_awaited_once_with("A-17", cents=5)


async def test_an_exception_is_raised() -> None:
    for error in (ConnectionError("refused"), ConnectionError):
        result = await run_inline(order, "A-17", steps={"charge": error})
        assert (result.attempts, result.failure and result.failure.type) == (3, "ConnectionError")


async def test_a_mock_fails_first_and_succeeds_then() -> None:
    mock = Mock(side_effect=[ConnectionError("refused"), Receipt("r-1", 7)])
    result = await run_inline(order, "A-17", steps={"charge": mock})
    assert (result.output, result.attempts) == (Receipt("r-1", 7), 2)


async def test_a_value_that_is_no_json_fails_as_it_does_on_a_worker() -> None:
    result = await run_inline(order, "A-17", steps={"charge": {1, 2}})
    assert result.failure is not None
    assert (result.failure.kind, result.attempts) == ("serialization", 1)


# ---- children ----


@workflow
async def render(ctx: Context, receipt: Receipt) -> list[str]:
    return await ctx.step.run("print", lambda: [f"{receipt.id}: {receipt.cents}"])


@workflow
async def parent(ctx: Context, name: str) -> list[str]:
    child: object = render if name == "object" else "render"
    lines: list[str] = await ctx.step.run_workflow("lines", child, Receipt("r", 5))  # type: ignore[call-overload]  # either
    return lines


async def test_a_workflow_that_a_handler_names_is_run_and_its_steps_may_have_stand_ins() -> None:
    result = await run_inline(parent, "object")
    assert (result.output, [run.workflow for run in result.started]) == (["r: 5"], ["render"])
    assert (await run_inline(parent, "object", steps={"print": ["printed"]})).output == ["printed"]


async def test_one_that_it_names_by_text_is_known_by_workflows() -> None:
    assert (await run_inline(parent, "text", workflows=[render])).output == ["r: 5"]
    failure = (await run_inline(parent, "text")).failure
    assert failure is not None
    assert failure.type == "UnknownWorkflowError"


@pytest.mark.parametrize("name", ["object", "text"])
async def test_a_child_is_replaced_by_step_or_by_workflow(name: str) -> None:
    assert (await run_inline(parent, name, children={"render": ["stand-in"]})).output == ["stand-in"]
    by_step = await run_inline(parent, name, steps={"lines": lambda receipt: [str(receipt)]}, workflows=[render])
    assert by_step.output == ["Receipt(id='r', cents=5)"]
    assert [(run.workflow, run.status) for run in by_step.started] == [("render", "succeeded")]


async def test_a_child_that_is_to_fail_fails_as_one_that_was_run() -> None:
    result = await run_inline(parent, "object", children={"render": ValueError("no paper")})
    assert result.failure is not None and result.failure.cause is not None
    assert (result.failure.type, result.failure.cause.type) == (ChildFailedError.__name__, "ValueError")
    assert [run.status for run in result.started] == ["failed"]


# ---- middleware ----


class Tenants(Middleware):
    def start(self, start: StartInfo) -> None:
        start.headers["tenant"] = "acme"

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        return [run.headers["tenant"], await call_next()]

    async def step(self, step: StepInfo, call_next: CallNext) -> object:
        return [step.name, await call_next()]


@workflow
async def of_a_tenant(ctx: Context) -> object:
    return await ctx.step.run("who", lambda: "nobody")


async def test_middleware_is_around_the_run_and_the_stand_ins_of_its_steps() -> None:
    result = await run_inline(of_a_tenant, steps={"who": "Ada"}, middleware=[Tenants()])
    assert result.output == ["acme", ["who", "Ada"]]


# ---- tokens ----


@workflow
async def approve(ctx: Context) -> bool:
    token = await ctx.step.token("approve", bool, timeout=3600)
    try:
        return await token.result()
    except TimeoutError:
        return False


async def test_a_token_is_completed_failed_or_times_out() -> None:
    assert (await run_inline(approve, tokens={"approve": True})).output is True
    late = await run_inline(approve)
    assert (late.output, late.elapsed) == (False, 3600.0)
    failed = await run_inline(approve, tokens={"approve": PermissionError("not you")})
    assert failed.failure is not None
    assert failed.failure.message == "PermissionError: not you"


async def test_what_is_no_function_and_no_run_has_no_stand_in() -> None:
    result = await run_inline(approve, steps={"approve": True})
    assert result.failure is not None
    assert "tokens=" in result.failure.message


# ---- names that nothing uses ----


@workflow
async def sells(ctx: Context, way: str) -> list[str]:
    await ctx.step.wait_for_event("paid", "order.paid", key="A-17", timeout=60)
    if way == "fails":
        raise ValueError(way)
    if way == "waits":
        await ctx.step.wait_for_event("collected", "order.collected")
    return await ctx.step.run_workflow("lines", render, Receipt("r", 5))


USED: dict[str, dict[str, object]] = {"steps": {"print": ["p"]}, "children": {"render": ["p"]}}
NOT_USED: list[tuple[dict[str, Any], str]] = [
    (
        {"steps": {"prnt": ["p"]}},
        "steps= has 'prnt', which nothing has used; the steps that were called: 'lines', 'print'",
    ),
    (
        {"steps": {"print": ["p"], "pint": 1}},
        "steps= has 'pint', which nothing has used; the steps that were called: 'lines', 'print'",
    ),
    (
        {"children": {"rendr": ["p"]}},
        "children= has 'rendr', which nothing has used; the workflows that were started: 'render'",
    ),
    ({"tokens": {"approve": True}}, "tokens= has 'approve', which nothing has used; the steps with a token: none"),
    (
        {"events": [ExternalEvent("order.piad", key="A-17")]},
        "events= has 'order.piad', which nothing has used; the events that were waited for: 'order.paid'",
    ),
]


@pytest.mark.parametrize(
    ("given", "told"), NOT_USED, ids=lambda value: "-".join(value) if isinstance(value, dict) else ""
)
async def test_what_was_given_and_never_used_is_an_error_that_says_what_there_was(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await run_inline(sells, "", **given)
    assert str(raised.value) == told


async def test_what_was_used_in_any_run_or_in_vain_is_no_error() -> None:
    paid = [ExternalEvent("order.paid", key="another"), ExternalEvent("order.paid", key="A-17", after=86400)]
    for given in USED.items():
        result = await run_inline(sells, "", events=paid, **dict([given]))  # type: ignore[arg-type]  # either argument
        assert (result.output, result.unused) == (["p"], ())


async def test_a_run_that_has_failed_or_waits_says_it_only_when_its_output_is_asked_for() -> None:
    for way, error in (("fails", RunFailedError), ("waits", TimeoutError)):
        result = await run_inline(sells, way, steps={"print": ["p"]})
        assert result.unused == ("steps= has 'print', which nothing has used; the steps that were called: none",)
        with pytest.raises(error, match="steps= has 'print'"):
            result.output  # noqa: B018  # it raises


async def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="workflow must be a workflow"):
        await run_inline(charge)  # type: ignore[call-overload]  # that is what is tried
    with pytest.raises(InvalidInputError, match=r"events\[0\] must be an ExternalEvent"):
        await run_inline(approve, events=["go"])  # type: ignore[list-item]  # as above
