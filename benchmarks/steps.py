"""`steps`: runs of ten steps, one after the other, each of which does nothing."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.calls_played import play
from benchmarks.engine import Load
from benchmarks.figures import Figures

STEPS = 10


def measure(load: Load) -> Figures:
    """One measurement."""
    figures = play(load, "steps")
    assert figures.per_s is not None
    return replace(figures, more={"steps_per_s": STEPS * figures.per_s})
