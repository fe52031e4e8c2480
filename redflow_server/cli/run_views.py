"""Runs and steps as tables for people and as JSON for programs. The names of JSON fields are a promise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from redflow_sdk import Failure, Payload, Run, Step
from redflow_sdk.records import WaitingFor
from redflow_server.cli.escaping import printable_block, shortened
from redflow_server.cli.output import card, table
from redflow_server.cli.wait_views import (
    Document,
    failure_words,
    until_words,
    wait_document,
    waits_in_words,
    waits_of_run,
)

SUMMARY_COLUMNS: Final = 60
STEP_COLUMNS: Final = (
    *("seq", "name", "kind", "status", "attempt", "tries", "started", "finished", "outcome", "child_run"),
)


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
        "deadline_at": run.deadline_at,
        "open_waits": run.open_waits,
        "waiting_for": list(map(wait_document, run.waiting_for)),
    }


def run_document(run: Run) -> Document:
    """A run."""
    return {
        **listed_document(run),
        "input": run.input,
        "output": run.output,
        "failure": failure_document(run.failure),
        "lease_expires_at": run.lease_expires_at,
        "failure_handler": run.failure_handler,
        "failure_handler_failure": failure_document(run.failure_handler_failure),
    }


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
        "tries": step.tries,
        "event_id": step.event_id,
        "is_retrying": step.is_retrying,
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
    """A run, without what it does not have, what it waits for, and the traceback of its failure."""
    fields: dict[str, object] = {
        **listed_document(run),
        "lease_expires_at": run.lease_expires_at,
        "attempt": f"{run.attempt} of {run.max_attempts}",
        "input": _short_json(run.input),
        "output": _short_json(run.output) if run.status == "succeeded" else None,
        "failure": _summary(run.failure),
        "failure_handler": _handler(run),
    }
    for name in ("max_attempts", "open_waits", "waiting_for"):
        del fields[name]
    parts = [card({name: value for name, value in fields.items() if value not in (None, "")})]
    if run.waiting_for:
        parts.append(waits_of_run(run))
    if run.failure and (traceback := run.failure.traceback.rstrip()):
        parts.append(printable_block(traceback))
    return "\n\n".join(parts)


def runs_table(runs: Iterable[Run]) -> str:
    """Runs, a line for each."""
    rows = ((*(run.id, run.workflow, run.queue, run.status), *_progress(run)) for run in runs)
    return table(("id", "workflow", "queue", "status", "attempt", "created", "finished"), rows)


def _progress(run: Run) -> tuple[object, ...]:
    return f"{run.attempt}/{run.max_attempts}", run.created_at, run.finished_at


def steps_table(steps: Iterable[Step], waits: Iterable[WaitingFor] = ()) -> str:
    """Steps, a line for each, and what the open ones wait for. Where there are such there is a column for the runs that
    they wait for, waited for or have started, and for the calls of functions that took more than one.
    """
    waits_by_step = {what.step_name: what for what in waits}
    rows = [_step_row(step, waits_by_step) for step in steps]
    left_out = set()
    if not any(row["child_run"] for row in rows):
        left_out.add("child_run")
    if all(row["tries"] in (None, 1) for row in rows):
        left_out.add("tries")
    columns = [name for name in STEP_COLUMNS if name not in left_out]
    return table(columns, [[row[name] for name in columns] for row in rows])


def _step_row(step: Step, waits: Mapping[str, WaitingFor]) -> Mapping[str, object]:
    what = step.seq, step.name, step.kind, step.status, step.attempt, step.tries or None
    times = step.started_at, step.finished_at
    is_open = step.status == "waiting" and step.name in waits
    outcome = until_words(waits[step.name], step.child_run_id) if is_open else _outcome(step)
    return dict(zip(STEP_COLUMNS, (*what, *times, outcome, step.child_run_id), strict=True))


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
    parts += waits_in_words(run)
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
        follows = f"try {step.tries + 1} follows, after " if step.is_retrying else ""
        # That a run has failed says nothing of why.
        cause = step.failure.cause if step.kind == "child" else None
        words = [failure_words(failure) for failure in (step.failure, cause) if failure]
        return follows + ": ".join(shortened(one, SUMMARY_COLUMNS) for one in words)
    if step.status != "succeeded" or step.kind in ("timer", "start"):
        return ""
    if step.kind == "event" and not step.event_id:
        return "timed out"
    return shortened(_short_json(step.output), SUMMARY_COLUMNS)


def _summary(failure: Failure | None) -> str | None:
    return None if failure is None else failure_words(failure)


def _handler(run: Run) -> str:
    failed = _summary(run.failure_handler_failure)
    return f"{run.failure_handler} ({failed})" if failed else run.failure_handler


def _short_json(value: object) -> str:
    if isinstance(value, Payload):
        return f"({len(value.data)} bytes, encoded by codec {value.codec})"
    if isinstance(value, bytes):
        return f"({len(value)} bytes that are no JSON)"
    return json.dumps(value, ensure_ascii=False)
