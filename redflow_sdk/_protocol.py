"""What one worker instance has to say, and has been told: its leases and unanswered items, which outlive sessions.

Lives on the io thread. Handlers live on the worker's own loop; what is for them goes through `Handlers`. Sessions come
and go in `_connection`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

from redflow_sdk._leases import Lease, Leases, Unanswered
from redflow_sdk._messages import (
    ENDS_LEASE,
    Answer,
    Assignment,
    HeldLease,
    Item,
    LeaseState,
    Receipt,
    RejectReason,
    Resolution,
    StepReport,
    StepSnapshot,
    Stop,
    StopReason,
    Verdict,
)
from redflow_sdk._on_record import MAX_TIMES_TOLD, OnRecord
from redflow_sdk._opening import Opened, Opening, Timing
from redflow_sdk._session import Beat, Line, now

log = logging.getLogger("redflow.worker")

DRAIN_TIMEOUT_S: Final = 5.0
ENDING: Final = (Verdict.OK, Verdict.DUPLICATE, Verdict.SUSPENDED, Verdict.CANCELED)
"""Answers to an item that ends a lease after which the lease is over."""


class Handlers(Protocol):
    """Who runs the assignments. Called on the io thread."""

    @property
    def is_gone(self) -> bool:
        """Whether the loop they run on was closed under them."""

    def assign(self, assignments: tuple[Assignment, ...], max_payload_bytes: int) -> None:
        """These runs are to be executed; what they store may be so large."""

    def resolve(self, token: str, steps: tuple[StepSnapshot, ...]) -> None:
        """Waits of a run are over, or lost by the store; its handler has a slot."""

    def stop_handlers(self, stops: tuple[Stop, ...], grace_s: float) -> None:
        """The handlers of these leases have to end within the grace. `handler_ended` is due for each that is lost."""


class WorkerProtocol:
    """One worker instance as its gateways know it."""

    def __init__(self, opening: Opening, handlers: Handlers) -> None:
        self._opening = opening
        self._handlers = handlers
        self._known = {definition.name for definition in opening.definitions}
        self._capacity = opening.slot_limit
        self._without_lease: set[str] = set()
        """The tokens of leases that were lost while their handlers went on: each takes up a slot until it ends."""
        self._leases = Leases()
        self._unanswered: dict[int, Unanswered] = {}
        self._request_ids = itertools.count(1)
        self._on_record = OnRecord(self._leases)
        self._restoring: set[asyncio.Task[None]] = set()
        self._session: Line | None = None
        self._is_draining = False
        self._drained = asyncio.Event()
        self._opened = asyncio.Event()
        self._has_rejected_fenced = False
        """Whether runs were rejected because no gateway had confirmed the leases in time."""
        self.timing: Timing | None = None
        self.last_confirmed: float | None = None
        """When the last heartbeat or opening was sent that the gateway has answered."""
        self.max_payload_bytes: int = 1024 * 1024

    # ---- for the worker ----

    @property
    def is_connected(self) -> bool:
        """Whether a session is open. For any thread to read, as `is_draining`."""
        return self._session is not None

    @property
    def is_draining(self) -> bool:
        """Whether the worker takes no more runs."""
        return self._is_draining

    async def wait_open(self) -> None:
        """Returns when the first session is open."""
        await self._opened.wait()

    def take_no_more(self) -> None:
        """Refuses runs from now on, and says so."""
        self._is_draining = True
        if self._session is not None:
            self._session.drain()

    async def wait_drained(self) -> None:
        """After `take_no_more`: returns when the gateway has said that none will come, or has no session to say it."""
        if self._session is not None:
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    await self._drained.wait()
            except TimeoutError:
                log.warning("the gateway did not acknowledge the drain")

    def set_capacity(self, count: int) -> None:
        """For how many runs at once the worker has room from now on."""
        self._capacity = count
        self._tell_capacity()

    def _tell_capacity(self) -> None:
        if self._session is not None:
            self._session.tell_capacity()

    @property
    def is_orphaned(self) -> bool:
        """Whether there is nobody left to run handlers."""
        return self._handlers.is_gone

    @property
    def fence_at(self) -> float | None:
        """When the leases have to be taken for lost; None while none was ever confirmed."""
        if self.timing is None or self.last_confirmed is None:
            return None
        return self.last_confirmed + self.timing.lease_s - self.timing.fence_margin_s

    def fence(self) -> None:
        """The leases may be over: every handler stops, and nothing starts, until a session says what is still held."""
        fenced = self._leases.fence()
        if fenced:
            log.warning("no gateway answered in time: %d runs are stopped before their leases end", len(fenced))
            self._let_go(fenced)

    def lose_everything(self) -> None:
        """There will be no session again: no lease is this worker's any more."""
        self.lose(self._leases.tokens())

    # ---- for handlers ----

    def started(self, tokens: Collection[str]) -> None:
        """The handlers of these leases begin."""
        self._leases.begin(tokens)

    def submit(self, item: Item, done: Callable[[Answer], None]) -> None:
        """Sends an item until it is answered; LEASE_LOST at once when the lease is gone."""
        lease = self._leases.get(item.lease_token)
        if lease is None or lease.state is LeaseState.FENCED:
            done(Answer(Verdict.LEASE_LOST))
            return
        lease.submit(item)
        self._send(Unanswered(next(self._request_ids), item, done))

    def handler_ended(self, token: str) -> None:
        """The handler of a lease that was lost has ended, and its slot is free."""
        if token in self._without_lease:
            self._without_lease.discard(token)
            self._tell_capacity()

    def give_up(self, token: str) -> None:
        """Nothing more is said about the lease; it is left to the gateway to find that out."""
        self._leases.drop(token)

    async def step_on_record(self, token: str, name: str) -> StepSnapshot | None:
        """A step whose output did not fit into the assignment; None when it or the lease is lost."""
        return await self._on_record.step(token, name)

    async def steps_on_record(self, token: str) -> tuple[StepSnapshot, ...] | None:
        """All steps of a run, when an assignment could not carry them; None when the lease is lost."""
        return await self._on_record.steps(token)

    # ---- for sessions ----

    @property
    def slot_limit(self) -> int:
        """Leases at once: the room there is, less the handlers that go on without one."""
        return max(0, self._capacity - sum(token not in self._leases for token in self._without_lease))

    def inventory(self) -> tuple[HeldLease, ...]:
        """Every lease held."""
        return self._leases.inventory()

    def opening(self, session_number: int) -> Opening:
        """What a new session says first."""
        return replace(
            self._opening,
            slot_limit=0 if self._is_draining else self.slot_limit,
            session_number=session_number,
            held=self._leases.inventory(),
        )

    def session_opened(self, session: Line, opened: Opened, listed: tuple[HeldLease, ...]) -> None:
        """A session is open: it carries everything from now on."""
        self._session = session
        self._on_record.ask(session)
        self.timing = opened.timing
        self.max_payload_bytes = opened.max_payload_bytes
        for problem in opened.problems:
            log.warning(
                "workflow %s is not in force as it is (%s): %s", problem.workflow, problem.reason, problem.message
            )
        # A lease that ended by our own report, whose answer was lost, is answered when the report comes again.
        reported = {entry.item.lease_token for entry in self._unanswered.values() if isinstance(entry.item, ENDS_LEASE)}
        self.lose((*opened.lost, *(token for token in opened.finished if token not in reported)))
        self._forget_fenced(listed)
        if opened.stops:
            self._stop_handlers(opened.stops)
        for entry in self._unanswered.values():
            session.send(entry)
        if self._is_draining:
            session.drain()
        self._opened.set()

    def session_ended(self, session: Line) -> None:
        """A session is over."""
        if self._session is session:
            self._session = None
            self._on_record.ask(None)

    def beat_answered(self, session: Line, beat: Beat) -> None:
        """The gateway has answered a heartbeat."""
        if session is self._session:
            self.last_confirmed = max(self.last_confirmed or 0.0, beat.sent_at)
            self._forget_fenced(beat.listed)
            if self._has_rejected_fenced:
                self._has_rejected_fenced = False
                self._tell_capacity()  # else the gateway would offer it nothing for a while

    def _forget_fenced(self, listed: tuple[HeldLease, ...]) -> None:
        """The gateway has heard that these leases are fenced, and has handed them back."""
        for held in listed:
            if held.state is LeaseState.FENCED:
                self._leases.drop(held.lease_token)
        if self._without_lease:
            self._tell_capacity()

    def take(self, assignments: tuple[Assignment, ...]) -> list[Receipt]:
        """Accepts the runs there is room for."""
        receipts: list[Receipt] = []
        accepted: list[Assignment] = []
        room = self.slot_limit - self._leases.busy
        for assignment in assignments:
            if assignment.lease_token in self._leases:
                receipts.append(Receipt(assignment.lease_token))
                continue
            rejected = self._reject(assignment, room - len(accepted))
            receipts.append(Receipt(assignment.lease_token, rejected))
            if rejected is None:
                self._leases.add(assignment)
                accepted.append(assignment)
        if accepted and not self.is_orphaned:
            self._handlers.assign(tuple(accepted), self.max_payload_bytes)
        return receipts

    def _reject(self, assignment: Assignment, room: int) -> RejectReason | None:
        if assignment.workflow not in self._known:
            return RejectReason.UNKNOWN_WORKFLOW
        if self._is_draining:
            return RejectReason.DRAINING
        is_fenced = self.fence_at is not None and now() >= self.fence_at
        self._has_rejected_fenced |= is_fenced
        if is_fenced or room <= 0:
            return RejectReason.OVERLOADED
        return None

    def resolve(self, resolutions: tuple[Resolution, ...]) -> None:
        """Waits are over, or the store has lost them."""
        by_token: dict[str, list[StepSnapshot]] = {}
        for resolution in resolutions:
            by_token.setdefault(resolution.lease_token, []).append(resolution.step)
        for token, steps in by_token.items():
            lease = self._leases.get(token)
            if lease is None or lease.state is LeaseState.FENCED:
                continue
            lease.resolve(steps)
            if not self.is_orphaned:
                self._handlers.resolve(token, tuple(steps))

    def stop(self, stops: tuple[Stop, ...]) -> None:
        """The gateway orders handlers to stop."""
        self.lose(tuple(stop.lease_token for stop in stops if stop.reason.is_lost))
        rest = tuple(stop for stop in stops if not stop.reason.is_lost and stop.lease_token in self._leases)
        if rest:
            self._stop_handlers(rest)

    def lose(self, tokens: Collection[str]) -> None:
        """These leases are no longer this worker's."""
        lost = {token for token in tokens if self._leases.drop(token) is not None}
        if lost:
            self._let_go(lost)

    def _let_go(self, tokens: Collection[str]) -> None:
        """Nothing more may be said under these leases."""
        for entry in [entry for entry in self._unanswered.values() if entry.item.lease_token in tokens]:
            del self._unanswered[entry.request_id]
            entry.done(Answer(Verdict.LEASE_LOST))
        self._without_lease.update(tokens)
        self._tell_capacity()
        self._stop_handlers(tuple(Stop(token, StopReason.LEASE_LOST) for token in tokens))

    def _stop_handlers(self, stops: tuple[Stop, ...]) -> None:
        assert self.timing is not None  # there has been a session
        self._handlers.stop_handlers(stops, self.timing.cancel_grace_s)

    def drained(self) -> None:
        """No assignment follows on the session."""
        self._drained.set()

    # ---- answers ----

    def answer(self, request_id: int, answer: Answer) -> None:
        """An item has been answered."""
        entry = self._unanswered.get(request_id)
        if entry is None:
            return
        token = entry.item.lease_token
        lease = self._leases.get(token)
        if answer.verdict is Verdict.UNAVAILABLE:
            delay = max(0.05, answer.retry_delay_s) * random.uniform(1.0, 1.5)
            asyncio.get_running_loop().call_later(delay, self._send_again, request_id)
            return
        if answer.verdict is Verdict.STEPS_MISSING and lease is not None:
            self._restore_steps(entry, lease)
            return
        del self._unanswered[request_id]
        if answer.verdict in (Verdict.LEASE_LOST, Verdict.MOVED):
            self.lose((token,))
        elif answer.verdict in ENDING and isinstance(entry.item, ENDS_LEASE):
            self._leases.drop(token)
        elif lease is not None:
            lease.answered(entry.item, answer)
        if answer.cancel_requested and token in self._leases:
            self._stop_handlers((Stop(token, StopReason.USER),))
        entry.done(answer)

    def _send(self, entry: Unanswered) -> None:
        self._unanswered[entry.request_id] = entry
        if self._session is not None:
            self._session.send(entry)

    def _send_again(self, request_id: int) -> None:
        entry = self._unanswered.get(request_id)
        if entry is not None and self._session is not None:
            # In order: what came later for the same run waits behind it at the gateway.
            for later in list(self._unanswered.values()):
                if later.item.lease_token == entry.item.lease_token and later.request_id >= request_id:
                    self._session.send(later)

    def _restore_steps(self, entry: Unanswered, lease: Lease) -> None:
        """The store has lost steps: they go first, then the item again."""
        run_id = lease.assignment.run_id
        if entry.times_told == 0:
            log.warning("the store has lost steps of run %s; reporting them again", run_id)
        if entry.times_told == MAX_TIMES_TOLD:
            log.error("the store has lost steps of run %s that this worker does not have; the run is left", run_id)
            self.lose((entry.item.lease_token,))
            return
        restoring = asyncio.create_task(self._tell_again(entry, lease))
        self._restoring.add(restoring)
        restoring.add_done_callback(self._restoring.discard)

    async def _tell_again(self, entry: Unanswered, lease: Lease) -> None:
        times_told, entry.times_told = entry.times_told, entry.times_told + 1
        reports = await self._on_record.reports_again(lease, times_told)
        if entry.request_id not in self._unanswered:
            return
        for report in reports:
            if not (isinstance(entry.item, StepReport) and report.name == entry.item.name):
                self._send(Unanswered(next(self._request_ids), report, lambda answer: None))
        self._send(entry)
