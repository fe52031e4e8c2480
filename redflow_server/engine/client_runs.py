"""The runs that one caller starts and waits for, as it names them: each start is answered, each end is told once.

What a run is, and who hears of its end, it leaves to the store and to `Waiters`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from redflow_server.domain.errors import InternalFault, InvalidInput, Refusal, RunNotFound, TooManyWaiters, Unavailable
from redflow_server.domain.ids import RUN_ID
from redflow_server.domain.runs import NewRun, Run, RunNews, StartAnswer, StartedRun
from redflow_server.domain.states import RunStatus
from redflow_server.engine.waiters import Waiters
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

MAX_WANTED: Final = 10_000
MAX_UNTOLD: Final = 10_000
"""Starts that are under way, or answered and not told: a caller that does not read its stream can have no more."""
PART_RUNS: Final = 64
IN_TIME_S: Final = 0.005

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
        self._answers: deque[StartAnswer] = deque()
        self._wanted: set[str] = set()
        self._ended: deque[str] = deque()
        self._unknown: deque[str] = deque()
        self._is_due = asyncio.Event()
        self._has_room = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._is_complete = False
        self._is_closed = False
        self._refusal: Refusal | None = None

    # ---- starting ----

    async def room(self) -> None:
        """Waits until more may be named."""
        while self._starting + len(self._answers) > MAX_UNTOLD and not self._is_closed:
            self._has_room.clear()
            await self._has_room.wait()

    def start(self, number: int, run: NewRun) -> None:
        """Starts a run; what becomes of it is told under this number."""
        self._begin(run, "").add_done_callback(partial(self._started, number))

    def execute(self, number: int, run: NewRun) -> None:
        """Starts a run and waits for its end."""
        if len(self._wanted) >= MAX_WANTED:
            self.refuse_start(number, TooManyWaiters(f"{MAX_WANTED} runs are waited for on this stream"))
        elif run.run_id in self._wanted:
            self._begin(run, "").add_done_callback(partial(self._started_again, number))
        else:
            self._waiters.hear(run.run_id, self._heard)
            self._wanted.add(run.run_id)
            self._begin(run, self._waiters.gateway_id).add_done_callback(partial(self._executed, number, run.run_id))

    def refuse_start(self, number: int, refusal: Refusal) -> None:
        """Tells why there is no run."""
        self._answers.append(StartAnswer(number, refusal))
        self._is_due.set()

    def _begin(self, run: NewRun, gateway_id: str) -> asyncio.Future[StartedRun]:
        self._starting += 1
        try:
            return self._start(run, gateway_id)
        except Refusal as refusal:
            refused: asyncio.Future[StartedRun] = asyncio.get_running_loop().create_future()
            refused.set_exception(refusal)
            return refused

    def _started(self, number: int, asked: asyncio.Future[StartedRun]) -> None:
        self._answer(number, asked)
        self._is_due.set()

    def _started_again(self, number: int, asked: asyncio.Future[StartedRun]) -> None:
        self._want_started(self._answer(number, asked))
        self._is_due.set()

    def _executed(self, number: int, run_id: str, asked: asyncio.Future[StartedRun]) -> None:
        started = self._answer(number, asked)
        if started is not None and not started.is_repeat and started.run_id == run_id:
            # Its end often follows at once, and takes the answer along.
            self._set_alarm()
            return
        self.forget((run_id,))
        self._want_started(started)
        self._is_due.set()

    def _answer(self, number: int, asked: asyncio.Future[StartedRun]) -> StartedRun | None:
        self._starting -= 1
        error = asked.exception()
        if error is None:
            self._answers.append(StartAnswer(number, asked.result()))
            return asked.result()
        if not isinstance(error, Refusal):
            error = InternalFault(f"fault {self._telemetry.fault('start of a run', error)}")
        self._answers.append(StartAnswer(number, error))
        return None

    def _want_started(self, started: StartedRun | None) -> None:
        if started is not None and not self._is_closed:
            try:
                self.want((started.run_id,))
            except Refusal as refusal:
                self.refuse(refusal)

    def _set_alarm(self) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(IN_TIME_S, self._is_due.set)

    # ---- waiting ----

    def want(self, run_ids: Iterable[str]) -> None:
        """Waits for these, too. Raises InvalidInput, TooManyWaiters."""
        for run_id in run_ids:
            if run_id in self._wanted:
                continue
            if len(self._wanted) >= MAX_WANTED:
                raise InvalidInput("run_ids", f"must be at most {MAX_WANTED} on one stream", len(self._wanted) + 1)
            if not RUN_ID.fullmatch(run_id):
                self._unknown.append(run_id[:100])
                self._is_due.set()
                continue
            asked = self._waiters.add(run_id, self._heard)
            self._wanted.add(run_id)
            asked.add_done_callback(partial(self._answered, run_id))

    def forget(self, run_ids: Iterable[str]) -> None:
        """Waits for these no longer."""
        for run_id in run_ids:
            if run_id in self._wanted:
                self._wanted.discard(run_id)
                self._waiters.remove(run_id, self._heard)
        self._is_due.set()

    def _heard(self, run_id: str) -> None:
        if run_id in self._wanted:
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
        self._is_due.set()

    def refuse(self, refusal: Refusal) -> None:
        """What was named is not done: whoever takes hears why."""
        self._refusal = refusal
        self._is_due.set()

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
            await self._is_due.wait()
            self._is_due.clear()
            if self._answers or self._ended or self._unknown:
                return await self._news()
            if self._refusal is not None:
                raise self._refusal
            if self._is_complete and not (self._wanted or self._starting):
                return None

    async def _news(self) -> RunNews:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        run_ids = [self._ended.popleft() for _ in range(min(PART_RUNS, len(self._ended)))]
        unknown = [self._unknown.popleft() for _ in range(len(self._unknown))]
        if self._ended or self._is_complete or self._refusal is not None:
            self._is_due.set()
        runs: list[Run] = []
        for run_id, found in zip(run_ids, await self._read(run_ids), strict=True):
            if isinstance(found, Run):
                runs.append(found)
            elif isinstance(found, RunNotFound):
                unknown.append(run_id)
            elif isinstance(found, Unavailable):
                raise found
            else:  # whoever waits for this one asks for it by a call, which says so
                self._telemetry.fault("reading a run that has ended", found)
        answers = [self._answers.popleft() for _ in range(len(self._answers))]
        self._has_room.set()
        return RunNews(tuple(answers), tuple(runs), tuple(unknown))

    async def _read(self, run_ids: Iterable[str]) -> list[Run | BaseException]:
        return await asyncio.gather(*map(self._store.read_run, run_ids), return_exceptions=True)
