"""Whether workers work: each begins a handler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.chaos.journal import Journal
from tests.chaos.processes import Program
from tests.eventually import eventually

AT_WORK_WITHIN_S: Final = 30.0
"""A worker that lives takes work so soon after whatever it was is over."""


async def all_are_at_work(workers: Sequence[Program], journal: Journal, when: str) -> None:
    """Waits until every worker has begun a handler from now on."""
    before = _begun(journal)
    pids = [worker.pid for worker in workers]
    await eventually(
        lambda: all(_begun(journal)[pid] > before[pid] for pid in pids),
        within=AT_WORK_WITHIN_S,
        saying=f"not every worker takes work {when}",
    )


def _begun(journal: Journal) -> Counter[int]:
    return Counter(line.pid for line in journal.lines() if line.event == "began")
