"""Running a workflow in process, in virtual time, without a gateway and Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar, overload

from redflow_sdk import converter
from redflow_sdk._around import Around
from redflow_sdk._names import check_name
from redflow_sdk._numbers import check_seconds
from redflow_sdk._start import StartOptions, run_start
from redflow_sdk._step_calls import check_aware
from redflow_sdk._types import Given, Value
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.middleware import Middleware
from redflow_sdk.records import Payload
from redflow_sdk.testing._clock import VirtualClock
from redflow_sdk.testing._events import NewEvent
from redflow_sdk.testing._play import Play, Script
from redflow_sdk.testing._unused import unused
from redflow_sdk.testing._views import run_of, step_of
from redflow_sdk.testing.result import InlineResult
from redflow_sdk.workflow import AnyWorkflow, Workflow

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


@dataclass(frozen=True, slots=True)
class ExternalEvent:
    """An event that somebody else emits. Raises InvalidInputError for arguments that make no sense.

    await run_inline(ship, order, events=[ExternalEvent("payment.received", key=order.id, after=60)])
    """

    name: str
    payload: object = None
    """Any value that can be written as JSON."""
    key: str | None = None
    """None emits it without."""
    after: float = 0.0
    """Seconds of virtual time from the start of the run."""

    def __post_init__(self) -> None:
        check_name("event", self.name)
        check_seconds("after", self.after, lowest=0.0)


@overload
async def run_inline(
    workflow: Workflow[None, OutputT],
    input: None = None,
    *,
    steps: Mapping[str, object] | None = None,
    children: Mapping[str, object] | None = None,
    tokens: Mapping[str, object] | None = None,
    events: Sequence[ExternalEvent] = (),
    workflows: Sequence[AnyWorkflow] = (),
    middleware: Sequence[Middleware] = (),
    now: datetime | None = None,
) -> InlineResult[OutputT]: ...
@overload
async def run_inline(
    workflow: Workflow[InputT, OutputT],
    input: Given[InputT],
    *,
    steps: Mapping[str, object] | None = None,
    children: Mapping[str, object] | None = None,
    tokens: Mapping[str, object] | None = None,
    events: Sequence[ExternalEvent] = (),
    workflows: Sequence[AnyWorkflow] = (),
    middleware: Sequence[Middleware] = (),
    now: datetime | None = None,
) -> InlineResult[OutputT]: ...
async def run_inline(
    workflow: AnyWorkflow,
    input: object = None,
    *,
    steps: Mapping[str, object] | None = None,
    children: Mapping[str, object] | None = None,
    tokens: Mapping[str, object] | None = None,
    events: Sequence[ExternalEvent] = (),
    workflows: Sequence[AnyWorkflow] = (),
    middleware: Sequence[Middleware] = (),
    now: datetime | None = None,
) -> InlineResult[Value]:
    """Runs a workflow here and now, as a worker and a gateway would, and returns when nothing more can happen.

    The handler is called on this loop, or in a thread if it is a `def`. Sleeps, time-outs of waits, and delays between
    attempts and tries pass at once, in virtual time, which begins at `now` (an aware time; default: the real one);
    what a step function does takes as long as it takes. A handler that waits always ends, and runs again from its start
    with its steps on record, so that one that does not bear that is found.

    `steps` has, by the names of steps, what stands in the place of functions and child workflows: a value, a function
    that is called with the same arguments, or an exception to raise. It counts for the steps of all runs that are
    played. `children` has the same by the names of workflows. Other runs that a handler starts are run inline too,
    those of workflows that it names by text, and those that events start, if they are among `workflows`. `tokens` has,
    by the names of steps, what their tokens are completed with, or an exception to fail them with. `events` are emitted
    by somebody else. `middleware` is that of the worker, and of who starts the run and emits the events.

    Raises InputValidationError and SerializationError for the input, InvalidInputError for arguments that make no
    sense, EndlessPlay when runs start runs, or go on, without end. What the run itself raises is in the result.

    InvalidInputError, too, is raised when the run has succeeded and nothing has used one of the names in `steps`,
    `children` and `tokens`, or of `events`: mostly it is not spelled as in the workflow.

        result = await run_inline(receive_order, order, steps={"charge": "receipt-7"})
        assert result.output == Receipt("receipt-7")
    """
    _check(workflow, workflows, events)
    around = Around(middleware)
    start = run_start(workflow, input, StartOptions())
    start = replace(start, input=around.started("run", start.workflow, start.input))
    clock = VirtualClock(datetime.now(UTC) if now is None else check_aware("now", now))
    script = Script(steps or {}, children or {}, tokens or {}, around)
    play = Play(clock, script)
    try:
        run = play.start(workflow, start)
        for other in workflows:
            play.meet(other)
        for event in events:
            payload = around.started("event", event.name, Payload(converter.encode(event.payload)))
            play.emit(NewEvent(event.name, event.key, payload), event.after)
        await play.run()
    finally:
        await play.close()
    left = unused(play, run, script, (event.name for event in events))
    if left and run.status == "succeeded":
        raise InvalidInputError("\n".join(left))
    ended_ms = clock.now_ms if run.finished_ms is None else run.finished_ms
    recorded = sorted(run.steps.values(), key=lambda step: (step.snapshot.seq, step.snapshot.name))
    return InlineResult(
        run=run_of(play.world, run),
        steps=tuple(step_of(play.world, step) for step in recorded),
        started=tuple(run_of(play.world, other) for other in play.world.runs.values() if other is not run),
        emitted=tuple(play.world.emitted),
        elapsed=(ended_ms - run.created_ms) / 1000,
        output_type=workflow.output_type,
        unused=left,
    )


def _check(workflow: AnyWorkflow, workflows: Sequence[AnyWorkflow], events: Sequence[ExternalEvent]) -> None:
    for what, given in (("workflow", workflow), *((f"workflows[{i}]", each) for i, each in enumerate(workflows))):
        if not isinstance(given, Workflow):
            raise InvalidInputError(f"{what} must be a workflow; is a {type(given).__name__}")
    for i, event in enumerate(events):
        if not isinstance(event, ExternalEvent):
            raise InvalidInputError(f"events[{i}] must be an ExternalEvent; is a {type(event).__name__}")
