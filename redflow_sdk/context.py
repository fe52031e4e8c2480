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
    """The run that a handler executes. `attempt` counts from 1; `delivery` is how often workers have received it.
    `headers` are those that the middleware of who started it has sent along.
    """

    id: str
    workflow: str
    queue: str
    attempt: int
    max_attempts: int
    delivery: int
    headers: Mapping[str, str] = field(default_factory=dict)


class Context:
    """The first argument of an `async def` handler."""

    def __init__(self, run: RunInfo, runner: StepRunner) -> None:
        self.run: Final = run
        self.step: Final = Steps(runner)
        self._runner = runner

    @property
    def canceled(self) -> bool:
        """Whether the run was canceled or lost to this worker."""
        return self._runner.is_stopped


class BlockingContext:
    """The first argument of a `def` handler, which runs in a thread."""

    def __init__(self, run: RunInfo, runner: StepRunner) -> None:
        self.run: Final = run
        self.step: Final = BlockingSteps(runner)
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
    input: object
    error: BaseException
    failure: Failure
