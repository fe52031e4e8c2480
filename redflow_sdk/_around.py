"""Calls what is around starts, handlers and steps, from the outermost middleware to the innermost."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from redflow_sdk._types import Function, Value
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.middleware import CallNext, Middleware, StartInfo, StepInfo
from redflow_sdk.records import Payload

if TYPE_CHECKING:  # a context holds steps, which are surrounded
    from redflow_sdk.context import FailureContext, RunInfo

HEADER: Final = "header."
"""With what the names of headers begin in the metadata of an input."""
MAX_HEADER_BYTES: Final = 4 * 1024


class Around:
    """The middleware of one client or worker. What no middleware is about costs nothing."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        """Raises InvalidInputError for what is no middleware."""
        if isinstance(middleware, Middleware) or not isinstance(middleware, Sequence):
            raise InvalidInputError(f"middleware must be a list; got a {type(middleware).__name__}")
        for index, one in enumerate(middleware):
            if not isinstance(one, Middleware):
                raise InvalidInputError(f"middleware[{index}] must be a Middleware; is a {type(one).__name__}")
            if inspect.iscoroutinefunction(one.start):
                raise InvalidInputError(
                    f"middleware[{index}].start must be a def, because it is not awaited; it is async"
                )
        self._starts = tuple(one.start for one in middleware if type(one).start is not Middleware.start)
        self._runs = tuple(one.run for one in middleware if type(one).run is not Middleware.run)
        self._failure_handlers = tuple(
            one.failure_handler
            for one in middleware
            if (type(one).failure_handler, type(one).run) != (Middleware.failure_handler, Middleware.run)
        )
        self._steps = tuple(one.step for one in middleware if type(one).step is not Middleware.step)

    @property
    def has_steps(self) -> bool:
        """Whether anything is around steps."""
        return bool(self._steps)

    def started(self, kind: Literal["run", "event"], name: str, payload: Payload) -> Payload:
        """The input, or the payload of an event, with headers. Raises what middleware raises."""
        if not self._starts:
            return payload
        start = StartInfo(kind, name)
        for call in self._starts:
            call(start)
        return replace(payload, metadata=(*payload.metadata, *_marks(start.headers)))

    def run(self, run: RunInfo, handler: CallNext) -> Awaitable[Value]:
        """What is around a handler, and in it the handler."""
        return _nested(self._runs, run, handler)()

    def failure_handler(self, failure: FailureContext, handler: CallNext) -> Awaitable[Value]:
        """What is around a failure handler, and in it the failure handler."""
        return _nested(self._failure_handlers, failure, handler)()

    async def step(self, step: StepInfo, function: CallNext) -> Value:
        """What is around a step, and in it its function."""
        return await _nested(self._steps, step, function)()


class AroundRun:
    """The middleware of a worker, for one delivery of a run."""

    def __init__(self, around: Around, run: RunInfo) -> None:
        self._around = around
        self.info: Final = run
        self.has_steps: Final = around.has_steps
        self.started = around.started
        self.failure_handler = around.failure_handler

    def handler(self, handler: CallNext) -> Awaitable[Value]:
        """What is around the handler, and in it the handler."""
        return self._around.run(self.info, handler)

    def step(self, name: str, tries: int, function: CallNext) -> Coroutine[Value, Value, Value]:
        """What is around a step, and in it its function."""
        return self._around.step(StepInfo(name, self.info, tries), function)


def _nested(around: Sequence[Function], about: RunInfo | FailureContext | StepInfo, innermost: CallNext) -> CallNext:
    call_next = innermost
    for call in reversed(around):
        call_next = partial(call, about, call_next)
    return call_next


def headers_of(payload: Payload | None) -> Mapping[str, str]:
    """The headers that came with an input."""
    marks = () if payload is None else payload.metadata
    return {name.removeprefix(HEADER): text for name, text in marks if name.startswith(HEADER)}


def _marks(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Raises InvalidInputError."""
    size = 0
    for name, text in headers.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise InvalidInputError(f"headers must be text by text; got {ascii(name)[:50]}: a {type(text).__name__}")
        try:
            size += len(HEADER) + len(name.encode()) + len(text.encode())
        except UnicodeEncodeError:
            raise InvalidInputError(f"headers must not contain lone surrogates; {ascii(name)[:50]} does") from None
    if size > MAX_HEADER_BYTES:
        raise InvalidInputError(f"headers must be at most {MAX_HEADER_BYTES} bytes of UTF-8; they have {size}")
    return [(HEADER + name, text) for name, text in headers.items()]
