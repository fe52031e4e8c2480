"""Callers that wait for the end of a run. Every gateway is told of the end of the runs its callers wait for.

The store is told before it is asked whether the run has ended, in one script, so no end is missed; a message that is
lost is made up for by asking again every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from redflow_server.domain.errors import RunNotFound, TooManyWaiters
from redflow_server.domain.states import RunStatus
from redflow_server.store.store import Store

MAX_WAITERS: Final = 50_000


class Waiters:
    """The callers of one gateway, by run."""

    def __init__(self, store: Store, gateway_id: str) -> None:
        self._store = store
        self._gateway_id = gateway_id
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """How many callers wait."""
        return self._count

    async def wait(self, run_id: str, timeout_s: float) -> bool:
        """Waits until the run has ended; False when the time is over first. Raises RunNotFound,
        TooManyWaiters.
        """
        if self.count >= MAX_WAITERS:
            raise TooManyWaiters(f"{MAX_WAITERS} callers wait for runs at this gateway")
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(ended)
        self._count += 1
        try:
            status = await self._store.watch_run(run_id, self._gateway_id)
            if status is None:
                raise RunNotFound(f"there is no run {run_id}", run_id=run_id)
            if status.is_terminal:
                return True
            done, _ = await asyncio.wait([ended], timeout=timeout_s)
            return bool(done)
        finally:
            self._count -= 1
            waiting = self._waiting[run_id]
            waiting.discard(ended)
            if not waiting:
                del self._waiting[run_id]

    def finished(self, run_id: str) -> None:
        """The run has ended."""
        for ended in self._waiting.get(run_id, ()):
            if not ended.done():
                ended.set_result(None)

    async def tick(self) -> None:
        """Asks again for every run that somebody waits for."""
        run_ids = tuple(self._waiting)
        statuses: Iterable[RunStatus | None] = await asyncio.gather(
            *(self._store.watch_run(run_id, self._gateway_id) for run_id in run_ids)
        )
        for run_id, status in zip(run_ids, statuses, strict=True):
            if status is None or status.is_terminal:
                self.finished(run_id)
