"""What the witness of the faults tells, on planted ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redflow_sdk import Run
from redflow_sdk.records import CronTrigger, Schedule
from redflow_server.domain.ids import run_id_for
from tests.chaos.beside import MARKER, PULSE
from tests.chaos.stage import PASSWORD
from tests.chaos.witness import Witness, occurrences_amiss, told

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ENDED = {"status": "succeeded", "finishedAt": "1000", "attempt": "1", "failures": "0", "losses": "0", "deliveries": "1"}


def _run(second: int) -> Run:
    """Of the occurrence at this second."""
    at = NOON + timedelta(seconds=second)
    run_id = run_id_for("cron", "sch_second", str(round(at.timestamp() * 1000)))
    return Run(run_id, PULSE, "beside", "succeeded", 1, 1, created_at=at + timedelta(milliseconds=20))


def _schedule(last: int, skipped: int) -> Schedule:
    last_at = NOON + timedelta(seconds=last)
    return Schedule(
        "sch_second", PULSE, CronTrigger("second", "* * * * * *"), None, last_at=last_at, skipped=skipped, problem=""
    )


def test_occurrences_with_one_run_each_or_counted_as_skipped_are_right() -> None:
    assert not list(occurrences_amiss(_schedule(5, 2), [_run(0), _run(1), _run(4), _run(5)]))


def test_a_run_that_was_started_while_runs_were_read_is_not_counted() -> None:
    assert not list(occurrences_amiss(_schedule(1, 0), [_run(0), _run(1), _run(2)]))


def test_an_occurrence_without_a_run_is_reported() -> None:
    (found,) = occurrences_amiss(_schedule(3, 0), [_run(0), _run(1), _run(3)])
    assert found == "4 occurrences of pulse: 3 have runs, 0 were skipped"


def test_an_occurrence_that_was_started_and_skipped_is_reported() -> None:
    (found,) = occurrences_amiss(_schedule(1, 1), [_run(0), _run(1)])
    assert found == "2 occurrences of pulse: 2 have runs, 1 were skipped"


def test_a_run_of_no_occurrence_is_reported() -> None:
    other = Run("run_other", PULSE, "beside", "succeeded", 1, 1, created_at=NOON)
    (found,) = occurrences_amiss(_schedule(1, 0), [_run(0), _run(1), other])
    assert found == "run_other belongs to no occurrence of pulse"


def test_an_end_that_stays_is_right_and_a_window_that_is_renewed_is_no_change() -> None:
    witness = Witness()
    assert not list(witness.changed_ends({"run_a": ENDED}))
    assert not list(witness.changed_ends({"run_a": ENDED | {"keyExpiresAt": "9"}, "run_b": ENDED}))


@pytest.mark.parametrize("later", [{}, {"run_a": ENDED | {"status": "canceled"}}, {"run_a": ENDED | {"attempt": "2"}}])
def test_an_end_that_changes_or_is_gone_is_reported(later: dict[str, dict[str, str]]) -> None:
    witness = Witness()
    assert not list(witness.changed_ends({"run_a": ENDED}))
    (found,) = witness.changed_ends(later)
    assert found.startswith("run_a had ended")


@pytest.mark.parametrize("secret", [MARKER, PASSWORD, "open%205es%40me%2F%25"])
def test_a_secret_in_the_log_is_reported(secret: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"INFO    redflow.gateway: ready\nINFO    redflow.worker: got {secret}\n")
    (found,) = told(log)
    assert found.startswith("line 2 of the log tells a secret")


def test_a_traceback_of_the_product_is_reported_and_one_of_a_workflow_is_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    theirs = 'Traceback (most recent call last):\n  File "/srv/shop/orders.py", line 3, in pay\n'
    log.write_text(theirs + '  File "/srv/lib/redflow_server/engine/runs.py", line 40, in complete\n')
    (found,) = told(log)
    assert "runs.py" in found


def test_an_unexpected_fault_is_reported_and_an_expected_outage_is_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "2026-12-01 05:36:17,104 WARNING redflow.store: redis is away: the connection to Redis ended\n"
        "2026-12-01 05:36:17,105 ERROR   redflow.gateway: fault 8yq2 in StartRun\n"
    )
    (found,) = told(log)
    assert "fault 8yq2" in found
