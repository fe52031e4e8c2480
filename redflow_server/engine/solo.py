"""Room for runs that are delivered to a worker alone: which session is kept clear for the runs of which lane.

The next worker that is lost with such a run ends it, so nothing else may be beside it that loses the worker. If no
session is idle, the least busy one gets nothing new until it is; for a minute at most, then it takes other runs for as
long, so that one handler that never ends does not stop all others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from redflow_server.domain.leases import Lane
from redflow_server.engine.session import WorkerSession

KEPT_CLEAR_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Clearing:
    """A session that is kept clear, until an instant of the monotonic clock."""

    session: WorkerSession
    until: float


class SoloRooms:
    """Of one gateway, by lane."""

    def __init__(self) -> None:
        self._clearings: dict[Lane, Clearing] = {}
        self._rests_until: dict[WorkerSession, float] = {}

    def room_for(self, lane: Lane, sessions: Iterable[WorkerSession]) -> WorkerSession | None:
        """An idle session that takes a run of the lane; None as long as there is none, and one is kept clear."""
        clearing = self._clearings.get(lane)
        willing = [one for one in sessions if one.takes_runs and one.accepts(lane)]
        others = {one.session for where, one in self._clearings.items() if where != lane}
        idle = next((one for one in willing if one.slots.is_idle and one not in others), None)
        if idle is not None:
            self._clear(lane, idle)
            return idle
        if clearing is not None and (clearing.session not in willing or clearing.until <= time.monotonic()):
            self.release(lane)
            self._rests_until[clearing.session] = time.monotonic() + KEPT_CLEAR_S
            clearing = None
        if clearing is None:
            self._begin_to_clear(lane, (one for one in willing if one not in others))
        return None

    def _begin_to_clear(self, lane: Lane, candidates: Iterable[WorkerSession]) -> None:
        now = time.monotonic()
        self._rests_until = {session: until for session, until in self._rests_until.items() if until > now}
        rested = [one for one in candidates if one not in self._rests_until]
        if rested:
            self._clear(lane, min(rested, key=lambda one: one.slots.busy))

    def _clear(self, lane: Lane, session: WorkerSession) -> None:
        self.release(lane)
        session.slots.is_kept_clear = True
        self._clearings[lane] = Clearing(session, time.monotonic() + KEPT_CLEAR_S)

    def release(self, lane: Lane) -> None:
        """The lane needs no room any more, or its run has come to the session."""
        clearing = self._clearings.pop(lane, None)
        if clearing is not None:
            clearing.session.slots.is_kept_clear = False

    def left(self, session: WorkerSession) -> None:
        """The session is gone."""
        self._rests_until.pop(session, None)
        for lane in list(self._lanes_of(session)):
            self.release(lane)

    def _lanes_of(self, session: WorkerSession) -> Iterator[Lane]:
        return (lane for lane, clearing in self._clearings.items() if clearing.session is session)
