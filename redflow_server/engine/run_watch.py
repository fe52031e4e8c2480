"""The runs that one caller waits for, as it names them. Each is read and told once, when it has ended.

What a run is, and who hears of its end, it leaves to the store and to `Waiters`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from redflow_server.domain.errors import InvalidInput, Refusal, RunNotFound
from redflow_server.domain.ids import RUN_ID
from redflow_server.domain.runs import EndedRuns, Run
from redflow_server.domain.states import RunStatus
from redflow_server.engine.waiters import Waiters
from redflow_server.store.store import Store

MAX_WANTED: Final = 10_000
PART_RUNS: Final = 64


class RunWatch:
    """One caller's. To be closed."""

    def __init__(self, store: Store, waiters: Waiters) -> None:
        self._store = store
        self._waiters = waiters
        self._wanted: set[str] = set()
        self._ended: deque[str] = deque()
        self._unknown: deque[str] = deque()
        self._changed = asyncio.Event()
        self._is_complete = False
        self._refusal: Refusal | None = None

    def want(self, run_ids: Iterable[str]) -> None:
        """Waits for these, too. Raises InvalidInput, TooManyWaiters."""
        for run_id in run_ids:
            if run_id in self._wanted:
                continue
            if len(self._wanted) >= MAX_WANTED:
                raise InvalidInput("run_ids", f"must be at most {MAX_WANTED} on one stream", len(self._wanted) + 1)
            if not RUN_ID.fullmatch(run_id):
                self._unknown.append(run_id[:100])
                self._changed.set()
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
        self._changed.set()

    def complete(self) -> None:
        """Nothing more will be named."""
        self._is_complete = True
        self._changed.set()

    def refuse(self, refusal: Refusal) -> None:
        """What was named is not waited for: whoever takes hears why."""
        self._refusal = refusal
        self._changed.set()

    def close(self) -> None:
        """Waits for nothing any more."""
        self.forget(tuple(self._wanted))

    async def take(self) -> EndedRuns | None:
        """Runs that have ended, as soon as there are some; None when none will come. Raises what was refused, and
        StoreUnavailable: what was not told then is to be asked for again.
        """
        while not (self._ended or self._unknown):
            if self._refusal is not None:
                raise self._refusal
            if self._is_complete and not self._wanted:
                return None
            self._changed.clear()
            await self._changed.wait()
        run_ids = [self._ended.popleft() for _ in range(min(PART_RUNS, len(self._ended)))]
        unknown = [self._unknown.popleft() for _ in range(len(self._unknown))]
        runs: list[Run] = []
        for run_id, found in zip(run_ids, await self._read(run_ids), strict=True):
            if isinstance(found, Run):
                runs.append(found)
            elif isinstance(found, RunNotFound):
                unknown.append(run_id)
            else:
                raise found
        return EndedRuns(tuple(runs), tuple(unknown))

    async def _read(self, run_ids: Iterable[str]) -> list[Run | BaseException]:
        return await asyncio.gather(*map(self._store.read_run, run_ids), return_exceptions=True)

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
