"""Store and model agree on everything that is stored and answered, after each of some thousand random calls."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.runs import Place, Plan, play

PLAN = Plan(seed=1, examples=60)


def test_the_store_does_what_its_documents_say(redis_url: str, tmp_path: Path) -> None:
    counts = play(PLAN, Place(redis_url, tmp_path))
    assert counts.never_reached() == [], f"no call of these verbs had an effect:\n{counts.table()}"
