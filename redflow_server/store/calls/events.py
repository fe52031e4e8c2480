"""Scripts about what comes from outside of runs: events, completed tokens, cron schedules."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence

from redflow_server.domain.events import EmittedEvent, NewEvent
from redflow_server.domain.payloads import EMPTY_OBJECT
from redflow_server.domain.schedules import DueSchedule, DueSchedules, Occurrence, Schedule
from redflow_server.domain.states import StepStatus
from redflow_server.domain.tokens import Completion
from redflow_server.store import codec, replies
from redflow_server.store.calls.scripted import Scripted
from redflow_server.store.replies import FannedOut
from redflow_server.store.wire import Argument


class EventScripts(Scripted):
    """Emitting events, completing tokens, firing schedules."""

    def emit_event(self, event: NewEvent) -> Future[EmittedEvent]:
        """Starts the runs of an event's subscribers, or answers those of the event that its id or key names."""
        size = len(event.payload.data)
        return self._pipeline.call(
            "emit_event",
            (self._now, *codec.encode_event(event)),
            replies.emitted,
            run_id=event.event_id,
            payload_bytes=size,
        )

    def fan_out(self) -> Future[FannedOut]:
        """Goes on with the event that has waited longest for the rest of its subscribers."""
        return self._pipeline.call("fan_out", (self._now,), lambda reply: FannedOut(reply[0], reply[1] == 1))

    def deliver_events(self) -> Future[bool]:
        """Goes on with an event that had too many waits for one script; says whether there is more."""
        return self._pipeline.call("deliver_events", (self._now,), lambda reply: bool(reply))

    def forget_events(self) -> Future[bool]:
        """Forgets events that were remembered for long enough; says whether there may be more."""
        return self._pipeline.call("forget_events", (self._now,), lambda reply: bool(reply))

    def complete_token(self, completion: Completion) -> Future[None]:
        """Gives the wait for a token its outcome. Raises TokenNotFound, NotWaiting."""
        meta, value = codec.encode_outcome(completion.output, completion.failure)
        status = StepStatus.FAILED if completion.failure else StepStatus.SUCCEEDED
        arguments: tuple[Argument, ...] = (
            *(self._now, completion.step.run_id, completion.step.step_name, completion.token),
            *(status, value, meta),
        )
        return self._pipeline.call("complete_token", arguments, replies.token_completed, payload_bytes=len(value))

    def due_schedules(self, limit: int) -> Future[DueSchedules]:
        """The cron schedules whose occurrence has come."""
        return self._pipeline.call("due_schedules", (self._now, limit), replies.due_schedules)

    def fire_schedule(self, occurrence: Occurrence) -> Future[bool]:
        """Starts the run of an occurrence and plans the next one; False when it was done before, or has changed."""
        due, run_input = occurrence.due, occurrence.cron.input or EMPTY_OBJECT
        arguments: tuple[Argument, ...] = (
            *(self._now, due.schedule_id, due.document, due.occurrence_ms, occurrence.next_at_ms, occurrence.skipped),
            *(occurrence.run_id, occurrence.workflow, run_input.data, codec.encode_meta(run_input), run_input.digest),
        )
        return self._pipeline.call("fire_schedule", arguments, lambda reply: bool(reply == b"fired"))

    def stall_schedule(self, due: DueSchedule, problem: str) -> Future[None]:
        """Takes a schedule that cannot be evaluated out of the plan."""
        arguments = (self._now, due.schedule_id, due.occurrence_ms, problem)
        return self._pipeline.call("stall_schedule", arguments, lambda _: None)

    def read_schedules(self, workflows: Sequence[str]) -> Future[tuple[Schedule, ...]]:
        """The cron schedules of workflows."""
        return self._pipeline.call("read_schedules", (self._now, *workflows), replies.schedules)
