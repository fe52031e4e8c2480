"""When a failed attempt is tried again."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays between attempts, in seconds: initial * multiplier ** (attempt - 1), at most maximum, plus up to jitter
    of that.

    `max_attempts` counts the first one, so 1 means no retry. Raises ValueError for values that make no sense.
    """

    max_attempts: int = 1
    initial: float = 0.25
    multiplier: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 1_000_000:
            raise ValueError(f"max_attempts must be between 1 and 1000000; got {self.max_attempts}")
        if not (math.isfinite(self.initial) and self.initial >= 0):
            raise ValueError(f"initial must be a number of seconds, at least 0; got {self.initial}")
        if not (math.isfinite(self.maximum) and self.maximum >= self.initial):
            raise ValueError(f"maximum must be a number of seconds, at least initial; got {self.maximum}")
        if not 1 <= self.multiplier <= 1000:
            raise ValueError(f"multiplier must be between 1 and 1000; got {self.multiplier}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be between 0 and 1; got {self.jitter}")
