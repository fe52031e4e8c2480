"""What a program can say of its worker to those who probe it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """How a worker is at this moment."""

    is_connected: bool
    """Whether a session with a gateway is open."""
    is_draining: bool
    """Whether it was told to end, and takes no more runs."""
    stalled_for: float
    """For how many seconds its event loops have not turned, to about a second: that of its handlers or that of its
    connection. It is small while both do, and 0 before the worker has begun and after it has ended.
    """

    @property
    def is_ready(self) -> bool:
        """Whether it takes runs."""
        return self.is_connected and not self.is_draining
