"""What a user writes to have something done around starts, handlers, failure handlers and steps, such as tracing."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # a context holds steps, which tell of themselves here
    from redflow_sdk.context import FailureContext, RunInfo


class CallNext(Protocol):
    """`await call_next()` calls the next middleware, and the last one the handler or the step's function; it gives what
    that returns, and raises what that raises. To be awaited once.
    """

    def __call__(self) -> Awaitable[object]:
        """To be awaited, once."""


@dataclass(frozen=True, slots=True)
class StartInfo:
    """What is to be started: a run of a workflow, or the runs of an event."""

    kind: Literal["run", "event"]
    name: str
    """That of the workflow, or of the event."""
    headers: dict[str, str] = field(default_factory=dict)
    """What is put here, text by text, comes to the runs as `RunInfo.headers`. It is stored as it is, also where a codec
    encodes the input. Together at most 4 KiB.
    """


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A step whose function is to be called."""

    name: str
    run: RunInfo
    """The run whose handler asks for it."""
    tries: int
    """Counts the calls in this attempt of the run, from 1."""


class Middleware:
    """Does something around starts, handlers, failure handlers and steps: derive from it, and write those of the
    methods that you need.

    Given to `Client(middleware=[...])` and `Worker(middleware=[...])`; the first one is the outermost. One object
    serves all runs of a worker at once, so what belongs to one run goes into a context variable. What it raises is
    raised to who starts, and fails the step, the attempt of the run, or its failure handler.

        class Tenants(Middleware):
            def start(self, start: StartInfo) -> None:
                start.headers["tenant"] = tenant.get()

            async def run(self, run: RunInfo, call_next: CallNext) -> object:
                tenant.set(run.headers["tenant"])
                return await call_next()
    """

    def start(self, start: StartInfo) -> None:
        """Called before a run is started or an event emitted, by a client, or as a step that is not on record."""

    async def run(self, run: RunInfo, call_next: CallNext) -> object:
        """Called around each call of a handler, `async def` or `def`, on the worker's loop; returns the output.

        Each delivery of a run calls the handler again. One that is set aside while it waits ends with
        asyncio.CancelledError, or in a thread with a BaseException of the SDK's own. Context variables that are set
        here are seen by the handler and its steps, and by no other run.

        It is around failure handlers, too, as long as `failure_handler` is not written: then there is no output.
        """
        return await call_next()

    async def failure_handler(self, failure: FailureContext, call_next: CallNext) -> object:
        """Called around each call of a failure handler, `async def` or `def`, on the worker's loop. What it returns is
        dropped; what it raises is on record as how the failure handler has failed. As long as you do not write it, it
        is `run` with `failure.run`, so that context variables and spans are there, too.
        """
        return await self.run(failure.run, call_next)

    async def step(self, step: StepInfo, call_next: CallNext) -> object:
        """Called around each call of a step's function, on the worker's loop; returns the step's value, which is then
        recorded. Not called for a value that is on record, nor for a step that waits. A time-out of the step holds for
        all of it.
        """
        return await call_next()
