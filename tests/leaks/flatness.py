"""When a quantity is flat: its slope over the samples after warm-up, times their number, stays within a bound.

The slope is the median of those between any two samples (Theil and Sen), so that one sample that malloc or a collection
has spoiled does not decide, and a step at the beginning is no growth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from types import MappingProxyType
from typing import Final

BOUNDS: Final[Mapping[str, float]] = MappingProxyType(
    {"rss_kb": 4096.0, "tasks": 1.0, "files": 1.0, "threads": 1.0, "objects": 500.0, "clients": 0.0, "keys": 0.0}
)
"""How much each quantity may grow, all in all. What leaks does so with the work: more work makes the bounds sharper."""
SHOWN_KINDS: Final = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """What something held at one moment, by quantity; for processes, what kinds of objects."""

    quantities: Mapping[str, float]
    kinds: Mapping[str, int]


def growth(values: Sequence[float]) -> float:
    """How much they grow from the first to the last, by their slope."""
    slopes = [(later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(values), 2)]
    return median(slopes) * (len(values) - 1) if slopes else 0.0


def grown(whose: str, samples: Sequence[Sample], lost_kb: float = 0.0) -> Iterable[str]:
    """What has grown beyond its bound, in words. `lost_kb` is what is known to be lost to others than us."""
    bounds = {**BOUNDS, "rss_kb": BOUNDS["rss_kb"] + lost_kb}
    first, last = samples[0], samples[-1]
    for quantity in first.quantities:
        values = [sample.quantities[quantity] for sample in samples]
        by = growth(values)
        if by > bounds[quantity]:
            yield (
                f"{quantity} of {whose} grew by {by:.0f}, of which {bounds[quantity]:.0f} are allowed: "
                f"{[round(value) for value in values]}{_kinds(first, last)}"
            )


def _kinds(first: Sample, last: Sample) -> str:
    more = {kind: count - first.kinds.get(kind, 0) for kind, count in last.kinds.items()}
    most = sorted(((count, kind) for kind, count in more.items() if count > 0), reverse=True)[:SHOWN_KINDS]
    return "; objects: " + ", ".join(f"{kind} +{count}" for count, kind in most) if most else ""
