"""The worker sessions of one gateway: opening them, keeping them honest, closing them."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from redflow_server.domain.errors import (
    GatewayDraining,
    InvalidInput,
    RevisionUnsupported,
    SessionSilent,
    SessionSuperseded,
)
from redflow_server.domain.ids import new_name, run_id_of
from redflow_server.domain.leases import (
    Lane,
    LeaseStanding,
    ListedLease,
    Release,
    ReleaseReason,
    Stamp,
    Standing,
    Stop,
    WaitOver,
)
from redflow_server.domain.names import check_label, check_name
from redflow_server.domain.registry import RegistrationResult
from redflow_server.domain.session import Draining, HeldLease, LeaseState, OpenSession, SessionEnd, SessionOpened
from redflow_server.domain.timing import Timing
from redflow_server.domain.workers import Worker
from redflow_server.engine.dispatcher import Dispatcher
from redflow_server.engine.registry import Registry
from redflow_server.engine.renewal import Renewal
from redflow_server.engine.session import MAX_SLOTS, WorkerSession
from redflow_server.engine.stops import EarlyStops
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

REVISION: Final = 1
MAX_QUEUES: Final = 1_000
MAX_WORKFLOWS: Final = 1_000
MAX_LANES: Final = 20_000
MIN_RECEIVE_BYTES: Final = 4 * 1024 * 1024
"""What every worker has to take in one message: the largest that the gateway sends."""
ANNOUNCE_KEEP_MS: Final = 30_000


class Sessions:
    """The open sessions."""

    def __init__(
        self,
        gateway_id: str,
        *,
        store: Store,
        timing: Timing,
        registry: Registry,
        dispatcher: Dispatcher,
        early_stops: EarlyStops,
        telemetry: Telemetry,
    ) -> None:
        self._gateway_id = gateway_id
        self._store = store
        self._timing = timing
        self._registry = registry
        self._dispatcher = dispatcher
        self._early_stops = early_stops
        self._telemetry = telemetry
        self._open: dict[str, WorkerSession] = {}
        self._draining: Draining | None = None
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, opening: OpenSession) -> WorkerSession:
        """Opens a session: registers its workflows and takes over the leases its worker holds.

        Raises RevisionUnsupported, InvalidInput, GatewayDraining, StoreUnavailable, StoreFull.
        """
        if self._draining is not None:
            raise GatewayDraining
        _check_opening(opening)
        stamp = Stamp(new_name(), opening.session_number, self._gateway_id)
        session = WorkerSession(
            stamp,
            opening,
            store=self._store,
            timing=self._timing,
            telemetry=self._telemetry,
            on_room=self._dispatcher.wake,
            on_start=self._dispatcher.expect,
        )
        registrations = await self._registry.register_for(opening)
        session.lanes = _lanes(opening, registrations)
        if len(session.lanes) > MAX_LANES:
            raise InvalidInput("open.queues", f"times workflows must be at most {MAX_LANES} lanes", len(session.lanes))
        standings = await self._take_over(session, opening.held_leases)
        if self._draining is not None:
            # It has begun since the worker knocked. Its leases are with this session: they expire, or move once more.
            raise GatewayDraining
        self._supersede(opening)
        self._open[session.session_id] = session
        # What was said of the leases between the answers about them and now went elsewhere: the next tick asks again.
        session.slots.suspect_all()
        session.send_queue.open(SessionOpened(session.session_id, REVISION, registrations, standings))
        self._dispatcher.join(session)
        self._telemetry.count("sessions.opened")
        # From here on it gets runs, so nothing may keep it from its stream: listings do not decide about a session.
        self._store.announce_sessions([_describe(session)], ANNOUNCE_KEEP_MS).add_done_callback(
            lambda future: self._telemetry.watch("announce_sessions", future)
        )
        return session

    async def _take_over(self, session: WorkerSession, held: tuple[HeldLease, ...]) -> tuple[LeaseStanding, ...]:
        leases = {lease.lease_token: lease for lease in held}
        listed = [ListedLease(token, lease.open_waits) for token, lease in leases.items()]
        answers = []
        for standing in await Renewal(self._store, self._timing).renew(session.stamp, listed):
            token, run_id = standing.lease_token, run_id_of(standing.lease_token)
            if run_id is None or standing.standing is not Standing.HELD:
                answers.append(standing)
            elif leases[token].state is LeaseState.FENCED:
                await self._store.release(Release(run_id, token, ReleaseReason.FENCED, session.stamp))
                answers.append(LeaseStanding(token, Standing.LOST))
            else:
                session.adopt(leases[token], run_id, standing)
                answers.append(standing)
        return tuple(answers)

    def _supersede(self, opening: OpenSession) -> None:
        """Ends earlier sessions of the same worker, unless it is leaving them by agreement."""
        for session in list(self._open.values()):
            earlier = session.opening.session_number < opening.session_number
            if session.opening.instance_id == opening.instance_id and earlier and self._draining is None:
                superseded = SessionSuperseded()
                session.send_queue.end(SessionEnd(superseded.reason, str(superseded), is_permanent=True))
                self.close(session)

    def close(self, session: WorkerSession) -> None:
        """The session's stream has ended."""
        if self._open.pop(session.session_id, None) is None:
            return
        self._dispatcher.leave(session)
        session.close()
        if not self._open:
            self._emptied.set()
        self._telemetry.count("sessions.closed")
        self._store.forget_session(session.session_id).add_done_callback(
            lambda future: self._telemetry.watch("forget_session", future)
        )

    def drain(self, grace_ms: int) -> None:
        """Tells every worker that the gateway is going away; nothing more is claimed for them."""
        self._draining = Draining(grace_ms, reconnect_delay_ms=0)
        for session in self._open.values():
            self._dispatcher.leave(session)
            session.send_queue.drain(self._draining)

    async def wait_until_empty(self) -> None:
        """Returns when no session is open."""
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()

    def end_all(self) -> None:
        """Ends every session."""
        for session in self._open.values():
            session.send_queue.end(SessionEnd("GATEWAY_STOPPED", "the gateway stops"))

    def push_stop(self, stop: Stop) -> None:
        """Passes an order to stop to the session that holds the lease."""
        for session in self._open.values():
            if session.push_stop(stop):
                return
        self._early_stops.keep(stop)

    def push_resolution(self, over: WaitOver) -> None:
        """Passes on that a wait is over to the session that holds the lease. Where it came to nobody, a beat tells."""
        for session in self._open.values():
            if session.push_resolution(over):
                return

    async def announce(self) -> None:
        """Keeps the sessions in the listings of workers."""
        if self._open:
            await self._store.announce_sessions(map(_describe, self._open.values()), ANNOUNCE_KEEP_MS)

    async def assert_registry(self) -> None:
        """Keeps the definitions of live workers from going stale; registers again what the store has lost."""
        await self._registry.assert_for([session.opening for session in self._open.values()])

    def suspect_all(self) -> None:
        """Orders to stop may have been missed: the next tick renews every lease, and hears of them."""
        for session in self._open.values():
            session.slots.suspect_all()

    async def tick(self) -> None:
        """Writes receipts, takes back what was not received, ends sessions that are silent."""
        silent_since = time.monotonic() - self._timing.silence_ms / 1000
        live = []
        for session in list(self._open.values()):
            if session.last_heard < silent_since:
                session.send_queue.end(SessionEnd(SessionSilent.reason, str(SessionSilent())))
                self.close(session)
                continue
            session.look_after_unacknowledged()
            session.unpark_overdue()
            live.append(session)
        await asyncio.gather(*(session.store_receipts() for session in live))


