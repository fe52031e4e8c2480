"""A few rounds of `python -m tests.chaos.reaping`, with a gateway that is killed midway and a Redis that is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.chaos.reaping import Fault, play

HANGS_AFTER_S = 120.0
LEASES = 500
FAULTS = (Fault(False, 0.4, 0.0), Fault(True, 0.4, 0.0))


async def test_leases_of_which_some_are_taken_back_when_gateway_or_redis_is_killed_are_all_taken_back_once(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(HANGS_AFTER_S):
        report = await play(0, FAULTS, LEASES, tmp_path)
    assert not report.violations, "\n".join(report.violations[:20])
    assert report.before + report.midway + report.after == 1
    assert report.redis_restarts == 1
    assert report.midway + report.restarts_midway > 0, "neither kill came while leases were taken back"
