"""Keeps a session open for one worker: dials, waits its turn, moves when its gateway goes away. On the io thread.

What is said in one session is in `_session`, what outlives them in `_protocol`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from functools import partial
from typing import Final

from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._session import Session
from redflow_sdk._transport.stream import BrokenStream
from redflow_sdk.errors import SessionRefusedError

log = logging.getLogger("redflow.worker")

REDIAL_MIN_S: Final = 0.2
REDIAL_MAX_S: Final = 15.0
REDIAL_GROWTH: Final = 1.5
"""By it a pause is hardly longer than the gateway has been away; at twice that, by 2."""
GOODBYE_TIMEOUT_S: Final = 2.5


class Connection:
    """The sessions of one worker instance, one after the other; two while it moves to another gateway."""

    def __init__(self, target: str, protocol: WorkerProtocol) -> None:
        self._target = target
        self._protocol = protocol
        self._session_numbers = itertools.count(1)
        self._backoff_s = 0.0
        self._is_away = False
        """Whether it has been said that there is no gateway."""
        self._newest: Session | None = None
        self._retiring: dict[Session, asyncio.Task[None]] = {}
        self._finished = asyncio.Event()

    async def run(self) -> None:
        """Keeps a session open until `finish`. Raises SessionRefusedError. No lease outlives it."""
        try:
            while not self._finished.is_set():
                await self._rest(await self._one_session())
            if self._retiring:
                await asyncio.wait(self._retiring.values(), timeout=GOODBYE_TIMEOUT_S)
        finally:
            for life in self._retiring.values():
                life.cancel()
            self._protocol.lose_everything()

    def finish(self) -> None:
        """Ends all sessions; leases that are left go back to the gateway."""
        self._finished.set()
        for session in (*self._retiring, self._newest):
            if session is not None:
                session.close()

    async def _one_session(self) -> float:
        """Dials, and sees the session to its end or to its retirement. How many seconds to wait before the next."""
        session = Session(self._protocol, next(self._session_numbers))
        self._newest = session
        life = asyncio.create_task(session.run(self._target))
        leaving = asyncio.create_task(session.leaves.wait())
        settling = asyncio.create_task(self._close_older(session))
        try:
            await asyncio.wait([life, leaving], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            life.cancel()
            raise
        finally:
            leaving.cancel()
            settling.cancel()
        if life.done():
            return self._delay_after(session, life)
        # The gateway is going away: its session carries everything until a newer one has taken over.
        self._backoff_s = 0.0
        self._retiring[session] = life
        life.add_done_callback(partial(self._retired, session))
        return session.reconnect_delay_s

    async def _close_older(self, session: Session) -> None:
        """Every lease has been listed in the session and answered: the sessions before it may go."""
        await session.settled.wait()
        for old in self._retiring:
            old.close()

    def _retired(self, session: Session, life: asyncio.Task[None]) -> None:
        del self._retiring[session]
        self._protocol.session_ended(session)
        # A gateway calls an older session superseded, which is what it is: the newest one decides on the worker.
        if not life.cancelled() and life.exception() is not None:
            log.debug("the old session ended: %s", life.exception())

    def _delay_after(self, session: Session, life: asyncio.Task[None]) -> float:
        """Sees how a session ended. Raises SessionRefusedError."""
        self._protocol.session_ended(session)
        asked = 0.0
        try:
            life.result()
        except BrokenStream as broken:
            asked = broken.retry_delay_s
            if self._finished.is_set():
                log.info("disconnected from %s", self._target)
            elif session.is_open:
                log.info("the session ended: %s", broken)
            elif not self._is_away:
                log.warning("no session with %s: %s", self._target, broken)
            self._is_away = not session.is_open
        except SessionRefusedError:
            raise
        except Exception:  # a fault of ours in one session must not end the worker
            log.exception("the session ended by a fault")
        # A gateway that opens sessions only to end them is no better than one that opens none.
        fruitless = 0.0 if session.was_served else self._backoff_s
        self._backoff_s = min(REDIAL_MAX_S, max(REDIAL_MIN_S, fruitless * REDIAL_GROWTH))
        return max(asked, random.uniform(0, self._backoff_s))

    async def _rest(self, delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._finished.wait()
        except TimeoutError:
            return
