"""Messages between gateways: `wakeups` reaches all of them, a gateway's own channel only that one.

They make things fast, never right: whoever listens is told after every (re)subscription that it may have missed some.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from redis.exceptions import RedisError

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.leases import Stop, StopReason
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial, end

log = logging.getLogger("redflow.store")

PING_S: Final = 5.0
REDIAL_S: Final = 0.2
MAX_REDIAL_S: Final = 2.0


class Listener(Protocol):
    """What a gateway does about messages."""

    def lane_filled(self, name: str, change: int) -> None:
        """A lane went from empty to non-empty."""

    def due(self, kind: str, at_ms: int) -> None:
        """Something is due earlier than anything else of its kind."""

    def stop_handler(self, stop: Stop) -> None:
        """The holder of a lease has to stop its handler."""

    def wait_over(self, lease_token: str, step_name: str) -> None:
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
        self.is_subscribed = False

    def start(self) -> None:
        """Subscribes, for as long as it takes."""
        self._task = asyncio.create_task(self._work(), name="store-wakeups")

    async def stop(self) -> None:
        """Ends the subscription."""
        if self._task is not None:
            await end(self._task)

    async def _work(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen()
            except (RedisError, StoreUnavailable, OSError, TimeoutError) as error:
                if self.is_subscribed:
                    failures = 0
                if failures == 0:
                    log.warning("no subscription to Redis: %s", error)
                failures += 1
                self.is_subscribed = False
            await asyncio.sleep(min(MAX_REDIAL_S, REDIAL_S * 2 ** min(failures, 10)))

    async def _listen(self) -> None:
        async with self._dial.client() as client, client.pubsub() as subscription:
            await subscription.subscribe(*self._channels)
            unanswered_pings = 0
            while True:
                message = await subscription.get_message(timeout=PING_S)
                if message is None:
                    # Quiet or dead? A dead connection does not answer.
                    if unanswered_pings:
                        raise TimeoutError("no answer to a ping")
                    await subscription.ping()
                    unanswered_pings += 1
                    continue
                unanswered_pings = 0
                if message["type"] == "subscribe" and message["data"] == len(self._channels):
                    self.is_subscribed = True
                    self._listener.may_have_missed()
                elif message["type"] == "message":
                    self._deal_with(message["data"].decode())

    def _deal_with(self, message: str) -> None:
        kind, _, rest = message.partition(" ")
        if kind == "lane":
            change, _, name = rest.partition(" ")
            self._listener.lane_filled(name, int(change))
        elif kind == "due":
            what, _, at_ms = rest.partition(" ")
            self._listener.due(what, int(at_ms))
        elif kind == "finished":
            self._listener.finished(rest)
        elif kind == "resolved":
            token, _, step_name = rest.partition(" ")
            self._listener.wait_over(token, step_name)
        elif kind == "stop":
            token, reason, text = rest.split(" ", 2)
            self._listener.stop_handler(Stop(token, StopReason(reason), text))
