"""Starts that a client has asked for and that are not answered: what of them is to be sent, and who is told what.

When, and over which stream, it leaves to `run_stream`. On the io thread.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from typing import Final

from redflow_sdk._messages import RunStart
from redflow_sdk._transport import convert
from redflow_sdk._transport.channel import error_of
from redflow_sdk.errors import InvalidInputError, RedflowError, UnavailableError
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.records import Run

MESSAGE_RUNS: Final = 1000
MESSAGE_BYTES: Final = 1024 * 1024
MAX_START_BYTES: Final = 4 * 1024 * 1024 - 1024
"""What fits into the largest message that a gateway takes."""
MIN_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Start:
    """A run to start, and what only a client may ask for."""

    run: RunStart
    available_at: datetime | None = None
    rejects_other_input: bool = False
    is_typed: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """Answer to a start."""

    run_id: str
    created: bool
    input_differs: bool


Outcome = Run | RedflowError | None
"""How a wait has ended; None when it is not told on a stream, so that the gateway is to be asked by a call."""
Heard = Callable[[Outcome], None]
Answered = Callable[[Started | RedflowError], None]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A start that somebody waits for, at most `timeout_s`, and with `heard` for the end of its run."""

    start: Start
    timeout_s: float
    answered: Answered
    heard: Heard | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was started, and who waits for its end; None when nobody does any more."""

    run_id: str
    heard: Heard | None


@dataclass(slots=True, eq=False)
class Unanswered:
    """A start that is under way until an instant of the loop's clock, and why it was last refused."""

    asked: Asked
    heard: Heard | None
    request: pb.NumberedStart
    until_s: float
    error: RedflowError
    is_given_up: bool = False


