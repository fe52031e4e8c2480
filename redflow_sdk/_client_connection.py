"""The connection of a client: opened when it is first needed, and again after it was closed."""

from __future__ import annotations

import asyncio
import threading

from redflow_sdk._client_link import ClientLink
from redflow_sdk._transport.calls import Calls
from redflow_sdk._transport.thread import io_thread


class ClientConnection:
    """One connection, whose calls are given up after `call_timeout_s`, and the ways of loops to it. From any thread."""

    def __init__(self, target: str, call_timeout_s: float) -> None:
        self._target = target
        self._call_timeout_s = call_timeout_s
        self._lock = threading.Lock()
        self._calls: Calls | None = None
        self._links: dict[asyncio.AbstractEventLoop, ClientLink] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        return self._calls is not None and not self._calls.is_closed

    def link(self, loop: asyncio.AbstractEventLoop) -> ClientLink:
        """The way of a loop to it. Raises ForkedProcessError in a child of a process that had used the SDK."""
        io = io_thread()
        with self._lock:
            if self._calls is None or self._calls.is_closed:
                self._calls = io.run_blocking(_open(self._target, self._call_timeout_s))
                self._links = {}
            link = self._links.get(loop)
            if link is None:
                self._links = {other: link for other, link in self._links.items() if not other.is_closed()}
                link = self._links[loop] = ClientLink(self._calls, io, loop)
            return link


async def _open(target: str, call_timeout_s: float) -> Calls:
    return Calls(target, call_timeout_s)
