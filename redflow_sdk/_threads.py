"""The threads of a worker: for `def` handlers, and for `def` steps of async handlers. One pool for both can deadlock.

A thread cannot be interrupted. One that outlives its time-out or its run is overdue: it takes up a slot until it ends.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from redflow_sdk._types import Value


class Threads:
    """Both pools, and the account of overdue threads."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        """`on_change` is called on the loop when the number of overdue threads has changed."""
        self._handlers = ThreadPoolExecutor(size, thread_name_prefix="redflow-handler")
        self._steps = ThreadPoolExecutor(size, thread_name_prefix="redflow-step")
        self._loop = loop
        self._on_change = on_change
        self.overdue = 0

    async def run_handler(self, call: Callable[[], Value]) -> Value:
        """Calls a handler in a thread, with the context variables of the caller."""
        return await asyncio.wrap_future(self._handlers.submit(contextvars.copy_context().run, call))

    async def run_step(self, call: Callable[[], Value]) -> Value:
        """Calls a step in a thread, with the context variables of the caller."""
        running = self._steps.submit(contextvars.copy_context().run, call)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancelled() and not running.done():
                self.outlived(running)
            raise

    def outlived(self, running: Future[Value]) -> None:
        """Nobody waits for this thread any more."""
        self.overdue += 1
        self._on_change()
        running.add_done_callback(partial(self._ended_at_last, self._loop))

    def _ended_at_last(self, loop: asyncio.AbstractEventLoop, running: Future[Value]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self.overdue -= 1
        self._on_change()

    def close(self) -> None:
        """Takes no more work; what runs goes on."""
        self._handlers.shutdown(wait=False, cancel_futures=True)
        self._steps.shutdown(wait=False, cancel_futures=True)
