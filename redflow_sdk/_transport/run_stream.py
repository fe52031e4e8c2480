"""One stream on which a client starts runs and waits for the ends of runs: opened when there is something to say, and
again when it breaks. On the io thread.

Who waits for an end, and for how long, it leaves to who asks.
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

import grpc
from grpc.aio import EOF

from redflow_sdk._messages import RunStart
from redflow_sdk._transport import convert
from redflow_sdk._transport.channel import closed, error_of, refusal_of
from redflow_sdk.errors import RedflowError, RunNotFoundError, UnavailableError
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.api.v1 import run_service_pb2_grpc
from redflow_sdk.records import Run

MESSAGE_RUNS: Final = 1000
MESSAGE_BYTES: Final = 1024 * 1024
MAX_WAITS: Final = 10_000
"""On one stream, as the gateway has it."""
PERMANENT: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""What no repetition mends. gRPC says INTERNAL, too, when a stream breaks while it is written to."""
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
"""How a wait has ended; None when the stream has no room for it, so that the gateway is to be asked by a call."""
Heard = Callable[[Outcome], None]
Answered = Callable[[Started | RedflowError], None]


@dataclass(slots=True, eq=False)
class Starting:
    """A start that somebody waits for, at most `timeout_s`, and with `heard` for the end of its run."""

    start: Start
    timeout_s: float
    answered: Answered
    heard: Heard | None = None
    number: int = 0
    run_id: str = ""
    """What the stream calls it, and what the gateway does, once they do."""


@dataclass(slots=True, eq=False)
class Unanswered:
    """A start that is under way, and why it was last refused."""

    starting: Starting
    request: pb.NumberedStart
    deadline: float
    error: RedflowError
    is_given_up: bool = False


