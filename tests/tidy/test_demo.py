"""The demo's timeline is true: it shows what happened in the order in which it happened."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from demo import workflows
from demo.__main__ import Journal, Timeline


def test_what_a_worker_did_stands_above_what_followed_from_it_whoever_is_heard_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "JOURNAL", str(tmp_path / "journal"))
    timeline = Timeline()
    journal = Journal(tmp_path / "journal", timeline)

    timeline.say("client", "starts an order")
    workflows.note("run_1", "pack ends")
    workflows.note("run_1", "ship")
    timeline.say("client", "order is succeeded")
    journal.read()

    timeline.show(until=time.monotonic() - 60)
    assert capsys.readouterr().out == ""
    timeline.show()
    shown = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert [what for *_, what in shown] == ["starts an order", "pack ends", "ship", "order is succeeded"]
    times = [float(at) for at, *_ in shown]
    assert times == sorted(times)
