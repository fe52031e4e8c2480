"""What a `def` handler, which runs in a thread, may ask of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, overload

from redflow_sdk._names import check_name, numbered
from redflow_sdk._start import StartOptions
from redflow_sdk._step_calls import (
    ParentClose,
    StepCall,
    StepRunner,
    check_aware,
    check_timeout,
    child_call,
    emit_call,
    event_call,
    sleep_call,
    sleep_until_call,
    start_call,
    token_call,
)
from redflow_sdk._types import Function, Given, JsonValue, Value
from redflow_sdk.records import Event
from redflow_sdk.retry import RetryPolicy
from redflow_sdk.token import BlockingToken

if TYPE_CHECKING:  # a workflow is of a handler that takes a context
    from redflow_sdk.workflow import AnyWorkflow, Workflow

T = TypeVar("T")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


class BlockingSteps:
    """`ctx.step` of a `def` handler: the same as `Steps`, but that each call blocks, and that there are no races.

    Every call raises RunCanceledError when the run is canceled or lost to this worker.
    """

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
        retry: RetryPolicy | None = None,
        **kwargs: object,
    ) -> T: ...
    @overload
    def run(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: object,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        **kwargs: object,
    ) -> T: ...
    def run(
        self,
        name: str,
        function: Function,
        /,
        *args: object,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        **kwargs: object,
    ) -> Value:
        """Runs `function(*args, **kwargs)` as a step, like `Steps.run`, and blocks until it is recorded.

        A `def` function runs in the handler's own thread and cannot be interrupted: after `timeout` its result is
        dropped when it returns. Raises RunCanceledError when the run is canceled or lost.
        """
        return self._runner.run_step_in_thread(StepCall(name, function, args, kwargs, timeout, retry))

    def each(self, name: str, items: Iterable[T]) -> Iterator[tuple[str, T]]:
        """The items, each with a step name of its own: `charge#0`, `charge#1` and so on.

        The names follow the order of the items, which has to be the same whenever the handler runs again: take them
        from the input or from a step. A set has no such order, so that one is refused with InvalidInputError.

            for name, order in ctx.step.each("charge", orders):
                ctx.step.run(name, charge, order)
        """
        return numbered(name, items)

    def sleep(
        self, name: str, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Waits for a time, like `Steps.sleep`."""
        self._runner.on_loop(self._runner.wait(sleep_call(name, seconds, minutes, hours, days)))

    def sleep_until(self, name: str, at: datetime) -> None:
        """Waits until a time, an aware one, like `sleep`; one that has passed is over at once."""
        self._runner.on_loop(self._runner.wait(sleep_until_call(name, at)))

    @overload
    def wait_for_event(
        self, name: str, event: str, *, payload_type: type[T], key: str | None = None, timeout: float | None = None
    ) -> Event[T] | None: ...
    @overload
    def wait_for_event(
        self, name: str, event: str, *, payload_type: object, key: str | None = None, timeout: float | None = None
    ) -> Event[object] | None: ...
    @overload
    def wait_for_event(
        self, name: str, event: str, *, key: str | None = None, timeout: float | None = None
    ) -> Event[JsonValue] | None: ...
    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        payload_type: Value = Value,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Event[Value] | None:
        """Waits for an event, like `Steps.wait_for_event`."""
        call = event_call(name, event, key, timeout, payload_type)
        got: Event[Value] | None = self._runner.on_loop(self._runner.wait(call))
        return got

    @overload
    def token(self, name: str, output_type: type[T], *, timeout: float | None = None) -> BlockingToken[T]: ...
    @overload
    def token(self, name: str, output_type: object, *, timeout: float | None = None) -> BlockingToken[object]: ...
    @overload
    def token(self, name: str, *, timeout: float | None = None) -> BlockingToken[JsonValue]: ...
    def token(self, name: str, output_type: Value = Value, *, timeout: float | None = None) -> BlockingToken[Value]:
        """A token that somebody completes or fails from outside, like `Steps.token`."""
        text = self._runner.on_loop(self._runner.token(check_name("step name", name), check_timeout(timeout)))
        return BlockingToken.of(text, token_call(name, output_type), self._runner)

    @overload
    def run_workflow(
        self,
        name: str,
        workflow: Workflow[None, OutputT],
        input: None = None,
        *,
        timeout: float | None = None,
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
        workflow: Workflow[InputT, OutputT],
        input: Given[InputT],
        *,
        timeout: float | None = None,
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
        input: object = None,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> JsonValue: ...
    def run_workflow(
        self,
        name: str,
        workflow: AnyWorkflow | str,
        input: object = None,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Value:
        """Starts a run of a workflow and waits for its end, like `Steps.run_workflow`."""
        describe = self._runner.describe
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts, describe)
        return self._runner.on_loop(self._runner.wait(child_call(name, workflow, input, options, timeout)))

    @overload
    def start_workflow(
        self,
        name: str,
        workflow: Workflow[None, object],
        input: None = None,
        *,
        parent_close: ParentClose = "abandon",
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> str: ...
    @overload
    def start_workflow(
        self,
        name: str,
        workflow: Workflow[InputT, object],
        input: Given[InputT],
        *,
        parent_close: ParentClose = "abandon",
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> str: ...
    @overload
    def start_workflow(
        self,
        name: str,
        workflow: str,
        input: object = None,
        *,
        parent_close: ParentClose = "abandon",
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> str: ...
    def start_workflow(
        self,
        name: str,
        workflow: AnyWorkflow | str,
        input: object = None,
        *,
        parent_close: ParentClose = "abandon",
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
        queue: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> str:
        """Starts a run of a workflow and goes on, like `Steps.start_workflow`."""
        describe = self._runner.describe
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts, describe)
        return self._runner.on_loop(self._runner.start(start_call(name, workflow, input, options, parent_close)))

    def emit_event(
        self,
        name: str,
        event: str,
        payload: object = None,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event as a step, like `Steps.emit_event`."""
        call = emit_call(
            name, event, payload, key=key, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl
        )
        return self._runner.on_loop(self._runner.emit(call))

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
        """Emits an event whose runs are created now and start at `available_at`, an aware time. Waits do not see it."""
        call = emit_call(name, event, payload, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl)
        call = replace(call, available_at=check_aware("available_at", available_at))
        return self._runner.on_loop(self._runner.emit(call))
