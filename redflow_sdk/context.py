"""What a handler is given: the run it executes, and the way to record steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, overload

from redflow_sdk._types import Function, Value
from redflow_sdk.errors import RunCanceledError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that a handler executes. `attempt` counts from 1; `delivery` is how often workers have received it."""

    id: str
    workflow: str
    queue: str
    attempt: int
    max_attempts: int
    delivery: int


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step that a handler asks for. `timeout` is in seconds."""

    name: str
    function: Function
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    timeout: float | None


class StepRunner(Protocol):
    """Runs steps once, and knows whether the run is canceled."""

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""

    async def run_step(self, call: StepCall) -> Value:
        """The step's value: what the function returns, or what is on record."""

    def run_step_blocking(self, call: StepCall) -> Value:
        """The same for a handler in a thread."""


class Steps:
    """`ctx.step` of an `async def` handler."""

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner

    @overload
    async def run(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: object,
        timeout: float | None = None,
        **kwargs: object,
    ) -> T: ...
    @overload
    async def run(
        self, name: str, function: Callable[..., T], /, *args: object, timeout: float | None = None, **kwargs: object
    ) -> T: ...
    async def run(
        self, name: str, function: Function, /, *args: object, timeout: float | None = None, **kwargs: object
    ) -> Value:
        """Runs `function(*args, **kwargs)` as a step: once it has succeeded, it is not run again, whatever happens.

        The value comes back as JSON makes it, typed by the function's return annotation. `timeout` is in seconds.
        A `def` function runs in a thread. Raises what the function raises, TimeoutError, SerializationError for a
        value that JSON cannot have, DuplicateStepError for a name that this run has used, and CancelledError when
        the run is canceled or lost.

            total = await ctx.step.run("charge", charge, order.id, amount=5, timeout=10.0)
        """
        return await self._runner.run_step(StepCall(name, function, args, kwargs, timeout))


class BlockingSteps:
    """`ctx.step` of a `def` handler."""

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner

    @overload
    def run(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: object,
        timeout: float | None = None,
        **kwargs: object,
    ) -> T: ...
    @overload
    def run(
        self, name: str, function: Callable[..., T], /, *args: object, timeout: float | None = None, **kwargs: object
    ) -> T: ...
    def run(
        self, name: str, function: Function, /, *args: object, timeout: float | None = None, **kwargs: object
    ) -> Value:
        """Runs `function(*args, **kwargs)` as a step, like `Steps.run`, and blocks until it is recorded.

        A `def` function runs in the handler's own thread and cannot be interrupted: after `timeout` its result is
        dropped when it returns. Raises RunCanceledError when the run is canceled or lost.
        """
        return self._runner.run_step_blocking(StepCall(name, function, args, kwargs, timeout))


class Context:
    """The first argument of an `async def` handler."""

    def __init__(self, run: RunInfo, runner: StepRunner) -> None:
        self.run = run
        self.step = Steps(runner)
        self._runner = runner

    @property
    def canceled(self) -> bool:
        """Whether the run was canceled or lost to this worker."""
        return self._runner.is_stopped


class BlockingContext:
    """The first argument of a `def` handler, which runs in a thread."""

    def __init__(self, run: RunInfo, runner: StepRunner) -> None:
        self.run = run
        self.step = BlockingSteps(runner)
        self._runner = runner

    @property
    def canceled(self) -> bool:
        """Whether the run was canceled or lost to this worker: a handler should look at it now and then, and end."""
        return self._runner.is_stopped

    def raise_if_canceled(self) -> None:
        """Raises RunCanceledError when the run was canceled or lost to this worker."""
        if self._runner.is_stopped:
            raise RunCanceledError("the run was canceled")
