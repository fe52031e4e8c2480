"""What a handler is given: the run it executes, and the way to record steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

from redflow_sdk._start import StartOptions
from redflow_sdk._step_calls import (
    ChildCall,
    EmitCall,
    StepCall,
    check_aware,
    child_call,
    emit_call,
)
from redflow_sdk._types import Function, Value
from redflow_sdk.errors import RunCanceledError

if TYPE_CHECKING:  # a workflow is of a handler that takes a context
    from redflow_sdk.records import Failure
    from redflow_sdk.workflow import AnyWorkflow, Workflow

T = TypeVar("T")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that a handler executes. `attempt` counts from 1; `delivery` is how often workers have received it."""

    id: str
    workflow: str
    queue: str
    attempt: int
    max_attempts: int
    delivery: int


class StepRunner(Protocol):
    """Runs steps once, and knows whether the run is canceled."""

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""

    async def run_step(self, call: StepCall) -> Value:
        """The step's value: what the function returns, or what is on record."""

    async def run_child(self, call: ChildCall) -> Value:
        """The output of another run, when that has ended."""

    async def emit(self, call: EmitCall) -> list[str]:
        """The runs that an event starts."""

    def run_step_blocking(self, call: StepCall) -> Value:
        """The same for a handler in a thread."""

    def run_child_blocking(self, call: ChildCall) -> Value:
        """The same for a handler in a thread."""

    def emit_blocking(self, call: EmitCall) -> list[str]:
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

    @overload
    async def run_workflow(
        self,
        name: str,
        workflow: Workflow[InputT, OutputT],
        input: InputT = ...,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> OutputT: ...
    @overload
    async def run_workflow(
        self,
        name: str,
        workflow: str,
        input: object = ...,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Value: ...
    async def run_workflow(
        self,
        name: str,
        workflow: AnyWorkflow | str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Value:
        """Starts a run of a workflow and waits for its end; returns its output, typed by the workflow.

        The run that waits takes up no slot of its worker meanwhile: if it has to wait, its handler ends here, and runs
        again from its start, with its steps on record, when the other run has ended. What is awaited beside it and is
        no step is cut short and begins again then, a timeout of asyncio too. The other run is started once, whatever
        happens; with an `idempotency_key` it may be one that others have started. Other arguments are as in
        `Client.start`. It is not to be called within a step, which would never end.

        Raises ChildFailedError and ChildCanceledError, now and in every attempt: what came of the other run is on
        record. InputValidationError for the input; DuplicateStepError for a name that this run has used.

            receipt = await ctx.step.run_workflow("render", render_receipt, order)
        """
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts)
        call = child_call(name, workflow, input, options)
        return await self._runner.run_child(call)

    async def emit_event(
        self,
        name: str,
        event: str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event as a step, once, whatever happens: a run of every workflow that subscribes to it is started.

        Returns their ids. `idempotency_ttl` is in seconds (7 days).

            await ctx.step.emit_event("announce", "order.paid", {"id": order.id})
        """
        call = emit_call(name, event, payload, idempotency_key, idempotency_ttl)
        return await self._runner.emit(call)

    async def schedule_event(
        self,
        name: str,
        event: str,
        payload: object = None,
        *,
        available_at: datetime,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event whose runs are created now and start at `available_at`, an aware time."""
        call = emit_call(name, event, payload, idempotency_key, idempotency_ttl)
        call = replace(call, available_at=check_aware("available_at", available_at))
        return await self._runner.emit(call)


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

    @overload
    def run_workflow(
        self,
        name: str,
        workflow: Workflow[InputT, OutputT],
        input: InputT = ...,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> OutputT: ...
    @overload
    def run_workflow(
        self,
        name: str,
        workflow: str,
        input: object = ...,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Value: ...
    def run_workflow(
        self,
        name: str,
        workflow: AnyWorkflow | str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Value:
        """Starts a run of a workflow and waits for its end, like `Steps.run_workflow`."""
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts)
        call = child_call(name, workflow, input, options)
        return self._runner.run_child_blocking(call)

    def emit_event(
        self,
        name: str,
        event: str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event as a step, like `Steps.emit_event`."""
        call = emit_call(name, event, payload, idempotency_key, idempotency_ttl)
        return self._runner.emit_blocking(call)

    def schedule_event(
        self,
        name: str,
        event: str,
        payload: object = None,
        *,
        available_at: datetime,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event whose runs are created now and start at `available_at`, an aware time."""
        call = emit_call(name, event, payload, idempotency_key, idempotency_ttl)
        call = replace(call, available_at=check_aware("available_at", available_at))
        return self._runner.emit_blocking(call)


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


@dataclass(frozen=True, slots=True)
class FailureContext:
    """The argument of a failure handler: a run that has failed for good.

    `error` is the exception itself where the handler has just raised it. Where it is on record only, it is the built-in
    of its name, caused by a StepFailedError, or else a StepFailedError; `failure` is what is on record. `input` is
    typed by the workflow where it fits.
    """

    run: RunInfo
    input: Value
    error: BaseException
    failure: Failure
