"""One delivery of a run: calls the handler, and reports what became of it. On the worker's loop."""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from redflow_sdk import converter
from redflow_sdk._failures import canceled_failure
from redflow_sdk._link import Link
from redflow_sdk._messages import (
    Answer,
    Assignment,
    Canceled,
    Completed,
    Failed,
    Item,
    Release,
    ReleaseReason,
    Stop,
    StopReason,
    Verdict,
)
from redflow_sdk._steps import StepLog
from redflow_sdk._threads import Threads
from redflow_sdk._types import Value
from redflow_sdk.context import BlockingContext, Context, RunInfo
from redflow_sdk.errors import InputValidationError, RunCanceledError, SerializationError
from redflow_sdk.records import Failure
from redflow_sdk.workflow import AnyWorkflow

log = logging.getLogger("redflow.worker")

ANSWER_TIMEOUT_S: Final = 2.0
"""How long a program that ends waits for the answer of the gateway."""


class Phase(Enum):
    """Where an execution is."""

    HANDLING = auto()
    REPORTING = auto()


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all executions of a worker share. `keeper` is a task that only the end of the program cancels."""

    link: Link
    threads: Threads
    keeper: asyncio.Task[None]


class Execution:
    """A handler at work."""

    def __init__(
        self, assignment: Assignment, workflow: AnyWorkflow, workplace: Workplace, max_payload_bytes: int
    ) -> None:
        self.token = assignment.lease_token
        self._assignment = assignment
        self._workflow = workflow
        self._workplace = workplace
        self._link = workplace.link
        self._steps = StepLog(assignment, workplace.link, workplace.threads, max_payload_bytes, self._lost)
        self._steps.stop_order = assignment.stop
        self._phase = Phase.HANDLING
        self._task: asyncio.Task[None] | None = None
        self.is_abandoned = False
        """Whether the worker has given up on the handler, which goes on."""

    @property
    def workflow_name(self) -> str:
        """The workflow it runs."""
        return self._assignment.workflow

    @property
    def run_id(self) -> str:
        """The run it executes."""
        return self._assignment.run_id

    @property
    def is_lost(self) -> bool:
        """Whether the run is no longer this worker's, although its handler may go on."""
        stop = self._steps.stop_order
        return stop is not None and stop.reason.is_lost

    # ---- life ----

    async def run(self) -> None:
        """Runs the handler and reports its end."""
        self._task = asyncio.current_task()
        item = await self._handle()
        self._steps.close()
        self._phase = Phase.REPORTING
        if item is not None and not self.is_abandoned:
            await self._report_end(item)

    def stop(self, stop: Stop) -> None:
        """The handler has to end."""
        before = self._steps.stop_order
        if before is not None and (before.reason.is_lost or not stop.reason.is_lost):
            return
        self._steps.stop_order = stop
        if self._phase is not Phase.HANDLING:
            return
        if self._workflow.is_async and self._task is not None:
            self._task.cancel()
        self._steps.cancel_for_threads()

    def _lost(self) -> None:
        self._link.tell(lambda protocol: protocol.lose((self.token,)))
        self.stop(Stop(self.token, StopReason.LEASE_LOST))

    def abandon(self) -> asyncio.Future[Answer] | None:
        """The handler does not end although it has to: its run ends, or goes back, without it."""
        stop = self._steps.stop_order
        if self._phase is not Phase.HANDLING or self.is_abandoned or stop is None:
            return None
        self.is_abandoned = True
        if stop.reason is StopReason.WORKER_STOPPED:
            return self._link.report(Canceled(self.token, self._steps.recorded, is_worker_stopped=True))
        if stop.reason.is_lost:
            return None
        return self._link.report(Release(self.token, self._steps.recorded, ReleaseReason.CANCEL_IGNORED))

    def hand_back(self) -> asyncio.Future[Answer] | None:
        """The worker shuts down: the run goes on elsewhere from what is recorded."""
        if self._phase is not Phase.HANDLING or self.is_abandoned:
            return None
        self.is_abandoned = True
        answer = self._link.report(Release(self.token, self._steps.recorded, ReleaseReason.SHUTDOWN))
        self.stop(Stop(self.token, StopReason.MOVED, "the worker shuts down"))
        return answer

    # ---- the handler ----

    async def _handle(self) -> Item | None:
        """Calls the handler; what is to be reported of its end, or None when nothing may be."""
        assignment, workflow = self._assignment, self._workflow
        try:
            if assignment.has_more_steps and not self._steps.is_stopped:
                await self._steps.fetch_all()
            if self._steps.is_stopped:
                raise asyncio.CancelledError("stopped before it began")
            arguments = self._arguments()
            run = RunInfo(
                assignment.run_id,
                assignment.workflow,
                assignment.queue,
                assignment.attempt,
                assignment.max_attempts,
                assignment.delivery_count,
            )
            if workflow.is_async:
                output = await workflow.function(Context(run, self._steps), *arguments)
            else:
                handler = functools.partial(workflow.function, BlockingContext(run, self._steps), *arguments)
                output = await self._workplace.threads.run_handler(handler)
            return Completed(self.token, self._steps.recorded, self._steps.payload("the output", output))
        except BaseException as error:  # whatever a handler raises, SystemExit too, ends its run and not the worker
            return self._end_of(error)

    def _arguments(self) -> tuple[Value, ...]:
        if not self._workflow.takes_input:
            return ()
        data = self._assignment.input.data if self._assignment.input else b"null"
        try:
            return (converter.decode(data, self._workflow.input_type),)
        except InputValidationError as error:
            raise InputValidationError(f"the input does not fit: {error}", error.details) from None

    def _end_of(self, error: BaseException) -> Item | None:
        stop = self._steps.stop_order
        recorded = self._steps.recorded
        if stop is not None and stop.reason.is_lost:
            return None
        if not isinstance(error, (asyncio.CancelledError, RunCanceledError)):
            return self._failed(self._steps.failure(error))
        if stop is not None:
            return Canceled(self.token, recorded, stop.reason is StopReason.WORKER_STOPPED)
        keeper = self._workplace.keeper
        if keeper.cancelling() or keeper.cancelled():
            # Neither the gateway nor the handler: the program ends its loop, which is no wish to end the run.
            self._steps.stop_order = Stop(self.token, StopReason.MOVED, "the program ends")
            return Release(self.token, recorded, ReleaseReason.SHUTDOWN)
        return self._failed(canceled_failure())

    def _failed(self, failure: Failure) -> Failed:
        at = self._assignment
        # Not the exception itself, whose text may be of any length, and may not even be text.
        way = failure.traceback or f"{failure.type}: {failure.message}"
        log.warning("%s %s failed in attempt %d of %d\n%s", at.workflow, at.run_id, at.attempt, at.max_attempts, way)
        return Failed(self.token, self._steps.recorded, failure)

    async def _report_end(self, item: Item) -> None:
        reported = self._link.report(item)
        if isinstance(item, Release):
            await asyncio.wait([reported], timeout=ANSWER_TIMEOUT_S)
            return
        answer = await reported
        if answer.verdict not in (Verdict.INVALID, Verdict.TOO_LARGE):
            return
        error = SerializationError(f"the gateway does not take the result: {answer.message}")
        failed = Failed(self.token, self._steps.recorded, self._steps.failure(error))
        answer = await self._link.report(failed)
        if answer.verdict in (Verdict.INVALID, Verdict.TOO_LARGE):
            self._link.tell(lambda protocol: protocol.give_up(self.token))
