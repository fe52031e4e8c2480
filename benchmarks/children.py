"""`children`: runs that wait for a run that waits for a run."""

from __future__ import annotations

from benchmarks.calls_played import play
from benchmarks.engine import Load
from benchmarks.figures import Figures


def measure(load: Load) -> Figures:
    """One measurement."""
    return play(load, "children")
