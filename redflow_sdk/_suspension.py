"""The open waits of one delivery: notices when its handler can go on only by one of them, and has the run set aside.

That is so when no step is at work and the handler has come to rest: several turns of the loop have passed without a
step or wait that begins or ends. From then until the gateway has answered, no step begins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from redflow_sdk._link import Link
from redflow_sdk._messages import Answer, StartWait, StepSnapshot, Suspend, Verdict, Wait
from redflow_sdk._step_log import StepLog
from redflow_sdk.errors import NonDeterministicError, NonRetriableError, SerializationError

TURNS: Final = 8
"""Turns of the loop in which tasks that are ready take their next step, and those that wait for them theirs."""
MAX_WAITS: Final = 100
"""Waits that one suspension names. Any open wait wakes the run, named or not."""
MAX_INPUT_BYTES: Final = 1024 * 1024
"""Input of the runs that it names, so that it fits into a message; of the first one it may be more."""


class RunSuspended(BaseException):
    """Ends a `def` handler whose run has been set aside. Nobody is to handle it, so it is no Exception."""


@dataclass(slots=True)
class OpenWait:
    """A wait, and who waits."""

    wait: Wait
    over: asyncio.Future[StepSnapshot]
    is_registered: bool


class Suspension:
    """What a handler waits for. On the worker's loop, but for `begin_step` and `end_step`."""

    def __init__(
        self,
        token: str,
        log: StepLog,
        link: Link,
        on_lost: Callable[[], None],
        on_suspended: Callable[[], None],
    ) -> None:
        """The log tells how many steps are on record, and hears of those that newly are. One of the others is called
        when the run is no longer here.
        """
        self._token = token
        self._log = log
        self._link = link
        self._on_lost = on_lost
        self._on_suspended = on_suspended
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, OpenWait] = {}
        # Handlers begin steps in threads, while the loop decides whether any is at work.
        self._lock = threading.Lock()
        self._at_work = 0
        self._starting = 0
        self._moves = 0
        self._asking: asyncio.Future[Answer] | None = None
        self._answered = asyncio.Event()
        self._is_closed = False
        self.is_over = False
        """Whether the run has been set aside, or has ended: nothing more may be said for it."""

    def close(self) -> None:
        """The handler has ended. The tasks it has left behind wait for nothing any more."""
        self._is_closed = True
        for open_wait in self._open.values():
            open_wait.over.cancel()

    # ---- from steps ----

    @property
    def _is_undecided(self) -> bool:
        """Whether the gateway has been asked to set the run aside, and no step may begin."""
        return self._asking is not None or self.is_over

    async def decided(self) -> None:
        """Returns when steps may begin. Raises CancelledError when none may any more."""
        while self._asking is not None:
            await self._answered.wait()
        if self._is_closed:
            # A handler that does not end must not keep its loop from turning.
            await asyncio.sleep(0)
            raise asyncio.CancelledError("the run has been set aside")

    def begin_step(self) -> bool:
        """A step is at work. False when none may begin before it is decided whether the run is set aside."""
        with self._lock:
            if self._is_undecided:
                return False
            self._at_work += 1
            return True

    def end_step(self) -> None:
        """It no longer is."""
        with self._lock:
            self._at_work -= 1
            self._moves += 1  # at once: a look that is on its way must not see the handler at rest
        if self._open:
            self._loop.call_soon_threadsafe(self._moved)

    # ---- waiting ----

    async def wait_for(self, wait: Wait, is_registered: bool) -> StepSnapshot:
        """The outcome of a wait. Raises NonDeterministicError, SerializationError when the gateway refuses it."""
        await self.decided()
        over: asyncio.Future[StepSnapshot] = self._loop.create_future()
        self._open[wait.name] = OpenWait(wait, over, is_registered)
        self._moved()
        try:
            return await over
        finally:
            self._open.pop(wait.name, None)
            self._moved()

    def _moved(self) -> None:
        """The handler is not at rest yet."""
        with self._lock:
            self._moves += 1
        if self._open and not self._is_closed:
            self._loop.call_soon(self._look, TURNS, self._moves)

    def _look(self, turns_left: int, moves: int) -> None:
        if moves != self._moves or not self._open or self._is_closed or self._is_undecided or self._starting:
            return
        if turns_left:
            self._loop.call_soon(self._look, turns_left - 1, moves)
            return
        waits = list(self._open.values())
        room = _room(waits)
        without_room = [open_wait for open_wait in waits[room:] if not open_wait.is_registered]
        if without_room:
            self._start(without_room)
            return
        with self._lock:
            if moves != self._moves:
                return
            if not self._at_work:
                self._ask(waits[:room])
                return
        # Steps are at work, so the handler goes on; what it waits for is to begin meanwhile.
        self._start([open_wait for open_wait in waits if not open_wait.is_registered])

    def _start(self, waits: Sequence[OpenWait]) -> None:
        """Registers waits. Until that is answered the run is not set aside: they may be refused."""
        for open_wait in waits:
            open_wait.is_registered = True
            self._starting += 1
            started = self._link.report(StartWait(self._token, self._log.recorded, open_wait.wait))
            started.add_done_callback(partial(self._started, open_wait))

    def _started(self, open_wait: OpenWait, future: asyncio.Future[Answer]) -> None:
        self._starting -= 1
        if not future.cancelled():
            self._deal_with(future.result(), [open_wait])
        self._moved()

    def _ask(self, waits: Sequence[OpenWait]) -> None:
        self._answered.clear()
        named = tuple(open_wait.wait for open_wait in waits)
        self._asking = self._link.report(Suspend(self._token, self._log.recorded, named))
        self._asking.add_done_callback(partial(self._was_answered, waits))

    def _was_answered(self, asked: Sequence[OpenWait], future: asyncio.Future[Answer]) -> None:
        for open_wait in asked:
            open_wait.is_registered = True
        with self._lock:  # a step in a thread begins before all of it, or after
            if not future.cancelled():
                self._deal_with(future.result(), asked)
            self._asking = None
        self._answered.set()
        self._moved()

    def _deal_with(self, answer: Answer, asked: Sequence[OpenWait]) -> None:
        match answer.verdict:
            case Verdict.SUSPENDED | Verdict.CANCELED | Verdict.DUPLICATE:
                # A duplicate under this token has ended its lease before.
                self._is_closed = self.is_over = True
                self._on_suspended()
            case Verdict.LEASE_LOST | Verdict.MOVED:
                self._is_closed = True
                self._on_lost()
            case Verdict.TOO_LARGE:
                _refuse(asked, SerializationError(answer.message))
            case Verdict.INVALID:
                _refuse(asked, refusal_of(answer))
            case _:
                for step in answer.resolutions:
                    self._log.add(step.name)
                    open_wait = self._open.get(step.name)
                    if open_wait is not None and not open_wait.over.done():
                        open_wait.over.set_result(step)


def _refuse(asked: Sequence[OpenWait], error: Exception) -> None:
    for open_wait in asked:
        if not open_wait.over.done():
            open_wait.over.set_exception(error)


def _room(waits: Sequence[OpenWait]) -> int:
    """How many of them one suspension can name, from the first."""
    size_bytes = 0
    for count, open_wait in enumerate(waits[:MAX_WAITS]):
        size_bytes += len(open_wait.wait.start.input.data)
        if count and size_bytes > MAX_INPUT_BYTES:
            return count
    return min(len(waits), MAX_WAITS)


def refusal_of(answer: Answer) -> NonRetriableError:
    """What a handler gets for an item that the gateway takes in no attempt."""
    return (NonDeterministicError if answer.reason == "NON_DETERMINISTIC" else NonRetriableError)(answer.message)
