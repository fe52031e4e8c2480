"""What is on record of the steps of one delivery, and what it adds. On the worker's loop, but for `take`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from redflow_sdk import converter
from redflow_sdk._failures import failure_of, fitted
from redflow_sdk._link import Link
from redflow_sdk._messages import (
    Answer,
    Assignment,
    BeginWaits,
    Emit,
    Start,
    StepKind,
    StepReport,
    StepSnapshot,
    StepState,
    Stop,
    Verdict,
)
from redflow_sdk._sealing import Sealing
from redflow_sdk._types import Value
from redflow_sdk.errors import DuplicateStepError, NonDeterministicError, SerializationError
from redflow_sdk.records import Failure, Payload

ON_RECORD: Final = (Verdict.OK, Verdict.DUPLICATE, Verdict.CONFLICT)


class StepLog:
    """By name; each is used once."""

    def __init__(
        self,
        assignment: Assignment,
        link: Link,
        max_payload_bytes: int,
        sealing: Sealing,
        on_lost: Callable[[], None],
    ) -> None:
        """`on_lost` is called when the gateway answers that the run is no longer this worker's."""
        self.sealing = sealing
        self.token = assignment.lease_token
        self.run_id = assignment.run_id
        self.stop_order: Stop | None = assignment.stop
        """Why the handler has to end, when it has to."""
        self.attempt = assignment.attempt
        self._link = link
        self._max_payload_bytes = max_payload_bytes
        self._on_lost = on_lost
        self._used: set[str] = set()
        self._lost: set[str] = set()
        # Steps of `def` handlers begin in threads.
        self._names_lock = threading.Lock()
        self._know(assignment.steps)

    def _know(self, steps: tuple[StepSnapshot, ...]) -> None:
        self._on_record = {step.name: step for step in steps}
        self._recorded = {step.name for step in steps if step.is_finished}
        self._next_seq = max((step.seq for step in steps), default=0)

    async def fetch_all(self) -> None:
        """Learns all steps on record, when the assignment could not carry them. Raises CancelledError."""
        steps = await self._link.steps_on_record(self.token)
        if steps is None:
            raise asyncio.CancelledError("the run was lost")
        self._know(steps)

    # ---- what is on record ----

    @property
    def recorded(self) -> int:
        """How many finished steps are on record."""
        return len(self._recorded)

    def add(self, name: str) -> None:
        """A step has finished, and is on record."""
        self._recorded.add(name)

    def note(self, step: StepSnapshot) -> None:
        """A wait is over that nobody waits for, or not yet."""
        with self._names_lock:
            self._on_record[step.name] = step
        self.add(step.name)

    def outcome_of(self, name: str) -> StepSnapshot | None:
        """How a wait of this name has ended, if that is known."""
        known = self._on_record.get(name)
        return known if known is not None and self.decides(known) else None

    def lose(self, name: str) -> None:
        """The store has lost a wait."""
        self._lost.add(name)

    def is_open(self, name: str) -> bool:
        """Whether a wait of this name is on record, and is not known to be over or lost."""
        known = self._on_record.get(name)
        is_open = known is not None and known.state is StepState.WAITING
        return is_open and name not in self._recorded and name not in self._lost

    def token_of(self, name: str) -> str:
        """The token of a step on record; empty when there is none."""
        known = self._on_record.get(name)
        return "" if known is None or name in self._lost else known.token

    def decides(self, known: StepSnapshot) -> bool:
        """Whether a step on record has its outcome. A function that failed is run again by another attempt; a wait that
        is over stays so.
        """
        is_of_now = known.attempt == self.attempt or known.kind is not StepKind.FUNCTION
        return known.succeeded or (known.is_final and is_of_now)

    def tries_of(self, name: str) -> int:
        """How often the function of a step was called in this attempt, by deliveries before."""
        known = self._on_record.get(name)
        return known.tries if known is not None and known.attempt == self.attempt else 0

    def take(self, name: str, kind: StepKind) -> tuple[StepSnapshot | None, int]:
        """Takes a name for this run. Gives what is on record, if that is the step's outcome, and its number."""
        with self._names_lock:
            if name in self._used:
                raise DuplicateStepError(
                    f"step {name!r} was used before in this run; give each use its own name, in a loop by ctx.step.each"
                )
            self._used.add(name)
            known = self._on_record.get(name)
            if known is None:
                self._next_seq += 1
                return None, self._next_seq
        if known.kind is not kind:
            was, now = known.kind.name.lower(), kind.name.lower()
            raise NonDeterministicError(f"step {name!r} is on record as one of the kind {was}, and is now of {now}")
        return (known if self.decides(known) else None), known.seq

    async def whole(self, known: StepSnapshot) -> StepSnapshot:
        """A step on record with its value. Raises CancelledError, CodecError."""
        return self.sealing.opened_snapshot(await self._fetched(known))

    async def _fetched(self, known: StepSnapshot) -> StepSnapshot:
        if not known.is_by_reference:
            return known
        fetched = await self._link.step_on_record(self.token, known.name)
        if fetched is None:
            self._on_lost()
            raise asyncio.CancelledError("the run was lost")
        return fetched

    # ---- what is added ----

    def report(self, report: StepReport | Emit | Start) -> Coroutine[Value, Value, Answer]:
        """Reports a step; when it is answered the step is on record. Raises CancelledError."""
        return self._answer_to(self._reported(report))

    def command(self, command: BeginWaits) -> Coroutine[Value, Value, Answer]:
        """Begins waits. Raises CancelledError."""
        return self._answer_to(self._link.report(command))

    async def _answer_to(self, reported: asyncio.Future[Answer]) -> Answer:
        answer = await reported
        if answer.verdict in (Verdict.LEASE_LOST, Verdict.MOVED):
            self._on_lost()
            raise asyncio.CancelledError("the run was lost")
        return answer

    def report_on_the_way_out(self, report: StepReport) -> None:
        """Reports a step whose handler is to end, without waiting for the answer: the order on the wire is kept."""
        self._reported(report)

    def _reported(self, report: StepReport | Emit | Start) -> asyncio.Future[Answer]:
        # It counts also when nobody waits for it any more.
        return self._link.report(report, partial(self._answered, report.name))

    def _answered(self, name: str, answer: Answer) -> None:
        if answer.verdict in ON_RECORD:
            self.add(name)

    def failure(self, error: BaseException) -> Failure:
        """An exception in words; it is stored sealed."""
        return fitted(failure_of(error), self._max_payload_bytes)

    def sealed(self, failure: Failure) -> Failure:
        """A failure as it is stored."""
        return self.sealing.sealed_failure(failure, self._max_payload_bytes)

    def payload(self, what: str, value: Value) -> Payload:
        """A value as it is stored. Raises SerializationError and CodecError, which name it by `what`."""
        return self.outgoing(what, Payload(converter.encode(value, what)))

    def outgoing(self, what: str, payload: Payload) -> Payload:
        """The payload as it is stored. Raises CodecError, and SerializationError when it is too large."""
        payload = self.sealing.sealed(what, payload)
        if len(payload.data) > self._max_payload_bytes:
            limit, form = (
                self._max_payload_bytes,
                "JSON" if not payload.codec else f"what codec {payload.codec!r} makes",
            )
            raise SerializationError(f"{what} must be at most {limit} bytes of {form}; it has {len(payload.data)}")
        return payload
