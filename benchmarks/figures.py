"""What a measurement came to, as a value, and the one place where it becomes JSON or a line to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median
from typing import Any, Final

WORKLOAD_WIDTH: Final = 15
DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Latency:
    """How long the calls took, or how late they came."""

    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Latency:
        """Of all that were measured."""
        times = sorted(times_ms)
        return cls(*(times[min(len(times) - 1, int(len(times) * share))] for share in (0.5, 0.95, 0.99)))


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of each process, user and system, in microseconds an item; None where there is no such process."""

    gateway_cpu_us: float | None = None
    worker_cpu_us: float | None = None
    client_cpu_us: float | None = None
    redis_us: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """One measurement, or the medians of several."""

    n: int
    store: str
    """Which Redis or Valkey it was."""
    concurrency: int | None = None
    seconds: float | None = None
    per_s: float | None = None
    latency: Latency | None = None
    cost: Cost = Cost()
    rss_mb: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, float] = field(default_factory=dict)
    """What only this workload has."""


class Compared(Enum):
    """By what two engines are compared: the ratio is ours by the peer's."""

    PER_S = "per_s"
    P50_MS = "p50_ms"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the same work came to in another engine."""

    peer: str
    figures: Figures
    ratio: float


def medians(measured: Sequence[Figures]) -> Figures:
    """The median of each figure by itself."""
    first = measured[0]
    if len(measured) == 1:
        return first
    latencies = [figures.latency for figures in measured if figures.latency is not None]
    return replace(
        first,
        seconds=_median([figures.seconds for figures in measured]),
        per_s=_median([figures.per_s for figures in measured]),
        latency=Latency(*(median(getattr(each, name) for each in latencies) for name in Latency.__slots__))
        if latencies
        else None,
        cost=Cost(*(_median([getattr(figures.cost, name) for figures in measured]) for name in Cost.__slots__)),
        rss_mb={name: median(figures.rss_mb[name] for figures in measured) for name in first.rss_mb},
        more={name: median(figures.more[name] for figures in measured) for name in first.more},
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def compare(ours: Figures, peer: str, theirs: Figures, by: Compared) -> Comparison:
    """Ours by theirs: of rates, more than 1 is ours being faster; of times, less than 1."""
    mine, other = _compared(ours, by), _compared(theirs, by)
    return Comparison(peer, theirs, mine / other)


def _compared(figures: Figures, by: Compared) -> float:
    p50_ms = None if figures.latency is None else figures.latency.p50_ms
    value = figures.per_s if by is Compared.PER_S else p50_ms
    assert value is not None, f"a workload without {by.value} is compared by it"
    return value


def _fields(workload: str, figures: Figures, comparison: Comparison | None) -> dict[str, Any]:  # Any: JSON
    latency = figures.latency
    theirs = comparison.figures if comparison else None
    return {
        "workload": workload,
        "n": figures.n,
        "concurrency": figures.concurrency,
        "seconds": figures.seconds,
        "per_s": figures.per_s,
        "p50_ms": latency.p50_ms if latency else None,
        "p95_ms": latency.p95_ms if latency else None,
        "p99_ms": latency.p99_ms if latency else None,
        **{name: getattr(figures.cost, name) for name in Cost.__slots__},
        "rss_mb": dict(figures.rss_mb) or None,
        **figures.more,
        "peer": comparison.peer if comparison else None,
        "peer_per_s": theirs.per_s if theirs else None,
        "ratio": comparison.ratio if comparison else None,
        **_details_of_peer(theirs),
        "store": figures.store,
    }


def _details_of_peer(theirs: Figures | None) -> dict[str, Any]:  # Any: JSON
    if theirs is None:
        return {}
    more: dict[str, Any] = {f"peer_{name}": value for name, value in theirs.more.items()}  # Any: JSON
    if theirs.latency is not None:
        more["peer_p50_ms"], more["peer_p95_ms"] = theirs.latency.p50_ms, theirs.latency.p95_ms
        more["peer_p99_ms"] = theirs.latency.p99_ms
    more |= {f"peer_{name}": getattr(theirs.cost, name) for name in Cost.__slots__}
    more["peer_rss_mb"] = dict(theirs.rss_mb)
    return more


def as_json(workload: str, figures: Figures, comparison: Comparison | None) -> str:
    """One line of JSON; what makes no sense for a workload is null."""
    return json.dumps({name: _rounded(value) for name, value in _fields(workload, figures, comparison).items()})


def as_text(workload: str, figures: Figures, comparison: Comparison | None) -> str:
    """A line to read."""
    parts = [f"{workload:{WORKLOAD_WIDTH}}"]
    for name, value in _fields(workload, figures, comparison).items():
        if value is not None and name != "workload":
            parts.append(f"{name} {_shown(value)}")
    return "  ".join(parts)


def _shown(value: Any) -> str:  # Any: JSON
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    return f"{value:,.{DIGITS}g}" if isinstance(value, float) and abs(value) < 1000 else _whole(value)


def _whole(value: Any) -> str:  # Any: JSON
    return value if isinstance(value, str) else f"{value:,.0f}"


def _rounded(value: Any) -> Any:  # Any: JSON
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return round(value, DIGITS) if isinstance(value, float) else value
