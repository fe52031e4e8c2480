"""The list of the scenarios: what each is called, plays, and does by default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tests.leaks import away, canceled, deaf, finished, reconnects
from tests.leaks.scene import Report, Scene


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is played."""

    name: str
    about: str
    play: Callable[[Scene, Report], Awaitable[None]]
    operations: int


_ALL: Final = (
    Scenario("reconnects", "a worker is cut off, and as many sessions are broken off", reconnects.play, 500),
    Scenario("canceled", "calls are given up, while Redis is restarted twice", canceled.play, 200_000),
    Scenario("finished", "runs end, and are kept for a second", finished.play, 100_000),
    Scenario("away", "calls to a closed port, and a gateway that is killed", away.play, 3_000),
    Scenario("deaf", "readers that never read", deaf.play, 6),
)
SCENARIOS: Final = MappingProxyType({each.name: each for each in _ALL})
