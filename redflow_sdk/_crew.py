"""The executions of one worker, on its own loop: begins them, stops them, knows which do not end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar

from redflow_sdk._execution import Execution, Surroundings, Workplace
from redflow_sdk._link import Link
from redflow_sdk._messages import Answer, Assignment, StepSnapshot, Stop, StopReason
from redflow_sdk._parking import Parking, ParkingRules
from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._run_tasks import watch
from redflow_sdk._threads import Threads
from redflow_sdk._types import Value
from redflow_sdk.workflow import AnyWorkflow

T = TypeVar("T")

log = logging.getLogger("redflow.worker")

STOP_GRACE_S: Final = 1.0
"""How long a handler has to end when the worker itself goes."""


class Crew:
    """What is at work. `assign` and `stop_handlers` are called on the io thread, everything else on the loop."""

    def __init__(
        self,
        workflows: Mapping[str, AnyWorkflow],
        concurrency: int,
        parking: ParkingRules,
        io_loop: asyncio.AbstractEventLoop,
        surroundings: Surroundings,
    ) -> None:
        self._workflows = workflows
        self._concurrency = concurrency
        self._loop = asyncio.get_running_loop()
        watch(self._loop)
        self._parking = Parking(parking)
        # A parked `def` handler keeps its thread.
        self._threads = Threads(concurrency + parking.limit, concurrency, self._loop, self._tell_capacity)
        self._link = Link(io_loop, self._loop)
        self._executions: dict[str, Execution] = {}
        self._tasks: dict[asyncio.Task[None], Execution] = {}
        self._deaf: set[Execution] = set()
        self._hurry = asyncio.Event()
        self._keeper = asyncio.create_task(_for_ever(), name="redflow keeper")
        self._workplace = Workplace(
            link=self._link,
            threads=self._threads,
            parking=self._parking,
            keeper=self._keeper,
            on_suspended=self._suspended,
            surroundings=surroundings,
        )

    def connect(self, protocol: WorkerProtocol) -> None:
        """Where reports go."""
        self._link.connect(protocol)

    # ---- on the io thread ----

    @property
    def is_gone(self) -> bool:
        """Whether the loop was closed under the worker."""
        return self._loop.is_closed()

    def name_of(self, task: asyncio.Task[Value]) -> str:
        """Whose a task of the loop is: that of a run, whichever of its tasks it is, else its own."""
        for root, execution in list(self._tasks.items()):
            if execution.owns(task):
                return root.get_name()
        return task.get_name()

    def assign(self, assignments: tuple[Assignment, ...], max_payload_bytes: int) -> None:
        """Runs to execute."""
        self._post(partial(self._begin, assignments, max_payload_bytes))

    def stop_handlers(self, stops: tuple[Stop, ...], grace_s: float) -> None:
        """Handlers that have to end."""
        self._post(partial(self._stop, stops, grace_s))

    def resolve(self, token: str, steps: tuple[StepSnapshot, ...]) -> None:
        """Waits of a run are over, or lost by the store."""
        self._post(partial(self._resolve, token, steps))

    def _post(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed under the worker; see is_gone
            self._loop.call_soon_threadsafe(what)

    # ---- on the worker's loop ----

    def _begin(self, assignments: tuple[Assignment, ...], max_payload_bytes: int) -> None:
        # Said before the first of them begins, which may block the loop from its first line.
        tokens = [assignment.lease_token for assignment in assignments]
        self._link.tell(lambda protocol: protocol.started(tokens))
        for assignment in assignments:
            workflow = self._workflows[assignment.workflow]
            execution = Execution(assignment, workflow, self._workplace, max_payload_bytes)
            self._executions[assignment.lease_token] = execution
            # Not by the loop's factory: what that adds to a task has no use here, and each run would pay for it.
            name = f"redflow {assignment.workflow} {assignment.run_id}"
            task = asyncio.Task(execution.run(), loop=self._loop, name=name)
            self._tasks[task] = execution
            task.add_done_callback(partial(self._ended, execution))

    def _ended(self, execution: Execution, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._executions.pop(execution.token, None)
        if execution in self._deaf:
            self._deaf.discard(execution)
            self._tell_capacity()
        if execution.is_lost:
            self._link.tell(lambda protocol: protocol.handler_ended(execution.token))
        if not task.cancelled() and task.exception() is not None:
            log.error("the end of run %s was not reported", execution.run_id, exc_info=task.exception())
            self._link.tell(lambda protocol: protocol.give_up(execution.token))

    def _stop(self, stops: tuple[Stop, ...], grace_s: float) -> None:
        for stop in stops:
            execution = self._executions.get(stop.lease_token)
            if execution is not None:
                execution.stop(stop)
                self._loop.call_later(grace_s, self._give_up, execution)
            elif stop.reason.is_lost:
                self._link.tell(partial(WorkerProtocol.handler_ended, token=stop.lease_token))

    def _resolve(self, token: str, steps: tuple[StepSnapshot, ...]) -> None:
        execution = self._executions.get(token)
        if execution is not None:
            execution.resolve(steps)

    def _suspended(self, execution: Execution) -> None:
        self._loop.call_later(STOP_GRACE_S, self._give_up, execution)

    def _give_up(self, execution: Execution) -> None:
        """The handler has not ended within the grace. It takes up its slot until it does."""
        if self._executions.get(execution.token) is not execution or execution in self._deaf:
            return
        if not execution.is_handling:
            return  # it has ended, and its end is being told
        log.warning("%s does not end although its run %s goes on without it", execution.workflow_name, execution.run_id)
        self._deaf.add(execution)
        self._tell_capacity()
        execution.abandon()

    def _tell_capacity(self) -> None:
        # Those that have lost their lease are counted where leases are.
        deaf = sum(not execution.is_lost for execution in self._deaf)
        count = max(0, self._concurrency - deaf - self._threads.overdue)
        self._link.tell(lambda protocol: protocol.set_capacity(count))

    # ---- the end ----

    async def settle(self) -> None:
        """Waits for handlers that were told to end, not for long."""
        await self._wait([*self._tasks], STOP_GRACE_S)

    def hurry(self) -> None:
        """Whoever waits for handlers to finish waits no longer."""
        self._hurry.set()

    async def finish(self, grace: float) -> None:
        """Lets handlers finish for `grace` seconds, and hands the runs of the others back."""
        self._parking.close()
        for execution in list(self._executions.values()):
            execution.end_parking()
        if self._executions:
            log.info("draining: %d runs at work have %g s to finish", len(self._executions), grace)
        at_work = [task for task, execution in self._tasks.items() if not execution.is_abandoned]
        if at_work:
            await self.wait_unless_hurried(asyncio.ensure_future(asyncio.wait(at_work)), grace)
        handed_back = [execution.hand_back() for execution in list(self._executions.values())]
        if handed_back:
            log.info("handing back %d runs; they go on elsewhere from their recorded steps", len(handed_back))
        await self._answers(handed_back)
        await self._wait([*self._tasks], STOP_GRACE_S)

    async def abort(self) -> None:
        """Cancels every handler; all runs end as canceled."""
        for execution in list(self._executions.values()):
            execution.stop(Stop(execution.token, StopReason.WORKER_STOPPED, "the worker was stopped"))
        await self._wait([*self._tasks], STOP_GRACE_S)
        await self._answers([execution.abandon() for execution in list(self._executions.values())])

    async def _answers(self, reported: list[asyncio.Future[Answer] | None]) -> None:
        """Sees that what was reported has arrived, if there is a gateway."""
        awaited = [answer for answer in reported if answer is not None]
        if awaited:
            await asyncio.wait(awaited, timeout=STOP_GRACE_S)

    async def _wait(self, tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def wait_unless_hurried(self, what: asyncio.Future[T], seconds: float | None) -> None:
        """Waits for something to be done, so long at most, unless somebody is in a hurry; gives it up then."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((what, hurry), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            what.cancel()

    def close(self) -> None:
        """Takes no more work."""
        if self._executions:
            log.warning("left behind, because they have not ended: handlers of %d runs", len(self._executions))
        self._threads.close()
        self._keeper.cancel()


async def _for_ever() -> None:
    await asyncio.Event().wait()
