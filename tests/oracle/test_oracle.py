"""Store and model agree on everything that is stored and answered, after each of some thousand random calls."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.runs import Place, play

EXAMPLES = 40


def test_the_store_does_what_its_documents_say(redis_url: str, tmp_path: Path) -> None:
    counts = play(range(EXAMPLES), Place(redis_url, tmp_path)).counts
    assert counts.never_reached() == [], f"no call of these verbs had an effect:\n{counts.table()}"
