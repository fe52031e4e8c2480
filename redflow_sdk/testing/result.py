"""What comes of running a workflow inline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from redflow_sdk._sealing import Sealing
from redflow_sdk.errors import RunFailedError
from redflow_sdk.handle import output_of
from redflow_sdk.records import Failure, Run, RunStatus, Step
from redflow_sdk.testing._world import ENDS, EmittedEvent

OutputT = TypeVar("OutputT")


@dataclass(frozen=True, slots=True)
class InlineResult(Generic[OutputT]):
    """How a run has ended, and what it has done. Times are virtual."""

    run: Run
    """The run as `Client.get_run` would give it."""
    steps: tuple[Step, ...]
    """Its steps on record, in order of first use, as `Client.get_run_steps` would."""
    started: tuple[Run, ...]
    """The other runs that there were, in order of their starts: children, and those that events started."""
    emitted: tuple[EmittedEvent, ...]
    """The events that runs emitted, in this order."""
    elapsed: float
    """Seconds from the start of the run to its end, or to when nothing could happen any more."""
    output_type: object = field(repr=False)
    """What `output` makes of the output: the annotation of the handler."""
    unused: tuple[str, ...] = ()
    """What was given to stand in for something that did not happen, in words: an error if the run has succeeded."""

    @property
    def status(self) -> RunStatus:
        """`succeeded`, `failed`, `canceled`, or `waiting` for something that does not come; see `run.waiting_for`."""
        return self.run.status

    @property
    def attempts(self) -> int:
        """How many attempts there were."""
        return self.run.attempt

    @property
    def failure(self) -> Failure | None:
        """How the run has failed."""
        return self.run.failure

    @property
    def output(self) -> OutputT:
        """The output, as `RunHandle.result` gives it. Raises RunFailedError and CanceledError, and TimeoutError when
        the run has not ended. As text they have the traceback, and what is `unused`.
        """
        if self.run.status not in ENDS:
            waits = ", ".join(f"step {one.step_name!r} waits for {one.detail}" for one in self.run.waiting_for)
            what = f"run {self.run.id} has not ended, and nothing is to come: {waits or 'nobody has it'}"
            raise TimeoutError("\n".join((what, *self.unused)))
        try:
            value: OutputT = output_of(self.run, self.output_type, Sealing(None, "test"))
        except RunFailedError as error:
            error.hint = "\n".join((*self.unused, error.failure.traceback)).rstrip()
            raise
        return value

    def step(self, name: str) -> Step:
        """The step of this name. Raises LookupError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise LookupError(f"there is no step {name!r} on record; there are {[step.name for step in self.steps]}")
