"""One worker instance on the wire: sessions come and go, leases and unanswered items stay.

Lives on the io thread. Handlers live on the worker's own loop; what is for them goes through `Handlers`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from redflow_sdk._leases import Leases, Unanswered
from redflow_sdk._messages import (
    ENDS_LEASE,
    Answer,
    Assignment,
    Item,
    LeaseState,
    Opened,
    Opening,
    Receipt,
    RejectReason,
    StepReport,
    StepSnapshot,
    Stop,
    StopReason,
    Timing,
    Verdict,
)
from redflow_sdk._session import Session
from redflow_sdk._transport.stream import BrokenStream

log = logging.getLogger("redflow.worker")

DRAIN_TIMEOUT: Final = 5.0
REDIAL_MIN: Final = 0.2
REDIAL_MAX: Final = 15.0


class Handlers(Protocol):
    """Who runs the assignments. Called on the io thread."""

    @property
    def is_gone(self) -> bool:
        """Whether the loop they run on was closed under them."""

    def assign(self, assignments: tuple[Assignment, ...]) -> None:
        """These runs are to be executed."""

    def stop_handlers(self, stops: tuple[Stop, ...]) -> None:
        """The handlers of these leases have to end."""


class WorkerProtocol:
    """One worker instance on the wire."""

    def __init__(
        self,
        target: str,
        opening: Opening,
        handlers: Handlers,
    ) -> None:
        self._target = target
        self._opening = opening
        self._handlers = handlers
        self._known = {definition.name for definition in opening.definitions}
        self._slot_limit = opening.slot_limit
        self._leases = Leases()
        self._unanswered: dict[int, Unanswered] = {}
        self._request_ids = itertools.count(1)
        self._session_numbers = itertools.count(1)
        self._session: Session | None = None
        self._retiring: dict[Session, asyncio.Task[None]] = {}
        self._is_draining = False
        self._drained = asyncio.Event()
        self._finished = asyncio.Event()
        self.opened = asyncio.Event()
        self.timing: Timing | None = None
        self.last_confirmed: float | None = None
        """When the last heartbeat or opening was sent that the gateway has answered."""
        self.max_payload_bytes = 1024 * 1024

    @property
    def is_draining(self) -> bool:
        """Whether the worker takes no more runs."""
        return self._is_draining

    # ---- life ----

    async def run(self) -> None:
        """Keeps a session open until `finish`. Raises SessionRefusedError."""
        backoff = 0.0
        while not self._finished.is_set():
            session = Session(self, next(self._session_numbers))
            life = asyncio.create_task(session.run(self._target))
            moving = asyncio.create_task(session.moves_on.wait())
            try:
                await asyncio.wait([life, moving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                moving.cancel()
                if not life.done() and not session.moves_on.is_set():
                    life.cancel()
            if not life.done():
                # The gateway is going away: the old session lives until a new one has taken over.
                self._retiring[session] = life
                life.add_done_callback(partial(self._retired, session))
                continue
            backoff = self._next_backoff(session, life, backoff)
            await self._rest(random.uniform(0, backoff))
        if self._retiring:
            await asyncio.wait(self._retiring.values(), timeout=DRAIN_TIMEOUT)

    def _next_backoff(self, session: Session, life: asyncio.Task[None], backoff: float) -> float:
        """Sees how a session ended, and says how long to wait at most before the next."""
        if self._session is session:
            self._session = None
        try:
            life.result()
        except BrokenStream as broken:
            if session.is_open:
                log.info("the session ended: %s", broken)
                return 0.0
            if not backoff:
                log.warning("no session with %s: %s", self._target, broken)
        return min(REDIAL_MAX, max(REDIAL_MIN, backoff * 2))

    def _retired(self, session: Session, life: asyncio.Task[None]) -> None:
        self._retiring.pop(session, None)
        if self._session is session:
            self._session = None
        if not life.cancelled() and isinstance(life.exception(), BrokenStream):
            log.debug("the old session ended: %s", life.exception())

    async def _rest(self, delay: float) -> None:
        try:
            async with asyncio.timeout(max(delay, 0.01)):
                await self._finished.wait()
        except TimeoutError:
            return

    async def wait_open(self) -> None:
        """Returns when the first session is open."""
        await self.opened.wait()

    async def finish(self) -> None:
        """Ends the session; leases that are left go back to the gateway."""
        self._finished.set()
        if self._session is not None:
            self._session.close()

    async def drain(self) -> None:
        """Takes no more runs; returns when the gateway has said that none will come, or has no session to say it."""
        self._is_draining = True
        if self._session is not None and self._session.is_open:
            self._session.drain()
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT):
                    await self._drained.wait()
            except TimeoutError:
                log.warning("the gateway did not acknowledge the drain")

    def set_slot_limit(self, limit: int) -> None:
        """How many runs the worker takes at once from now on."""
        self._slot_limit = limit
        if self._session is not None:
            self._session.tell_capacity()

    # ---- for handlers ----

    def started(self, tokens: list[str]) -> None:
        """The handlers of these leases have begun."""
        for token in tokens:
            lease = self._leases.get(token)
            if lease is not None and lease.state is LeaseState.NOT_STARTED:
                lease.state = LeaseState.RUNNING

    def submit(self, item: Item, done: Callable[[Answer], None]) -> None:
        """Sends an item until it is answered; LEASE_LOST at once when the lease is gone."""
        lease = self._leases.get(item.lease_token)
        if lease is None or lease.state is LeaseState.FENCED:
            done(Answer(Verdict.LEASE_LOST))
            return
        if isinstance(item, StepReport):
            lease.reported.append(item)
        entry = Unanswered(next(self._request_ids), item, done)
        self._unanswered[entry.request_id] = entry
        if self._session is not None:
            self._session.send(entry)

    def give_up(self, token: str) -> None:
        """Nothing more is said about the lease; it is left to the gateway to find that out."""
        self._leases.drop(token)

    async def fetch(self, token: str, step_name: str) -> StepSnapshot | None:
        """A step whose output did not fit into the assignment; None when the lease is lost. Tried until answered."""
        while token in self._leases:
            session = self._session
            if session is not None and session.is_open:
                try:
                    return await session.fetch(token, step_name)
                except BrokenStream as broken:
                    log.debug("fetching step %s: %s", step_name, broken)
            await asyncio.sleep(0.2)
        return None

    # ---- for sessions ----

    def opening(self, session_number: int) -> Opening:
        """What a new session says first."""
        first = self._opening
        return replace(
            first,
            slot_limit=0 if self._is_draining else self._slot_limit,
            session_number=session_number,
            held=self._leases.inventory(),
        )

    def session_opened(self, session: Session, opened: Opened) -> None:
        """A session is open: it carries everything from now on."""
        self._session = session
        self.timing = opened.timing
        self.max_payload_bytes = opened.max_payload_bytes
        for problem in opened.problems:
            log.warning("workflow %s is not registered (%s): %s", problem.workflow, problem.reason, problem.message)
        for token in opened.finished:
            # Its result has arrived; the answer comes when the item is sent again.
            log.debug("lease %s had ended", token)
        self.lose(opened.lost)
        self._forget_fenced(self.inventory())
        if opened.stops:
            self._handlers.stop_handlers(opened.stops)
        for entry in self._unanswered.values():
            session.send(entry)
        if self._is_draining:
            session.drain()
        self.opened.set()

    @property
    def slot_limit(self) -> int:
        """Runs at once."""
        return self._slot_limit

    def inventory(self) -> tuple[tuple[str, LeaseState], ...]:
        """Every lease held."""
        return self._leases.inventory()

    def take(self, assignments: tuple[Assignment, ...]) -> list[Receipt]:
        """Accepts the runs there is room for."""
        receipts: list[Receipt] = []
        accepted: list[Assignment] = []
        for assignment in assignments:
            if assignment.lease_token in self._leases:
                receipts.append(Receipt(assignment.lease_token))
                continue
            rejected = self._reject(assignment)
            receipts.append(Receipt(assignment.lease_token, rejected))
            if rejected is None:
                self._leases.add(assignment)
                accepted.append(assignment)
        if accepted and not self.is_orphaned:
            self._handlers.assign(tuple(accepted))
            stops = tuple(assignment.stop for assignment in accepted if assignment.stop is not None)
            if stops:
                self._handlers.stop_handlers(stops)
        return receipts

    def _reject(self, assignment: Assignment) -> RejectReason | None:
        if assignment.workflow not in self._known:
            return RejectReason.UNKNOWN_WORKFLOW
        if len(self._leases) >= self._slot_limit:
            return RejectReason.OVERLOADED
        if self._finished.is_set():
            return RejectReason.DRAINING
        return None

    def answer(self, request_id: int, answer: Answer) -> None:
        """An item has been answered."""
        entry = self._unanswered.get(request_id)
        if entry is None:
            return
        if answer.verdict is Verdict.UNAVAILABLE:
            loop = asyncio.get_running_loop()
            loop.call_later(max(0.05, answer.retry_delay) * random.uniform(0.5, 1.0), self._send_again, request_id)
            return
        lease = self._leases.get(entry.item.lease_token)
        if answer.verdict is Verdict.STEPS_MISSING and lease is not None:
            self._report_again(entry, lease.reported)
            return
        del self._unanswered[request_id]
        if self._ends_lease(entry.item, answer):
            self._leases.drop(entry.item.lease_token)
        elif answer.cancel_requested:
            self._handlers.stop_handlers((Stop(entry.item.lease_token, StopReason.USER),))
        entry.done(answer)

    def _ends_lease(self, item: Item, answer: Answer) -> bool:
        if answer.verdict in (Verdict.LEASE_LOST, Verdict.MOVED):
            return True
        ended = answer.verdict in (Verdict.OK, Verdict.DUPLICATE, Verdict.CANCELED)
        return ended and isinstance(item, ENDS_LEASE)

    def _send_again(self, request_id: int) -> None:
        entry = self._unanswered.get(request_id)
        if entry is not None and self._session is not None:
            # In order: what came later for the same run waits behind it at the gateway.
            for later in list(self._unanswered.values()):
                if later.item.lease_token == entry.item.lease_token and later.request_id >= request_id:
                    self._session.send(later)

    def _report_again(self, entry: Unanswered, reported: list[StepReport]) -> None:
        """The store has lost steps of this delivery: they go first, then the item again."""
        if self._session is None:
            return
        log.warning(
            "the store has lost steps of run %s; reporting them again", entry.item.lease_token.partition(".")[0]
        )
        for report in reported:
            if report is entry.item:
                continue
            again = replace(report, steps_recorded=0)
            repeated = Unanswered(next(self._request_ids), again, lambda answer: None)
            self._unanswered[repeated.request_id] = repeated
            self._session.send(repeated)
        self._session.send(entry)

    def lose(self, tokens: tuple[str, ...]) -> None:
        """These leases are no longer this worker's."""
        stops = []
        for token in tokens:
            lease = self._leases.drop(token)
            if lease is not None:
                stops.append(Stop(token, StopReason.LEASE_LOST))
                self._answer_lost(token)
        if stops:
            self._handlers.stop_handlers(tuple(stops))

    def _answer_lost(self, token: str) -> None:
        for request_id, entry in list(self._unanswered.items()):
            if entry.item.lease_token == token:
                del self._unanswered[request_id]
                entry.done(Answer(Verdict.LEASE_LOST))

    def stop(self, stops: tuple[Stop, ...]) -> None:
        """The gateway orders handlers to stop."""
        lost = tuple(stop.lease_token for stop in stops if stop.reason.is_lost)
        self.lose(lost)
        rest = tuple(stop for stop in stops if not stop.reason.is_lost and stop.lease_token in self._leases)
        if rest:
            self._handlers.stop_handlers(rest)

    def fence(self) -> None:
        """The leases may be over: every handler stops, and nothing starts, until a session says what is still held."""
        stops = []
        for token in self._leases.tokens():
            lease = self._leases.get(token)
            if lease is not None and lease.state is not LeaseState.FENCED:
                lease.state = LeaseState.FENCED
                stops.append(Stop(token, StopReason.LEASE_LOST))
                self._answer_lost(token)
        if stops:
            log.warning("no gateway answered in time: %d runs are stopped before their leases end", len(stops))
            self._handlers.stop_handlers(tuple(stops))

    def beat_answered(self, session: Session, sent_at: float, listed: tuple[tuple[str, LeaseState], ...]) -> None:
        """The gateway has answered a heartbeat that was sent then and listed these leases."""
        if session is not self._session:
            return
        self.last_confirmed = max(self.last_confirmed or 0.0, sent_at)
        self._forget_fenced(listed)
        # Every lease has been listed here and answered: the sessions before this one may go.
        for old in self._retiring:
            old.close()

    def _forget_fenced(self, listed: tuple[tuple[str, LeaseState], ...]) -> None:
        """The gateway has heard that these leases are fenced, and has handed them back."""
        for token, state in listed:
            if state is LeaseState.FENCED:
                self._leases.drop(token)

    def drained(self) -> None:
        """No assignment follows on the session."""
        self._drained.set()

    @property
    def is_orphaned(self) -> bool:
        """Whether there is nobody left to run handlers."""
        return self._handlers.is_gone

    @property
    def fence_at(self) -> float | None:
        """When the leases have to be taken for lost; None while none was ever confirmed."""
        if self.timing is None or self.last_confirmed is None:
            return None
        return self.last_confirmed + self.timing.lease - self.timing.fence_margin
