"""The runs that one caller starts and waits for, as it names them: each start is answered, each end is told.

What a run is, and who hears of its end, it leaves to the store and to `Waiters`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from redflow_server.domain.errors import InternalFault, Refusal, RunNotFound, TooManyWaiters, Unavailable
from redflow_server.domain.ids import RUN_ID
from redflow_server.domain.runs import NewRun, Run, RunNews, StartAnswer, StartedRun
from redflow_server.domain.states import RunStatus
from redflow_server.engine.waiters import Waiters
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

T = TypeVar("T")

MAX_WANTED: Final = 10_000
MAX_UNTOLD: Final = 10_000
"""Starts that are under way, and whatever is to be told: a caller that does not read its stream can have no more."""
MAX_UNTOLD_BYTES: Final = 16 * 1024 * 1024
"""Of the inputs of starts that are under way."""
PART_RUNS: Final = 64
PART_NEWS: Final = 1000
ANSWER_HELD_S: Final = 0.005

Start = Callable[[NewRun, str], asyncio.Future[StartedRun]]
"""Starts a run, of whose end that gateway is told."""


class ClientRuns:
    """One caller's. To be closed."""

    def __init__(self, start: Start, *, store: Store, waiters: Waiters, telemetry: Telemetry) -> None:
        self._start = start
        self._store = store
        self._waiters = waiters
        self._telemetry = telemetry
        self._starting = 0
        self._starting_bytes = 0
        self._answers: deque[StartAnswer] = deque()
        self._wanted: set[str] = set()
        self._unanswered: set[str] = set()
        """Runs whose starts are under way, and which are waited for."""
        self._ended_early: set[str] = set()
        """Those of them that have ended already: the caller does not know them before its start is answered."""
        self._ended: deque[str] = deque()
        self._unknown: deque[str] = deque()
        self._untold: deque[str] = deque()
        self._due = asyncio.Event()
        self._has_room = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._is_complete = False
        self._is_closed = False
        self._refusal: Refusal | None = None

    # ---- starting ----

    async def room(self) -> None:
        """Waits until more may be named."""
        while not (self._is_closed or self._has_room_for_more):
            self._has_room.clear()
            await self._has_room.wait()

    @property
    def _has_room_for_more(self) -> bool:
        told_later = len(self._answers) + len(self._ended) + len(self._unknown) + len(self._untold)
        return self._starting + told_later <= MAX_UNTOLD and self._starting_bytes <= MAX_UNTOLD_BYTES

    def start(self, number: int, run: NewRun) -> None:
        """Starts a run; what becomes of it is told under this number."""
        self._begin(run, "", partial(self._started, number))

    def execute(self, number: int, run: NewRun) -> None:
        """Starts a run and waits for its end. Where there is no room to wait, that is told: the run starts anyway."""
        if run.run_id in self._wanted or not self._hear(run.run_id):
            self._begin(run, "", partial(self._started_without_wait, number))
        else:
            self._unanswered.add(run.run_id)
            self._begin(run, self._waiters.gateway_id, partial(self._executed, number, run.run_id))

    def refuse_start(self, number: int, refusal: Refusal) -> None:
        """Tells why there is no run."""
        self._answers.append(StartAnswer(number, refusal))
        self._due.set()

    def _begin(self, run: NewRun, waiter: str, answered: Callable[[asyncio.Future[StartedRun]], None]) -> None:
        size = len(run.input.data)
        try:
            asked = self._start(run, waiter)
        except Refusal as refusal:
            asked = asyncio.get_running_loop().create_future()
            asked.set_exception(refusal)
        self._starting += 1
        self._starting_bytes += size
        asked.add_done_callback(partial(self._is_over, size))
        asked.add_done_callback(answered)

    def _is_over(self, size: int, asked: asyncio.Future[StartedRun]) -> None:
        self._starting -= 1
        self._starting_bytes -= size
        self._has_room.set()

    def _started(self, number: int, asked: asyncio.Future[StartedRun]) -> None:
        self._answer(number, asked)
        self._due.set()

    def _started_without_wait(self, number: int, asked: asyncio.Future[StartedRun]) -> None:
        started = self._answer(number, asked)
        if started is not None:
            self.want((started.run_id,))
        self._due.set()

    def _executed(self, number: int, run_id: str, asked: asyncio.Future[StartedRun]) -> None:
        started = self._answer(number, asked)
        self._unanswered.discard(run_id)
        has_ended = run_id in self._ended_early
        self._ended_early.discard(run_id)
        if started is not None and not started.is_repeat and started.run_id == run_id:
            if has_ended:
                self._heard(run_id)
            else:
                self._set_alarm()
            return
        self.forget((run_id,))
        if started is not None:
            self.want((started.run_id,))
        self._due.set()

    def _answer(self, number: int, asked: asyncio.Future[StartedRun]) -> StartedRun | None:
        error = asked.exception()
        if error is None:
            self._answers.append(StartAnswer(number, asked.result()))
            return asked.result()
        if not isinstance(error, Refusal):
            error = InternalFault(f"fault {self._telemetry.fault('start of a run', error)}")
        self._answers.append(StartAnswer(number, error))
        return None

    def _set_alarm(self) -> None:
        """The caller waits for the end of the run: that often follows at once, and takes the answer along."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(ANSWER_HELD_S, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._due.set()

    # ---- waiting ----

    def want(self, run_ids: Iterable[str]) -> None:
        """Waits for these, too. Where there is no room to wait, that is told."""
        if self._is_closed:
            return
        for run_id in run_ids:
            if run_id in self._wanted:
                continue
            if not RUN_ID.fullmatch(run_id):
                self._unknown.append(run_id[:100])
            elif self._hear(run_id):
                self._waiters.ask(run_id).add_done_callback(partial(self._answered, run_id))
                continue
            else:
                self._untold.append(run_id)
            self._due.set()

    def forget(self, run_ids: Iterable[str]) -> None:
        """Waits for these no longer."""
        for run_id in run_ids:
            if run_id in self._wanted:
                self._wanted.discard(run_id)
                self._waiters.remove(run_id, self._heard)
        self._due.set()

    def _hear(self, run_id: str) -> bool:
        """Whether there was room for one more."""
        if self._is_closed or len(self._wanted) >= MAX_WANTED:
            return False
        try:
            self._waiters.hear(run_id, self._heard)
        except TooManyWaiters:
            return False
        self._wanted.add(run_id)
        return True

    def _heard(self, run_id: str) -> None:
        if run_id in self._unanswered:
            self._ended_early.add(run_id)
        elif run_id in self._wanted:
            self.forget((run_id,))
            self._ended.append(run_id)

    def _answered(self, run_id: str, asked: asyncio.Future[RunStatus | None]) -> None:
        # A question that the store did not answer is asked again with those of all other callers.
        if asked.cancelled() or asked.exception() is not None or run_id not in self._wanted:
            return
        status = asked.result()
        if status is None:
            self.forget((run_id,))
            self._unknown.append(run_id)
        elif status.is_terminal:
            self._heard(run_id)

    # ---- telling ----

    def complete(self) -> None:
        """Nothing more will be named."""
        self._is_complete = True
        self._due.set()

    def refuse(self, refusal: Refusal) -> None:
        """What was named is not done: whoever takes hears why."""
        self._refusal = refusal
        self._due.set()

    def close(self) -> None:
        """Waits for nothing any more."""
        self._is_closed = True
        self._has_room.set()
        self.forget(tuple(self._wanted))

    async def take(self) -> RunNews | None:
        """Answers to starts and runs that have ended, as soon as there are some; None when none will come. Raises what
        was refused, and StoreUnavailable: what was not told then is to be asked for again.
        """
        while True:
            await self._due.wait()
            self._due.clear()
            if self._answers or self._ended or self._unknown or self._untold:
                return await self._news()
            if self._refusal is not None:
                raise self._refusal
            if self._is_complete and not (self._wanted or self._starting):
                return None

    async def _news(self) -> RunNews:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        answers = _taken(self._answers, PART_NEWS)
        # No end before the answer to its start.
        run_ids = _taken(self._ended, 0 if self._answers else PART_RUNS)
        unknown, untold = list(_taken(self._unknown, PART_NEWS)), list(_taken(self._untold, PART_NEWS))
        is_more = self._answers or self._ended or self._unknown or self._untold
        if is_more or self._is_complete or self._refusal is not None:
            self._due.set()
        self._has_room.set()
        runs: list[Run] = []
        for run_id, found in zip(run_ids, await self._read(run_ids), strict=True):
            if isinstance(found, Run):
                runs.append(found)
            elif isinstance(found, RunNotFound):
                unknown.append(run_id)
            elif isinstance(found, Unavailable):
                raise found
            else:
                self._telemetry.fault("reading a run that has ended", found)
                untold.append(run_id)
        return RunNews(answers, tuple(runs), tuple(unknown), tuple(untold))

    async def _read(self, run_ids: Iterable[str]) -> list[Run | BaseException]:
        return await asyncio.gather(*map(self._store.read_run, run_ids), return_exceptions=True)


def _taken(waiting: deque[T], most: int) -> tuple[T, ...]:
    taken = tuple(islice(waiting, most))
    for _ in taken:
        waiting.popleft()
    return taken
