"""A run of the oracle: so many examples from a seed, on a server, with what they reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from redflow_server.store.scripts import FOLDER
from tests.oracle.bench import Server
from tests.oracle.counts import Counts
from tests.oracle.machine import machine_on

MOVES: Final = 50
"""Of an example."""


@dataclass(frozen=True)
class Plan:
    """What is played: the same plan plays the same calls."""

    seed: int
    examples: int
    moves: int = MOVES
    shrinks: bool = True


@dataclass(frozen=True)
class Place:
    """Where it is played: on a server, with scripts, and a folder for a socket."""

    redis_url: str
    folder: Path
    scripts: Path = FOLDER
    counts: Counts = field(default_factory=Counts)


def play(plan: Plan, place: Place) -> Counts:
    """Plays all examples. Raises Mismatch, after the shortest example that shows it."""
    server = Server(place.redis_url, place.folder, place.scripts)
    try:
        machine = seed(plan.seed)(machine_on(server, place.counts))
        run_state_machine_as_test(machine, settings=_settings(plan))
    finally:
        server.close()
    return place.counts


def _settings(plan: Plan) -> settings:
    return settings(
        max_examples=plan.examples,
        stateful_step_count=plan.moves,
        phases=[Phase.generate, Phase.shrink] if plan.shrinks else [Phase.generate],
        verbosity=Verbosity.quiet,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
