"""The last moment of a worker's process: what of its user's has not ended when it is over is left.

Python itself would wait for ever: for a task that swallows its cancellation, an asynchronous generator that does not
close, a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Final

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.output import say
from redflow_server.cli.signals import HANG_UP, SIGNALS, outlives_terminal

GRACE_S: Final = 1.0
"""What tasks have after their cancellation, and threads, in all."""
FLUSH_S: Final = 1.0
"""What is still to be written may be for somebody who does not read."""


class LastMoment:
    """Ends the process with a code when it has not ended by itself in time, from a thread that no task can block.

    Signals, which asked for no more than this end, do nothing meanwhile; after it, they end what still goes on.
    """

    def __init__(self) -> None:
        self._is_over = threading.Event()

    def begin(self, code: ExitCode) -> None:
        """Nothing is at work any more. In the main thread, on the loop whose tasks it is about."""
        self._code = code
        for number in SIGNALS if outlives_terminal() else (*SIGNALS, HANG_UP):
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, self._on_signal)
        # Not those that asyncio begins while it closes the loop.
        waiting = (asyncio.get_running_loop(), _threads())
        threading.Thread(target=self._watch, args=waiting, name="redflow-last-moment", daemon=True).start()

    def wait_for_threads(self) -> None:
        """All else has ended. Waits for the threads that the interpreter would wait for."""
        for thread in _threads():
            thread.join()
        self._is_over.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_over.is_set():
            os._exit(self._code)

    def _watch(self, loop: asyncio.AbstractEventLoop, threads: Sequence[threading.Thread]) -> None:
        if self._is_over.wait(GRACE_S):
            return
        tasks = 0 if loop.is_closed() else len(asyncio.all_tasks(loop))
        for count, what in ((tasks, "task"), (sum(thread.is_alive() for thread in threads), "thread")):
            if count:
                say(f"leaving {count} {what}{'s that have' if count > 1 else ' that has'} not ended")
        flushing = threading.Thread(target=_flush, daemon=True)
        flushing.start()
        flushing.join(FLUSH_S)
        os._exit(self._code)


def _threads() -> list[threading.Thread]:
    return [it for it in threading.enumerate() if it is not threading.main_thread() and not it.daemon]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # it cannot be written, or a handler has closed it
                stream.flush()
    logging.shutdown()  # some handlers keep records, and this is what would write them
