"""Two rounds of `python -m tests.chaos.key_windows`: a window that outlasts the kills, and one that does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redflow_server.embedded import EmbeddedStore
from tests.chaos.key_windows import play


async def test_a_key_holds_for_its_window_and_no_longer_whoever_is_killed_meanwhile(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "store") as store:
        async with asyncio.timeout(120):
            report = await play(store.url, tmp_path, seed=1, rounds=2)
    assert not report.violations, report.violations
