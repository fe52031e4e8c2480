"""Stops what must not go on: handlers whose leases may have ended, and workers whose loop was closed under them."""

from __future__ import annotations

import asyncio
import logging

from redflow_sdk._connection import Connection
from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._session import now

log = logging.getLogger("redflow.worker")


class Fence:
    """Stops the handlers of a worker before their leases can have ended, and the worker when its loop was closed."""

    def __init__(self, protocol: WorkerProtocol, connection: Connection) -> None:
        self._protocol = protocol
        self._connection = connection

    async def run(self) -> None:
        """Watches for ever."""
        while True:
            if self._protocol.is_orphaned:
                log.error("the event loop of the worker was closed without draining it; its runs are handed back")
                self._connection.finish()
                return
            fence_at = self._protocol.fence_at
            left = 0.2 if fence_at is None else fence_at - now()
            if left <= 0:
                self._protocol.fence()
                left = 0.2
            await asyncio.sleep(min(left, 0.5))
