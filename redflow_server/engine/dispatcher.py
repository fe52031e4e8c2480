"""Which lanes may hold runs, and claiming them for sessions with free slots.

A lane is *dirty* when it may hold runs that nobody here has looked for. It becomes dirty when the first session that
serves it joins, when a run is started here that belongs there, when it is said to have filled, and when that message
may have been missed. It becomes clean only by a claim that left it empty. Redis numbers all fillings of lanes, and a
claim tells the number of the last one: so a message about an earlier one, which may come after the claim, is no news.
A lost message costs at most the second until `due` tells which lanes have filled.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final

from redflow_server.domain.clock import now_s
from redflow_server.domain.errors import Refusal
from redflow_server.domain.ids import new_secret
from redflow_server.domain.leases import Claim, Claimed, ClaimedRun, Lane, Release, ReleaseReason
from redflow_server.domain.timing import Timing
from redflow_server.engine.session import WorkerSession
from redflow_server.engine.solo import SoloLane, SoloLanes
from redflow_server.engine.stops import EarlyStops
from redflow_server.store.keys import lane_of
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

CLAIM_LANES: Final = 64
CLAIM_RUNS: Final = 128
CLAIM_ALL: Final = 16
MAX_UNSERVED: Final = 1000
STUCK_S: Final = 20.0
"""A claim is answered or refused sooner, and lanes are looked at anew every second."""
INLINE_BYTES: Final = 512 * 1024
INLINE_VALUE_BYTES: Final = 64 * 1024
"""Values of steps that come with an assignment: in all, and each. Others come when the handler asks for them."""


@dataclass(slots=True)
class LaneMark:
    """What is known of a lane that some session serves."""

    sessions: set[WorkerSession] = field(default_factory=set)
    is_being_claimed: bool = False
    heard: int = 0
    """The change by which it was last said to have filled."""
    emptied_at: int = 0
    """The last change before the claim that left it empty."""


class Dispatcher:
    """Brings runs and sessions of one gateway together."""

    def __init__(self, store: Store, timing: Timing, early_stops: EarlyStops, telemetry: Telemetry) -> None:
        self._store = store
        self._timing = timing
        self._early_stops = early_stops
        self._telemetry = telemetry
        self._marks: dict[Lane, LaneMark] = {}
        self._dirty: dict[Lane, LaneMark] = {}
        self._solo_lanes = SoloLanes(lambda session: bool(self._worth_claiming(session)))
        self._lanes_of: defaultdict[str, set[Lane]] = defaultdict(set)
        self._sessions: dict[WorkerSession, None] = {}
        """In the order in which they have their turn."""
        self._is_awake = False
        self._deliveries: set[asyncio.Task[None]] = set()
        self._asked_at: deque[float] = deque()
        self._looked_at = time.monotonic()
        self.unserved: dict[Lane, float] = {}
        """Lanes that have filled, whose queue a worker here asked for by name and whose workflow none here has, by
        when that was first heard."""
        self.confirmed_change = 0
        """The changes up to this one were read, not only heard: no message about them can be missing."""
        self._asked_queues: Counter[str] = Counter()

    # ---- what is dirty ----

    def join(self, session: WorkerSession) -> None:
        """The session serves its lanes from now on."""
        self._sessions[session] = None
        for lane in session.lanes:
            mark = self._marks.setdefault(lane, LaneMark())
            mark.sessions.add(session)
            self._lanes_of[lane.workflow].add(lane)
            self._dirty[lane] = mark
            self.unserved.pop(lane, None)
            self._solo_lanes.add(replace(lane, is_solo=True), mark.sessions)
        if session.opening.queues:
            self._asked_queues.update(session.opening.queues)
            self.confirmed_change = 0
        self.wake()

    def leave(self, session: WorkerSession) -> None:
        """The session serves no lane any more."""
        if session not in self._sessions:
            return
        del self._sessions[session]
        self._asked_queues.subtract(session.opening.queues)
        self._asked_queues = +self._asked_queues
        self.unserved = {lane: at for lane, at in self.unserved.items() if lane.queue in self._asked_queues}
        for lane in session.lanes:
            mark = self._marks[lane]
            mark.sessions.discard(session)
            if not mark.sessions:
                del self._marks[lane]
                self._dirty.pop(lane, None)
                self._lanes_of[lane.workflow].discard(lane)
                if not self._lanes_of[lane.workflow]:
                    del self._lanes_of[lane.workflow]
        self._solo_lanes.left(session)

    def expect(self, workflow: str, queue: str | None) -> None:
        """A run is being started, for this queue if one was named. It may be claimed in the same round trip, before the
        message about its lane comes.
        """
        for lane in self._lanes_of.get(workflow, ()):
            if queue in (None, lane.queue):
                self._dirty[lane] = self._marks[lane]
                self.wake()

    def lane_filled(self, name: str, change: int) -> None:
        """A lane went from empty to non-empty."""
        lane = lane_of(name)
        mark = self._marks.get(replace(lane, is_solo=False))
        if lane.is_solo:
            if mark is not None:
                self._solo_lanes.add(lane, mark.sessions)
                self.wake()
            return
        if mark is None:
            if lane.queue in self._asked_queues and len(self.unserved) < MAX_UNSERVED:
                self.unserved.setdefault(lane, time.monotonic())
            return
        mark.heard = max(mark.heard, change)
        if change > mark.emptied_at:
            self._dirty[lane] = mark
            self.wake()

    def lanes_read(self, lanes: Iterable[tuple[str, int]], last_change: int, known_change: int) -> None:
        """These lanes have filled since the confirmed change, with these numbers, the lowest first. `last_change` is
        the last one of all, and `known_change` was known before that was asked.
        """
        if last_change < known_change:
            # The store was emptied, or has gone back to an older state: its numbers begin anew.
            self.suspect_all()
        for name, change in lanes:
            self.lane_filled(name, change)
            self.confirmed_change = max(self.confirmed_change, change)
        self.wake()

    @property
    def known_change(self) -> int:
        """The highest number that was heard, or read."""
        return max(self.confirmed_change, *(max(mark.heard, mark.emptied_at) for mark in self._marks.values()), 0)

    def suspect_all(self) -> None:
        """Messages may have been missed."""
        self.confirmed_change = 0
        for lane, mark in self._marks.items():
            mark.heard = mark.emptied_at = 0
            self._dirty[lane] = mark
            self._solo_lanes.add(replace(lane, is_solo=True), mark.sessions)
        self.wake()

    def wake(self) -> None:
        """Looks, once in this turn of the loop, whether dirty lanes and free slots meet."""
        if not self._is_awake:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    @property
    def is_stuck(self) -> bool:
        """Whether workers get nothing from here any more: a claim is not answered, or nobody looks at lanes."""
        oldest = min(self._looked_at, self._asked_at[0] if self._asked_at else self._looked_at)
        return time.monotonic() - oldest > STUCK_S

    # ---- claiming ----

    def _dispatch(self) -> None:
        self._is_awake = False
        self._looked_at = time.monotonic()
        if self._solo_lanes:
            self._dispatch_solo(time.monotonic())
        for session in tuple(self._sessions) if self._dirty else ():
            # Not all slots at once: the worker works on one part while the next is on its way.
            count = min(session.free_slots, CLAIM_RUNS, max(CLAIM_ALL, session.slots.limit // 2))
            lanes = self._worth_claiming(session) if count else ()
            if lanes:
                # It stands last now: under a load that one could carry, the others work as much.
                del self._sessions[session]
                self._sessions[session] = None
                self._claim(session, lanes, count)

    def _dispatch_solo(self, now: float) -> None:
        if unknown := tuple(islice(self._solo_lanes.to_look_into(now), CLAIM_LANES)):
            self._claim_solo(next(iter(self._sessions)), unknown, 0)
        for lane, session in self._solo_lanes.rooms(now):
            self._claim_solo(session, (lane,), 1)

    def _claim_solo(self, session: WorkerSession, lanes: tuple[SoloLane, ...], count: int) -> None:
        """Claims a run for a session that is idle, or only looks which of the lanes are empty."""
        self._solo_lanes.asks(lanes)

        def told(claimed: Claimed | None) -> None:
            if claimed is None:
                self._solo_lanes.came_to_nothing(lanes)
            else:
                self._solo_lanes.answered(lanes, claimed.emptied, time.monotonic())
            if count:  # the session has a run now, or there was none
                self._solo_lanes.let_go(lanes[0])

        self._ask(session, tuple(lane.lane for lane in lanes), count, told)

    def _answer(self, future: asyncio.Future[Claimed]) -> Claimed | None:
        """What a claim has told; None when it failed."""
        if future.cancelled():
            return None
        if future.exception() is not None:
            self._telemetry.fault("claim", future.exception())
            return None
        return future.result()

    def _worth_claiming(self, session: WorkerSession) -> tuple[Lane, ...]:
        """Dirty lanes that the session serves. Those claimed last stand last, so all have their turn."""
        lanes = (
            lane
            for lane, mark in self._dirty.items()
            if session in mark.sessions and not mark.is_being_claimed and session.accepts(lane)
        )
        return tuple(islice(lanes, CLAIM_LANES))

    def _claim(self, session: WorkerSession, lanes: tuple[Lane, ...], count: int) -> None:
        for lane in lanes:
            self._marks[lane].is_being_claimed = True
        self._ask(session, lanes, count, partial(self._note, lanes))

    def _note(self, lanes: tuple[Lane, ...], answer: Claimed | None) -> None:
        """Which of the lanes are clean."""
        claimed = answer or Claimed((), (), 0)
        # Lanes that gave runs go to the end, so that a session with little room does not serve the first one only.
        gave = {run.lane for run in claimed.runs}
        for lane in sorted(lanes, key=gave.__contains__):
            mark = self._marks.get(lane)
            if mark is not None:
                mark.is_being_claimed = False
                self._dirty.pop(lane, None)
                if lane in claimed.emptied:
                    mark.emptied_at = claimed.lane_change
                if lane not in claimed.emptied or mark.heard > mark.emptied_at:
                    self._dirty[lane] = mark

    def _ask(
        self, session: WorkerSession, lanes: tuple[Lane, ...], count: int, told: Callable[[Claimed | None], None]
    ) -> None:
        """Sends a claim, whose count is on the session's account until it is answered. `told` hears of the answer
        before its runs are delivered; None when it failed.
        """
        session.slots.claiming += count
        claim = Claim(session.stamp, lanes, count, new_secret(), self._timing.lease_ms)
        sent_at = now_s()
        self._asked_at.append(asked_at := time.monotonic())

        def claimed(future: asyncio.Future[Claimed]) -> None:
            self._asked_at.remove(asked_at)
            answer = self._answer(future)
            told(answer)
            if answer is not None:
                self._deliver(session, answer.runs, sent_at)
            if count:
                session.claim_ended(count)
            if answer is not None:
                self.wake()

        self._store.claim(claim).add_done_callback(claimed)

    def _is_stale(self, claimed_at: float) -> bool:
        """Whether leases claimed then may be over: their runs may be others' by now, and must not be started here."""
        return now_s() - claimed_at >= self._timing.delivery_ms / 1000

    def _deliver(self, session: WorkerSession, runs: Iterable[ClaimedRun], claimed_at: float) -> None:
        if self._is_stale(claimed_at):
            return
        for run in runs:
            if run.steps is None:
                # Its claim is not over: it still takes a slot, and a drain waits for it.
                session.slots.claiming += 1
                if run.lane.is_solo:
                    session.slots.keep_alone(run.lease_token)
                task = asyncio.create_task(self._deliver_with_steps(session, run, claimed_at))
                self._deliveries.add(task)
                task.add_done_callback(self._deliveries.discard)
            else:
                self._hand_over(session, run, claimed_at)

    def _hand_over(self, session: WorkerSession, run: ClaimedRun, claimed_at: float) -> None:
        if session.is_closed:
            self._release(session, run, ReleaseReason.NOT_STARTED)
            return
        stop = self._early_stops.take(run.lease_token)
        session.deliver(run if stop is None else replace(run, stop=stop), claimed_at)

    async def _deliver_with_steps(self, session: WorkerSession, run: ClaimedRun, claimed_at: float) -> None:
        """Reads steps that were too many for the claim: only the holder of the lease writes them meanwhile."""
        try:
            steps = await self._store.read_steps(
                run.run_id, INLINE_BYTES, (), run.lease_token, max_value_bytes=INLINE_VALUE_BYTES
            )
        except Refusal as refusal:
            self._telemetry.fault("reading steps", refusal)
            self._release(session, run, ReleaseReason.NOT_STARTED)
        else:
            if not self._is_stale(claimed_at):
                self._hand_over(session, replace(run, steps=steps), claimed_at)
        finally:
            if run.lease_token not in session.slots.held:
                session.slots.allow_others(run.lease_token)
            session.claim_ended(1)

    def _release(self, session: WorkerSession, run: ClaimedRun, reason: ReleaseReason) -> None:
        release = Release(run.run_id, run.lease_token, reason, session.stamp)
        self._store.release(release).add_done_callback(partial(self._telemetry.watch, f"release ({reason})"))
