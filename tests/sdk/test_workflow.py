"""Defining workflows: the forms of the decorator, what it refuses, and when a definition counts as changed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from redflow_sdk import (
    BlockingContext,
    Context,
    InputValidationError,
    InvalidInputError,
    RetryPolicy,
    SerializationError,
    Worker,
    Workflow,
    workflow,
)
from redflow_sdk.proto.v1 import workflow_pb2
from tests.conftest import StartWorker
from tests.sdk.conftest import StartScripted
from tests.sdk.messages import payload, value_of
from tests.sdk.scripted_gateway import ScriptedGateway


@dataclass
class Order:
    id: int


# ---- forms ----


def test_a_bare_decorator_takes_everything_from_the_function() -> None:
    @workflow
    async def send_receipt(ctx: Context, order: Order) -> list[str]:
        return []

    assert isinstance(send_receipt, Workflow)
    assert (send_receipt.name, send_receipt.queue, send_receipt.max_attempts) == ("send_receipt", "default", 1)
    assert (send_receipt.takes_input, send_receipt.input_type) == (True, Order)
    assert send_receipt.output_type == list[str]
    assert send_receipt.is_async


def test_a_decorator_with_arguments_says_what_differs() -> None:
    policy = RetryPolicy(max_attempts=3)

    @workflow(name="receipts", queue="mail", retry=policy, events=["a", "b"], run_timeout=60, start_timeout=5)
    def send(ctx: BlockingContext) -> None: ...

    assert (send.name, send.queue, send.retry, send.max_attempts) == ("receipts", "mail", policy, 3)
    assert (send.events, send.run_timeout, send.start_timeout) == (("a", "b"), 60, 5)
    assert not send.takes_input and not send.is_async


def test_a_decorator_with_empty_parentheses_is_the_bare_one() -> None:
    @workflow()
    async def empty(ctx: Context) -> None: ...

    assert empty.name == "empty"


def test_a_function_without_annotations_takes_and_gives_anything() -> None:
    @workflow(name="untyped")
    async def untyped(ctx, value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # that is the case
        return value

    assert (untyped.input_type, untyped.output_type) == (Any, Any)
    assert untyped.validate({"a": [1]}) == b'{"a":[1]}'


def test_a_definition_cannot_be_changed() -> None:
    @workflow
    async def fixed(ctx: Context) -> None: ...

    with pytest.raises(FrozenInstanceError):
        fixed.queue = "another"  # type: ignore[misc]  # that is the case


def test_what_is_done_with_a_task_of_another_library_says_how_a_run_is_started() -> None:
    @workflow(name="ship it")
    async def ship(ctx: Context, order: Order) -> None: ...

    for call in (
        lambda: ship(Order(1)),  # type: ignore[operator]  # that is the case
        lambda: ship.delay(Order(1)),  # type: ignore[attr-defined]  # as above
        lambda: ship.apply_async((1,), countdown=5),  # type: ignore[attr-defined]  # as above
    ):
        with pytest.raises(
            (TypeError, AttributeError), match=r"client\.start\(ship, \.\.\.\).*ctx\.step\.run_workflow"
        ):
            call()
    with pytest.raises(AttributeError, match=r"^a workflow has no 'colour'$"):
        ship.colour  # type: ignore[attr-defined]  # noqa: B018  # as above
    assert copy.deepcopy(ship).name == "ship it"
    with pytest.raises(InvalidInputError, match="on_failure must be a function"):
        workflow(on_failure=ship)(traced)  # type: ignore[arg-type]  # as above


def traced(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> Awaitable[Any]:
        return function(*args, **kwargs)

    return wrapper


async def test_a_handler_in_a_wrapper_that_keeps_its_name_is_the_handler(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow
    @traced
    async def wrapped(ctx: Context, n: int) -> int:
        return await ctx.step.run("a", lambda: n + 1)

    assert (wrapped.name, wrapped.input_type) == ("wrapped", int)
    await connect(scripted, wrapped)
    result = await scripted.log.result(scripted.assign("wrapped", payload(1)))
    assert value_of(result.output) == 2


def logged(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def wrapper(*args: object) -> Any:
        return function(*args)

    return wrapper


async def test_a_handler_is_async_when_its_wrapper_is(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow
    @logged
    def wrapped(ctx: Context, n: int) -> int:
        return n + 1

    assert wrapped.is_async
    await connect(scripted, wrapped)
    result = await scripted.log.result(scripted.assign("wrapped", payload(1)))
    assert value_of(result.output) == 2


# ---- types that only the defining function knows ----


async def test_a_class_that_is_local_to_a_function_may_be_an_input(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @dataclass
    class Item:
        sku: str

    @dataclass
    class Basket:
        items: list[Item]

    @workflow(name="local")
    async def local(ctx: Context, basket: Basket) -> str:
        return type(basket).__name__ + basket.items[0].sku

    await connect(scripted, local)
    result = await scripted.log.result(scripted.assign("local", payload({"items": [{"sku": "a"}]})))
    assert value_of(result.output) == "Basketa"


async def test_a_class_that_is_local_to_a_function_may_be_what_a_step_gives(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @dataclass
    class Item:
        sku: str

    def make() -> Item:
        return Item("a")

    @workflow(name="local-step")
    async def local_step(ctx: Context) -> str:
        return (await ctx.step.run("make", make)).sku

    await connect(scripted, local_step)
    assert value_of((await scripted.log.result(scripted.assign("local-step"))).output) == "a"


def test_an_annotation_that_nobody_knows_is_refused_with_the_name_of_the_workflow() -> None:
    async def broken(ctx: Context, value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # that is the case
    async def also(ctx: Context, value: int) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821  # that is the case

    for function, what in ((broken, "input of workflow 'broken'"), (also, "output of workflow 'also'")):
        with pytest.raises(TypeError, match=rf"{what}.*Nowhere"):
            workflow(function)


# ---- refusals ----


def test_a_workflow_takes_its_context_and_at_most_an_input() -> None:
    async def nothing() -> None: ...

    async def too_much(ctx: Context, a: int, b: int) -> None: ...

    for function in (nothing, too_much):
        with pytest.raises(TypeError, match=r"takes \(ctx\) or \(ctx, input\)"):
            workflow(function)  # type: ignore[call-overload]  # that is the case


NAMES = ["", "x" * 257, "\u00fc" * 129, "a\nb", "nul\0", "lone \ud800", 7]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("what", ["name", "queue", "event"])
def test_a_name_that_the_gateway_would_refuse_is_refused_at_once(what: str, name: Any) -> None:
    settings = {"events": ["fine", name]} if what == "event" else {what: name}

    async def handler(ctx: Context) -> None: ...

    with pytest.raises(InvalidInputError, match=what):
        workflow(**settings)(handler)


@pytest.mark.parametrize("what", ["run_timeout", "start_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_no_length_of_time_is_refused_at_once(what: str, seconds: float) -> None:
    async def handler(ctx: Context) -> None: ...

    with pytest.raises(ValueError, match=what):
        workflow(**{what: seconds})(handler)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"initial": -0.1},
        {"initial": float("nan")},
        {"initial": float("inf")},
        {"initial": 10.0, "maximum": 5.0},
        {"maximum": float("inf")},
        {"multiplier": 0.5},
        {"multiplier": float("nan")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
    ],
    ids=str,
)
def test_a_retry_policy_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=list(settings)[-1] if "maximum" in settings else next(iter(settings))):
        RetryPolicy(**settings)


def test_a_worker_is_refused_whose_arguments_make_no_sense() -> None:
    @workflow(name="same")
    async def one(ctx: Context) -> None: ...

    @workflow(name="same")
    async def other(ctx: Context) -> None: ...

    with pytest.raises(ValueError, match="same"):
        Worker(workflows=[one, other])
    for concurrency in (0, -1, 10_001, 2.5, True):
        with pytest.raises(InvalidInputError, match="concurrency"):
            Worker(workflows=[one], concurrency=concurrency)  # type: ignore[arg-type]  # 2.5 is the case
    for drain_grace in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="drain_grace"):
            Worker(workflows=[one], drain_grace=drain_grace)
    with pytest.raises(InvalidInputError, match="queues must be a list"):
        Worker(workflows=[one], queues="shop")
    with pytest.raises(InvalidInputError, match=r"workflows\[1\] must be a workflow; is a builtin_function"):
        Worker(workflows=[one, print])  # type: ignore[list-item]  # that is the case
    with pytest.raises(InvalidInputError, match="workflows must name at least one"):
        Worker(workflows=[])
    for target in ("http://localhost:7379", "localhost", "local host:7379", "localhost:port", ":7379", 5):
        with pytest.raises(InvalidInputError, match="target must be host:port; got"):
            Worker(target, workflows=[one])  # type: ignore[arg-type]  # 5 is the case
    for target in ("localhost:7379", "[::1]:7379", "10.0.0.1:7379", "dns:///gateway:7379", "unix:/tmp/gateway.sock"):
        Worker(target, workflows=[one])


def test_a_context_that_the_handler_will_not_get_is_refused_at_definition() -> None:
    with pytest.raises(TypeError, match="'waits' is a `async def`: its context is a Context, not a BlockingContext"):

        @workflow(name="waits")
        async def waits(ctx: BlockingContext) -> None: ...

    with pytest.raises(TypeError, match="'blocks' is a `def`: its context is a BlockingContext, not a Context"):

        @workflow(name="blocks")
        def blocks(ctx: Context) -> None: ...


# ---- inputs ----


def test_an_input_for_a_workflow_that_takes_none_is_refused() -> None:
    @workflow
    async def takes_nothing(ctx: Context) -> None: ...

    assert takes_nothing.validate(None) == b"null"
    with pytest.raises(InputValidationError, match="workflow 'takes_nothing' takes no input; got int"):
        takes_nothing.validate(3)  # type: ignore[arg-type]  # that is the case


def test_an_input_is_checked_against_the_annotation_before_it_is_sent() -> None:
    @workflow
    async def takes_order(ctx: Context, order: Order) -> None: ...

    assert takes_order.validate(Order(7)) == b'{"id":7}'
    with pytest.raises(InputValidationError) as refused:
        takes_order.validate(Order("seven"))  # type: ignore[arg-type]  # that is the case
    assert [fault["path"] for fault in refused.value.details] == ["$.id"]
    assert str(refused.value).startswith("the input of workflow 'takes_order': $.id must be")
    with pytest.raises(SerializationError):
        takes_order.validate(Order(float("nan")))  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("data", [{"id": "x"}, {}, [], None, {"id": 1, "more": 2}], ids=str)
async def test_an_input_that_does_not_fit_fails_the_run_at_the_first_attempt_and_names_the_fields(
    data: Any, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[Order] = []

    @workflow(name="takes-order")
    async def takes_order(ctx: Context, order: Order) -> None:
        executed.append(order)

    await connect(scripted, takes_order)
    failure = (await scripted.log.result(scripted.assign("takes-order", payload(data), max_attempts=5))).failure
    assert (failure.type, failure.failure_kind) == ("InputValidationError", 4)
    assert all(fault["path"].startswith("$") for fault in value_of(failure.details))
    assert executed == []


async def test_a_workflow_without_an_input_ignores_one(scripted: ScriptedGateway, connect: StartWorker) -> None:
    @workflow(name="no-input")
    async def no_input(ctx: Context) -> str:
        return "done"

    await connect(scripted, no_input)
    for data in (None, payload({"unasked": 1})):
        assert value_of((await scripted.log.result(scripted.assign("no-input", data))).output) == "done"


# ---- digests ----


async def handler(ctx: Context) -> None: ...


def handler_in_a_thread(ctx: BlockingContext) -> None: ...


VARIANTS: dict[str, Workflow[Any, Any]] = {
    "plain": workflow(name="w")(handler),
    "another body": workflow(name="w")(handler_in_a_thread),
    "another name": workflow(name="w2")(handler),
    "another queue": workflow(name="w", queue="q")(handler),
    "a policy": workflow(name="w", retry=RetryPolicy())(handler),
    "the same policy": workflow(name="w", retry=RetryPolicy(jitter=0.1))(handler),
    "more attempts": workflow(name="w", retry=RetryPolicy(max_attempts=2))(handler),
    "another initial": workflow(name="w", retry=RetryPolicy(initial=1))(handler),
    "the same initial": workflow(name="w", retry=RetryPolicy(initial=1.0))(handler),
    "another multiplier": workflow(name="w", retry=RetryPolicy(multiplier=3.0))(handler),
    "another maximum": workflow(name="w", retry=RetryPolicy(maximum=31.0))(handler),
    "another jitter": workflow(name="w", retry=RetryPolicy(jitter=0.2))(handler),
    "an event": workflow(name="w", events=["e"])(handler),
    "events": workflow(name="w", events=["e", "f"])(handler),
    "a run timeout": workflow(name="w", run_timeout=5)(handler),
    "the same run timeout": workflow(name="w", run_timeout=5.0)(handler),
    "a start timeout": workflow(name="w", start_timeout=5)(handler),
}


async def test_the_digest_changes_exactly_when_what_is_registered_changes(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    registered: dict[str, tuple[str, bytes]] = {}
    for variant, definition in VARIANTS.items():
        scripted = start_scripted()
        await connect(scripted, definition)
        [told] = scripted.log.opens()[0].message.workflows
        digest = told.definition_digest
        told.ClearField("definition_digest")
        registered[variant] = digest, told.SerializeToString(deterministic=True)

    same_definition = {(a, b) for a in registered for b in registered if registered[a][1] == registered[b][1]}
    same_digest = {(a, b) for a in registered for b in registered if registered[a][0] == registered[b][0]}
    assert same_digest == same_definition
    assert ("plain", "another body") in same_definition and ("plain", "a policy") not in same_definition


def test_the_digest_is_the_same_in_every_process() -> None:
    assert VARIANTS["more attempts"].digest == workflow(name="w", retry=RetryPolicy(max_attempts=2))(handler).digest
    assert workflow_pb2.WorkflowDefinition(definition_digest=VARIANTS["plain"].digest).ByteSize() <= 64
