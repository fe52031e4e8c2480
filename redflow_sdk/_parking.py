"""What becomes of handlers that wait: how long they are kept in memory, and how many of them. On the worker's loop."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from redflow_sdk.errors import InvalidInputError


class Waiting(Enum):
    """What becomes of a handler that can go on only when a wait is over."""

    PARK = "park"
    """It is kept in memory for a while, and ends when that was not long enough."""
    SUSPEND = "suspend"
    """It ends, unless the wait is over before that has been settled."""
    REPLAY = "replay"
    """It ends in any case, and runs again from its start: what does not bear that is seen the first time it waits."""

    @classmethod
    def of_environment(cls) -> Waiting:
        """What REDFLOW_WAITING says. Raises InvalidInputError."""
        said = os.environ.get("REDFLOW_WAITING", "").strip()
        try:
            return cls(said) if said else cls.PARK
        except ValueError:
            allowed = ", ".join(way.value for way in cls)
            raise InvalidInputError(f"REDFLOW_WAITING must be one of {allowed}; got {said!r}") from None


@dataclass(frozen=True, slots=True)
class ParkingRules:
    """Up to `limit` handlers are kept, each for `window_s` from when it has come to rest; a limit of 0 keeps none."""

    window_s: float
    limit: int
    waiting: Waiting = Waiting.PARK


class Parking:
    """The room for parked handlers of one worker."""

    def __init__(self, rules: ParkingRules) -> None:
        self.waiting = rules.waiting
        self.window_s = rules.window_s
        self._limit = rules.limit
        self._taken = 0

    def take_place(self) -> bool:
        """Takes a place for a handler, if there is one."""
        if self._taken >= self._limit:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        """A handler has left its place."""
        self._taken -= 1

    def close(self) -> None:
        """No handler is parked any more, and those that are about to be are not for long."""
        self._limit = 0
        self.window_s = 0.0
