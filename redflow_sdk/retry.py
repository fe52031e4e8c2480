"""When a failed attempt is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_sdk._numbers import MAX_ATTEMPTS, check_count, check_factor, check_seconds
from redflow_sdk.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed attempt of a run is followed by another one, or a failed call of a step by another call.

    After attempt n the delay is `initial * multiplier ** (n - 1)` seconds, at most `maximum`, plus a random part of up
    to `jitter` of that. Raises InvalidInputError for values out of their bounds.

        @workflow(retry=RetryPolicy(max_attempts=5, initial=1.0, maximum=60.0))  # about 1 s, 2 s, 4 s, 8 s between them
    """

    max_attempts: int = 1
    """Attempts in all, 1 to 1,000,000: 1 means no retry."""
    initial: float = 0.25
    """The first delay, in seconds, 0 to 100 years."""
    multiplier: float = 2.0
    """What each delay is multiplied by to give the next one, 1 to 1,000."""
    maximum: float = 30.0
    """The longest delay, in seconds, without its random part; at least `initial`."""
    jitter: float = 0.1
    """The random part of a delay, as a share of it: 0 to 1."""

    def __post_init__(self) -> None:
        check_count("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        check_seconds("initial", self.initial, lowest=0.0)
        check_seconds("maximum", self.maximum, lowest=0.0)
        if self.maximum < self.initial:
            raise InvalidInputError(f"maximum must be at least initial ({self.initial}); got {self.maximum}")
        check_factor("multiplier", self.multiplier, 1, 1000)
        check_factor("jitter", self.jitter, 0, 1)
