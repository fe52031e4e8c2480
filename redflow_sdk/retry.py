"""When a failed attempt is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_sdk._numbers import MAX_ATTEMPTS, check_count, check_factor, check_seconds
from redflow_sdk.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays between attempts, in seconds: initial * multiplier ** (attempt - 1), at most maximum, plus up to jitter
    of that.

    `max_attempts` counts the first one, so 1 means no retry. Raises InvalidInputError for values that make no sense.
    """

    max_attempts: int = 1
    initial: float = 0.25
    multiplier: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        check_count("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        check_seconds("initial", self.initial, lowest=0.0)
        check_seconds("maximum", self.maximum, lowest=0.0)
        if self.maximum < self.initial:
            raise InvalidInputError(f"maximum must be at least initial ({self.initial}); got {self.maximum}")
        check_factor("multiplier", self.multiplier, 1, 1000)
        check_factor("jitter", self.jitter, 0, 1)
