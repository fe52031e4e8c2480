"""Defining workflows."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

from redflow_sdk import converter
from redflow_sdk._names import check_name
from redflow_sdk._types import Function, Value
from redflow_sdk.context import Context
from redflow_sdk.retry import RetryPolicy

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

DEFAULT_QUEUE = "default"


@dataclasses.dataclass(frozen=True, slots=True)
class Workflow(Generic[InputT, OutputT]):
    """A registered function. Made by `@workflow`; call `client.start(it, input)` to run it."""

    name: str
    function: Function
    queue: str
    retry: RetryPolicy | None
    events: tuple[str, ...]
    run_timeout: float | None
    start_timeout: float | None
    takes_input: bool
    input_type: object
    output_type: object
    is_async: bool

    @property
    def max_attempts(self) -> int:
        """Attempts of a run in all."""
        return self.retry.max_attempts if self.retry else 1

    @property
    def digest(self) -> str:
        """Digest over everything the gateway is told about it."""
        retry = dataclasses.astuple(self.retry) if self.retry else None
        told = [self.name, self.queue, retry, self.events, self.run_timeout, self.start_timeout]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:22]

    def validate(self, value: InputT) -> bytes:
        """The input as JSON, if it fits. Raises InputValidationError, SerializationError."""
        data = converter.encode(value)
        converter.decode(data, self.input_type)
        return data


AnyWorkflow: TypeAlias = Workflow[Value, Value]
"""A workflow of whatever input and output."""


@overload
def workflow(
    function: Callable[[Context, InputT], Awaitable[OutputT]],
) -> Workflow[InputT, OutputT]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retry: RetryPolicy | None = None,
    events: Sequence[str] = (),
    run_timeout: float | None = None,
    start_timeout: float | None = None,
) -> _Decorator: ...
def workflow(
    function: Function | None = None,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retry: RetryPolicy | None = None,
    events: Sequence[str] = (),
    run_timeout: float | None = None,
    start_timeout: float | None = None,
) -> Value:
    """Makes a workflow of a function `(ctx)` or `(ctx, input)`, `async def` or `def`.

    `name` defaults to the function's. `run_timeout` and `start_timeout` are seconds: from the first start to the end,
    and from being due to the first start.

        @workflow(name="greet", retry=RetryPolicy(max_attempts=3))
        async def greet(ctx: Context, name: str) -> str:
            return await ctx.step.run("compose", lambda: f"hello {name}")
    """

    def make(function: Function) -> AnyWorkflow:
        parameters = list(inspect.signature(function).parameters)
        if not 1 <= len(parameters) <= 2:
            raise TypeError(f"a workflow takes (ctx) or (ctx, input); {function.__qualname__} takes {len(parameters)}")
        hints = typing.get_type_hints(function)
        return Workflow(
            name=check_name("name", function.__name__ if name is None else name),
            function=function,
            queue=check_name("queue", queue),
            retry=retry,
            events=tuple(check_name("events", event) for event in events),
            run_timeout=run_timeout,
            start_timeout=start_timeout,
            takes_input=len(parameters) == 2,
            input_type=hints.get(parameters[1], Any) if len(parameters) == 2 else Any,
            output_type=hints.get("return", Any),
            is_async=inspect.iscoroutinefunction(function),
        )

    return make if function is None else make(function)


class _Decorator(typing.Protocol):
    """What `@workflow(...)` is before it meets its function."""

    @overload
    def __call__(self, function: Callable[[Context, InputT], Awaitable[OutputT]]) -> Workflow[InputT, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[Context], Awaitable[OutputT]]) -> Workflow[None, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[Context, InputT], OutputT]) -> Workflow[InputT, OutputT]: ...
    @overload
    def __call__(self, function: Callable[[Context], OutputT]) -> Workflow[None, OutputT]: ...
