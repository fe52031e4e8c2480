"""An event loop that never waits: when nothing is to be done, its time jumps to that of the next alarm.

So pauses of minutes take no time, and are what they are to the microsecond, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NeverWaits(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits, and nobody for a time"
        found = super().select(0)
        if not found:
            self.now_s += max(0.0, timeout)
        return found


class SkippingLoop(asyncio.SelectorEventLoop):
    """See above. It begins at a second that is no one's clock."""

    def __init__(self) -> None:
        self._never_waits = _NeverWaits()
        super().__init__(self._never_waits)

    def time(self) -> float:
        return self._never_waits.now_s


def in_skipped_time(scenario: Coroutine[Any, Any, T]) -> T:  # Any: what a coroutine is sent
    """Runs a scenario to its end in no time."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(scenario)


def now_s() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()
