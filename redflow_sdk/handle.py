"""A run that was started."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from redflow_sdk._sealing import Sealing
from redflow_sdk._types import Annotation, Value
from redflow_sdk.errors import CanceledError, RunFailedError, UnavailableError
from redflow_sdk.records import Failure, Run

if TYPE_CHECKING:
    from redflow_sdk.client import Client

OutputT = TypeVar("OutputT")
UNTOLD: Final = Failure("UnknownFailure", "the gateway does not say how")
"""Of a run that has ended in a way that this SDK does not know."""


@dataclass(frozen=True, slots=True)
class RunHandle(Generic[OutputT]):
    """A run and the type of its output, as `Client.start` and `Client.handle` give it.

    handle = await client.start(greet, "Ada")
    greeting = await handle.result(timeout=10)
    """

    id: str
    """The id of the run."""
    client: Client
    """The client that asks for it."""
    output_type: object
    """What `result` makes of the output; `typing.Any` leaves it as JSON has it."""
    created: bool = True
    """False when an idempotency key answered an existing run."""
    input_differs: bool = False
    """Whether that one was started with other input."""

    async def get(self) -> Run:
        """The run as it is now. Raises RunNotFoundError, UnavailableError."""
        return await self.client.get_run(self.id)

    async def cancel(self, reason: str = "") -> bool:
        """Asks for it to end as canceled, with a `reason` for the record; False when it had ended, or there is none.

        Raises UnavailableError.
        """
        return await self.client.cancel_run(self.id, reason=reason)

    async def result(self, timeout: float | None = None) -> OutputT:
        """Waits for the output, at most `timeout` seconds (None: for ever), and then for the gateway's answer at most
        one more.

        Raises RunFailedError, CanceledError, TimeoutError, RunNotFoundError, UnavailableError when there is no gateway
        to say so in time, and CodecError for an output that the codec of the client does not decode.
        """
        return self.output_of(await self._end(timeout))

    def output_of(self, run: Run) -> OutputT:
        """The output of the run as it has ended; for the SDK itself. Raises as `result` does."""
        value: OutputT = output_of(run, self.output_type, self.client.sealing)
        return value

    async def _end(self, timeout: float | None) -> Run:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                run = await self.client.wait_run(self.id, max(deadline - time.monotonic(), 0.0))
            except UnavailableError:
                if time.monotonic() >= deadline:
                    raise
                continue
            if run is not None:
                return run
            if timeout is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run {self.id} has not ended within {round(timeout, 3)} s")


def output_of(run: Run, output_type: Annotation, sealing: Sealing) -> Value:
    """The output of a run that has ended, of this type. Raises RunFailedError, CanceledError, CodecError."""
    if run.status == "succeeded":
        return sealing.read_output(run.output, output_type)
    if run.status == "canceled":
        raise CanceledError(f"Run canceled: {run.cancel_reason}" if run.cancel_reason else "Run canceled")
    failure = run.failure or UNTOLD
    what = f"Run failed: {failure.type}: {failure.message} (workflow {run.workflow}, run {run.id})"
    raise RunFailedError(what, run.id, run.workflow, failure)
