"""Store and model agree on everything that is stored and answered, after each of some thousand random calls."""

from __future__ import annotations

import tempfile
from itertools import takewhile
from pathlib import Path

from redflow_server.store.scripts import load_scripts
from tests.oracle.model.verbs import VERBS
from tests.oracle.runs import Place, play

EXAMPLES = 8
MORE_EXAMPLES = 92
"""Played only when a verb was not reached: what Redis picks by chance changes what is played after it."""


def test_the_model_has_the_verbs_of_the_store() -> None:
    assert VERBS.keys() == load_scripts().keys()


def test_the_store_does_what_its_documents_say(redis_url: str) -> None:
    # The path of a socket has at most about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        place = Place(redis_url, Path(folder))
        played = play(range(EXAMPLES), place)
        more = iter(range(EXAMPLES, EXAMPLES + MORE_EXAMPLES))
        play(takewhile(lambda _: played.counts.never_reached(), more), place, played)
    counts = played.counts
    assert counts.never_reached() == [], f"no call of these verbs had an effect:\n{counts.table()}"
