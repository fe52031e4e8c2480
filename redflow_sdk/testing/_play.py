"""The course of a play: who has which run, and when the time goes on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from redflow_sdk import converter
from redflow_sdk._around import Around
from redflow_sdk._messages import Answer, Assignment, Item, RunStart, Verdict
from redflow_sdk.context import RunInfo
from redflow_sdk.records import Failure, Payload
from redflow_sdk.testing import _events, _items
from redflow_sdk.testing._clock import VirtualClock
from redflow_sdk.testing._ends import WORKER_LOST, Outcome, begin_run_timeout, resolve, settle
from redflow_sdk.testing._stand_ins import StandIns, is_exception, on_stage, workflow_of
from redflow_sdk.testing._starts import EndlessPlay, start_run
from redflow_sdk.testing._workers import InlineWorker
from redflow_sdk.testing._world import RunRecord, World
from redflow_sdk.workflow import AnyWorkflow

MAX_DELIVERIES: Final = 100_000
QUIET_S: Final = 0.01
"""How long, in real time, others may take to go on while a step rests before its next try."""
LOOK_S: Final = 1.0
"""How long, in real time, a handler that was set aside may take to end before the play goes on beside it."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a play is given instead of what really happens: by step, by workflow, and by step of a token."""

    steps: Mapping[str, object] = field(default_factory=dict)
    children: Mapping[str, object] = field(default_factory=dict)
    tokens: Mapping[str, object] = field(default_factory=dict)
    around: Around = field(default_factory=lambda: Around(()))


