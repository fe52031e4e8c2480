"""Why a run does not move, and who has it: for the people who look at it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redflow_server.domain.runs import Run, WaitingFor, WaitingKind
from redflow_server.domain.states import RunStatus
from redflow_server.domain.workers import Worker


def explained(run: Run, workers: Iterable[Worker]) -> Run:
    """The run with what it waits for, or the worker that holds it."""
    match run.status:
        case RunStatus.SCHEDULED:
            kind = WaitingKind.BACKING_OFF if run.failures else WaitingKind.DELAYED
            return replace(run, waiting_for=(WaitingFor(kind, until_ms=run.available_at_ms),))
        case RunStatus.QUEUED:
            return replace(run, waiting_for=(_for_a_worker(run, workers),))
        case RunStatus.WAITING:
            return run
        case RunStatus.RUNNING:
            names = [worker.worker_name for worker in workers if worker.session_id == run.session_id]
            return replace(run, worker_name=names[0] if names else "")
        case _:
            return run


def _for_a_worker(run: Run, workers: Iterable[Worker]) -> WaitingFor:
    serving = [worker for worker in workers if worker.serves(run.queue, run.workflow)]
    if not serving:
        return WaitingFor(WaitingKind.NO_WORKER, detail=f"no worker serves {run.workflow!r} on queue {run.queue!r}")
    return WaitingFor(WaitingKind.NO_SLOT, detail=f"{len(serving)} workers serve it, and none has a free slot")
