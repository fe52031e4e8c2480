"""What an `async def` handler may ask of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Never, TypeVar, overload

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
from redflow_sdk.records import Event, Raced
from redflow_sdk.retry import RetryPolicy
from redflow_sdk.token import Token

if TYPE_CHECKING:  # a workflow is of a handler that takes a context
    from redflow_sdk.workflow import AnyWorkflow, Workflow

T = TypeVar("T")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


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
        retry: RetryPolicy | None = None,
        **kwargs: object,
    ) -> T: ...
    @overload
    async def run(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: object,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        **kwargs: object,
    ) -> T: ...
    async def run(
        self,
        name: str,
        function: Function,
        /,
        *args: object,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        **kwargs: object,
    ) -> Value:
        """Runs `function(*args, **kwargs)` as a step: once it has succeeded, it is not run again, whatever happens.

        The value comes back as JSON makes it, typed by the function's return annotation. `timeout` is in seconds, for
        each call. With `retry` a call that fails is repeated within this attempt of the run, as often as the policy
        says, by whichever worker has the run; before a delay of a second or more the run is set aside.
        A `def` function runs in a thread. Raises what the function raises, TimeoutError, SerializationError for a
        value that JSON cannot have, DuplicateStepError for a name that this run has used, and CancelledError when
        the run is canceled or lost.

            total = await ctx.step.run("charge", charge, order.id, amount=5, timeout=10.0)
        """
        return await self._runner.run_step(StepCall(name, function, args, kwargs, timeout, retry))

    def each(self, name: str, items: Iterable[T]) -> Iterator[tuple[str, T]]:
        """The items, each with a step name of its own: `charge#0`, `charge#1` and so on.

        The names follow the order of the items, which has to be the same whenever the handler runs again: take them
        from the input or from a step. A set has no such order, so that one is refused with InvalidInputError.

            for name, order in ctx.step.each("charge", orders):
                await ctx.step.run(name, charge, order)
        """
        return numbered(name, items)

    async def sleep(
        self, name: str, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Waits for a time, which counts from when the gateway first hears of it: restarts of anything change nothing.

        The run takes up no slot of its worker meanwhile. A handler that waits for long ends, and runs again from its
        start, with its steps on record, when the wait is over. What is awaited beside it and is no step delays that end
        by ten seconds at most, is cut short by it, and begins again. Not to be called within a step.

            await ctx.step.sleep("cool off", days=2)
        """
        await self._runner.wait(sleep_call(name, seconds, minutes, hours, days))

    async def sleep_until(self, name: str, at: datetime) -> None:
        """Waits until a time, an aware one, like `sleep`; one that has passed is over at once."""
        await self._runner.wait(sleep_until_call(name, at))

    @overload
    async def wait_for_event(
        self, name: str, event: str, *, payload_type: type[T], key: str | None = None, timeout: float | None = None
    ) -> Event[T] | None: ...
    @overload
    async def wait_for_event(
        self, name: str, event: str, *, payload_type: object, key: str | None = None, timeout: float | None = None
    ) -> Event[object] | None: ...
    @overload
    async def wait_for_event(
        self, name: str, event: str, *, key: str | None = None, timeout: float | None = None
    ) -> Event[JsonValue] | None: ...
    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        payload_type: Value = Value,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Event[Value] | None:
        """Waits for an event of this name with exactly this `key`, or without one, for at most `timeout` seconds.

        It gets the oldest one emitted since the run was created that no earlier wait of the run has got: one that came
        before the wait began counts, as long as the gateway remembers it (ten minutes, the last hundred of a name and
        key). Returns None when the time is over. Otherwise like `sleep`.

            paid = await ctx.step.wait_for_event("paid", "payment.received", key=order.id, timeout=3600)
        """
        call = event_call(name, event, key, timeout, payload_type)
        got: Event[Value] | None = await self._runner.wait(call)
        return got

    @overload
    async def token(self, name: str, output_type: type[T], *, timeout: float | None = None) -> Token[T]: ...
    @overload
    async def token(self, name: str, output_type: object, *, timeout: float | None = None) -> Token[object]: ...
    @overload
    async def token(self, name: str, *, timeout: float | None = None) -> Token[JsonValue]: ...
    async def token(self, name: str, output_type: Value = Value, *, timeout: float | None = None) -> Token[Value]:
        """A token that somebody completes, or fails, from outside: an opaque string to send in a mail or to a webhook.

        It waits from now on, at most `timeout` seconds; `await token.result()` gives what it was completed with.

            token = await ctx.step.token("approve", Decision, timeout=86400)
            await ctx.step.run("ask", send_mail, token)
            decision = await token.result()
        """
        text = await self._runner.token(check_name("step name", name), check_timeout(timeout))
        return Token.of(text, token_call(name, output_type), self._runner)

    @overload
    async def run_workflow(
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
    async def run_workflow(
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
    async def run_workflow(
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
    async def run_workflow(
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
        """Starts a run of a workflow and waits for its end; returns its output, typed by the workflow.

        The run that waits takes up no slot of its worker meanwhile, as in `sleep`. The other run is started once,
        whatever happens; with an `idempotency_key` it may be one that others have started. After `timeout` seconds it
        is canceled, if nobody else waits for it. Other arguments are as in `Client.start`. It is not to be called
        within a step, which would never end.

        Raises ChildFailedError and ChildCanceledError, and TimeoutError, now and in every attempt: what came of the
        other run is on record. So is UnknownWorkflowError for a workflow that is not registered and has no queue, and
        StepFailedError for a run that waits for this one. InputValidationError for the input; DuplicateStepError for a
        name that this run has used.

            receipt = await ctx.step.run_workflow("render", render_receipt, order)
        """
        describe = self._runner.describe
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts, describe)
        return await self._runner.wait(child_call(name, workflow, input, options, timeout))

    @overload
    async def start_workflow(
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
    async def start_workflow(
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
    async def start_workflow(
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
    async def start_workflow(
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
        """Starts a run of a workflow once, whatever happens, and goes on; returns its id.

        When this run ends, the other one goes on with `parent_close` "abandon", and is canceled with "cancel" unless
        somebody else waits for it. Other arguments are as in `Client.start`. Raises UnknownWorkflowError for a
        workflow that is not registered and has no queue, now and in every attempt.

            await ctx.step.start_workflow("watch", watch_parcel, parcel, parent_close="cancel")
        """
        describe = self._runner.describe
        options = StartOptions(idempotency_key, idempotency_ttl, queue, priority, max_attempts, describe)
        return await self._runner.start(start_call(name, workflow, input, options, parent_close))

    async def emit_event(
        self,
        name: str,
        event: str,
        payload: object = None,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: float | None = None,
    ) -> list[str]:
        """Emits an event as a step, once, whatever happens: a run of every workflow that subscribes to it is started.

        Runs that wait for it with exactly this `key`, or without one, go on. Returns the ids of those that are started.
        `idempotency_ttl` is in seconds (7 days).

            await ctx.step.emit_event("announce", "order.paid", {"id": order.id}, key=order.id)
        """
        call = emit_call(
            name, event, payload, key=key, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl
        )
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
        """Emits an event whose runs are created now and start at `available_at`, an aware time. Waits do not see it."""
        call = emit_call(name, event, payload, idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl)
        call = replace(call, available_at=check_aware("available_at", available_at))
        return await self._runner.emit(call)

    async def race(self, name: str, /, *unnamed: Never, **members: Coroutine[Value, Value, T]) -> Raced[T]:
        """The first of several steps to end, with its value. What the others wait for is withdrawn in the same instant,
        and a function among them is canceled; a child that only this run waits for is canceled too.

        Each member is a keyword argument, whose name becomes `winner`, and one step, not awaited: a function, a sleep,
        an event, a run, or the result of a token. Who has won is on record: a replay decides the same way. Raises what
        the first one raises. When that is a function, the waits of the others stay open: the next attempt of the run
        calls it again, and they count on. Any other wait that a handler gives up, as by `asyncio.timeout`, stays open
        too; `timeout` of a wait ends it.

            first = await ctx.step.race(
                "paid or late",
                paid=ctx.step.wait_for_event("paid", "payment.received", key=order.id),
                late=ctx.step.sleep("late", days=3),
            )
            if first.winner == "late": ...
        """
        return await self._runner.race(name, members, unnamed)
