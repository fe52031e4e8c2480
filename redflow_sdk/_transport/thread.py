"""The one private thread on which all gRPC of a process lives, with a loop of its own.

User loops never touch gRPC, so a handler that blocks its loop or burns CPU keeps its lease: heartbeats go on here.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Final, TypeVar

from redflow_sdk._types import Value

T = TypeVar("T")

_lock = threading.Lock()
_current: IoThread | None = None


class ForkedProcessError(RuntimeError):
    """The process was forked from one that had used redflow; start it with spawn, or use redflow only in children."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


class IoThread:
    """The thread and its loop."""

    def __init__(self) -> None:
        self.pid: Final = os.getpid()
        # Not uvloop's: beside a daemon thread that turns one, a process now and then does not end, or ends by a fault.
        self.loop: Final = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="redflow-io", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Value, Value, T]) -> Future[T]:
        """Runs a coroutine here."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def run(self, work: Coroutine[Value, Value, T]) -> T:
        """Runs a coroutine here and waits for it on the caller's loop."""
        return await asyncio.wrap_future(self.submit(work))

    def run_blocking(self, work: Coroutine[Value, Value, T]) -> T:
        """Runs a coroutine here and blocks the calling thread until it is done. What interrupts the thread, as
        KeyboardInterrupt does, cancels the coroutine.
        """
        running = self.submit(work)
        try:
            return running.result()
        finally:
            running.cancel()


def io_thread() -> IoThread:
    """The thread of this process. Raises ForkedProcessError in a child of a process that had one."""
    global _current
    with _lock:
        if _current is None:
            _current = IoThread()
        if _current.pid != os.getpid():
            raise ForkedProcessError
        return _current