class Play:
    """Runs workflows until nothing can happen any more."""

    def __init__(self, clock: VirtualClock, script: Script) -> None:
        self.world = World(clock, self._token_begun)
        self._clock = clock
        self._script = script
        self.steps: Final = StandIns(script.steps)
        """What stands in the place of which step."""
        self.tokens: Final = StandIns(script.tokens)
        """What the token of which step is completed with."""
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._workers: list[InlineWorker] = []
        self._met: set[str] = set()
        self._changed = asyncio.Event()
        self._handlers_lock = threading.Lock()
        self._handlers: set[tuple[str, int]] = set()
        """Those at work, by run and delivery."""
        self._resting = 0
        self._deliveries = 0
        self._fault: EndlessPlay | None = None
        for name, outcome in script.children.items():
            self.world.holders[name] = self._worker(workflow_of(outcome, name, None))

    # ---- what is played ----

    def start(self, workflow: AnyWorkflow, start: RunStart) -> RunRecord:
        """A run of the workflow itself, whatever stands in its place for runs that others start."""
        self.meet(workflow)
        own = workflow.name not in self._script.children
        return start_run(self.world, start, self.world.holders[workflow.name] if own else self._worker(workflow))

    def emit(self, event: _events.NewEvent, after: float) -> None:
        """An event from outside, so many seconds from now; with 0 it comes before anything else."""
        if after:
            self._clock.after(after, partial(_events.emit, self.world, event))
        else:
            _events.emit(self.world, event)

    async def run(self) -> None:
        """Returns when nothing is at work and nothing is due. Raises EndlessPlay."""
        while True:
            self._deliver()
            if self._fault is not None:
                raise self._fault
            if self._is_at_work or self._unwinding:
                await self._something()
            elif self._clock.next_due is not None:
                self._clock.advance()
            else:
                return

    async def close(self) -> None:
        """Aborts what is at work."""
        await asyncio.gather(*(worker.close() for worker in self._workers))

    # ---- for handlers ----

    @contextmanager
    def at_work(self, run: RunInfo) -> Iterator[None]:
        """A handler of the run is at work, on the loop or in a thread."""
        with self._handlers_lock:
            self._handlers.add((run.id, run.delivery))
        try:
            yield
        finally:
            with self._handlers_lock:
                self._handlers.discard((run.id, run.delivery))
            self._loop.call_soon_threadsafe(self._changed.set)

    def meet(self, workflow: AnyWorkflow) -> None:
        """Runs of the workflow are executed from now on, by itself or by what stands in its place."""
        name = workflow.name
        if name not in self._met:
            self._met.add(name)
            has_stand_in = name in self._script.children
            played = workflow_of(self._script.children[name], name, workflow) if has_stand_in else workflow
            self.world.holders[name] = self._worker(played)

    def known(self, name: str) -> AnyWorkflow | None:
        """The workflow of this name, if it was met or has a stand-in."""
        holder = self.world.holders.get(name)
        return None if holder is None else holder.workflow

    def replace_child(self, run_id: str, step_name: str, workflow: AnyWorkflow) -> None:
        """The run that a step starts is one of this workflow."""
        if (run_id, step_name) not in self.world.stand_ins:
            self.world.stand_ins[run_id, step_name] = self._worker(workflow)

    def _worker(self, workflow: AnyWorkflow) -> InlineWorker:
        # Not in the context of the handler that names the workflow: the tasks of its worker are none of its run.
        worker = self._context.run(
            InlineWorker, on_stage(workflow, self), self._answer, self._script.around, self._rest
        )
        self._workers.append(worker)
        return worker

    def _answer(self, item: Item) -> Answer:
        self._changed.set()
        try:
            return _items.answer(self.world, item)
        except EndlessPlay as fault:
            self._fault = fault
            return Answer(Verdict.LEASE_LOST)

    async def _rest(self, seconds: float) -> None:
        """A step rests before its next try."""
        over = asyncio.Event()
        due = self._clock.after(seconds, over.set)
        self._resting += 1
        self._changed.set()
        try:
            await over.wait()
        finally:
            self._resting -= 1
            due.cancel()

    def _token_begun(self, run: RunRecord, step_name: str) -> None:
        if step_name not in self.tokens:
            return
        given = self.tokens.take(step_name)
        if is_exception(given):
            failure = Failure(given.__name__ if isinstance(given, type) else type(given).__name__, str(given))
            outcome = Outcome(failure=failure)
        else:
            outcome = Outcome(output=Payload(converter.encode(given)))
        self._clock.when_idle(partial(resolve, self.world, run, step_name, outcome))

    # ---- the course ----

    def _deliver(self) -> None:
        """Hands out the runs that are ready, but for those whose handler has not ended yet from before."""
        unwinding = {run_id for run_id, _ in self._unwinding}
        ready = [run for run in self.world.ready if run.id not in unwinding]
        for run in ready:
            self.world.ready.remove(run)
            if run.holder is not None:
                self._assign(run)

    def _assign(self, run: RunRecord) -> None:
        self._deliveries += 1
        if self._deliveries > MAX_DELIVERIES:
            raise EndlessPlay(f"the runs have gone on {MAX_DELIVERIES} times, and do not end")
        run.attempt = run.failures + 1
        run.deliveries += 1
        run.lease = f"{run.id}.{run.deliveries}"
        run.status = "running"
        if run.started_ms is None:
            run.started_ms = self.world.now_ms
            begin_run_timeout(self.world, run)
        assert run.holder is not None
        run.holder.assign(
            Assignment(
                lease_token=run.lease,
                run_id=run.id,
                workflow=run.workflow,
                queue=run.queue,
                attempt=run.attempt,
                max_attempts=run.max_attempts,
                delivery_count=run.deliveries,
                input=run.start.input,
                steps=run.snapshots,
                failure=run.failure if run.is_failing else None,
            )
        )

    @property
    def _is_at_work(self) -> bool:
        return any(run.lease is not None for run in self.world.runs.values())

    @property
    def _unwinding(self) -> set[tuple[str, int]]:
        """Handlers that have not ended although their delivery has."""
        runs = self.world.runs
        with self._handlers_lock:
            return {
                (run_id, delivery)
                for run_id, delivery in self._handlers
                if runs[run_id].lease != f"{run_id}.{delivery}"
            }

    async def _something(self) -> None:
        """Waits until a handler does something, or has had all the time until what is due next."""
        self._changed.clear()
        left = self._clock.real_seconds_left if self._is_at_work else None
        if left is not None and self._resting:
            left = min(left, QUIET_S)
        if left == 0.0:
            await asyncio.sleep(0)
            self._clock.advance()
            return
        try:
            async with asyncio.timeout(LOOK_S if left is None else min(left, LOOK_S)):
                await self._changed.wait()
        except TimeoutError:
            if left is not None and left <= LOOK_S:
                self._clock.advance()
            else:
                self._look()

    def _look(self) -> None:
        """Nothing has happened for a while: handlers that do not end are left alone, and runs that nobody has end."""
        ignored = self._unwinding
        with self._handlers_lock:
            self._handlers -= ignored
        for run in list(self.world.runs.values()):
            if run.lease is not None and run.holder is not None and not run.holder.has(run.lease):
                run.failure = WORKER_LOST
                settle(self.world, run, "failed")
