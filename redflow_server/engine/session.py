"""One worker's session: what it says becomes calls of the store, what the store answers goes to its send queue.

It keeps no state that matters: leases, steps and orders to stop are in the store, so a lost session changes no run.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from redflow_server.domain.clock import now_s
from redflow_server.domain.errors import ProtocolViolation
from redflow_server.domain.ids import run_id_of
from redflow_server.domain.leases import (
    ClaimedRun,
    Lane,
    LeaseEnded,
    LeaseStanding,
    ListedLease,
    Outcome,
    Release,
    ReleaseReason,
    Stamp,
    Standing,
    Stop,
    StopReason,
    WaitOver,
)
from redflow_server.domain.session import (
    Capacity,
    Heartbeat,
    HeartbeatReply,
    HeldLease,
    LeaseState,
    OpenSession,
    Receipt,
    RejectReason,
    WorkerMessage,
)
from redflow_server.domain.timing import Timing
from redflow_server.engine.items import Items
from redflow_server.engine.renewal import Renewal
from redflow_server.engine.resolutions import Resolutions
from redflow_server.engine.send_queue import SendQueue
from redflow_server.engine.slots import Slots
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

REJECT_DELAY_MS: Final = 1000
LEFT_OUT_S: Final = 10.0
LEFT_OUT_MAX_S: Final = 600.0
MAX_SLOTS: Final = 10_000
MAX_QUEUED: Final = 20_000
"""A worker that lets this many answers pile up does not read its stream."""


class WorkerSession:
    """An open session."""

    def __init__(
        self,
        stamp: Stamp,
        opening: OpenSession,
        *,
        store: Store,
        timing: Timing,
        telemetry: Telemetry,
        on_room: Callable[[], None],
        on_start: Callable[[str, str | None], None],
    ) -> None:
        self.session_id = stamp.session_id
        self.opening = opening
        self.stamp = stamp
        self.send_queue = SendQueue()
        self.slots = Slots(opening.slot_limit)
        self.lanes: tuple[Lane, ...] = ()
        self.connected_at = time.time()
        self.last_heard = time.monotonic()
        self.is_closed = False
        self.is_draining = False
        self._is_paused = False
        self._is_resting = False
        self._left_out: dict[Lane, tuple[float, float]] = {}
        self._store = store
        self._timing = timing
        self._renewal = Renewal(store, timing)
        self._renewing: set[asyncio.Task[tuple[LeaseStanding, ...]]] = set()
        self._telemetry = telemetry
        self._look_for_runs = on_room
        self._resolutions = Resolutions(store, self.slots, self.send_queue, telemetry, self._on_room)
        self._items = Items(
            store=store,
            slots=self.slots,
            resolutions=self._resolutions,
            send_queue=self.send_queue,
            telemetry=telemetry,
            on_room=self._on_room,
            on_start=on_start,
        )

    @property
    def free_slots(self) -> int:
        """How many runs may be claimed for it now."""
        return self.slots.free if self.takes_runs else 0

    @property
    def takes_runs(self) -> bool:
        """Whether its worker wants any."""
        return not (self.is_closed or self.is_draining or self._is_paused or self._is_resting)

    @property
    def is_drained(self) -> bool:
        """Whether the worker was told that no assignment follows."""
        return self.is_draining and self.slots.claiming == 0

    def accepts(self, lane: Lane) -> bool:
        """Whether runs of the lane may be offered: not for a while after the worker has rejected one."""
        if not self._left_out:
            return True
        until, _ = self._left_out.get(lane, (0.0, 0.0))
        return until <= time.monotonic()

    def _on_room(self) -> None:
        if self.is_closed:
            return
        # Before any claim: a handler that is in memory goes on before another one begins.
        self._resolutions.give_slots()
        self._look_for_runs()

    # ---- from the worker ----

    def receive(self, message: WorkerMessage) -> None:
        """Deals with a message. Raises ProtocolViolation."""
        self.last_heard = time.monotonic()
        if message.opening is not None:
            raise ProtocolViolation("open may only be the first message")
        if self.send_queue.queued > MAX_QUEUED:
            raise ProtocolViolation("the worker does not read its stream")
        if message.heartbeat is not None:
            self._beat(message.heartbeat)
        for receipt in message.receipts:
            self._acknowledge(receipt)
        for item in message.items:
            self._items.take(item)
        if message.capacity is not None:
            self._set_capacity(message.capacity)
        if message.drains and not self.is_draining:
            self.is_draining = True
            if self.is_drained:
                self.send_queue.drained()
        if message.closes:
            self._hand_back_all()
            self.send_queue.end()

    def _set_capacity(self, capacity: Capacity) -> None:
        if not 0 <= capacity.slot_limit <= MAX_SLOTS:
            raise ProtocolViolation(f"capacity.slot_limit must be between 0 and {MAX_SLOTS}; got {capacity.slot_limit}")
        self.slots.limit = capacity.slot_limit
        self._is_paused = capacity.is_paused
        # What it has rejected for want of room it may take now. A workflow that it does not have it never takes.
        self._is_resting = False
        self._left_out = {lane: pause for lane, pause in self._left_out.items() if pause[0] == math.inf}
        self._on_room()

    # ---- leases ----

    def deliver(self, run: ClaimedRun, claimed_at: float) -> None:
        """Sends a claimed run to the worker."""
        self.slots.deliver(run, claimed_at)
        self.send_queue.assign(run)

    def claim_ended(self, count: int) -> None:
        """A claim for this many slots has been answered."""
        self.slots.claiming -= count
        self._resolutions.give_slots()
        if self.is_drained:
            self.send_queue.drained()

    def push_stop(self, stop: Stop) -> bool:
        """Passes on an order to stop; False when the session does not hold the lease."""
        if stop.lease_token not in self.slots.held:
            return False
        self.send_queue.stop(stop)
        return True

    def push_resolution(self, over: WaitOver) -> bool:
        """Passes on that a wait is over; False when the session does not hold the lease."""
        if over.lease_token not in self.slots.held:
            return False
        self._resolutions.hear(over)
        return True

    def adopt(self, held: HeldLease, run_id: str, standing: LeaseStanding) -> None:
        """The worker holds the lease, which may have come from another session."""
        is_new = self.slots.adopt(held.lease_token, run_id, now_s())
        if is_new and held.state is LeaseState.PARKED:
            self.slots.park(held.lease_token)
        known = self.slots.held.get(held.lease_token)
        if known is not None:
            self._note_solo(standing)
            known.open_waits.update(held.open_waits)
            if told := (*standing.waits_over, *standing.waits_unknown):
                self._resolutions.tell(standing.lease_token, told)

    def _note_solo(self, standing: LeaseStanding) -> None:
        (self.slots.keep_alone if standing.is_solo else self.slots.allow_others)(standing.lease_token)

    def _beat(self, heartbeat: Heartbeat) -> None:
        self._is_resting = False
        listed: dict[str, HeldLease] = {}
        for lease in heartbeat.leases:
            run_id = run_id_of(lease.lease_token)
            if lease.state is not LeaseState.FENCED:
                listed[lease.lease_token] = lease
            elif run_id is not None:
                self._release_own(run_id, lease.lease_token, ReleaseReason.FENCED)
        self._count_missed(set(listed))
        items = {token: held.items for token, held in self.slots.held.items()}
        self.slots.asked()
        leases = [ListedLease(token, lease.open_waits) for token, lease in listed.items()]
        renewing = asyncio.create_task(self._renewal.renew(self.stamp, leases))
        self._renewing.add(renewing)
        renewing.add_done_callback(self._renewing.discard)
        renewing.add_done_callback(partial(self._beat_answered, heartbeat.sequence, listed, items))
        renewing.add_done_callback(lambda _: self.slots.answered())
        self._on_room()

    def _count_missed(self, listed: set[str]) -> None:
        for token, held in list(self.slots.held.items()):
            if token in listed or held.unanswered_items or not held.is_received:
                held.missed_beats = 0
                continue
            held.missed_beats += 1
            if held.missed_beats >= 2:
                self._release_own(held.run_id, token, ReleaseReason.VANISHED)

    def _beat_answered(
        self,
        sequence: int,
        listed: dict[str, HeldLease],
        items: dict[str, int],
        future: asyncio.Future[tuple[LeaseStanding, ...]],
    ) -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._telemetry.fault("heartbeat", error)
        if self.is_closed:
            return
        if error is not None:
            # Alive, but nothing was renewed: the worker counts from its last answered heartbeat, and fences itself.
            self.send_queue.reply(HeartbeatReply(0, (), ()))
            return
        stops, lost = [], []
        for standing in future.result():
            token, run_id = standing.lease_token, run_id_of(standing.lease_token)
            if standing.standing is Standing.HELD and run_id is not None:
                held = self.slots.held.get(token)
                if held is None or held.items == items.get(token):
                    # Else the worker has said something since, and its list of waits is old: the next one counts.
                    self.adopt(listed[token], run_id, standing)
                    held = self.slots.held.get(token)
                if held is not None:
                    held.is_received = held.receipt_is_stored = True
                if standing.stop is not None:
                    stops.append(standing.stop)
            else:
                self.slots.drop(token)
                if standing.standing is Standing.LOST:
                    lost.append(token)
        self.send_queue.reply(HeartbeatReply(sequence, tuple(stops), tuple(lost)))
        self._on_room()

    async def store_receipts(self) -> None:
        """Writes the receipts that came since the last time, with which losses count as such, and renews the leases: to
        the length of a lease after the worker was last heard, so that one that has died keeps none for longer.
        """
        age_ms = int(1000 * (time.monotonic() - self.last_heard))
        for standing in await self._renewal.renew(self.stamp, self.slots.unstored_receipts(), age_ms):
            held = self.slots.held.get(standing.lease_token)
            if held is None:
                continue
            held.receipt_is_stored = True
            if standing.standing is Standing.HELD:
                self._note_solo(standing)
            if standing.waits_over:
                self._resolutions.tell(standing.lease_token, standing.waits_over)
            if standing.stop is not None:
                self.send_queue.stop(standing.stop)
            if standing.standing in (Standing.LOST, Standing.MOVED):
                self.slots.drop(standing.lease_token)
                if standing.standing is Standing.LOST:
                    self.send_queue.stop(Stop(standing.lease_token, StopReason.LEASE_LOST))
                self._on_room()

    def look_after_unacknowledged(self) -> None:
        """While a receipt is overdue, the worker gets nothing new. An assignment that the stream has not taken is
        released. One that it has taken may be on its way still, and its handler begin at any moment while its lease
        lasts: it is nobody else's before that has ended.
        """
        now = now_s()
        for token in self.slots.overdue(now - self._timing.ack_ms / 1000):
            self._is_resting = True
            if self.send_queue.withdraw(token):
                self._release_own(self.slots.held[token].run_id, token, ReleaseReason.UNDELIVERED)
        for token in self.slots.overdue(now - self._timing.lease_ms / 1000):
            self.slots.drop(token)
            self._on_room()

    def unpark_overdue(self) -> None:
        """Hands back the runs of parked handlers that could go on, and for which the worker has had no slot."""
        for token in self._resolutions.without_slot():
            if self.slots.is_parked(token):
                released = self._release_own(self.slots.held[token].run_id, token, ReleaseReason.UNPARKED)
                released.add_done_callback(partial(self._unparked, token))

    def _unparked(self, token: str, future: asyncio.Future[LeaseEnded]) -> None:
        # Else it is not this session's any more, or it is still parked here, and the next heartbeat brings it back.
        if not future.cancelled() and future.exception() is None and future.result().outcome is Outcome.OK:
            self.send_queue.stop(Stop(token, StopReason.UNPARKED))

    def _acknowledge(self, receipt: Receipt) -> None:
        self.slots.receive(receipt.lease_token)
        if receipt.rejected is None:
            return
        held = self.slots.held.get(receipt.lease_token)
        if held is None:
            return
        self._is_resting = True
        if held.lane is not None and receipt.rejected is RejectReason.UNKNOWN_WORKFLOW:
            # It will not know it before it registers anew, which takes a new session.
            self._left_out[held.lane] = (math.inf, math.inf)
        elif held.lane is not None:
            self._leave_out(held.lane)
        self._release_own(held.run_id, receipt.lease_token, ReleaseReason.NOT_STARTED, REJECT_DELAY_MS)

    def _leave_out(self, lane: Lane) -> None:
        """Offers no runs of the lane for a while, and for longer the next time.

        Those that were rejected together count once, and what was long ago no more.
        """
        now = time.monotonic()
        until, pause_s = self._left_out.get(lane, (-math.inf, 0.0))
        if now >= until:
            pause_s = LEFT_OUT_S if now - until > LEFT_OUT_MAX_S else min(2 * pause_s, LEFT_OUT_MAX_S)
            self._left_out[lane] = (now + pause_s, pause_s)

    def _release_own(
        self, run_id: str, token: str, reason: ReleaseReason, delay_ms: int = 0
    ) -> asyncio.Future[LeaseEnded]:
        """Hands a lease back on the gateway's own account: only if it still carries this session's stamp."""
        self.slots.drop(token)
        future = self._store.release(Release(run_id, token, reason, self.stamp, delay_ms))
        future.add_done_callback(partial(self._telemetry.watch, f"release ({reason})"))
        self._on_room()
        return future

    def _hand_back_all(self) -> None:
        self.is_draining = True
        for token, held in list(self.slots.held.items()):
            self._release_own(held.run_id, token, ReleaseReason.CLOSED)

    def close(self) -> None:
        """The stream is gone. Leases stay until they expire or the worker takes them up elsewhere; assignments that
        the stream has not carried go back at once.
        """
        if self.is_closed:
            return
        self.is_closed = True
        # What was written may have arrived, although its receipt has not: such a lease stays like any other.
        for run in self.send_queue.clear():
            self._release_own(run.run_id, run.lease_token, ReleaseReason.UNDELIVERED)
