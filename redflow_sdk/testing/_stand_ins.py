"""Values, functions and exceptions that stand in the place of step functions and of whole workflows."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeGuard, TypeVar

from redflow_sdk._messages import ChildTarget
from redflow_sdk._readers import Describe
from redflow_sdk._step_calls import ChildCall, EmitCall, StepCall, StepRunner, WaitCall
from redflow_sdk._types import Function, Value
from redflow_sdk.context import BlockingContext, Context, RunInfo
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.records import Raced
from redflow_sdk.retry import RetryPolicy
from redflow_sdk.workflow import AnyWorkflow, workflow

T = TypeVar("T")


class StandIns:
    """What stands in the place of what really happens, by name, and which of it was taken. From any thread."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def take(self, name: str) -> object:
        """What stands in the place of it."""
        self._taken.add(name)
        return self._given[name]

    @property
    def left(self) -> tuple[str, ...]:
        """The names of those that nobody has taken."""
        return tuple(name for name in self._given if name not in self._taken)


class Stage(Protocol):
    """Where handlers play."""

    @property
    def steps(self) -> StandIns:
        """What stands in the place of which step."""

    def at_work(self, run: RunInfo) -> AbstractContextManager[None]:
        """A handler of the run is at work."""

    def meet(self, workflow: AnyWorkflow) -> None:
        """A handler has named this workflow."""

    def known(self, name: str) -> AnyWorkflow | None:
        """The workflow of this name, if it was met or has a stand-in."""

    def replace_child(self, run_id: str, step_name: str, workflow: AnyWorkflow) -> None:
        """The run that a step starts is to be one of this workflow."""


def on_stage(played: AnyWorkflow, stage: Stage) -> AnyWorkflow:
    """The workflow with a handler whose steps may have stand-ins."""
    function: Function = played.function

    @functools.wraps(function)
    async def handler(ctx: Context, *args: Value) -> Value:
        with stage.at_work(ctx.run):
            return await function(Context(ctx.run, PlayedSteps(ctx.run.id, ctx._runner, stage)), *args)

    @functools.wraps(function)
    def blocking_handler(ctx: BlockingContext, *args: Value) -> Value:
        with stage.at_work(ctx.run):
            return function(BlockingContext(ctx.run, PlayedSteps(ctx.run.id, ctx._runner, stage)), *args)

    return dataclasses.replace(played, function=handler if played.is_async else blocking_handler)


def workflow_of(outcome: object, name: str, known: AnyWorkflow | None) -> AnyWorkflow:
    """A workflow that comes to this: a value, what a function makes of its input, or an exception to raise."""
    call = function_of(outcome, None)

    async def handler(ctx: Context, input: Value = None) -> Value:
        return await call() if known is not None and not known.takes_input else await call(input)

    if known is None:
        made: AnyWorkflow = workflow(name=name)(handler)
        return made
    return dataclasses.replace(known, function=handler, is_async=True, on_failure=None)


def function_of(outcome: object, original: Function | None) -> Function:
    """A function that comes to this, with the type that the original one gives."""

    async def stand_in(*args: Value, **kwargs: Value) -> Value:
        if is_exception(outcome):
            raise outcome
        if not callable(outcome):
            return outcome
        value = outcome(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    while isinstance(original, functools.partial):
        original = original.func
    return stand_in if original is None else functools.update_wrapper(stand_in, getattr(original, "__func__", original))


def is_exception(outcome: object) -> TypeGuard[BaseException | type[BaseException]]:
    """Whether it is to be raised."""
    return isinstance(outcome, BaseException) or (isinstance(outcome, type) and issubclass(outcome, BaseException))


class PlayedSteps:
    """The steps of a delivery, some of which have stand-ins."""

    def __init__(self, run_id: str, steps: StepRunner, stage: Stage) -> None:
        self._run_id = run_id
        self._steps = steps
        self._stage = stage

    @property
    def describe(self) -> Describe:
        """How the faults of a value are told."""
        return self._steps.describe

    @property
    def is_stopped(self) -> bool:
        """Whether the handler has to end."""
        return self._steps.is_stopped

    def run_step(self, call: StepCall) -> Coroutine[Value, Value, Value]:
        """The step's value: what its stand-in gives, if it has one."""
        return self._steps.run_step(self._played(call))

    def run_step_in_thread(self, call: StepCall) -> Value:
        """The same for a handler in a thread."""
        return self._steps.run_step_in_thread(self._played(call))

    async def wait(self, call: WaitCall) -> Value:
        """What the step waits for."""
        if isinstance(call.target, ChildTarget):
            self._meet_child(call.name, call.target.start.workflow, call.workflow)
        else:
            self._check_none(call.name)
        return await self._steps.wait(call)

    async def token(self, name: str, timeout: float | None) -> str:
        """The token of a step, which waits from now on."""
        self._check_none(name)
        return await self._steps.token(name, timeout)

    def completed(self, call: WaitCall) -> Coroutine[Value, Value, Value]:
        """What the token of a step was completed with."""
        return self._steps.completed(call)

    async def start(self, call: ChildCall) -> str:
        """The id of a run that the step starts."""
        self._meet_child(call.name, call.start.workflow, call.workflow)
        return await self._steps.start(call)

    async def emit(self, call: EmitCall) -> list[str]:
        """The runs that an event starts."""
        self._check_none(call.name)
        return await self._steps.emit(call)

    def race(
        self, name: str, members: Mapping[str, Coroutine[Value, Value, Value]], unnamed: Sequence[Value]
    ) -> Coroutine[Value, Value, Raced[Value]]:
        """The first of the members to end."""
        return self._steps.race(name, members, unnamed)

    def on_loop(self, work: Coroutine[Value, Value, T]) -> T:
        """What a coroutine comes to, for a handler in a thread."""
        return self._steps.on_loop(work)

    def _played(self, call: StepCall) -> StepCall:
        """The call with the step's stand-in, and without jitter: a play takes the same time each time."""
        if isinstance(call.retry, RetryPolicy):
            call = dataclasses.replace(call, retry=dataclasses.replace(call.retry, jitter=0.0))
        if call.name not in self._stage.steps:
            return call
        return dataclasses.replace(call, function=function_of(self._stage.steps.take(call.name), call.function))

    def _meet_child(self, step_name: str, name: str, known: AnyWorkflow | None) -> None:
        if known is not None:
            self._stage.meet(known)
        if step_name in self._stage.steps:
            stand_in = workflow_of(self._stage.steps.take(step_name), name, known or self._stage.known(name))
            self._stage.replace_child(self._run_id, step_name, stand_in)

    def _check_none(self, name: str) -> None:
        """Raises InvalidInputError: what is no function and no run has no stand-in."""
        if name in self._stage.steps:
            raise InvalidInputError(
                f"steps[{name!r}] stands for no function and no workflow; what a step waits for is given by events= "
                f"and tokens="
            )
