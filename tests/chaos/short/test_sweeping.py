"""A short run of `python -m tests.chaos.sweeping`."""

from __future__ import annotations

import asyncio

from tests.chaos.sweeping import play

RUNS = 300


async def test_a_sweep_without_pause_finds_nothing_to_repair_or_take_back_in_runs_that_come_and_go(
    redis_url: str, prefix: str
) -> None:
    async with asyncio.timeout(60):
        report = await play(redis_url, prefix, RUNS)
    assert not report.violations, "\n".join(report.violations[:20])
    assert report.looks > 5
