"""What runs wait for: in words, as tables, and as JSON. The names of JSON fields are a promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from redflow_sdk import Failure, Run
from redflow_sdk.records import WaitingFor
from redflow_server.cli.output import iso_time, table

SUMMARY_WAITS: Final = 5
"""Of the waits of one run, those that are shown where there are other things, too."""
COLUMNS: Final = ("waits_for", "step", "since", "until", "detail")

Document = dict[str, Any]  # Any: JSON, and times that become it


def wait_document(what: WaitingFor) -> Document:
    """One thing that a run waits for."""
    return {
        "kind": what.kind,
        "step_name": what.step_name,
        "since": what.since,
        "until": what.until,
        "detail": what.detail,
    }


def waits_of_run(run: Run) -> str:
    """All that a run waits for, a line for each."""
    return table(COLUMNS, [_cells(run, what) for what in run.waiting_for])


def waiting_table(runs: Iterable[Run]) -> str:
    """Runs with what each waits for, a line for each wait; of many waits of a run the first ones. Where a time-out of a
    run is to end any of them, there is a column for that.
    """
    listed = list(runs)
    has_deadlines = any(run.deadline_at for run in listed)

    def of_run(run: Run) -> tuple[object, ...]:
        return (run.id, run.workflow, run.status, *((run.deadline_at,) if has_deadlines else ()))

    rows = [(*of_run(run), *cells) for run in listed for cells in _first_cells(run)]
    return table(("id", "workflow", "status", *(("deadline",) if has_deadlines else ()), *COLUMNS), rows)


def _first_cells(run: Run) -> Iterator[tuple[object, ...]]:
    for what in run.waiting_for[:SUMMARY_WAITS]:
        yield _cells(run, what)
    if (more := len(run.waiting_for) - SUMMARY_WAITS) > 0:
        yield f"and {more} more", None, None, None, None


def _cells(run: Run, what: WaitingFor) -> tuple[object, ...]:
    detail = what.detail
    if what.kind == "backing_off" and run.failure is not None:
        detail = f"after attempt {run.attempt} of {run.max_attempts}: {failure_words(run.failure)}"
    return what.kind, what.step_name, what.since, what.until, detail


def waits_in_words(run: Run) -> list[str]:
    """What a run waits for; of many things the first ones."""
    words = list(map(_words, run.waiting_for[:SUMMARY_WAITS]))
    more = len(run.waiting_for) - len(words)
    return [*words, f"and {more} more"] if more else words


def _words(what: WaitingFor) -> str:
    until = f" until {iso_time(what.until)}" if what.until else ""
    detail = f" ({what.detail})" if what.detail else ""
    step = f" of step {what.step_name}" if what.step_name else ""
    return f"{what.kind}{step}{until}{detail}"


def until_words(what: WaitingFor, child_run_id: str) -> str:
    """What a step waits for, whose kind and child stand beside it."""
    until = f"until {iso_time(what.until)}" if what.until else ""
    detail = what.detail.removeprefix(f"run {child_run_id}").removeprefix(": ") if child_run_id else what.detail
    return ", ".join(part for part in (until, detail) if part)


def seen_of_waits(run: Run) -> tuple[object, ...]:
    """What changes when a run waits for something else; of those that it waits for also how they stand."""
    waits = tuple((what.kind, what.step_name, what.until) for what in run.waiting_for)
    # How busy the workers are changes all the time.
    return waits, tuple(what.detail for what in run.waiting_for[:SUMMARY_WAITS] if what.kind == "child")


def failure_words(failure: Failure) -> str:
    """How something failed, on a line."""
    return f"{failure.type}: {failure.message}"
