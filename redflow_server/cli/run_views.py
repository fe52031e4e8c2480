"""Runs and steps as tables for people and as JSON for programs. The names of JSON fields are a promise."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from redflow_sdk import Failure, Run, Step
from redflow_sdk.records import WaitingFor
from redflow_server.cli.escaping import printable_block, shortened
from redflow_server.cli.output import card, iso_time, table

SUMMARY_COLUMNS: Final = 60
SUMMARY_WAITS: Final = 5

Document = dict[str, Any]  # Any: JSON, and times that become it


def listed_document(run: Run) -> Document:
    """A run without its payloads, as listings have it."""
    return {
        "id": run.id,
        "workflow": run.workflow,
        "queue": run.queue,
        "status": run.status,
        "attempt": run.attempt,
        "max_attempts": run.max_attempts,
        "priority": run.priority,
        "created_at": run.created_at,
        "available_at": run.available_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "cancel_requested_at": run.cancel_requested_at,
        "cancel_reason": run.cancel_reason,
        "idempotency_key": run.idempotency_key,
        "parent_run_id": run.parent_run_id,
        "delivery_count": run.delivery_count,
        "losses": run.losses,
        "worker_name": run.worker_name,
        "waiting_for": list(map(_waiting_document, run.waiting_for)),
    }


def run_document(run: Run) -> Document:
    """A run."""
    return {
        **listed_document(run),
        "input": run.input,
        "output": run.output,
        "failure": failure_document(run.failure),
        "failure_handler": run.failure_handler,
        "failure_handler_failure": failure_document(run.failure_handler_failure),
    }


def _waiting_document(what: WaitingFor) -> Document:
    return {"kind": what.kind, "until": what.until, "detail": what.detail, "step_name": what.step_name}


def step_document(step: Step) -> Document:
    """A step of a run."""
    return {
        "name": step.name,
        "seq": step.seq,
        "kind": step.kind,
        "status": step.status,
        "attempt": step.attempt,
        "started_at": step.started_at,
        "finished_at": step.finished_at,
        "output": step.output,
        "failure": failure_document(step.failure),
        "child_run_id": step.child_run_id,
    }


def failure_document(failure: Failure | None) -> Document | None:
    """How something failed, with its causes."""
    if failure is None:
        return None
    return {
        "type": failure.type,
        "message": failure.message,
        "kind": failure.kind,
        "language": failure.language,
        "traceback": failure.traceback,
        "details": failure.details,
        "cause": failure_document(failure.cause),
        "no_retry": failure.no_retry,
        "retry_after": failure.retry_after,
    }


def run_card(run: Run) -> str:
    """A run, without what it does not have, and the traceback of its failure."""
    fields: dict[str, object] = {
        **listed_document(run),
        "attempt": f"{run.attempt} of {run.max_attempts}",
        "waiting_for": ", ".join(_waits(run)),
        "input": _short_json(run.input),
        "output": _short_json(run.output) if run.status == "succeeded" else None,
        "failure": _summary(run.failure),
        "failure_handler": _handler(run),
    }
    del fields["max_attempts"]
    shown = card({name: value for name, value in fields.items() if value not in (None, "")})
    traceback = run.failure.traceback.rstrip() if run.failure else ""
    return f"{shown}\n\n{printable_block(traceback)}" if traceback else shown


def runs_table(runs: Iterable[Run]) -> str:
    """Runs, a line for each."""
    rows = ((*(run.id, run.workflow, run.queue, run.status), *_progress(run)) for run in runs)
    return table(("id", "workflow", "queue", "status", "attempt", "created", "finished"), rows)


def _progress(run: Run) -> tuple[object, ...]:
    return f"{run.attempt}/{run.max_attempts}", run.created_at, run.finished_at


def steps_table(steps: Iterable[Step]) -> str:
    """Steps, a line for each; a column for the runs that they wait for, or waited for, if there are any."""
    rows = list(map(_step_row, steps))
    header = ("seq", "name", "kind", "status", "attempt", "started", "finished", "outcome", "child_run")
    width = len(header) if any(row[-1] for row in rows) else len(header) - 1
    return table(header[:width], [row[:width] for row in rows])


def _step_row(step: Step) -> tuple[object, ...]:
    what = step.seq, step.name, step.kind, step.status, step.attempt, step.started_at, step.finished_at
    return *what, _outcome(step), step.child_run_id


def ends_table(runs: Iterable[Run]) -> str:
    """What became of runs, a line for each."""
    rows = ((run.id, run.workflow, run.status, run_news(run)) for run in runs)
    return table(("id", "workflow", "status", "outcome"), rows)


def run_news(run: Run) -> str:
    """What is new of a run beside its status."""
    if run.status == "succeeded":
        return shortened(_short_json(run.output), SUMMARY_COLUMNS)
    failed = shortened(_summary(run.failure) or "", SUMMARY_COLUMNS)
    if run.status == "failed":
        return failed
    if run.status == "canceled":
        return shortened(run.cancel_reason, SUMMARY_COLUMNS)
    on = f" on {run.worker_name}" if run.worker_name else ""
    parts = [f"attempt {run.attempt} of {run.max_attempts}{on}"] if run.attempt else []
    parts += _waits(run)
    if failed and run.status != "running":
        parts.append(f"after {failed}")
    if run.cancel_requested_at:
        parts.append("asked to end as canceled")
    return ", ".join(parts)


def step_news(step: Step) -> str:
    """What is new of a step beside its status."""
    outcome = _outcome(step) or (f"run {step.child_run_id}" if step.child_run_id else "")
    return f"{step.name}: {outcome}" if outcome else step.name


def _outcome(step: Step) -> str:
    if step.failure is not None:
        return shortened(_summary(step.failure) or "", SUMMARY_COLUMNS)
    return shortened(_short_json(step.output), SUMMARY_COLUMNS) if step.status == "succeeded" else ""


def _summary(failure: Failure | None) -> str | None:
    return None if failure is None else f"{failure.type}: {failure.message}"


def _handler(run: Run) -> str:
    failed = _summary(run.failure_handler_failure)
    return f"{run.failure_handler} ({failed})" if failed else run.failure_handler


def _waits(run: Run) -> list[str]:
    """What a run waits for; of many things the first ones."""
    waits = run.waiting_for
    words = list(map(_waiting, waits[:SUMMARY_WAITS]))
    return words if len(words) == len(waits) else [*words, f"and {len(waits) - len(words)} more"]


def _waiting(what: WaitingFor) -> str:
    until = f" until {iso_time(what.until)}" if what.until else ""
    detail = f" ({what.detail})" if what.detail else ""
    step = f" of step {what.step_name}" if what.step_name else ""
    return f"{what.kind}{step}{until}{detail}"


def _short_json(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value)} bytes that are no JSON)"
    return json.dumps(value, ensure_ascii=False)