class Starts:
    """By number. `changed` is called when there is something to send."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._unanswered: dict[int, Unanswered] = {}
        self._number_of: dict[Asked, int] = {}
        self._to_send: dict[int, None] = {}
        self._suspects: set[int] = set()
        self._retry_s = MIN_PAUSE_S
        self._ticking: asyncio.TimerHandle | None = None
        self.waits = 0
        """How many of them are waited for when they are answered."""

    def __len__(self) -> int:
        return len(self._unanswered)

    # ---- asking ----

    def begin(self, asked: Asked, heard: Heard | None) -> None:
        """Starts a run; tells, once, what became of that. `heard` is for its end, if that is told on the stream."""
        number, waits = next(self._numbers), heard is not None
        request = pb.NumberedStart(number=number, run=_start_request(asked.start), wait=waits)
        if (size := request.ByteSize()) > MAX_START_BYTES:
            message = f"input must be less than {MAX_START_BYTES} bytes with all else of a start; got {size}"
            asked.answered(InvalidInputError(message, "PAYLOAD_TOO_LARGE"))
            return
        until_s, error = self._loop.time() + asked.timeout_s, UnavailableError("the gateway does not answer")
        self._unanswered[number] = Unanswered(asked, heard, request, until_s, error)
        self._number_of[asked] = number
        self._to_send[number] = None
        self.waits += waits
        if self._ticking is None:
            self._ticking = self._loop.call_later(TICK_S, self._tick)
        self._changed()

    def give_up(self, asked: Asked) -> bool:
        """Nobody waits any longer. What was not sent is not started. Whether it was not answered yet."""
        number = self._number_of.get(asked)
        if number is None:
            return False
        if number in self._to_send:
            self._drop(number)
        else:
            self._unanswered[number].is_given_up = True
        return True

    def _drop(self, number: int) -> Unanswered:
        unanswered = self._unanswered.pop(number)
        del self._number_of[unanswered.asked]
        self._to_send.pop(number, None)
        self._suspects.discard(number)
        self.waits -= unanswered.request.wait
        return unanswered

    # ---- sending ----

    def stream_opened(self) -> None:
        """All are to be sent on it, but for those that nobody waits for any more."""
        for number in [number for number, one in self._unanswered.items() if one.is_given_up]:
            self._drop(number)
        self._to_send = dict.fromkeys(self._unanswered)

    def has_message(self) -> bool:
        """Whether there is something to send now."""
        return bool(self._to_send) and not (self._suspects and self._sent())

    def message(self) -> tuple[pb.NumberedStart, ...]:
        """As many as fit into a message, at least one; one while some are suspected of having ended a stream."""
        if not self.has_message():
            return ()
        taken = tuple(self._fitting(1 if self._suspects else MESSAGE_RUNS))
        for start in taken:
            del self._to_send[start.number]
        return taken

    def _fitting(self, most: int) -> Iterator[pb.NumberedStart]:
        size = 0
        for number in islice(self._to_send, most):
            request = self._unanswered[number].request
            size += len(request.run.input.data)
            if size > MESSAGE_BYTES and size > len(request.run.input.data):
                return
            yield request

    def _sent(self) -> list[int]:
        return [number for number in self._unanswered if number not in self._to_send]

    # ---- answers ----

    def answered(self, answers: Iterable[pb.StartAnswer]) -> list[Begun]:
        """Tells what became of these; runs that the gateway waits for are left, with who waits for them here."""
        begun: list[Begun] = []
        again: list[int] = []
        for answer in answers:
            unanswered = self._unanswered.get(answer.number)
            if answer.HasField("refused"):
                error = error_of(answer.refused.reason, answer.refused.message)
                if unanswered is not None and isinstance(error, UnavailableError) and not unanswered.is_given_up:
                    unanswered.error = error
                    again.append(answer.number)
                else:
                    self._tell(answer.number, error)
                continue
            started = Started(answer.started.run_id, answer.started.created, answer.started.input_differs)
            if unanswered is None or unanswered.is_given_up:
                begun.append(Begun(started.run_id, None))
            elif unanswered.heard is not None:
                begun.append(Begun(started.run_id, unanswered.heard))
            self._tell(answer.number, started)
            self._retry_s = MIN_PAUSE_S
        if again:
            self._loop.call_later(random.uniform(self._retry_s / 2, self._retry_s), self._send_again, again)
            self._retry_s = min(self._retry_s * 2, MAX_PAUSE_S)
        return begun

    def _send_again(self, numbers: Iterable[int]) -> None:
        self._to_send.update((number, None) for number in numbers if number in self._unanswered)
        self._changed()

    def _tell(self, number: int, outcome: Started | RedflowError) -> None:
        if number in self._unanswered:
            unanswered = self._drop(number)
            if not unanswered.is_given_up:
                unanswered.asked.answered(outcome)

    def note(self, error: RedflowError) -> None:
        """Why there is no answer yet."""
        for unanswered in self._unanswered.values():
            unanswered.error = error

    def refused(self, error: RedflowError) -> None:
        """A stream has ended for a message that the gateway does not take. If there was only one, it is refused; else
        they are sent one by one, so that it shows which.
        """
        sent = self._sent()
        if len(sent) == 1:
            self._tell(sent[0], error)
        self._suspects.update(number for number in sent if number in self._unanswered)

    def tell_all(self, error: RedflowError) -> None:
        """None of them is answered any more."""
        for number in tuple(self._unanswered):
            self._tell(number, error)

    def _tick(self) -> None:
        """Gives up those whose time is over."""
        now_s = self._loop.time()
        for number, unanswered in tuple(self._unanswered.items()):
            if unanswered.until_s <= now_s:
                self._tell(number, unanswered.error)
        self._ticking = self._loop.call_later(TICK_S, self._tick) if self._unanswered else None


def _start_request(start: Start) -> pb.StartRunRequest:
    run = start.run
    request = pb.StartRunRequest(
        workflow=run.workflow,
        input=convert.payload(run.input),
        queue=run.queue or "",
        max_attempts=run.max_attempts or 0,
        priority=run.priority,
        idempotency_key=run.idempotency_key or "",
        request_id=secrets.token_urlsafe(16),
        typed=start.is_typed,
    )
    if start.rejects_other_input:
        request.on_input_mismatch = pb.INPUT_MISMATCH_REJECT
    if start.available_at is not None:
        request.available_time.CopyFrom(convert.timestamp(start.available_at))
    if run.idempotency_ttl is not None:
        request.idempotency_ttl.CopyFrom(convert.duration(run.idempotency_ttl))
    return request
