"""The subscription of a gateway: it ends when it is told to, whatever it is doing."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from redflow_server.domain.leases import Stop
from redflow_server.store import wakeups
from redflow_server.store.keys import Keys
from redflow_server.store.wakeups import Wakeups
from redflow_server.store.wire import Dial
from tests.eventually import eventually

PING_S: Final = 0.02
ROUNDS: Final = 60


class Deaf:
    """A listener that does nothing about messages."""

    def lane_filled(self, name: str, change: int) -> None:
        pass

    def due(self, kind: str, at_ms: int) -> None:
        pass

    def stop_handler(self, stop: Stop) -> None:
        pass

    def wait_over(self, lease_token: str, step_name: str) -> None:
        pass

    def finished(self, run_id: str) -> None:
        pass

    def may_have_missed(self) -> None:
        pass


async def test_it_ends_at_whatever_moment_it_is_stopped(
    redis_url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it sends a ping, when the client library loses a cancellation now and then."""
    monkeypatch.setattr(wakeups, "PING_S", PING_S)
    dial = Dial(redis_url)
    for number in range(ROUNDS):
        subscription = Wakeups(dial, keys, "gateway-1", Deaf())
        subscription.start()
        await eventually(lambda subscription=subscription: subscription.is_subscribed, every=0.001)  # type: ignore[misc]  # bound early
        until = asyncio.get_running_loop().time() + PING_S * (0.9 + 0.3 * number / ROUNDS)
        while asyncio.get_running_loop().time() < until:  # noqa: ASYNC110  # the moment is what varies
            await asyncio.sleep(0)

        await asyncio.wait_for(subscription.stop(), 5)
    await dial.close()
