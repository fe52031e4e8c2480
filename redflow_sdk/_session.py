"""One session of a worker: a stream, from opening to end. What must outlive it is in `_protocol`."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from redflow_sdk._envelopes import Incoming, Outgoing
from redflow_sdk._failures import size_of
from redflow_sdk._leases import Unanswered
from redflow_sdk._messages import (
    Answer,
    Assignment,
    BeginWaits,
    Canceled,
    Completed,
    Emit,
    Failed,
    FailureHandled,
    HeldLease,
    Item,
    Receipt,
    Release,
    Resolution,
    RunStart,
    SessionError,
    Start,
    StepReport,
    StepSnapshot,
    Stop,
    Suspend,
)
from redflow_sdk._opening import Opened, Opening, Timing
from redflow_sdk._transport.stream import BrokenStream, Stream
from redflow_sdk.errors import SessionRefusedError

log = logging.getLogger("redflow.worker")

OPEN_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
RECEIPT_PAUSE_S: Final = 0.01
"""How long a receipt waits for a message to go with: short runs are reported sooner than that."""
MESSAGE_ITEMS: Final = 256
MESSAGE_BYTES: Final = 1024 * 1024

PLACE_IN_MESSAGE: Final[Mapping[type[Item], int]] = {
    StepReport: 0,
    **dict.fromkeys((BeginWaits, Start, Emit), 1),
    Suspend: 2,
    **dict.fromkeys((Completed, Failed, FailureHandled, Canceled), 3),
    Release: 4,
}
"""The gateway deals with the items of a message in this order, so one that is to come later goes into the next one."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds that go on while the machine is suspended, where there is such a clock: leases do too."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, when it was sent, and the leases it listed."""

    sent_at: float
    listed: tuple[HeldLease, ...]


class Owner(Protocol):
    """What a session tells, and asks, the worker whose session it is."""

    last_confirmed: float | None

    @property
    def slot_limit(self) -> int:
        """Runs at once."""

    def opening(self, session_number: int) -> Opening:
        """What a new session says first."""

    def session_opened(self, session: Session, opened: Opened, listed: tuple[HeldLease, ...]) -> None:
        """A session is open, which was asked for with this list of leases."""

    def beat_answered(self, session: Session, beat: Beat) -> None:
        """The gateway has answered a heartbeat."""

    def inventory(self) -> tuple[HeldLease, ...]:
        """Every lease held."""

    def take(self, assignments: tuple[Assignment, ...]) -> list[Receipt]:
        """Accepts the runs there is room for."""

    def answer(self, request_id: int, answer: Answer) -> None:
        """An item has been answered."""

    def lose(self, tokens: tuple[str, ...]) -> None:
        """These leases are no longer the worker's."""

    def stop(self, stops: tuple[Stop, ...]) -> None:
        """Handlers have to stop."""

    def resolve(self, resolutions: tuple[Resolution, ...]) -> None:
        """Waits are over, or lost by the store."""

    def drained(self) -> None:
        """No assignment follows."""


class Line(Protocol):
    """What a worker asks of the session that it has."""

    def send(self, entry: Unanswered) -> None:
        """Sends an item."""

    def tell_capacity(self) -> None:
        """Tells how many runs there is room for."""

    def drain(self) -> None:
        """Asks for no more assignments."""

    async def fetch(self, token: str, step_name: str) -> StepSnapshot | None:
        """A step on record; None when it is lost."""

    async def fetch_all(self, token: str) -> tuple[StepSnapshot, ...]:
        """All steps on record of a run."""


