"""Defining workflows."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar, overload

from redflow_sdk._hints import Scope, resolved
from redflow_sdk._names import check_name
from redflow_sdk._numbers import check_seconds
from redflow_sdk._readers import Describe, with_glimpse
from redflow_sdk._types import Annotation, Function, Value
from redflow_sdk.context import BlockingContext, Context, FailureContext
from redflow_sdk.converter import decode, encode, get_to_know
from redflow_sdk.cron import Cron
from redflow_sdk.errors import InputValidationError, InvalidInputError
from redflow_sdk.retry import RetryPolicy

InputT = TypeVar("InputT", contravariant=True)
OutputT = TypeVar("OutputT", covariant=True)
T = TypeVar("T")

DEFAULT_QUEUE = "default"


@dataclasses.dataclass(frozen=True, slots=True)
class Workflow(Generic[InputT, OutputT]):
    """A function and its settings, made by `@workflow`. It is not called: `Client.start` and `Client.execute` start a
    run of it, and a `Worker` that has it calls its function.

        handle = await client.start(greet, "Ada")
    """

    name: str
    function: Callable[..., object]
    """The handler."""
    queue: str
    retry: RetryPolicy | None
    """None for one attempt."""
    events: tuple[str, ...]
    """Each event of one of these names starts a run."""
    run_timeout: float | None
    """Seconds from the first start of a run to its end, or None for no limit."""
    start_timeout: float | None
    """Seconds from being due to the first start, or None for no limit."""
    takes_input: bool
    """Whether the handler has a second argument."""
    input_type: object
    """The annotation of the input; `typing.Any` when there is none."""
    output_type: object
    """The annotation of what the handler returns; `typing.Any` when there is none."""
    is_async: bool
    """Whether the handler is an `async def`."""
    cron: tuple[Cron, ...] = ()
    on_failure: Callable[[FailureContext], object] | None = None
    failure_handler_timeout: float | None = None
    """Seconds from the failure of a run to the end of `on_failure`, or None for the gateway's 5 minutes."""

    @property
    def max_attempts(self) -> int:
        """Attempts of a run in all."""
        return self.retry.max_attempts if self.retry else 1

    @property
    def digest(self) -> str:
        """Digest over everything the gateway is told about it; for the SDK itself."""
        # As floats: 5 and 5.0 are told alike.
        retry = [*map(float, dataclasses.astuple(self.retry))] if self.retry else None
        told: list[object] = [self.name, self.queue, retry, self.events, self.run_timeout, self.start_timeout]
        if self.cron or self.on_failure:
            cron = [[each.id, each.expression, each.timezone, (each.data or b"").hex()] for each in self.cron]
            told += [cron, self.on_failure is not None, self.failure_handler_timeout]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:22]

    def validate(self, value: InputT, describe: Describe = with_glimpse) -> bytes:
        """The input as JSON, if it fits; for the SDK itself. Raises InputValidationError, SerializationError."""
        if not self.takes_input and value is not None:
            raise InputValidationError(f"workflow {self.name!r} takes no input; got {type(value).__name__}")
        data = encode(value, f"the input of workflow {self.name!r}")
        try:
            decode(data, self.input_type, describe)
        except InputValidationError as error:
            raise InputValidationError(f"the input of workflow {self.name!r}: {error}", error.details) from None
        return data

    if not TYPE_CHECKING:  # to type checkers they are not there

        def __call__(self, *args: Value, **kwargs: Value) -> NoReturn:
            raise TypeError(f"workflow {self.name!r} is not called: {_how_to_start(self)}")

        def __getattr__(self, attribute: str) -> NoReturn:
            hint = f": {_how_to_start(self)}" if attribute in CALLS_OF_TASKS else ""
            raise AttributeError(f"a workflow has no {attribute!r}{hint}")


CALLS_OF_TASKS: Final = ("delay", "apply_async", "apply", "s", "si", "signature", "start", "execute", "run", "send")
"""By which other libraries begin what a workflow is here."""


def _how_to_start(started: AnyWorkflow) -> str:
    name = getattr(started.function, "__name__", "it")
    return (
        f"start a run by client.start({name}, ...) of a Client or SyncClient, in a handler by ctx.step.run_workflow, "
        f"in a test by run_inline"
    )


AnyWorkflow: TypeAlias = Workflow[Value, Value]
"""A workflow of whatever input and output."""


