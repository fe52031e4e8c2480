"""Verbs about runs as clients see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redflow_server.domain.errors import IdempotencyKeyReused, LeaseLost, RunNotFound, WorkflowNotFound
from redflow_server.domain.runs import InputMismatch, NewRun, Run, RunPage, RunQuery, StartedRun, Step
from redflow_server.domain.states import RunStatus
from tests.oracle.model import views
from tests.oracle.model.moves import finish
from tests.oracle.model.starts import Origin, by_key, create, queue_for, refresh_key
from tests.oracle.model.world import Moment, RunOnRecord

MAX_WAITERS = 32
REQUEST_IDS_BYTES = 1000


def enqueue(moment: Moment, start: NewRun, waiter: str = "") -> StartedRun:
    if moment.run(start.run_id):
        return StartedRun(start.run_id, was_created=True, is_repeat=True)
    if found := by_key(moment, start.workflow, start.idempotency_key):
        differs = found.digest != start.input.digest
        if differs and start.on_input_mismatch is InputMismatch.REJECT:
            raise IdempotencyKeyReused(run_id=found.id)
        refresh_key(moment, found, start)
        return StartedRun(found.id, was_created=False, input_differs=differs)
    if queue_for(moment, start) is None:
        raise WorkflowNotFound(workflow=start.workflow)
    create(moment, start, Origin(waiter=waiter, is_typed=start.is_typed))
    return StartedRun(start.run_id, was_created=True)


def needed(moment: Moment, run_id: str) -> RunOnRecord:
    run = moment.run(run_id)
    if run is None:
        raise RunNotFound(run_id=run_id)
    return run


def read_run(moment: Moment, run_id: str) -> Run:
    run = needed(moment, run_id)
    return replace(views.listed(run), **views.payloads(run))  # type: ignore[arg-type]  # fields by name


def read_steps(
    moment: Moment,
    run_id: str,
    max_bytes: int,
    names: Sequence[str] = (),
    lease_token: str = "",
    *,
    max_value_bytes: int | None = None,
) -> tuple[Step, ...]:
    run = needed(moment, run_id)
    if lease_token and run.token != lease_token:
        raise LeaseLost
    room, found = max_bytes, []
    for name in names or run.steps:
        if (stored := run.steps.get(name)) is None:
            continue
        size = len(stored.value)
        fits = size <= room and (max_value_bytes is None or size <= max_value_bytes)
        room -= size if fits else 0
        found.append(views.step(name, stored, with_value=fits))
    return tuple(sorted(found, key=lambda one: (one.seq, one.name)))


def list_runs(moment: Moment, query: RunQuery) -> RunPage:
    """Newest first, whatever is behind the page that was read before."""
    matching = sorted(
        (
            run
            for run in moment.world.runs.values()
            if query.status in (None, run.status)
            and query.workflow in (None, run.workflow)
            and (query.before_seq is None or run.seq < query.before_seq)
        ),
        key=lambda run: -run.seq,
    )
    page = matching[query.offset : query.offset + query.limit]
    has_more = bool(page) and len(matching) > query.offset + query.limit
    return RunPage(tuple(map(views.listed, page)), page[-1].seq if has_more else None)


def cancel(moment: Moment, run_id: str, reason: str, request_id: str) -> bool:
    run = needed(moment, run_id)
    if run.has_ended:
        return run.status is RunStatus.CANCELED and request_id in run.cancel_request_ids
    if run.cancel_requested_at is None:
        run.cancel_requested_at, run.cancel_reason = moment.now, reason
    remembered = sum(len(one.encode()) + 1 for one in run.cancel_request_ids)
    if request_id and request_id not in run.cancel_request_ids and remembered < REQUEST_IDS_BYTES - 1:
        run.cancel_request_ids.append(request_id)
    if not run.token:
        finish(moment, run, RunStatus.CANCELED)
    return True


def watch_run(moment: Moment, run_id: str, gateway_id: str) -> RunStatus | None:
    run = moment.run(run_id)
    if run is not None and not run.has_ended:
        others = [one for one in run.waiters if one != gateway_id]
        run.waiters = [*others[-(MAX_WAITERS - 1) :], gateway_id]
    return run.status if run else None
