"""Stops handlers before their leases can have ended. On the io thread."""

from __future__ import annotations

import asyncio
from typing import Final

from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._session import now

LOOK_S: Final = 0.5
LOOK_AGAIN_S: Final = 0.2
"""How long until it looks again, while leases are confirmed, and while none are."""


class Fence:
    """Stops the handlers of a worker whose leases nobody has confirmed for too long."""

    def __init__(self, protocol: WorkerProtocol) -> None:
        self._protocol = protocol

    async def run(self) -> None:
        """Watches for ever."""
        while True:
            fence_at = self._protocol.fence_at
            left = LOOK_AGAIN_S if fence_at is None else fence_at - now()
            if left <= 0:
                self._protocol.fence()
                left = LOOK_AGAIN_S
            await asyncio.sleep(min(left, LOOK_S))
