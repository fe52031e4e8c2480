"""Runs as clients see them: starting, reading, listing, canceling, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from redflow_server.domain.errors import InvalidInput, Refusal, RunNotFound
from redflow_server.domain.ids import RUN_ID, new_name, new_run_id, run_id_for
from redflow_server.domain.names import Limits, check_name
from redflow_server.domain.runs import NewRun, Run, RunPage, RunQuery, StartedRun, Stats, Step, StepPage, check_new_run
from redflow_server.domain.states import RunStatus
from redflow_server.engine.client_runs import ClientRuns
from redflow_server.engine.dispatcher import Dispatcher
from redflow_server.engine.waiters import Waiters
from redflow_server.engine.waiting import explained, with_awaited, with_first_waits, with_tries_to_come
from redflow_server.store.store import Store
from redflow_server.telemetry import Telemetry

MAX_OFFSET: Final = 10_000
MAX_AWAITED: Final = 10
"""Awaited runs whose own state a run is shown with."""
MAX_REASON_BYTES: Final = 4096
MAX_WAIT_S: Final = 50.0
PAGE_BYTES: Final = 2 * 1024 * 1024


class Runs:
    """The runs of the store."""

    def __init__(
        self, store: Store, waiters: Waiters, limits: Limits, *, dispatcher: Dispatcher, telemetry: Telemetry
    ) -> None:
        self._store = store
        self._waiters = waiters
        self._limits = limits
        self._dispatcher = dispatcher
        self._telemetry = telemetry

    def start(self, run: NewRun, waiter: str = "") -> asyncio.Future[StartedRun]:
        """Starts a run, or answers the existing one of its key. Of the end of a new one the gateway `waiter`
        is told.

        Raises InvalidInput, PayloadTooLarge, WorkflowNotFound, IdempotencyKeyReused, StoreFull.
        """
        check_new_run(run, self._limits)
        if run.available_at_ms is None:
            self._dispatcher.expect(run.workflow, run.queue)
        return self._store.enqueue(run, waiter)

    async def start_many(self, runs: Sequence[NewRun | Refusal]) -> list[StartedRun | Refusal]:
        """Starts each run or says why not, in order; what was refused before stays so."""
        started = [run if isinstance(run, Refusal) else self._start_or_refuse(run) for run in runs]
        answers: list[StartedRun | Refusal] = []
        for entry in started:
            try:
                answers.append(entry if isinstance(entry, Refusal) else await entry)
            except Refusal as refusal:
                answers.append(refusal)
        return answers

    def _start_or_refuse(self, run: NewRun) -> asyncio.Future[StartedRun] | Refusal:
        try:
            return self.start(run)
        except Refusal as refusal:
            return refusal

    async def get(self, run_id: str) -> Run:
        """A run with its payloads, and why it waits or who has it. Raises RunNotFound."""
        run = with_first_waits(await self._store.read_run(_checked(run_id)))
        awaited = [wait.run_id for wait in run.waiting_for if wait.run_id][:MAX_AWAITED]
        if run.status not in (RunStatus.QUEUED, RunStatus.RUNNING) and not awaited:
            return explained(run, ())
        workers = await self._store.read_sessions()
        children = await asyncio.gather(*map(self._store.read_run, awaited), return_exceptions=True)
        known = [explained(child, workers) for child in children if isinstance(child, Run)]
        return with_awaited(explained(run, workers), known)

    async def list(self, query: RunQuery) -> RunPage:
        """A page of runs, newest first, without payloads. Raises InvalidInput."""
        if query.workflow is not None:
            check_name("workflow", query.workflow)
        if not 0 <= query.offset <= MAX_OFFSET:
            raise InvalidInput("offset", f"must be between 0 and {MAX_OFFSET}", query.offset)
        return await self._store.list_runs(query)

    async def steps(self, run_id: str, limit: int, offset: int) -> StepPage:
        """A page of a run's steps, in order of first use. Raises RunNotFound."""
        index = await self._store.read_steps(_checked(run_id), 0)
        names: list[str] = []
        size = 0
        for step in index[offset : offset + limit]:
            size += step.size_bytes
            if names and size > PAGE_BYTES:
                break
            names.append(step.name)
        steps: tuple[Step, ...] = ()
        if names:
            steps = await self._store.read_steps(run_id, PAGE_BYTES + self._limits.max_payload_bytes, names)
        if any(step.is_retrying for step in steps):
            run = await self._store.read_run(run_id)
            steps = tuple(map(partial(with_tries_to_come, run), steps))
        end = offset + len(names)
        return StepPage(steps, end if end < len(index) else None)

    async def cancel(self, run_id: str, reason: str, request_id: str) -> bool:
        """Asks for a run to end as canceled; False when it had ended. Raises RunNotFound, InvalidInput."""
        if len(reason.encode()) > MAX_REASON_BYTES:
            raise InvalidInput("reason", f"must be at most {MAX_REASON_BYTES} bytes", reason)
        # Made here where there is none: when Redis' answer is lost, the store repeats what it has asked.
        known = check_name("request_id", request_id) if request_id else new_name()
        return await self._store.cancel(_checked(run_id), reason, known)

    async def wait(self, run_id: str, timeout_s: float) -> Run:
        """The run as soon as it has ended, or as it is when the time is over. Raises RunNotFound."""
        await self._waiters.wait(_checked(run_id), min(timeout_s, MAX_WAIT_S))
        return with_first_waits(await self._store.read_run(run_id))

    def of_client(self) -> ClientRuns:
        """Starts and waits for runs that are named as it goes. To be closed."""
        return ClientRuns(self.start, store=self._store, waiters=self._waiters, telemetry=self._telemetry)

    async def stats(self) -> Stats:
        """Counts of runs and depths of lanes."""
        return await self._store.read_stats()


def run_id_of_request(request_id: str) -> str:
    """The id of the run that a start makes: a function of its request id, so that a repeat makes none."""
    if not request_id:
        return new_run_id()
    return run_id_for("request", check_name("request_id", request_id))


def _checked(run_id: str) -> str:
    if not RUN_ID.fullmatch(run_id):
        raise RunNotFound(f"there is no run {run_id[:100]!r}", run_id=run_id[:100])
    return run_id
