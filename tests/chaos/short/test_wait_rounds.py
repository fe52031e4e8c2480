"""A few rounds of what `python -m tests.chaos.wait_rounds` does for longer: kills while runs wait in every way.

The seed is drawn by chance, decides the mode too, and is shown by a failure; REDFLOW_CHAOS_SEED draws the same again.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from tests.chaos.modes import MODES
from tests.chaos.plan import Plan
from tests.chaos.short.test_kill_rounds import HANGS_AFTER_S, SEED, SHOWN, replayable
from tests.chaos.wait_rounds import wait_rounds

ROUNDS = 2


async def test_kills_while_runs_wait_change_nothing_of_what_they_come_to(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(10**6))
    mode = sorted(MODES)[seed % len(MODES)]
    with replayable(seed, tmp_path, Path(__file__)):
        async with asyncio.timeout(HANGS_AFTER_S):
            report = await wait_rounds(Plan(seed, ROUNDS), mode, redis_url, prefix, tmp_path).run()
        assert not report.violations, "\n".join((f"{len(report.violations)} violations:", *report.violations[:SHOWN]))
        assert report.runs > 0
        assert report.kills > 0
