"""What `python -m tests.chaos.redis_outages` does for minutes, in seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.chaos.redis_outages import OUTAGES, Held, Outages

HANGS_AFTER_S = 120.0
PLAN = tuple(Held(name, 0.5) for name in OUTAGES)


async def test_whatever_becomes_of_redis_all_runs_end_soon_after_it_is_back_and_nobody_is_started_anew(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(HANGS_AFTER_S):
        report = await Outages(PLAN, tmp_path, every_s=0.2).run()
    assert not report.violations, "\n".join(report.violations)
    assert report.done_after_s.keys() == {str(held) for held in PLAN}
