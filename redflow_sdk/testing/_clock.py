"""Virtual time: stands still while something is at work, and goes on to what is due next when nothing is."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

MOMENT_S: Final = 0.05


@dataclass(order=True, slots=True)
class Due:
    """Something to do at a time. What is due at the same time is done in the order in which that was said."""

    at_ms: int
    number: int
    call: Callable[[], object] = field(compare=False)
    said_at: float = field(compare=False)
    is_canceled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """It is not to be done any more."""
        self.is_canceled = True


class VirtualClock:
    """Milliseconds from its beginning on, as the store of a gateway counts."""

    def __init__(self, began_at: datetime) -> None:
        self._began_at = began_at
        self._due: list[Due] = []
        self._numbers = itertools.count()
        self._moved_at = time.monotonic()
        self.now_ms = 0

    def at(self, at_ms: int, call: Callable[[], object]) -> Due:
        """Does something at a time, or as soon as possible when that has passed."""
        return self._say(at_ms, call, time.monotonic())

    def when_idle(self, call: Callable[[], object]) -> Due:
        """Does something before the time goes on; what is at work has a moment of real time first to come to rest."""
        return self._say(self.now_ms, call, time.monotonic() + MOMENT_S)

    def _say(self, at_ms: int, call: Callable[[], object], said_at: float) -> Due:
        due = Due(max(at_ms, self.now_ms), next(self._numbers), call, said_at)
        heapq.heappush(self._due, due)
        return due

    def after(self, seconds: float, call: Callable[[], object]) -> Due:
        """Does something when so much time has passed."""
        return self.at(self.now_ms + milliseconds(seconds), call)

    @property
    def next_due(self) -> Due | None:
        """What is due next."""
        while self._due and self._due[0].is_canceled:
            heapq.heappop(self._due)
        return self._due[0] if self._due else None

    @property
    def real_seconds_left(self) -> float | None:
        """How long a handler at work has until what is due next: as long as it would really take from now on."""
        due = self.next_due
        if due is None:
            return None
        ends_at = max(due.said_at, self._moved_at) + (due.at_ms - self.now_ms) / 1000
        return max(0.0, ends_at - time.monotonic())

    def advance(self) -> None:
        """Goes on to what is due next, and does it."""
        due = self.next_due
        if due is not None:
            heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, due.at_ms)
            self._moved_at = time.monotonic()
            due.call()

    def time_of(self, at_ms: int) -> datetime:
        """A time as a date."""
        return self._began_at + timedelta(milliseconds=at_ms)

    def ms_of(self, at: datetime) -> int:
        """A date as a time, rounded up."""
        return -((self._began_at - at) // timedelta(milliseconds=1))


def milliseconds(seconds: float) -> int:
    """A length of time in whole milliseconds, rounded up, as the gateway does."""
    return math.ceil(round(seconds * 1000, 3))
