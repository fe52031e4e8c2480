"""Whatever user code raises ends its run as documented, within seconds, and the worker takes the next run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from redflow_sdk import (
    BlockingContext,
    Context,
    InputValidationError,
    NonRetriableError,
    RetryAfterError,
    SerializationError,
    UnavailableError,
    workflow,
)
from redflow_sdk.proto.v1 import failure_pb2
from tests.conftest import StartWorker
from tests.sdk.messages import forbids_retry, kind_of, value_of
from tests.sdk.scripted_gateway import ScriptedGateway

Raiser = Callable[[], object]

PLACES = ("handler", "step", "async step", "thread", "step of a thread")

BOUND_BYTES = 256 * 1024
"""No failure is larger, whatever was raised."""


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


def raises(error: BaseException) -> Raiser:
    def raiser() -> NoReturn:
        raise error

    return raiser


async def failure_of(
    raiser: Raiser, gateway: ScriptedGateway, connect: StartWorker, *, place: str = "handler"
) -> failure_pb2.Failure:
    """The failure of a run that raises, on a worker that takes the next run afterwards."""

    @workflow(name="raises")
    async def in_handler(ctx: Context) -> None:
        raiser()

    @workflow(name="raises")
    async def in_step(ctx: Context) -> None:
        await ctx.step.run("raises", raiser)

    @workflow(name="raises")
    async def in_async_step(ctx: Context) -> None:
        async def step() -> None:
            raiser()

        await ctx.step.run("raises", step)

    @workflow(name="raises")
    def in_thread(ctx: BlockingContext) -> None:
        raiser()

    @workflow(name="raises")
    def in_step_of_thread(ctx: BlockingContext) -> None:
        ctx.step.run("raises", raiser)

    places = {"handler": in_handler, "step": in_step, "async step": in_async_step, "thread": in_thread}
    await connect(gateway, {**places, "step of a thread": in_step_of_thread}[place], quick, concurrency=1)
    token = gateway.assign("raises", max_attempts=5)
    result = await gateway.log.result(token, within=3)
    after = await gateway.log.result(gateway.assign("quick"), within=3)
    assert value_of(after.output) == "quick"
    assert len(gateway.sessions) == 1 and len(gateway.log.results(token)) == 1
    assert result.WhichOneof("outcome") == "failure"
    assert result.ByteSize() < BOUND_BYTES
    return result.failure


# ---- type, message, traceback ----


async def test_a_failure_has_type_message_kind_and_the_way_to_the_line(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    def innermost() -> NoReturn:
        raise LookupError("no such order")

    failure = await failure_of(innermost, scripted, connect)
    assert (failure.type, failure.message, kind_of(failure)) == ("LookupError", "no such order", "error")
    assert "innermost" in failure.traceback and __file__ in failure.traceback
    first, *_, last = failure.traceback.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", "LookupError: no such order")
    assert "redflow_sdk" not in failure.traceback, "frames that are not the user's"
    assert failure.language == "python"
    assert not failure.HasField("cause") and not forbids_retry(failure)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), "error"),
        (TimeoutError("x"), "timeout"),
        (NonRetriableError("x"), "non_retriable"),
        (SerializationError("x"), "serialization"),
        (InputValidationError("x", [{"path": "$.a", "problem": "is missing"}]), "validation"),
        (RetryAfterError("x", delay=1), "error"),
        (UnavailableError("x"), "error"),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, Exception) else it,
)
async def test_the_kind_follows_from_the_exception(
    error: Exception, kind: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    failure = await failure_of(raises(error), scripted, connect)
    assert kind_of(failure) == kind
    assert forbids_retry(failure) == (kind not in ("error", "timeout"))
    if kind == "validation":
        assert value_of(failure.details) == [{"path": "$.a", "problem": "is missing"}]


async def test_the_log_of_the_worker_says_that_a_run_failed_and_where(
    scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    def innermost() -> NoReturn:
        raise LookupError("no such order")

    await failure_of(innermost, scripted, connect)
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("raises run-1 failed in attempt 1 of 5\nTraceback")
    assert "innermost" in told and told.endswith("LookupError: no such order")


async def test_traceback_and_message_are_bounded(scripted: ScriptedGateway, connect: StartWorker) -> None:
    def deep(depth: int) -> None:
        if not depth:
            raise ValueError("\u20ac" * 5_000_000)
        deep(depth - 1)

    failure = await failure_of(lambda: deep(500), scripted, connect)
    assert failure.message.startswith("\u20ac\u20ac\u20ac") and len(failure.message.encode()) <= 64 * 1024
    assert "deep" in failure.traceback and len(failure.traceback.encode()) <= 64 * 1024


# ---- causes ----


def chain_of(length: int, innermost: Exception) -> Raiser:
    def raiser() -> None:
        error: Exception = innermost
        for n in range(length):
            link = ValueError(f"link {n}")
            link.__cause__ = error
            error = link
        raise error

    return raiser


def cyclic() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def its_own_cause() -> None:
    error = ValueError("alone")
    error.__cause__ = error
    raise error


async def test_causes_come_along(scripted: ScriptedGateway, connect: StartWorker) -> None:
    def wraps() -> None:
        try:
            raise ConnectionError("refused")
        except ConnectionError as error:
            raise ValueError("no rates") from error

    failure = await failure_of(wraps, scripted, connect)
    assert (failure.type, failure.cause.type, failure.cause.message) == ("ValueError", "ConnectionError", "refused")
    assert not failure.cause.HasField("cause")


@pytest.mark.parametrize(
    "raiser", [cyclic, its_own_cause, chain_of(1000, ValueError("last"))], ids=["cyclic", "of itself", "1000 deep"]
)
async def test_causes_without_end_are_cut_off(raiser: Raiser, scripted: ScriptedGateway, connect: StartWorker) -> None:
    failure = await failure_of(raiser, scripted, connect)
    depth, link = 0, failure
    while link.HasField("cause"):
        link, depth = link.cause, depth + 1
    assert failure.type == "ValueError" and depth <= 16


# ---- what steers the retry ----


def group(*errors: Exception) -> Raiser:
    return raises(ExceptionGroup("several", list(errors)))


def caused_by(cause: Exception) -> Exception:
    error = ValueError("outer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "raiser",
    [
        raises(NonRetriableError("no")),
        raises(type("OurError", (NonRetriableError,), {})("no")),
        raises(caused_by(NonRetriableError("no"))),
        chain_of(20, NonRetriableError("no")),
        group(ValueError("a"), NonRetriableError("no")),
        group(ValueError("a"), ExceptionGroup("inner", [KeyError("b"), NonRetriableError("no")])),
        group(ValueError("a"), caused_by(NonRetriableError("no"))),
        raises(caused_by(ExceptionGroup("several", [KeyError("b"), NonRetriableError("no")]))),
    ],
    ids=["itself", "subclass", "cause", "cause 20 deep", "in group", "group in group", "cause in group", "group cause"],
)
async def test_an_error_that_forbids_the_retry_does_so_wherever_it_stands(
    raiser: Raiser, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    assert forbids_retry(await failure_of(raiser, scripted, connect))


async def test_an_error_with_a_delay_says_when_the_next_attempt_begins(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    failure = await failure_of(raises(RetryAfterError("busy", delay=2.5)), scripted, connect)
    assert failure.next_retry_delay.ToMilliseconds() == 2500
    assert not forbids_retry(failure)


async def test_an_error_suppressed_by_from_none_does_not_steer(scripted: ScriptedGateway, connect: StartWorker) -> None:
    def replaces() -> None:
        try:
            raise NonRetriableError("no")
        except NonRetriableError:
            raise ValueError("again") from None

    failure = await failure_of(replaces, scripted, connect)
    assert not forbids_retry(failure) and not failure.HasField("cause")


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
def test_a_delay_that_is_no_length_of_time_is_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="delay"):
        RetryAfterError("x", delay=delay)


# ---- what is no Exception ----


@pytest.mark.parametrize("place", ["handler", "step", "async step", "thread", "step of a thread"])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("bare")], ids=repr
)
async def test_what_would_end_a_program_ends_only_the_run(
    error: BaseException, place: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    failure = await failure_of(raises(error), scripted, connect, place=place)
    if place in ("step", "async step") and isinstance(error, (SystemExit, KeyboardInterrupt)):
        # As itself it would end the program when the step runs in a task of its own.
        assert (failure.type, failure.message) == ("StepFailedError", f"{type(error).__name__}: {error}")
        failure = failure.cause
    assert failure.type == type(error).__name__
    assert kind_of(failure) == "error"


@pytest.mark.parametrize("place", PLACES)
async def test_the_end_of_an_iterator_fails_the_run_like_any_error(
    place: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """It may not be raised into a future, and out of a coroutine it comes as RuntimeError."""
    failure = await failure_of(lambda: next(iter(())), scripted, connect, place=place)
    assert failure.type in ("StopIteration", "RuntimeError")
    assert kind_of(failure) == "error"


# ---- exceptions that cannot be trusted ----


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class NoText(Exception):
    def __str__(self) -> Any:  # Any: what is wrong with it
        return None


class FailsBadlyWhenShown(Exception):
    def __str__(self) -> str:
        raise BaseException("no text")  # noqa: TRY002  # one that `except Exception` does not catch is the case


class NeedsArguments(Exception):
    def __init__(self, code: int, *, lock: object) -> None:
        super().__init__(f"code {code}")
        self.code, self.lock = code, lock


class ForgetsItsDelay(RetryAfterError):
    def __init__(self) -> None: ...


class SpoiltDelay(RetryAfterError):
    def __init__(self) -> None:
        super().__init__("later", delay=1)
        self.delay = float("nan")


class RaisesWhenAsked(RetryAfterError):
    @property
    def delay(self) -> float:  # type: ignore[override]  # that is the case
        raise RuntimeError("no delay")

    @delay.setter
    def delay(self, _: float) -> None: ...


class ForgetsItsDetails(InputValidationError):
    def __init__(self) -> None: ...


NO_JSON: Any = [{"path": object()}]  # Any: what is wrong with it

UNTRUSTED: dict[str, Callable[[], BaseException]] = {
    "broken str": BrokenStr,
    "str that is none": NoText,
    "str that fails badly": FailsBadlyWhenShown,
    "needs arguments": lambda: NeedsArguments(7, lock=threading.Lock()),
    "lone surrogate": lambda: ValueError("cut \ud800 off"),
    "nul": lambda: ValueError("a\0b"),
    "bytes": lambda: ValueError(b"\xff\xfe"),
    "5 MB": lambda: ValueError("x" * 5_000_000),
    "5 MB in the cause": lambda: caused_by(ValueError("x" * 5_000_000)),
    "long type name": lambda: type("x" * 5_000_000, (Exception,), {})("x"),
    "delay forgotten": ForgetsItsDelay,
    "delay spoilt": SpoiltDelay,
    "delay that raises": lambda: RaisesWhenAsked("x", delay=1),
    "details forgotten": ForgetsItsDetails,
    "details that are no json": lambda: InputValidationError("x", NO_JSON),
    "details of 5 MB": lambda: InputValidationError("x", [{"path": "x" * 5_000_000}]),
    "details with a surrogate": lambda: InputValidationError("x", [{"path": "\ud800"}]),
}


@pytest.mark.parametrize("place", ["handler", "step"])
@pytest.mark.parametrize("make", UNTRUSTED.values(), ids=UNTRUSTED.keys())
async def test_an_exception_that_cannot_be_trusted_fails_its_run_and_nothing_else(
    make: Callable[[], BaseException], place: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    error = make()
    failure = await failure_of(raises(error), scripted, connect, place=place)
    assert failure.type[:9] == type(error).__name__[:9]


@pytest.mark.parametrize(
    ("error", "shown"),
    [(ValueError("cut \ud800 off"), "cut \\ud800 off"), (ValueError("a\0b"), "a\0b"), (KeyError("k"), "'k'")],
    ids=["surrogate", "nul", "key"],
)
async def test_a_message_that_can_be_kept_is_kept(
    error: Exception, shown: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    assert (await failure_of(raises(error), scripted, connect)).message == shown


async def test_a_cause_that_cannot_be_trusted_does_not_spoil_its_effect(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    failure = await failure_of(raises(caused_by(BrokenStr())), scripted, connect)
    assert (failure.type, failure.message, failure.cause.type) == ("ValueError", "outer", "BrokenStr")
