"""What processes use up, with the children they have: CPU time and resident memory, as Linux counts them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.figures import Cost

Process = subprocess.Popen[bytes]


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def cpu_s(process: Process) -> float:
    """CPU seconds that a process and its children have used."""
    ticks = 0
    for pid in _family(process.pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mb(process: Process) -> float:
    """Resident memory of a process and its children."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _family(process.pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


class Meter:
    """CPU time of processes from now on."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = dict(processes)
        self._before = {name: cpu_s(process) for name, process in self._processes.items()}

    def used_s(self) -> dict[str, float]:
        """By name of the process."""
        return {name: cpu_s(process) - self._before[name] for name, process in self._processes.items()}

    def cost(self, items: int, client_s: float | None = None) -> Cost:
        """What an item took, when so many were worked on since."""
        used_us = {name: 1e6 * used_s / items for name, used_s in self.used_s().items()}
        return Cost(
            gateway_cpu_us=used_us.get("gateway"),
            worker_cpu_us=used_us.get("worker"),
            client_cpu_us=None if client_s is None else 1e6 * client_s / items,
            redis_us=used_us.get("redis"),
        )

    def rss_mb(self) -> dict[str, float]:
        """Resident memory of each, now."""
        return {name: round(rss_mb(process), 1) for name, process in self._processes.items()}
