"""One delivery of a run: calls the handler, and reports what became of it. On the worker's loop."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from redflow_sdk import converter
from redflow_sdk._around import Around, AroundRun, headers_of
from redflow_sdk._delivery import DeliverySteps
from redflow_sdk._failures import canceled_failure, raised_again
from redflow_sdk._link import Link
from redflow_sdk._messages import (
    Answer,
    Assignment,
    Canceled,
    Completed,
    Failed,
    FailureHandled,
    Item,
    Release,
    ReleaseReason,
    StepSnapshot,
    Stop,
    StopReason,
    Verdict,
)
from redflow_sdk._parking import Parking
from redflow_sdk._retries import Rest
from redflow_sdk._sealing import Sealing
from redflow_sdk._step_log import StepLog
from redflow_sdk._suspension import Suspension
from redflow_sdk._threads import Threads
from redflow_sdk._types import Function, Value
from redflow_sdk.context import BlockingContext, Context, FailureContext, RunInfo
from redflow_sdk.errors import CodecError, InputValidationError, RunCanceledError, SerializationError
from redflow_sdk.records import Failure, Payload
from redflow_sdk.workflow import AnyWorkflow, is_async

log = logging.getLogger("redflow.worker")

ANSWER_TIMEOUT_S: Final = 2.0
"""How long a program that ends waits for the answer of the gateway."""


class Phase(Enum):
    """Where an execution is."""

    HANDLING = auto()
    REPORTING = auto()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What users have put around the work of a worker, its codec and its middleware; and how it rests between tries."""

    sealing: Sealing
    around: Around
    rest: Rest = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all executions of a worker share. `keeper` is a task that only the end of the program cancels;
    `on_suspended` is told of a handler that has to end because its run has been set aside.
    """

    link: Link
    threads: Threads
    parking: Parking
    keeper: asyncio.Task[None]
    on_suspended: Callable[[Execution], None]
    surroundings: Surroundings


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
        link = workplace.link
        self._sealing = workplace.surroundings.sealing
        self._log = StepLog(assignment, link, max_payload_bytes, workplace.surroundings.sealing, self._lost)
        self._suspension = Suspension(self._log, link, workplace.parking, self._lost, self._suspended)
        self._around = AroundRun(workplace.surroundings.around, _run_info(assignment))
        self._steps = DeliverySteps(
            self._log, workplace.threads, self._suspension, self._around, workplace.surroundings.rest
        )
        self._phase = Phase.HANDLING
        self._can_be_interrupted = workflow.is_async
        self._error: BaseException | None = None
        self._is_refused = False
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

    def owns(self, task: asyncio.Task[Value]) -> bool:
        """Whether a task of the loop is the handler, or one that the handler has made. In any thread."""
        return task is self._task or self._suspension.watches(task)

    @property
    def is_lost(self) -> bool:
        """Whether the run is no longer this worker's, although its handler may go on."""
        stop = self._log.stop_order
        return stop is not None and stop.reason.is_lost

    @property
    def is_handling(self) -> bool:
        """Whether its handler, or failure handler, is at work."""
        return self._phase is Phase.HANDLING

    @property
    def _is_set_aside(self) -> bool:
        """Whether the run goes on as another delivery, or has ended: nothing more may be said of this one."""
        return self._suspension.is_over

    # ---- life ----

    async def run(self) -> None:
        """Runs the handler and reports its end."""
        self._task = asyncio.current_task()
        failure = self._assignment.failure
        if failure is None:
            item = await self._end_of_handler()
        else:
            failure = self._sealing.opened_failure(failure)
            item = await self._end_of_failure_handler(raised_again(failure), failure)
        self._steps.close()
        self._phase = Phase.REPORTING
        if item is not None and not self.is_abandoned:
            await self._report_end(item)

    def stop(self, stop: Stop) -> None:
        """The handler has to end."""
        before = self._log.stop_order
        if self._is_set_aside or (before is not None and (before.reason.is_lost or not stop.reason.is_lost)):
            return
        self._log.stop_order = stop
        if stop.reason is StopReason.TIMEOUT:
            log.info("%s %s is stopped: its run time-out has passed", self.workflow_name, self.run_id)
        if self.is_handling:
            self._interrupt()

    def resolve(self, steps: Sequence[StepSnapshot]) -> None:
        """Waits of the run are over, or lost by the store."""
        self._suspension.resolved(steps)

    def end_parking(self) -> None:
        """Its handler is not kept in memory while it waits."""
        self._suspension.end_parking()

    def _interrupt(self) -> None:
        if self._can_be_interrupted and self._task is not None:
            self._task.cancel()
        self._steps.cancel_for_threads()

    def _suspended(self) -> None:
        """The run has been set aside: it goes on as another delivery, and its handler ends here."""
        if not self.is_handling:
            return
        if not self._steps.is_stopped:  # else it is on its way out, and may be cleaning up
            self._interrupt()
        self._workplace.on_suspended(self)

    def _lost(self) -> None:
        self._link.tell(lambda protocol: protocol.lose((self.token,)))
        self.stop(Stop(self.token, StopReason.LEASE_LOST))

    def abandon(self) -> asyncio.Future[Answer] | None:
        """The handler does not end although it has to: its run ends, or goes back, without it."""
        stop = self._log.stop_order
        if not self.is_handling or self.is_abandoned or (stop is None and not self._is_set_aside):
            return None
        self.is_abandoned = True
        if stop is None or self._is_set_aside:
            return None
        if stop.reason is StopReason.WORKER_STOPPED:
            return self._link.report(Canceled(self.token, self._log.recorded, is_worker_stopped=True))
        if stop.reason.is_lost:
            return None
        return self._link.report(Release(self.token, self._log.recorded, ReleaseReason.CANCEL_IGNORED))

    def hand_back(self) -> asyncio.Future[Answer] | None:
        """The worker shuts down: the run goes on elsewhere from what is recorded."""
        stop = self._log.stop_order
        is_aborted = stop is not None and stop.reason is StopReason.WORKER_STOPPED
        if not self.is_handling or self.is_abandoned or self._is_set_aside or is_aborted:
            return None
        self.is_abandoned = True
        answer = self._link.report(Release(self.token, self._log.recorded, ReleaseReason.SHUTDOWN))
        self.stop(Stop(self.token, StopReason.MOVED, "the worker shuts down"))
        return answer

    # ---- the handler ----

    def _end_of_handler(self) -> Coroutine[Value, Value, Item | None]:
        """What is to be reported of the handler's end, or None when nothing may be."""
        return self._end_of(self._handle(), self._failed)

    def _end_of_failure_handler(self, error: BaseException, failure: Failure) -> Coroutine[Value, Value, Item | None]:
        """What is to be reported of the failure handler's end, or None when nothing may be."""
        self._phase = Phase.HANDLING
        return self._end_of(self._handle_failure(error, failure), self._failed_to_handle)

    async def _handle(self) -> Item | None:
        """Calls the handler."""
        assignment, workflow = self._assignment, self._workflow
        if assignment.has_more_steps and not self._steps.is_stopped:
            await self._log.fetch_all()
        if self._steps.is_stopped:
            raise asyncio.CancelledError("stopped before it began")
        output = await self._around.handler(functools.partial(self._output_of, workflow, self._arguments()))
        if self._is_set_aside:
            return None
        return Completed(self.token, self._log.recorded, self._log.payload("the output", output))

    async def _output_of(self, workflow: AnyWorkflow, arguments: tuple[Value, ...]) -> Value:
        function: Function = workflow.function
        if workflow.is_async:
            with self._suspension.watching_tasks():
                return await function(Context(self._around.info, self._steps), *arguments)
        handler = functools.partial(function, BlockingContext(self._around.info, self._steps), *arguments)
        return await self._workplace.threads.run_handler(handler)

    async def _handle_failure(self, error: BaseException, failure: Failure) -> Item:
        """Calls the failure handler."""
        handler = self._workflow.on_failure
        if self._steps.is_stopped:
            raise asyncio.CancelledError("stopped before it began")
        if handler is None:
            raise LookupError(f"this worker has no failure handler of workflow {self._workflow.name!r}")
        context = FailureContext(self._around.info, self._input(), error, failure)
        self._can_be_interrupted = is_async(handler)
        await self._around.failure_handler(
            context, functools.partial(self._output_of_failure_handler, handler, context)
        )
        return FailureHandled(self.token, self._log.recorded, None)

    async def _output_of_failure_handler(self, handler: Function, context: FailureContext) -> Value:
        if self._can_be_interrupted:
            return await handler(context)
        return await self._workplace.threads.run_handler(functools.partial(handler, context))

    def _input(self) -> Value:
        """The input for a failure handler, which may have failed because of it: as JSON where it does not fit."""
        try:
            return next(iter(self._arguments()), None)
        except InputValidationError:
            if self._assignment.input is None:
                return None
            opened = self._sealing.opened("the input", self._assignment.input)
            try:
                return converter.decode(opened.data)
            except InputValidationError:
                return opened.data
        except CodecError:
            return self._assignment.input

    def _arguments(self) -> tuple[Value, ...]:
        if not self._workflow.takes_input:
            return ()
        given = self._assignment.input or Payload(b"null")
        try:
            return (self._sealing.read("the input", given, self._workflow.input_type),)
        except InputValidationError as error:
            raise InputValidationError(f"the input does not fit: {error}", error.details) from None

    async def _end_of(
        self, handling: Coroutine[Value, Value, Item | None], failed: Callable[[Failure], Item]
    ) -> Item | None:
        try:
            return await handling
        except BaseException as error:  # whatever a handler raises, SystemExit too, ends its run and not the worker
            self._error = error
            return self._end_with(error, failed)

    def _end_with(self, error: BaseException, failed: Callable[[Failure], Item]) -> Item | None:
        stop = self._log.stop_order
        recorded = self._log.recorded
        if self._is_set_aside or (stop is not None and stop.reason.is_lost):
            return None
        if not isinstance(error, (asyncio.CancelledError, RunCanceledError)):
            return failed(self._log.failure(error))
        if stop is not None:
            return Canceled(self.token, recorded, stop.reason is StopReason.WORKER_STOPPED)
        keeper = self._workplace.keeper
        if keeper.cancelling() or keeper.cancelled():
            # Neither the gateway nor the handler: the program ends its loop, which is no wish to end the run.
            self._log.stop_order = Stop(self.token, StopReason.MOVED, "the program ends")
            return Release(self.token, recorded, ReleaseReason.SHUTDOWN)
        return failed(canceled_failure())

    def _failed_to_handle(self, failure: Failure) -> FailureHandled:
        way = failure.traceback or f"{failure.type}: {failure.message}"
        log.warning("the failure handler of %s %s failed\n%s", self.workflow_name, self.run_id, way)
        return FailureHandled(self.token, self._log.recorded, self._log.sealed(failure))

    def _failed(self, failure: Failure) -> Failed:
        at = self._assignment
        # Not the exception itself, whose text may be of any length, and may not even be text.
        way = failure.traceback or f"{failure.type}: {failure.message}"
        log.warning("%s %s failed in attempt %d of %d\n%s", at.workflow, at.run_id, at.attempt, at.max_attempts, way)
        return Failed(self.token, self._log.recorded, self._log.sealed(failure))

    async def _report_end(self, item: Item) -> None:
        reported = self._link.report(item)
        if isinstance(item, Release):
            await asyncio.wait([reported], timeout=ANSWER_TIMEOUT_S)
            return
        answer = await reported
        if answer.verdict is Verdict.RUN_FAILURE_HANDLER and isinstance(item, Failed):
            failure = self._sealing.opened_failure(item.failure)
            handled = await self._end_of_failure_handler(self._error or raised_again(failure), failure)
            self._phase = Phase.REPORTING
            if handled is not None and not self.is_abandoned:
                await self._report_end(handled)
        elif answer.verdict in (Verdict.INVALID, Verdict.TOO_LARGE):
            await self._report_refused(item, answer)

    async def _report_refused(self, item: Item, answer: Answer) -> None:
        """The gateway does not take the end as it is: then that is how the run, or its failure handler, has failed."""
        if self._is_refused:
            self._link.tell(lambda protocol: protocol.give_up(self.token))
            return
        self._is_refused = True
        self._error = SerializationError(f"the gateway does not take the result: {answer.message}")
        failure = self._log.sealed(self._log.failure(self._error))
        await self._report_end(
            FailureHandled(self.token, self._log.recorded, failure)
            if isinstance(item, FailureHandled)
            else Failed(self.token, self._log.recorded, failure)
        )


def _run_info(at: Assignment) -> RunInfo:
    headers = headers_of(at.input)
    return RunInfo(at.run_id, at.workflow, at.queue, at.attempt, at.max_attempts, at.delivery_count, headers)
