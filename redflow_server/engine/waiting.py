"""Why a run does not move, and who has it: for the people who look at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from redflow_server.domain.runs import Run, Step, WaitingFor, WaitingKind
from redflow_server.domain.states import RunStatus
from redflow_server.domain.workers import Worker

MAX_SHOWN: Final = 100
"""Waits that a run is shown with; it may have thousands."""


def explained(run: Run, workers: Iterable[Worker]) -> Run:
    """The run with what it waits for, or the worker that holds it."""
    match run.status:
        case RunStatus.SCHEDULED:
            kind = WaitingKind.BACKING_OFF if run.failures else WaitingKind.DELAYED
            return replace(run, waiting_for=(WaitingFor(kind, run.available_at_ms, since_ms=_placed_at_ms(run)),))
        case RunStatus.QUEUED:
            return replace(run, waiting_for=(_for_a_worker(run, workers),))
        case RunStatus.WAITING:
            return run
        case RunStatus.RUNNING:
            names = [worker.worker_name for worker in workers if worker.session_id == run.session_id]
            return replace(run, worker_name=names[0] if names else "")
        case _:
            # Of what has just ended some waits may be left to be withdrawn.
            return replace(run, waiting_for=())


def with_first_waits(run: Run) -> Run:
    """The run with those of its waits that began first."""
    waits = sorted(run.waiting_for, key=lambda wait: (wait.since_ms or 0, wait.step_name))
    return replace(run, waiting_for=tuple(waits[:MAX_SHOWN]))


def with_awaited(run: Run, awaited: Iterable[Run]) -> Run:
    """The run, whose waits for these others say how they stand."""
    known = {one.run_id: one for one in awaited}
    waits = (
        replace(wait, detail=f"run {wait.run_id}: {_said_of(known[wait.run_id])}") if wait.run_id in known else wait
        for wait in run.waiting_for
    )
    return replace(run, waiting_for=tuple(waits))


def with_tries_to_come(run: Run, step: Step) -> Step:
    """The step of the run, as one that is tried again only if the run is to go on with this attempt."""
    is_over = run.status.is_terminal or run.failure_handler is not None or run.cancel_requested_at_ms is not None
    return replace(step, is_retrying=step.is_retrying and not is_over and step.attempt == run.attempt)


def _said_of(run: Run) -> str:
    why = "; ".join(wait.detail for wait in run.waiting_for if wait.detail)
    return f"{run.workflow!r} is {run.status}" + (f", {why}" if why else "")


def _for_a_worker(run: Run, workers: Iterable[Worker]) -> WaitingFor:
    serving = [worker for worker in workers if worker.serves(run.queue, run.workflow)]
    if not serving:
        kind, detail = WaitingKind.NO_WORKER, f"no worker serves {run.workflow!r} on queue {run.queue!r}"
    else:
        count = "1 worker serves" if len(serving) == 1 else f"{len(serving)} workers serve"
        lacks = (
            "is idle; it needs one for itself, because its next loss would end it" if run.is_solo else "has a free slot"
        )
        kind, detail = WaitingKind.NO_SLOT, f"{count} it, and none {lacks}"
    return WaitingFor(kind, detail=detail, since_ms=_placed_at_ms(run))


def _placed_at_ms(run: Run) -> int:
    return run.created_at_ms if run.placed_at_ms is None else run.placed_at_ms
