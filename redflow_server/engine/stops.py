"""Orders to stop that came before the assignment they are about: a cancel between a claim and its answer.

They are kept for as long as the delivery may take, and go out with the assignment.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from redflow_server.domain.leases import Stop

MAX_KEPT: Final = 10_000


class EarlyStops:
    """By lease token, the oldest first."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._kept: OrderedDict[str, tuple[Stop, float]] = OrderedDict()

    def keep(self, stop: Stop) -> None:
        """Nobody here has the lease yet."""
        now = time.monotonic()
        while self._kept and (len(self._kept) >= MAX_KEPT or next(iter(self._kept.values()))[1] < now):
            self._kept.popitem(last=False)
        self._kept[stop.lease_token] = (stop, now + self._keep_s)

    def take(self, lease_token: str) -> Stop | None:
        """The order for a lease that is about to be delivered."""
        stop, _ = self._kept.pop(lease_token, (None, 0.0))
        return stop
