"""A few rounds of what `make chaos` does for longer: one for each kind of victim, on the Redis of the tests.

The seed is drawn by chance and shown by a failure; REDFLOW_CHAOS_SEED draws the same rounds again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.kill_rounds import kill_rounds
from tests.chaos.plan import VICTIMS, Plan

SEED = "REDFLOW_CHAOS_SEED"
ROUNDS = len(VICTIMS)
HANGS_AFTER_S = 150.0
SHOWN = 20


@contextmanager
def replayable(seed: int, folder: Path, test: Path) -> Iterator[None]:
    """Says with every failure of a test how to see it again."""
    try:
        yield
    except Exception as error:
        log = folder / "log"
        error.add_note(f"replay: {SEED}={seed} .venv/bin/pytest {test.relative_to(test.parents[2])}")
        error.add_note(f"journal and log are in {folder}; the log ends with:")
        error.add_note("\n".join(log.read_text().splitlines()[-20:]) if log.exists() else "(nothing was logged)")
        raise


async def test_kills_of_gateway_and_workers_under_load_lose_repeat_and_break_nothing(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(10**6))
    with replayable(seed, tmp_path, Path(__file__)):
        async with asyncio.timeout(HANGS_AFTER_S):
            report = await kill_rounds(Plan(seed, ROUNDS), redis_url, prefix, tmp_path).run()
        assert not report.violations, "\n".join((f"{len(report.violations)} violations:", *report.violations[:SHOWN]))
        assert report.kills == sum(len(victims) for victims in VICTIMS)
        assert report.moved_runs > 0, "no kill took a run from its worker: the rounds have shown nothing"
