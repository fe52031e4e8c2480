"""What a handler is given: the run it executes, and what it may ask of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from redflow_sdk.blocking_steps import BlockingSteps
from redflow_sdk.errors import RunCanceledError
from redflow_sdk.steps import Steps

if TYPE_CHECKING:
    from redflow_sdk._step_calls import StepRunner
    from redflow_sdk.records import Failure


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that a handler executes."""

    id: str
    workflow: str
    """The name of its workflow."""
    queue: str
    attempt: int
    """Counts from 1."""
    max_attempts: int
    delivery: int
    """How often workers have received it, from 1: each time the handler runs again from its start."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those that the middleware of who started it has sent along."""


class Context:
    """The first argument of an `async def` handler.

    @workflow
    async def greet(ctx: Context, name: str) -> str:
        return await ctx.step.run("compose", lambda: f"hello {name}")
    """

    run: Final[RunInfo]
    """The run that the handler executes."""
    step: Final[Steps]
    """What it may ask of its steps."""

    def __init__(self, run: RunInfo, runner: StepRunner) -> None:
        self.run = run
        self.step = Steps(runner)
        self._runner = runner

    @property
    def canceled(self) -> bool:
        """Whether the run was canceled or lost to this worker. Its handler is canceled then, as a task of asyncio
        is.
        """
        return self._runner.is_stopped


class BlockingContext:
    """The first argument of a `def` handler, which runs in a thread.

    @workflow
    def greet(ctx: BlockingContext, name: str) -> str:
        return ctx.step.run("compose", lambda: f"hello {name}")
    """

    run: Final[RunInfo]
    """The run that the handler executes."""
    step: Final[BlockingSteps]
    """What it may ask of its steps."""

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

    def tell(failed: FailureContext) -> None:
        print(failed.run.id, failed.failure.message)

    @workflow(on_failure=tell)
    async def pay(ctx: Context, order_id: str) -> None: ...
    """

    run: RunInfo
    """The run that has failed."""
    input: object
    """Its input, typed by the workflow where it fits."""
    error: BaseException
    """The exception itself where the handler has just raised it. Where it is on record only, it is the built-in of its
    name, caused by a StepFailedError, or else a StepFailedError.
    """
    failure: Failure
    """What is on record."""
