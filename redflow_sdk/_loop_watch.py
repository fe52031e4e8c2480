"""Notices a handler that blocks the loop of its worker, and with it every other run there. On the io thread."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from redflow_sdk._types import Value

AnyTask: TypeAlias = asyncio.Task[Value]

log = logging.getLogger("redflow.worker")

PATIENCE_S: Final = 0.5
"""How long a loop may take to answer."""
PAUSE_S: Final = 0.5
"""How long between an answer and the next question."""


class LoopWatch:
    """Asks a loop in another thread whether it turns, and says what it is at when it does not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int, name_of: Callable[[AnyTask], str]) -> None:
        """`name_of` says whose a task of the loop is; it is called in another thread."""
        self._loop = loop
        self._thread_id = thread_id
        self._name_of = name_of
        self._turned_at = time.monotonic()

    @property
    def stalled_s(self) -> float:
        """For how long the loop, or the one that asks it, has not turned. For any thread to read."""
        return time.monotonic() - self._turned_at

    async def run(self) -> None:
        """Watches until the loop is closed. One warning for each time it is blocked."""
        io_loop = asyncio.get_running_loop()
        while True:
            turned = asyncio.Event()
            try:
                self._loop.call_soon_threadsafe(io_loop.call_soon_threadsafe, turned.set)
            except RuntimeError:  # it is closed
                return
            since = io_loop.time()
            is_blocked = not await self._wait(turned)
            if is_blocked:
                self._warn()
            while not await self._wait(turned):
                if self._loop.is_closed():
                    return
            self._turned_at = time.monotonic()
            if is_blocked:
                log.info("the event loop of the worker turns again after %.1f s", io_loop.time() - since)
            await asyncio.sleep(PAUSE_S)

    async def _wait(self, turned: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await turned.wait()
        except TimeoutError:
            return False

    def _warn(self) -> None:
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._thread_id)
        if task is None or frame is None:
            return  # the loop is not running
        log.warning(
            "%s has blocked the event loop of its worker for %.1f s, at %s:%d; nothing else runs there meanwhile. "
            "Await what takes long, or make the handler a `def`, which gets a thread of its own",
            self._name_of(task),
            PATIENCE_S,
            frame.f_code.co_filename,
            frame.f_lineno,
        )
