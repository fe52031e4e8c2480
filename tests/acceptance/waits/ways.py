"""The ways in which a worker has its handlers wait. What runs come to is the same in each."""

from __future__ import annotations

from enum import Enum

import pytest

VARIABLE = "REDFLOW_WAITING"


class Way(Enum):
    """How handlers wait, and the settings of a worker where they do."""

    PARKING = "parking"
    """In memory, and without a slot."""
    NO_PARKING = "no-parking"
    """They end, and run again from their start."""
    ALWAYS_SUSPEND = "always-suspend"
    """They end also when the wait is over at once."""

    def choose(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For the workers that are made from now on."""
        monkeypatch.setenv(VARIABLE, "replay" if self is Way.ALWAYS_SUSPEND else "park")

    @property
    def settings(self) -> dict[str, float]:
        """Arguments of a worker."""
        return {"park_window": 0.0} if self is Way.NO_PARKING else {}
