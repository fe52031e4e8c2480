"""Running workflows."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final

from redflow_sdk._execution import Execution
from redflow_sdk._link import Link
from redflow_sdk._messages import Assignment, Definition, Opening, Stop, StopReason
from redflow_sdk._protocol import Fence, WorkerProtocol
from redflow_sdk._transport.channel import target_or_default
from redflow_sdk._transport.thread import IoThread, io_thread
from redflow_sdk.workflow import Workflow

log = logging.getLogger("redflow.worker")

MAX_CONCURRENCY: Final = 10_000
STOP_GRACE: Final = 1.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Runs workflows for a gateway.

    `target` is `host:port`, by default REDFLOW_TARGET or localhost:7379. `queues` None serves the queues of the
    workflows. `concurrency` is how many runs it works on at once. `owner` names the set of workflows: one owner, one
    set; workers that serve different sets need different owners (default: REDFLOW_OWNER, or "default"). `build_id`
    tells builds apart in a rolling deploy (default: a digest of the definitions). `drain_grace` is how long, in
    seconds, runs may take to finish on shutdown before they are handed back.

        await Worker(workflows=[greet]).run()        # until SIGTERM or SIGINT

        async with Worker(workflows=[greet]):        # in tests and embedded use; the end of the block drains
            ...
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        workflows: Sequence[Workflow[Any, Any]],  # Any: workflows of all kinds
        queues: Sequence[str] | None = None,
        concurrency: int = 50,
        owner: str | None = None,
        name: str | None = None,
        build_id: str | None = None,
        drain_grace: float = 30.0,
    ) -> None:
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency must be between 1 and {MAX_CONCURRENCY}; got {concurrency}")
        names = [workflow.name for workflow in workflows]
        for twice in {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two workflows are named {twice!r}")
        self._target = target_or_default(target)
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._queues = tuple(queues or ())
        self._concurrency = concurrency
        self._owner = owner or os.environ.get("REDFLOW_OWNER") or "default"
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._build_id = build_id or _build_id(workflows)
        self._drain_grace = drain_grace
        self._io: IoThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._protocol: WorkerProtocol | None = None
        self._link: Link | None = None
        self._life: asyncio.Future[None] | None = None
        self._executions: dict[str, Execution] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[Execution] = set()
        self._early_stops: dict[str, Stop] = {}
        self._is_stopping = False

    # ---- life ----

    async def start(self) -> None:
        """Connects, and returns when the gateway has taken the worker. Raises SessionRefusedError."""
        if self._io is not None:
            raise RuntimeError("the worker was started before")
        self._io = io_thread()
        self._loop = asyncio.get_running_loop()
        self._handler_threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="redflow-handler")
        self._step_threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="redflow-step")
        self._link = Link(self._io.loop, self._loop)
        self._protocol = await self._io.run(self._connect())
        self._link.connect(self._protocol)
        self._life = asyncio.ensure_future(self._io.run(self._live(self._protocol)))
        opened = asyncio.ensure_future(self._io.run(self._protocol.wait_open()))
        awaited: list[asyncio.Future[None]] = [self._life, opened]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            opened.cancel()
            self._life.result()

    async def _connect(self) -> WorkerProtocol:
        return WorkerProtocol(self._target, self._opening(), self)

    async def _live(self, protocol: WorkerProtocol) -> None:
        fence = asyncio.create_task(Fence(protocol).run())
        try:
            await protocol.run()
        finally:
            fence.cancel()

    async def run(self) -> None:
        """Works until SIGTERM or SIGINT, then drains; a second signal stops at once. Raises SessionRefusedError."""
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        signals = 0

        def on_signal() -> None:
            nonlocal signals
            signals += 1
            asked.set()
            if signals > 1:
                log.warning("stopping at once")
                stopping.append(asyncio.ensure_future(self._hand_back_all()))

        stopping: list[asyncio.Future[None]] = []
        for number in SIGNALS:
            loop.add_signal_handler(number, on_signal)
        try:
            starting = asyncio.ensure_future(self.start())
            waiting = asyncio.ensure_future(asked.wait())
            begins: list[asyncio.Future[Any]] = [starting, waiting]  # Any: either
            await asyncio.wait(begins, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                assert self._life is not None
                ends: list[asyncio.Future[Any]] = [self._life, waiting]  # Any: either
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if self._life.done():
                    self._life.result()
            else:
                starting.cancel()
            waiting.cancel()
            await self.drain()
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def drain(self, grace: float | None = None) -> None:
        """Takes no more runs, lets those at work finish for `grace` seconds, hands the rest back, and disconnects."""
        if self._protocol is None or self._io is None or self._is_stopping:
            return
        self._is_stopping = True
        await self._io.run(self._protocol.drain())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._drain_grace if grace is None else grace)
        await self._hand_back_all()
        await self._disconnect()

    async def stop(self) -> None:
        """Aborts: runs at work end as canceled, then the worker disconnects."""
        if self._protocol is None or self._io is None or self._is_stopping:
            return
        self._is_stopping = True
        await self._io.run(self._protocol.drain())
        for execution in list(self._executions.values()):
            execution.stop(Stop(execution.token, StopReason.WORKER_STOPPED, "the worker was stopped"))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_GRACE)
        for execution in list(self._executions.values()):
            execution.abandon()
        await self._disconnect()

    async def _hand_back_all(self) -> None:
        for execution in list(self._executions.values()):
            if not execution.is_abandoned:
                execution.hand_back()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_GRACE)

    async def _disconnect(self) -> None:
        assert self._protocol is not None and self._io is not None and self._life is not None
        protocol = self._protocol
        await self._io.run(protocol.finish())
        await asyncio.wait([self._life], timeout=5.0)
        self._handler_threads.shutdown(wait=False, cancel_futures=True)
        self._step_threads.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

    # ---- what it says of itself ----

    def _opening(self) -> Opening:
        return Opening(
            owner=self._owner,
            worker_name=self._name,
            instance_id=secrets.token_urlsafe(12),
            build_id=self._build_id,
            queues=self._queues,
            definitions=tuple(map(_definition, self._workflows.values())),
            slot_limit=self._concurrency,
            session_number=0,
            held=(),
        )

    # ---- from the io thread ----

    def assign(self, assignments: tuple[Assignment, ...]) -> None:
        """Runs to execute."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._execute, assignments)

    def stop_handlers(self, stops: tuple[Stop, ...]) -> None:
        """Handlers that have to end."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop_executions, stops)

    # ---- on the worker's loop ----

    def _execute(self, assignments: tuple[Assignment, ...]) -> None:
        assert self._link is not None and self._protocol is not None
        for assignment in assignments:
            execution = Execution(
                assignment,
                self._workflows[assignment.workflow],
                self._link,
                self._handler_threads,
                self._step_threads,
                self._protocol.max_payload_bytes,
            )
            self._executions[assignment.lease_token] = execution
            task = asyncio.create_task(execution.run(), name=f"redflow {assignment.workflow} {assignment.run_id}")
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._ended, execution))

    def _ended(self, execution: Execution, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._executions.pop(execution.token, None)
        if execution in self._abandoned:
            self._abandoned.discard(execution)
            self._tell_slots()
        if not task.cancelled() and task.exception() is not None:
            log.error("run %s was not reported", execution.run_id, exc_info=task.exception())

    def _stop_executions(self, stops: tuple[Stop, ...]) -> None:
        for stop in stops:
            execution = self._executions.get(stop.lease_token)
            if execution is None:
                continue
            execution.stop(stop)
            assert self._loop is not None and self._protocol is not None
            timing = self._protocol.timing
            grace = timing.cancel_grace if timing is not None else STOP_GRACE
            self._loop.call_later(grace, self._give_up, execution)

    def _give_up(self, execution: Execution) -> None:
        """The handler has not ended within the grace: its slot is used until it does."""
        if self._executions.get(execution.token) is not execution or execution in self._abandoned:
            return
        log.warning("%s does not end although its run %s was stopped", execution.workflow_name, execution.run_id)
        execution.abandon()
        self._abandoned.add(execution)
        self._tell_slots()

    def _tell_slots(self) -> None:
        assert self._link is not None
        limit = max(0, self._concurrency - len(self._abandoned))
        self._link.tell(lambda protocol: protocol.set_slot_limit(limit))


def _definition(workflow: Workflow[Any, Any]) -> Definition:  # Any: any workflow
    retry = workflow.retry
    return Definition(
        name=workflow.name,
        digest=workflow.digest,
        queue=workflow.queue,
        max_attempts=workflow.max_attempts,
        retry=(retry.initial, retry.multiplier, retry.maximum, retry.jitter) if retry else None,
        events=workflow.events,
        run_timeout=workflow.run_timeout,
        start_timeout=workflow.start_timeout,
    )


def _build_id(workflows: Sequence[Workflow[Any, Any]]) -> str:  # Any: as above
    digests = sorted(workflow.digest for workflow in workflows)
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