def _check_opening(opening: OpenSession) -> None:
    if not opening.min_revision <= REVISION <= opening.max_revision:
        spoken = f"{opening.min_revision} to {opening.max_revision}"
        raise RevisionUnsupported(f"the gateway speaks revision {REVISION}, the worker {spoken}")
    for field, value in (
        ("open.owner", opening.owner),
        ("open.worker_name", opening.worker_name),
        ("open.instance_id", opening.instance_id),
        ("open.build_id", opening.build_id),
        *(("open.queues", queue) for queue in opening.queues),
    ):
        check_name(field, value)
    for field in ("name", "version", "language"):
        check_label(f"open.sdk.{field}", getattr(opening.sdk, field))
    if not 0 <= opening.slot_limit <= MAX_SLOTS:
        raise InvalidInput("open.slot_limit", f"must be between 0 and {MAX_SLOTS}", opening.slot_limit)
    if opening.session_number < 1:
        raise InvalidInput("open.session_number", "must be at least 1", opening.session_number)
    if 0 < opening.max_receive_bytes < MIN_RECEIVE_BYTES:
        raise InvalidInput("open.max_receive_bytes", f"must be at least {MIN_RECEIVE_BYTES}", opening.max_receive_bytes)
    if len(opening.queues) > MAX_QUEUES:
        raise InvalidInput("open.queues", f"must be at most {MAX_QUEUES}", len(opening.queues))
    if len(opening.workflows) > MAX_WORKFLOWS:
        raise InvalidInput("open.workflows", f"must be at most {MAX_WORKFLOWS}", len(opening.workflows))


def _lanes(opening: OpenSession, registrations: tuple[RegistrationResult, ...]) -> tuple[Lane, ...]:
    """The lanes a session serves: its queues, or those of its workflows, and what these left behind elsewhere."""
    former = {result.name: result.former_queues for result in registrations}
    queues = opening.queues or tuple(definition.queue for definition in opening.workflows)
    lanes = []
    for definition in opening.workflows:
        own = queues if opening.queues else (*queues, *former.get(definition.name, ()))
        lanes += [Lane(queue, definition.name) for queue in own]
    return tuple(dict.fromkeys(lanes))


def _describe(session: WorkerSession) -> Worker:
    opening = session.opening
    return Worker(
        session_id=session.session_id,
        gateway_id=session.stamp.gateway_id,
        worker_name=opening.worker_name,
        owner=opening.owner,
        instance_id=opening.instance_id,
        build_id=opening.build_id,
        sdk=opening.sdk,
        queues=tuple(dict.fromkeys(lane.queue for lane in session.lanes)) or opening.queues,
        workflows=tuple(definition.name for definition in opening.workflows),
        slot_limit=session.slots.limit,
        leases=len(session.slots.held),
        is_draining=session.is_draining,
        connected_at_ms=int(session.connected_at * 1000),
        parked=session.slots.parked,
    )