@overload
def workflow(function: Callable[[Context, InputT], Awaitable[OutputT]]) -> Workflow[InputT, OutputT]: ...
@overload
def workflow(function: Callable[[Context], Awaitable[OutputT]]) -> Workflow[None, OutputT]: ...
@overload
def workflow(function: Callable[[BlockingContext, InputT], OutputT]) -> Workflow[InputT, OutputT]: ...
@overload
def workflow(function: Callable[[BlockingContext], OutputT]) -> Workflow[None, OutputT]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retry: RetryPolicy | None = None,
    cron: Sequence[Cron] = (),
    events: Sequence[str] = (),
    on_failure: Callable[[FailureContext], object] | None = None,
    run_timeout: float | None = None,
    start_timeout: float | None = None,
    failure_handler_timeout: float | None = None,
) -> _Decorator: ...
def workflow(
    function: Function | None = None,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retry: RetryPolicy | None = None,
    cron: Sequence[Cron] = (),
    events: Sequence[str] = (),
    on_failure: Callable[[FailureContext], object] | None = None,
    run_timeout: float | None = None,
    start_timeout: float | None = None,
    failure_handler_timeout: float | None = None,
) -> Value:
    """Makes a workflow of a function `(ctx)` or `(ctx, input)`, `async def` or `def`.

    `name` defaults to the function's. `queue` is where its runs wait for a worker. `retry` says how often a failed
    attempt is followed by another one; None is never. `cron` starts runs at times, `events` names those that start one
    each. `on_failure`, `async def` or `def`, is called with a FailureContext when a run has failed for good, not when
    it was canceled, and has returned before anybody sees the run as failed; what it returns or raises changes nothing
    of that.

    `run_timeout`, `start_timeout` and `failure_handler_timeout` are seconds: from the first start to the end, from
    being due to the first start, and from the failure to the end of the failure handler (5 minutes). The first two have
    no limit by default.

    The input is checked and made as its annotation says, and the output as that of the function: dataclasses, pydantic
    models, TypedDicts, dates and the like, and what JSON has; without an annotation it is plain JSON.

    Raises InvalidInputError for settings that make no sense, InputValidationError for a cron schedule whose input does
    not fit, and TypeError for a function whose arguments or annotations cannot be a workflow's.

        @workflow(name="greet", retry=RetryPolicy(max_attempts=3))
        async def greet(ctx: Context, name: str) -> str:
            return await ctx.step.run("compose", lambda: f"hello {name}")
    """
    timeouts = (run_timeout, start_timeout, failure_handler_timeout)
    settings = _Settings(name, queue, retry, _several("events", events), _several("cron", cron), on_failure, *timeouts)

    def decorate(function: Function) -> AnyWorkflow:
        return _define(function, settings, Scope.of_frame(sys._getframe(1)))

    return decorate if function is None else _define(function, settings, Scope.of_frame(sys._getframe(1)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Settings:
    """What a definition says beside its function."""

    name: str | None
    queue: str
    retry: RetryPolicy | None
    events: tuple[str, ...]
    cron: tuple[Cron, ...]
    on_failure: Function | None
    run_timeout: float | None
    start_timeout: float | None
    failure_handler_timeout: float | None


def _define(function: Function, settings: _Settings, scope: Scope) -> AnyWorkflow:
    name = check_name("name", function.__name__ if settings.name is None else settings.name)
    _check_failure_handler(settings.on_failure)
    if settings.retry is not None and not isinstance(settings.retry, RetryPolicy):
        raise InvalidInputError(f"retry must be a RetryPolicy; got {ascii(settings.retry)[:100]}")
    input_type, output_type = _types(name, function, scope)
    awaits = is_async(function)
    defined: AnyWorkflow = Workflow(
        name=name,
        function=_awaited(function) if awaits and not inspect.iscoroutinefunction(function) else function,
        queue=check_name("queue", settings.queue),
        retry=settings.retry,
        events=tuple(check_name("events", event) for event in settings.events),
        run_timeout=_seconds("run_timeout", settings.run_timeout),
        start_timeout=_seconds("start_timeout", settings.start_timeout),
        takes_input=input_type is not _NONE,
        input_type=Any if input_type is _NONE else input_type,
        output_type=output_type,
        is_async=awaits,
        cron=settings.cron,
        on_failure=settings.on_failure,
        failure_handler_timeout=_seconds("failure_handler_timeout", settings.failure_handler_timeout),
    )
    _check_cron(defined)
    return defined


def _check_failure_handler(handler: Function | None) -> None:
    """Raises InvalidInputError for what cannot be called with a FailureContext."""
    if handler is None:
        return
    if not callable(handler) or isinstance(handler, Workflow):
        raise InvalidInputError(f"on_failure must be a function; got {ascii(handler)[:100]}")
    try:
        inspect.signature(handler).bind(None)
    except TypeError as error:
        raise InvalidInputError(f"on_failure is called with a FailureContext: {error}") from None
    except ValueError:
        return  # a built-in that does not say what it takes


def _several(field: str, values: Sequence[T]) -> tuple[T, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidInputError(f"{field} must be a list; got {ascii(values)[:100]}")
    return tuple(values)


def _check_cron(workflow: AnyWorkflow) -> None:
    """Raises InvalidInputError for two schedules of one id, InputValidationError for input that does not fit."""
    for cron in workflow.cron:
        if not isinstance(cron, Cron):
            raise InvalidInputError(f"cron must be a list of Cron; has {ascii(cron)[:100]}")
    ids = [cron.id for cron in workflow.cron if cron.id]
    for cron in workflow.cron:
        if ids.count(cron.id) > 1:
            raise InvalidInputError(f"Duplicate cron trigger id {cron.id!r} in workflow {workflow.name!r}")
        where = f"the input of cron schedule {cron.expression!r} of workflow {workflow.name!r}"
        data = cron.data
        if not workflow.takes_input and data not in (None, b"null"):
            raise InputValidationError(f"{where}: the workflow takes none; got {type(cron.input).__name__}")
        if workflow.takes_input:
            try:
                decode(b"{}" if data is None else data, workflow.input_type)
            except InputValidationError as error:
                raise InputValidationError(f"{where}: {error}", error.details) from None


_NONE: Final = inspect.Parameter.empty


def _types(name: str, function: Function, scope: Scope) -> tuple[Annotation, Annotation]:
    """The types of a handler's input, _NONE if it takes none, and of its output."""

    def type_of(what: str, annotation: Annotation) -> Annotation:
        try:
            found = Any if annotation is _NONE else resolved(annotation, function, scope)
        except (NameError, TypeError) as error:
            raise TypeError(f"the {what} of workflow {name!r} cannot be typed: {error}") from error
        unreadable = get_to_know(found, scope)
        if unreadable and what == "input":  # an output of such a type fails its run
            raise TypeError(f"the {what} of workflow {name!r} cannot be typed: {'; '.join(unreadable)}")
        return found

    signature = inspect.signature(function)
    _check_context(name, function, signature, scope)
    match list(signature.parameters.values()):
        case [_]:
            input_type: Annotation = _NONE
        case [_, parameter]:
            input_type = type_of("input", parameter.annotation)
        case parameters:
            raise TypeError(f"a workflow takes (ctx) or (ctx, input); {name!r} takes {len(parameters)} arguments")
    return input_type, type_of("output", signature.return_annotation)


def _check_context(name: str, function: Function, signature: inspect.Signature, scope: Scope) -> None:
    """Whether the first argument is annotated as what the handler will be given, if it is annotated at all."""
    first = next(iter(signature.parameters.values()), None)
    given, other = (Context, BlockingContext) if is_async(function) else (BlockingContext, Context)
    if first is None or first.annotation is _NONE:
        return
    try:
        annotated = resolved(first.annotation, function, scope)
    except (NameError, TypeError):
        return  # imported for type checkers only
    if annotated is other:
        kind = "async def" if given is Context else "def"
        raise TypeError(f"workflow {name!r} is a `{kind}`: its context is a {given.__name__}, not a {other.__name__}")


def is_async(function: Function) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(inspect.unwrap(function, stop=inspect.iscoroutinefunction))


def _awaited(function: Function) -> Function:
    """A wrapper around an async handler that is not async itself, as one that is."""

    @functools.wraps(function)
    async def handler(*args: Value) -> Value:
        result = function(*args)
        return await result if inspect.isawaitable(result) else result

    return handler


def _seconds(field: str, seconds: float | None) -> float | None:
    return None if seconds is None else check_seconds(field, seconds)


class _Decorator(typing.Protocol):
    """What `@workflow(...)` is before it meets its function."""

    @overload
    def __call__(self, function: Callable[[Context, InputT], Awaitable[OutputT]]) -> Workflow[InputT, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[Context], Awaitable[OutputT]]) -> Workflow[None, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[BlockingContext, InputT], OutputT]) -> Workflow[InputT, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[BlockingContext], OutputT]) -> Workflow[None, OutputT]: ...
