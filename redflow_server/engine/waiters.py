"""Callers that wait for the end of a run. Every gateway is told of the end of the runs its callers wait for.

The store is told before it is asked whether the run has ended, in one script, so no end is missed; a message that is
lost is made up for by asking again every second, for a thousand runs at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from redflow_server.domain.errors import RunNotFound, TooManyWaiters
from redflow_server.domain.states import RunStatus
from redflow_server.store.store import Store

MAX_WAITERS: Final = 50_000
ASKED_AGAIN: Final = 1_000
"""Runs that a pass asks for: a second of it costs Redis some milliseconds, however many callers there are."""


Heard = Callable[[str], None]
"""Is told of a run that has ended. It may be told more than once."""


class Waiters:
    """The callers of one gateway, by run."""

    def __init__(self, store: Store, gateway_id: str) -> None:
        self._store = store
        self._gateway_id = gateway_id
        self._waiting: dict[str, set[Heard]] = {}
        self._count = 0

    @property
    def gateway_id(self) -> str:
        """The gateway that is to be told."""
        return self._gateway_id

    @property
    def count(self) -> int:
        """How many wait, each for one run."""
        return self._count

    def add(self, run_id: str, heard: Heard) -> asyncio.Future[RunStatus | None]:
        """Has a caller hear of the end of a run, until it is removed. Gives the run's status now, None when there is no
        run: of one that has ended already nothing more is heard. Raises TooManyWaiters.
        """
        self.hear(run_id, heard)
        return self.ask(run_id)

    def hear(self, run_id: str, heard: Heard) -> None:
        """Has a caller hear of the end of a run, until it is removed, of which the store has been told, or is to be
        told. Raises TooManyWaiters.
        """
        if self.count >= MAX_WAITERS:
            raise TooManyWaiters(f"{MAX_WAITERS} callers wait for runs at this gateway")
        self._waiting.setdefault(run_id, set()).add(heard)
        self._count += 1

    def ask(self, run_id: str) -> asyncio.Future[RunStatus | None]:
        """Tells the store that somebody here waits for a run, and gives the run's status now; None when there is no
        run.
        """
        return self._store.watch_run(run_id, self._gateway_id)

    def remove(self, run_id: str, heard: Heard) -> None:
        """A caller waits for a run no longer."""
        self._count -= 1
        waiting = self._waiting[run_id]
        waiting.remove(heard)
        if not waiting:
            del self._waiting[run_id]

    async def wait(self, run_id: str, timeout_s: float) -> bool:
        """Waits until the run has ended; False when the time is over first. Raises RunNotFound,
        TooManyWaiters.
        """
        ended = asyncio.Event()

        def heard(_: str) -> None:
            ended.set()

        asked = self.add(run_id, heard)
        try:
            status = await asked
            if status is None:
                raise RunNotFound(f"there is no run {run_id}", run_id=run_id)
            if status.is_terminal:
                return True
            try:
                async with asyncio.timeout(timeout_s):
                    return await ended.wait()
            except TimeoutError:
                return ended.is_set()
        finally:
            self.remove(run_id, heard)

    def finished(self, run_id: str) -> None:
        """The run has ended."""
        for heard in tuple(self._waiting.get(run_id, ())):
            heard(run_id)

    async def tick(self) -> None:
        """Asks again for runs that somebody waits for: for all of them, or for many in turn."""
        run_ids = tuple(islice(self._waiting, ASKED_AGAIN))
        for run_id in run_ids:
            self._waiting[run_id] = self._waiting.pop(run_id)  # it is the last one now
        statuses: Iterable[RunStatus | None] = await asyncio.gather(*(self.ask(run_id) for run_id in run_ids))
        for run_id, status in zip(run_ids, statuses, strict=True):
            if status is None or status.is_terminal:
                self.finished(run_id)
