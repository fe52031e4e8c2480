"""A run of the oracle: an example for each of some seeds, on a server, with what they reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from redflow_server.store.scripts import FOLDER
from tests.oracle.bench import Server
from tests.oracle.counts import Counts
from tests.oracle.machine import machine_on
from tests.oracle.table import MOVES


@dataclass(frozen=True)
class Place:
    """Where it is played: on a server, with scripts, and a folder for a socket."""

    redis_url: str
    folder: Path
    scripts: Path | None = None


@dataclass
class Played:
    """How far a run has come."""

    counts: Counts = field(default_factory=Counts)
    examples: int = 0
    seed: int = 0
    """Of the last example; alone it plays that again."""


class Effort(Enum):
    """What is done about an example that fails: it is shown as it is, or a shorter one is looked for."""

    FIND = (Phase.generate,)
    SHRINK = (Phase.generate, Phase.shrink)


def play(seeds: Iterable[int], place: Place, played: Played | None = None, effort: Effort = Effort.SHRINK) -> Played:
    """Plays an example for each seed. Raises Mismatch."""
    played = played or Played()
    server = Server(place.redis_url, place.folder, place.scripts or FOLDER)
    try:
        for number in seeds:
            played.seed = number
            machine = seed(number)(machine_on(server, played.counts, number))
            run_state_machine_as_test(machine, settings=settings(SETTINGS, phases=effort.value))
            played.examples += 1
    finally:
        server.close()
    return played


SETTINGS: Final = settings(
    # The first one is the smallest that there is, and is not played. Of many, later ones are much like those before.
    max_examples=2,
    stateful_step_count=MOVES,
    verbosity=Verbosity.quiet,
    database=None,
    deadline=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
