"""The list of the workloads: what each is called, measures and does by default, and which peers do the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from benchmarks import (
    backlog,
    child_overhead,
    children,
    delayed,
    enqueue,
    fanout,
    floor,
    idle,
    memory,
    roundtrip,
    scale,
    sleepers,
    steps,
)
from benchmarks.engine import OURS, Engine, Load
from benchmarks.figures import Compared, Figures


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured."""

    name: str
    about: str
    measure: Callable[[Load], Figures]
    n: int
    at_once: int = 1
    n_one_at_a_time: int | None = None
    """How many, instead of `n`, when one is outstanding."""
    peers: tuple[str, ...] = ()
    compared_by: Compared = Compared.PER_S

    def load(self, n: int | None, at_once: int | None, engine: Engine = OURS) -> Load:
        """So much as is asked for, or as it does by default."""
        at_once = self.at_once if at_once is None else at_once
        usual = self.n_one_at_a_time if at_once == 1 and self.n_one_at_a_time else self.n
        return Load(usual if n is None else n, at_once, engine)


_QUEUES: Final = ("arq", "saq", "taskiq")

_ALL: Final = (
    Workload(
        "backlog",
        "runs that are queued before the one worker comes; at once: its slots",
        backlog.measure,
        n=20_000,
        at_once=64,
        peers=("bullmq", "redflow", *_QUEUES),
    ),
    Workload(
        "enqueue",
        "runs that are started and not waited for, by single calls and by batches",
        enqueue.measure,
        n=20_000,
        at_once=64,
        peers=("bullmq",),
    ),
    Workload(
        "roundtrip",
        "runs that are started and waited for",
        roundtrip.measure,
        n=5_000,
        at_once=64,
        n_one_at_a_time=500,
        peers=("bullmq", "redflow", *_QUEUES),
        compared_by=Compared.P50_MS,
    ),
    Workload("steps", "runs of ten steps", steps.measure, n=500, at_once=16, peers=("redflow",)),
    Workload(
        "children",
        "runs that wait for a run that waits for a run",
        children.measure,
        n=300,
        at_once=16,
        peers=("bullmq", "redflow"),
    ),
    Workload("child-overhead", "what one level of it costs on an idle system", child_overhead.measure, n=500),
    Workload("fanout", "an event until its 100 subscribers have run", fanout.measure, n=100),
    Workload("delayed", "how late delayed runs start", delayed.measure, n=1_000),
    Workload("idle", "a gateway with nothing to do, 4 queues, and so many workers", idle.measure, n=100),
    Workload(
        "scale", "cost of a run and a page with 1,000 runs and with so many", scale.measure, n=100_000, at_once=64
    ),
    Workload("floor", "our scripts driven by a bare client: what Redis allows", floor.measure, n=20_000, at_once=64),
    Workload("sleepers", "runs that sleep: memory, and how late they wake", sleepers.measure, n=10_000),
    Workload("memory", "bytes of Redis a run", memory.measure, n=10_000),
)

WORKLOADS: Final = MappingProxyType({workload.name: workload for workload in _ALL})
