"""Runs that are delivered to a worker alone: which lanes of a gateway may have some, and which session takes the next.

The next worker that is lost with such a run ends it, so nothing may be beside it that loses the worker. If no session
is idle, the least busy one is kept clear: it gets nothing new until it is idle. Others must not starve meanwhile: at
most half of the sessions of a lane are taken up in this way, and one that was takes others for as long, if any wait.

A lane is looked into before a session is kept clear for it, and every second while one is: other gateways may have
taken what was there, and what was canceled is told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from redflow_server.domain.leases import Lane
from redflow_server.engine.session import WorkerSession

TAKEN_UP_S: Final = 60.0
"""How long a session is kept clear at most, without getting idle."""
LOOK_S: Final = 1.0


@dataclass(slots=True, eq=False)
class SoloLane:
    """A lane that may have runs, with the sessions that serve it; times are of the monotonic clock."""

    lane: Lane
    sessions: Collection[WorkerSession]
    looked_at: float = float("-inf")
    is_asked: bool = False
    """Whether a claim for it is under way."""
    is_told_again: bool = False
    """Whether it was said to have filled since the last claim for it was sent."""
    kept_clear: WorkerSession | None = None
    kept_clear_since: float = 0.0


class SoloLanes:
    """Of one gateway. `others_wait` says whether runs of other lanes wait for a session."""

    def __init__(self, others_wait: Callable[[WorkerSession], bool]) -> None:
        self._others_wait = others_wait
        self._lanes: dict[Lane, SoloLane] = {}
        self._rests_until: dict[WorkerSession, float] = {}
        self._taken_since: dict[WorkerSession, float] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to look after."""
        return bool(self._lanes or self._taken_since)

    def add(self, lane: Lane, sessions: Collection[WorkerSession]) -> None:
        """The lane may have runs. `sessions` are those that serve it, at any time."""
        self._lanes.setdefault(lane, SoloLane(lane, sessions)).is_told_again = True

    def left(self, session: WorkerSession) -> None:
        """The session is gone; so are lanes that nobody serves any more."""
        self._rests_until.pop(session, None)
        self._taken_since.pop(session, None)
        for lane in tuple(self._lanes.values()):
            if lane.kept_clear is session:
                self.let_go(lane)
            if not lane.sessions:
                del self._lanes[lane.lane]

    # ---- what to ask ----

    def to_look_into(self, now: float) -> Iterator[SoloLane]:
        """The lanes of which it is not known any more whether they have runs."""
        return (lane for lane in self._lanes.values() if not lane.is_asked and now - lane.looked_at >= LOOK_S)

    def asks(self, lanes: Iterable[SoloLane]) -> None:
        """A claim for these is under way."""
        for lane in lanes:
            lane.is_asked, lane.is_told_again = True, False

    def answered(self, lanes: Iterable[SoloLane], emptied: Collection[Lane], now: float) -> None:
        """It has told which of the lanes are empty."""
        for lane in lanes:
            lane.is_asked, lane.looked_at = False, now
            if lane.lane in emptied and not lane.is_told_again:
                self.let_go(lane)
                if self._lanes.get(lane.lane) is lane:
                    del self._lanes[lane.lane]

    def came_to_nothing(self, lanes: Iterable[SoloLane]) -> None:
        """There was no answer."""
        for lane in lanes:
            lane.is_asked = False

    # ---- room ----

    def rooms(self, now: float) -> list[tuple[SoloLane, WorkerSession]]:
        """The lanes with runs, each with an idle session that takes one now. Others are kept clear."""
        self._note_what_is_taken(now)
        found = []
        for lane in self._lanes.values():
            if not lane.is_asked and now - lane.looked_at < LOOK_S:
                session = self._room_for(lane, now)
                if session is not None:
                    found.append((lane, session))
        return found

    def _note_what_is_taken(self, now: float) -> None:
        """A session that was taken up takes others for as long as that was, if any wait."""
        self._rests_until = {session: until for session, until in self._rests_until.items() if until > now}
        for session, since in tuple(self._taken_since.items()):
            if not session.slots.is_taken_up:
                del self._taken_since[session]
                self._rests_until[session] = now + min(now - since, TAKEN_UP_S)

    def _room_for(self, lane: SoloLane, now: float) -> WorkerSession | None:
        kept_clear = lane.kept_clear
        if kept_clear is not None and (
            not self._would_take(kept_clear, lane) or now - lane.kept_clear_since >= TAKEN_UP_S
        ):
            self.let_go(lane)
            self._note_what_is_taken(now)
            kept_clear = None
        if kept_clear is not None:
            return kept_clear if kept_clear.slots.is_idle else None
        candidates = [one for one in lane.sessions if self._would_take(one, lane) and not self._rests(one)]
        free = [one for one in candidates if not one.slots.is_taken_up]
        taken_up = sum(one.slots.is_taken_up for one in lane.sessions)
        if not free or taken_up >= max(1, len(lane.sessions) // 2):
            return None
        session = min(free, key=lambda one: one.slots.busy)
        lane.kept_clear, lane.kept_clear_since = session, now
        session.slots.is_kept_clear = True
        self._taken_since.setdefault(session, now)
        return session if session.slots.is_idle else None

    def _would_take(self, session: WorkerSession, lane: SoloLane) -> bool:
        return session.takes_runs and session.slots.limit > 0 and session.accepts(lane.lane)

    def _rests(self, session: WorkerSession) -> bool:
        """One that is idle may as well take a run, as long as no others wait for it."""
        return session in self._rests_until and (not session.slots.is_idle or self._others_wait(session))

    def let_go(self, lane: SoloLane) -> None:
        """No session is kept clear for the lane any more."""
        if lane.kept_clear is not None:
            lane.kept_clear.slots.is_kept_clear = False
            lane.kept_clear = None
