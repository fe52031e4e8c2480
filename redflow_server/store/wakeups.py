"""Messages between gateways: `wakeups` reaches all of them, a gateway's own channel only that one.

They make things fast, never right: whoever listens is told after every (re)subscription that it may have missed some.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Final, Protocol

import hiredis

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.leases import Stop, StopReason, WaitOver
from redflow_server.store import codec
from redflow_server.store.keys import Keys
from redflow_server.store.wire import BrokenWire, Dial, Reply, Wire, end, pack

log = logging.getLogger("redflow.store")

PING_S: Final = 5.0
REDIAL_S: Final = 0.2
MAX_REDIAL_S: Final = 2.0
SAID_AGAIN_S: Final = 30.0
"""One that is cut again and again is said to be so once in so long."""


class Listener(Protocol):
    """What a gateway does about messages."""

    def lane_filled(self, name: str, change: int) -> None:
        """A lane went from empty to non-empty."""

    def due(self, kind: str, at_ms: int) -> None:
        """Something is due earlier than anything else of its kind."""

    def stop_handler(self, stop: Stop) -> None:
        """The holder of a lease has to stop its handler."""

    def wait_over(self, over: WaitOver) -> None:
        """A wait is over of a run whose lease is held here."""

    def finished(self, run_id: str) -> None:
        """A run that somebody here waits for has ended."""

    def may_have_missed(self) -> None:
        """The subscription is new."""


class Wakeups:
    """The subscription of one gateway."""

    def __init__(self, dial: Dial, keys: Keys, gateway_id: str, listener: Listener) -> None:
        self._dial = dial
        self._channels = (keys.wakeups, keys.gateway(gateway_id))
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._is_quiet = True
        self._refusal: StoreUnavailable | None = None
        self.is_subscribed = False

    def start(self) -> None:
        """Subscribes, for as long as it takes."""
        self._task = asyncio.create_task(self._work(), name="store-wakeups")

    async def stop(self) -> None:
        """Ends the subscription."""
        if self._task is not None:
            await end(self._task)

    async def _work(self) -> None:
        failures, is_said, said_at = 0, False, -math.inf
        while True:
            try:
                await self._listen()
            except (BrokenWire, StoreUnavailable, OSError, TimeoutError) as error:
                if self.is_subscribed:
                    failures, is_said = 0, False
                if not is_said and time.monotonic() - said_at >= SAID_AGAIN_S:
                    is_said, said_at = True, time.monotonic()
                    log.warning("no subscription to Redis: %s", error)
                failures += 1
                self.is_subscribed = False
            await asyncio.sleep(min(MAX_REDIAL_S, REDIAL_S * 2 ** min(failures, 10)))

    async def _listen(self) -> None:
        self._refusal = None
        self._wire = wire = await self._dial.wire(self._hear)
        try:
            wire.send([pack("SUBSCRIBE", *self._channels)])
            unanswered_pings = 0
            while True:
                self._is_quiet = True
                await asyncio.wait([wire.ended], timeout=PING_S)
                if wire.ended.done():
                    raise self._refusal or BrokenWire([])
                if not self._is_quiet:
                    unanswered_pings = 0
                    continue
                # Quiet or dead? A dead connection does not answer.
                if unanswered_pings:
                    raise TimeoutError("no answer to a ping")
                wire.send([pack("PING")])
                unanswered_pings += 1
        finally:
            wire.close()

    def _hear(self, message: Reply) -> None:
        self._is_quiet = False
        if isinstance(message, hiredis.ReplyError):
            self._refusal = StoreUnavailable(f"Redis refuses for now: {message}")
            if self._wire is not None:
                self._wire.close()
            return
        kind, content = message[0], message[-1]
        if kind == b"message":
            try:
                self._pass_on(content)
            except ValueError:
                log.warning("a message that no gateway sends: %.100r", content)
        elif kind == b"subscribe" and content == len(self._channels):
            self.is_subscribed = True
            self._listener.may_have_missed()

    def _pass_on(self, message: bytes) -> None:
        kind, _, rest = message.partition(b" ")
        if kind == b"lane":
            change, _, name = rest.partition(b" ")
            self._listener.lane_filled(name.decode(), int(change))
        elif kind == b"due":
            what, _, at_ms = rest.partition(b" ")
            self._listener.due(what.decode(), int(at_ms))
        elif kind == b"finished":
            self._listener.finished(rest.decode())
        elif kind == b"resolved":
            self._listener.wait_over(_wait_over(rest))
        elif kind == b"stop":
            token, reason, text = rest.decode().split(" ", 2)
            self._listener.stop_handler(Stop(token, StopReason(reason), text))


def _wait_over(message: bytes) -> WaitOver:
    token, _, rest = message.partition(b" ")
    name, rest = _part(rest)
    step = None
    if rest:
        header, value = _part(rest)
        step = codec.decode_step(name, header, value)
    return WaitOver(token.decode(), name.decode(), step)


def _part(message: bytes) -> tuple[bytes, bytes]:
    """The part at the beginning, which has its length before it, and the rest."""
    size, _, rest = message.partition(b":")
    return rest[: int(size)], rest[int(size) :]