class Session:
    """One stream, from opening to end."""

    def __init__(self, owner: Owner, number: int) -> None:
        self._owner = owner
        self._number = number
        self._stream: Stream | None = None
        self._receipts: list[Receipt] = []
        self._items: dict[int, Item] = {}
        self._beats = 0
        self._beat_due = False
        self._sent_beats: dict[int, Beat] = {}
        self._slot_limit: int | None = None
        self._drains = False
        self._closes = False
        self._wanted = asyncio.Event()
        self._last_heard = now()
        self.is_open = False
        self.was_served = False
        """Whether the gateway has said anything after the opening."""
        self.settled = asyncio.Event()
        """Set when the gateway has answered a heartbeat, and with it for every lease."""
        self.leaves = asyncio.Event()
        """Set when the gateway asks the worker to go elsewhere, in `reconnect_delay_s`."""
        self.reconnect_delay_s = 0.0

    async def run(self, target: str) -> None:
        """Opens, then reads and writes until the end. Raises BrokenStream, SessionRefusedError."""
        self._stream = Stream(target)
        tasks: list[asyncio.Task[None]] = []
        try:
            sent_at = now()
            opening = self._owner.opening(self._number)
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                await self._stream.write(Outgoing(opening=opening))
                first = await self._stream.read()
            if first.error is not None:
                self._raise(first.error)
            if first.opened is None:
                raise BrokenStream("the gateway did not open the session")
            self.is_open = True
            log.info("connected to %s", target)
            self._owner.last_confirmed = sent_at
            self._owner.session_opened(self, first.opened, opening.held)
            tasks = [
                asyncio.create_task(self._read()),
                asyncio.create_task(self._write()),
                asyncio.create_task(self._beat(first.opened.timing)),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except TimeoutError as error:
            raise BrokenStream("the gateway does not answer") from error
        finally:
            # Closing ends a pending read by itself; cancelling one leaks in grpc.aio.
            await self._stream.close()
            for task in tasks[1:]:
                task.cancel()
            # The first to end has said why; the others end for the same reason.
            await asyncio.gather(*tasks, return_exceptions=True)

    def _raise(self, error: SessionError) -> None:
        if error.is_permanent:
            raise SessionRefusedError(f"the gateway refuses this worker: {error.message}", error.reason)
        raise BrokenStream(f"{error.reason}: {error.message}", error.retry_delay_s)

    # ---- reading ----

    async def _read(self) -> None:
        assert self._stream is not None
        while True:
            incoming = await self._stream.read()
            self._last_heard = now()
            self.was_served = True
            self._deal_with(incoming)

    def _deal_with(self, incoming: Incoming) -> None:
        owner = self._owner
        if incoming.answered_beat:
            sent = self._sent_beats.pop(incoming.answered_beat, None)
            # Earlier ones get no answer any more: of several replies only the newest is sent.
            self._sent_beats = {beat: it for beat, it in self._sent_beats.items() if beat > incoming.answered_beat}
            if sent is not None:
                owner.beat_answered(self, sent)
                self.settled.set()
        for request_id, answer in incoming.answers:
            owner.answer(request_id, answer)
        if incoming.lost:
            owner.lose(incoming.lost)
        if incoming.stops:
            owner.stop(incoming.stops)
        if incoming.resolutions:
            owner.resolve(incoming.resolutions)
        if incoming.assignments:
            self._receipts += owner.take(incoming.assignments)
            asyncio.get_running_loop().call_later(RECEIPT_PAUSE_S, self._wanted.set)
        if incoming.is_drained:
            owner.drained()
        if incoming.reconnect_delay_s is not None:
            self.reconnect_delay_s = incoming.reconnect_delay_s
            self.leaves.set()
        if incoming.error is not None:
            self._raise(incoming.error)

    # ---- writing ----

    def send(self, entry: Unanswered) -> None:
        """Sends an item with the next message."""
        self._items[entry.request_id] = entry.item
        self._wanted.set()

    def tell_capacity(self) -> None:
        """Says how many runs the worker takes."""
        self._slot_limit = self._owner.slot_limit
        self._wanted.set()

    def drain(self) -> None:
        """Says that no more runs are wanted."""
        self._drains = True
        self._wanted.set()

    def close(self) -> None:
        """Says goodbye."""
        self._closes = True
        self._wanted.set()

    async def fetch(self, token: str, step_name: str) -> StepSnapshot | None:
        """A step by a call of its own. Raises BrokenStream."""
        assert self._stream is not None
        return await self._stream.fetch(token, step_name)

    async def fetch_all(self, token: str) -> tuple[StepSnapshot, ...]:
        """Every step on record of a run, by calls of their own. Raises BrokenStream."""
        assert self._stream is not None
        return await self._stream.fetch_all(token)

    async def _write(self) -> None:
        assert self._stream is not None
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while (outgoing := self._next()) is not None:
                await self._stream.write(outgoing)
                if outgoing.closes:
                    await asyncio.sleep(CLOSE_TIMEOUT_S)  # the gateway ends the stream
                    return

    def _next(self) -> Outgoing | None:
        """Everything there is to say, up to a message's bounds."""
        items = self._take_items()
        if not (
            items or self._receipts or self._beat_due or self._drains or self._closes or self._slot_limit is not None
        ):
            return None
        beat = 0
        held: tuple[HeldLease, ...] = ()
        if self._beat_due:
            self._beat_due = False
            self._beats += 1
            beat, held = self._beats, self._owner.inventory()
            self._sent_beats[beat] = Beat(now(), held)
        # An item is a receipt, too.
        said = {item.lease_token for _, item in items} if self._receipts else ()
        receipts = tuple(it for it in self._receipts if it.rejected is not None or it.lease_token not in said)
        self._receipts = []
        slot_limit, self._slot_limit = self._slot_limit, None
        drains, self._drains = self._drains, False
        closes = self._closes and not self._items
        if closes:
            self._closes = False
        return Outgoing(None, beat, held, receipts, items, slot_limit, drains, closes)

    def _take_items(self) -> tuple[tuple[int, Item], ...]:
        taken: list[tuple[int, Item]] = []
        places: dict[str, int] = {}
        size = 0
        while self._items and len(taken) < MESSAGE_ITEMS:
            request_id, item = next(iter(self._items.items()))
            size += _size(item)
            place = PLACE_IN_MESSAGE[type(item)]
            if taken and (size > MESSAGE_BYTES or place < places.get(item.lease_token, 0)):
                break
            if place:
                places[item.lease_token] = place
            del self._items[request_id]
            taken.append((request_id, item))
        return tuple(taken)

    # ---- time ----

    async def _beat(self, timing: Timing) -> None:
        while True:
            await asyncio.sleep(timing.heartbeat_s * random.uniform(0.9, 1.0))
            if now() - self._last_heard > timing.silence_s:
                raise BrokenStream("the gateway is silent")
            self._beat_due = True
            self._wanted.set()


def _size(item: Item) -> int:
    match item:
        case StepReport(output=output, failure=failure):
            pass
        case Completed(output=output):
            failure = None
        case Failed(failure=failure) | FailureHandled(failure=failure):
            output = None
        case Emit(payload=output) | Start(start=RunStart(input=output)):
            failure = None
        case Suspend(waits=waits) | BeginWaits(waits=waits):
            return 256 + 512 * len(waits) + sum(wait.size_bytes for wait in waits)
        case _:
            output = failure = None
    return 256 + (len(output.data) if output else 0) + (size_of(failure) if failure else 0)
