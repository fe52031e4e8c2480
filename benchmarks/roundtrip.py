"""`roundtrip`: no-op runs that are started and waited for, so many outstanding at a time."""

from __future__ import annotations

from benchmarks.calls_played import play
from benchmarks.engine import Load
from benchmarks.figures import Figures


def measure(load: Load) -> Figures:
    """One measurement."""
    return play(load, "roundtrip")