class RunStream:
    """The starts that are under way, by number, and the runs that somebody waits for, by id."""

    def __init__(self, stub: run_service_pb2_grpc.RunServiceStub) -> None:
        self._stub = stub
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._unanswered: dict[int, Unanswered] = {}
        self._to_start: dict[int, None] = {}
        self._waiting: dict[str, list[Heard]] = {}
        self._waits_to_come = 0
        self._to_name: dict[str, None] = {}
        self._to_forget: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._pause_s = MIN_PAUSE_S
        self._retry_s = MIN_PAUSE_S
        self._keeping: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None

    # ---- starts ----

    def start(self, starting: Starting) -> None:
        """Starts a run; tells, once, what became of that."""
        if self._is_closed:
            starting.answered(closed())
            return
        if starting.heard is not None and not self._has_room:
            starting.heard(None)
            starting.heard = None
        number = starting.number = next(self._numbers)
        waits = starting.heard is not None
        request = pb.NumberedStart(number=number, run=_start_request(starting.start), wait=waits)
        self._waits_to_come += waits
        self._unanswered[number] = Unanswered(
            starting, request, self._loop.time() + starting.timeout_s, UnavailableError("the gateway does not answer")
        )
        self._to_start[number] = None
        self._wake()
        if self._ticking is None:
            self._ticking = self._loop.call_later(TICK_S, self._tick)

    def give_up(self, starting: Starting) -> None:
        """Nobody waits any longer, neither for the start nor for the end. What was not sent is not started."""
        unanswered = self._unanswered.get(starting.number)
        if unanswered is not None:
            unanswered.is_given_up = True
            if starting.number in self._to_start:
                self._drop(starting.number)
        elif starting.heard is not None:
            self.forget(starting.run_id, starting.heard)

    def _drop(self, number: int) -> Unanswered:
        unanswered = self._unanswered.pop(number)
        self._to_start.pop(number, None)
        self._waits_to_come -= unanswered.request.wait
        return unanswered

    def _tell_start(self, number: int, outcome: Started | RedflowError) -> None:
        unanswered = self._drop(number)
        starting = unanswered.starting
        if isinstance(outcome, Started) and starting.heard is not None:
            starting.run_id = outcome.run_id
            self._waiting.setdefault(outcome.run_id, []).append(starting.heard)
            if unanswered.is_given_up:
                self.forget(outcome.run_id, starting.heard)
        if not unanswered.is_given_up:
            starting.answered(outcome)

    def _answer(self, answers: Iterable[pb.StartAnswer]) -> None:
        again = [answer.number for answer in answers if not self._is_answered(answer)]
        if again:
            self._loop.call_later(random.uniform(self._retry_s / 2, self._retry_s), self._start_again, again)
            self._retry_s = min(self._retry_s * 2, MAX_PAUSE_S)
        elif answers:
            self._retry_s = MIN_PAUSE_S

    def _is_answered(self, answer: pb.StartAnswer) -> bool:
        """Whether nothing more is to be said about it."""
        unanswered = self._unanswered.get(answer.number)
        if unanswered is None:
            return True
        if not answer.HasField("refused"):
            started = answer.started
            self._tell_start(answer.number, Started(started.run_id, started.created, started.input_differs))
            return True
        error = error_of(answer.refused.reason, answer.refused.message)
        if not isinstance(error, UnavailableError) or unanswered.is_given_up:
            self._tell_start(answer.number, error)
            return True
        unanswered.error = error
        return False

    def _start_again(self, numbers: Iterable[int]) -> None:
        self._to_start.update((number, None) for number in numbers if number in self._unanswered)
        self._changed.set()

    def _tick(self) -> None:
        """Gives up the starts whose time is over."""
        now = self._loop.time()
        for number, unanswered in tuple(self._unanswered.items()):
            if unanswered.deadline <= now:
                self._tell_start(number, unanswered.error)
        self._ticking = self._loop.call_later(TICK_S, self._tick) if self._unanswered else None

    # ---- waits ----

    @property
    def _has_room(self) -> bool:
        return len(self._waiting) + self._waits_to_come < MAX_WAITS

    def want(self, run_id: str, heard: Heard) -> None:
        """Tells, once, how the wait for a run has ended."""
        if self._is_closed:
            heard(closed())
            return
        if run_id not in self._waiting:
            if not self._has_room:
                heard(None)
                return
            self._to_name[run_id] = None
            self._to_forget.pop(run_id, None)
            self._wake()
        self._waiting.setdefault(run_id, []).append(heard)

    def forget(self, run_id: str, heard: Heard) -> None:
        """Somebody waits no longer."""
        waiting = self._waiting.get(run_id, [])
        if heard in waiting:
            waiting.remove(heard)
            if not waiting:
                del self._waiting[run_id]
                self._to_name.pop(run_id, None)
                self._to_forget[run_id] = None
                self._changed.set()

    def _tell(self, run_id: str, outcome: Outcome) -> None:
        self._to_name.pop(run_id, None)
        for heard in self._waiting.pop(run_id, ()):
            heard(outcome)

    # ---- the stream ----

    def close(self) -> None:
        """Ends the stream, and whatever is waited for."""
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
        self._tell_all(closed())

    def _tell_all(self, error: RedflowError) -> None:
        for number in tuple(self._unanswered):
            self._tell_start(number, error)
        for run_id in tuple(self._waiting):
            self._tell(run_id, error)

    def _note(self, error: RedflowError) -> None:
        """Why there is no answer yet."""
        for unanswered in self._unanswered.values():
            unanswered.error = error

    def _wake(self) -> None:
        self._changed.set()
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            while not (self._unanswered or self._waiting):
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._stream()
            except grpc.aio.AioRpcError as error:
                refusal = refusal_of(error)
                if error.code() in PERMANENT:
                    self._tell_all(refusal)
                else:
                    self._note(refusal)
            except (grpc.aio.UsageError, asyncio.InvalidStateError):
                pass  # it broke while something was said
            await asyncio.sleep(random.uniform(self._pause_s / 2, self._pause_s))
            self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)

    async def _stream(self) -> None:
        """Reads and writes until the stream ends. Raises what it ends with."""
        call = self._stub.ExecuteRuns()
        for number in [number for number, unanswered in self._unanswered.items() if unanswered.is_given_up]:
            self._drop(number)
        self._to_start = dict.fromkeys(self._unanswered)
        self._to_name, self._to_forget = dict.fromkeys(self._waiting), {}
        reading = asyncio.create_task(self._read(call))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while not reading.done():
                if self._to_start or self._to_name or self._to_forget:
                    await call.write(self._news())
                else:
                    self._changed.clear()
                    await self._changed.wait()
            reading.result()
        finally:
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _news(self) -> pb.ExecuteRunsRequest:
        starts = tuple(self._next_starts())
        for start in starts:
            del self._to_start[start.number]
        named = tuple(islice(self._to_name, MESSAGE_RUNS))
        for run_id in named:
            del self._to_name[run_id]
        forgotten, self._to_forget = tuple(self._to_forget), {}
        return pb.ExecuteRunsRequest(starts=starts, run_ids=named, forgotten_run_ids=forgotten)

    def _next_starts(self) -> Iterator[pb.NumberedStart]:
        """As many as fit into a message, at least one."""
        size = 0
        for number in islice(self._to_start, MESSAGE_RUNS):
            request = self._unanswered[number].request
            size += len(request.run.input.data)
            if size > MESSAGE_BYTES and size > len(request.run.input.data):
                return
            yield request

    async def _read(self, call: grpc.aio.StreamStreamCall[pb.ExecuteRunsRequest, pb.ExecuteRunsResponse]) -> None:
        while isinstance(response := await call.read(), pb.ExecuteRunsResponse):
            self._pause_s = MIN_PAUSE_S
            self._answer(response.starts)
            for run in response.runs:
                self._tell(run.run_id, convert.run_of(run))
            for run_id in response.unknown_run_ids:
                self._tell(run_id, RunNotFoundError(f"there is no run {run_id}", "RUN_NOT_FOUND"))
        assert response is EOF


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
