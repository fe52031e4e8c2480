"""Running workflows."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final

from redflow_sdk._around import Around
from redflow_sdk._connection import Connection
from redflow_sdk._crew import Crew
from redflow_sdk._execution import Surroundings
from redflow_sdk._fence import Fence
from redflow_sdk._loop_watch import LoopWatch
from redflow_sdk._names import check_name
from redflow_sdk._numbers import check_count, check_seconds
from redflow_sdk._opening import CronDefinition, Definition, Opening
from redflow_sdk._parking import ParkingRules, Waiting
from redflow_sdk._protocol import WorkerProtocol
from redflow_sdk._sealing import Sealing
from redflow_sdk._transport.channel import target_or_default
from redflow_sdk._transport.thread import IoThread, io_thread
from redflow_sdk._types import Value
from redflow_sdk.codec import PayloadCodec
from redflow_sdk.cron import Cron
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.health import WorkerHealth
from redflow_sdk.middleware import Middleware
from redflow_sdk.records import Payload
from redflow_sdk.workflow import AnyWorkflow, Workflow

log: Final = logging.getLogger("redflow.worker")

MAX_CONCURRENCY: Final = 10_000
DISCONNECT_TIMEOUT_S: Final = 5.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Running:
    """What there is while a worker is connected."""

    io: IoThread
    crew: Crew
    protocol: WorkerProtocol
    connection: Connection
    watch: LoopWatch
    ended: asyncio.Future[None]
    """Done when the connection is over for good."""


class Worker:
    """Runs workflows for a gateway.

    - `target` is `host:port`, by default REDFLOW_TARGET or localhost:7379.
    - `workflows` are those that it has. It registers them with the gateway when it connects.
    - `queues` None serves the queues of the workflows.
    - `concurrency` is how many runs it works on at once, 1 to 10,000.
    - `owner` names the set of workflows: one owner, one set; workers that serve different sets need different owners
      (default: REDFLOW_OWNER, or "default").
    - `name` is what it is called in lists and logs (default: host and process id).
    - `build_id` tells builds apart in a rolling deploy (default: a digest of the definitions).
    - `drain_grace` is how long, in seconds, runs may take to finish on shutdown before they are handed back.
    - `park_window` is for how many seconds a handler that waits is kept in memory, and goes on where it is;
      `max_parked` is how many are so at once, up to 10,000, which take up no slot. Otherwise it ends, and runs again
      from its start with its steps on record. 0 of either keeps none. With REDFLOW_WAITING=replay it always ends, also
      when the wait is over at once: so a test sees whether its workflows can be run again.
    - `codec` encodes all that leaves the worker with values in it, and decodes what comes.
    - `middleware` is called around handlers and steps, and for the runs and events that they start; the first one is
      the outermost.

    One object works once: after its end a new one has to be made. Raises InvalidInputError for arguments that make no
    sense.

        await Worker(workflows=[greet]).run()        # until SIGTERM or SIGINT

        async with Worker(workflows=[greet]):        # in tests and embedded use; the end of the block drains
            ...
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        workflows: Sequence[AnyWorkflow],
        queues: Sequence[str] | None = None,
        concurrency: int = 50,
        owner: str | None = None,
        name: str | None = None,
        build_id: str | None = None,
        drain_grace: float = 30.0,
        park_window: float = 10.0,
        max_parked: int = 1000,
        codec: PayloadCodec | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        for index, workflow in enumerate(workflows):
            if not isinstance(workflow, Workflow):
                raise InvalidInputError(f"workflows[{index}] must be a workflow; is a {type(workflow).__name__}")
        if isinstance(queues, str):
            raise InvalidInputError(f"queues must be a list of names; got {queues!r}")
        if not workflows and not queues:
            raise InvalidInputError("workflows must name at least one, or queues one to fail runs of unknown names in")
        self._workflows = {workflow.name: workflow for workflow in workflows}
        if len(self._workflows) < len(workflows):
            names = sorted(workflow.name for workflow in workflows)
            raise InvalidInputError(f"workflows must have names of their own; got {names}")
        self._target = target_or_default(target)
        self._queues = tuple(check_name("queues", queue) for queue in queues or ())
        self._concurrency = check_count("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self._owner = check_name("owner", owner or os.environ.get("REDFLOW_OWNER") or "default")
        self._name = check_name("name", name or f"{socket.gethostname()}-{os.getpid()}")
        self._build_id = check_name("build_id", build_id or _build_id(workflows))
        window_s = check_seconds("park_window", park_window, lowest=0.0)
        limit = check_count("max_parked", max_parked, 0, MAX_CONCURRENCY)
        waiting = Waiting.of_environment()
        self._parking = ParkingRules(window_s, limit if window_s and waiting is Waiting.PARK else 0, waiting)
        self._sealing = Sealing(codec, "worker")
        self._around = Around(middleware)
        self._drain_grace_s = check_seconds("drain_grace", drain_grace, lowest=0.0)
        self._running: Running | None = None
        self._ending: Running | None = None
        self._was_started = False

    async def start(self) -> None:
        """Connects, and returns when the gateway has taken the worker: until one is there it goes on trying. The worker
        works in the background, on the caller's event loop, until `drain` or `stop`.

        Raises SessionRefusedError, and RuntimeError for a worker that was started before.
        """
        running = await self._connect()
        opened = asyncio.ensure_future(running.io.run(running.protocol.wait_open()))
        try:
            await asyncio.wait([running.ended, opened], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            opened.cancel()
        if running.ended.done():
            running.ended.result()

    async def _connect(self) -> Running:
        if self._was_started:
            raise RuntimeError("the worker was started before")
        self._was_started = True
        io = io_thread()
        surroundings = Surroundings(self._sealing, self._around)
        crew = Crew(self._workflows, self._concurrency, self._parking, io.loop, surroundings)
        protocol, connection = await io.run(_make_connection(self._target, self._opening(), crew))
        crew.connect(protocol)
        watch = LoopWatch(asyncio.get_running_loop(), threading.get_ident(), crew.name_of)
        # No task of this loop: a program that ends cancels those, and its runs could not be handed back.
        ended = asyncio.wrap_future(io.submit(_keep_connected(protocol, connection, watch)))
        ended.add_done_callback(_log_fault)
        self._running = Running(io, crew, protocol, connection, watch, ended)
        return self._running

    async def run(self) -> None:
        """Works until SIGTERM or SIGINT, then drains; a second signal hands everything back at once.

        In a thread that is not the main one there are no signals: it works until it is canceled, and hands back what
        it has then. Raises SessionRefusedError when the gateway will not take this worker, now or later.
        """
        asked = asyncio.Event()
        running = await self._connect()
        try:
            with _signals(partial(self._asked_to_end, running.crew, asked)):
                waiting = asyncio.ensure_future(asked.wait())
                ends: list[asyncio.Future[Value]] = [running.ended, waiting]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if running.ended.done():
                    await running.crew.settle()
                    running.ended.result()
                await self.drain()
        except asyncio.CancelledError:
            await self.drain(0.0)
            raise

    def _asked_to_end(self, crew: Crew, asked: asyncio.Event) -> None:
        if asked.is_set():
            log.warning("a second signal: handing back what is not finished")
            crew.hurry()
        asked.set()

    async def drain(self, grace: float | None = None) -> None:
        """Takes no more runs, lets those at work finish for `grace` seconds (None: `drain_grace`), hands the rest back,
        and disconnects. Another worker takes up what was handed back, with its steps on record.
        """
        running, self._running = self._running, None
        if running is not None:
            self._ending = running
            running.io.loop.call_soon_threadsafe(running.protocol.take_no_more)
            drained = asyncio.ensure_future(running.io.run(running.protocol.wait_drained()))
            await running.crew.wait_unless_hurried(drained, None)
            await running.crew.finish(self._drain_grace_s if grace is None else grace)
            await _disconnect(running)

    async def stop(self) -> None:
        """Aborts: the runs at work end as canceled, and the worker disconnects."""
        running, self._running = self._running or self._ending, None
        if running is not None:
            running.crew.hurry()
            running.io.loop.call_soon_threadsafe(running.protocol.take_no_more)
            await running.crew.abort()
            await _disconnect(running)

    @property
    def health(self) -> WorkerHealth:
        """How the worker is at this moment, for the probes of a program that has one. May be read in any thread."""
        running = self._running or self._ending
        if running is None or running.ended.done():
            return WorkerHealth(is_connected=False, is_draining=self._ending is not None, stalled_for=0.0)
        protocol = running.protocol
        return WorkerHealth(protocol.is_connected, protocol.is_draining, running.watch.stalled_s)

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

    def _opening(self) -> Opening:
        return Opening(
            owner=self._owner,
            worker_name=self._name,
            # Commands take it as an argument, so it must not begin with a hyphen.
            instance_id=secrets.token_hex(8),
            build_id=self._build_id,
            queues=self._queues,
            definitions=tuple(_definition(workflow, self._sealing) for workflow in self._workflows.values()),
            slot_limit=self._concurrency,
            session_number=0,
            held=(),
        )


_listening: list[signal.Signals] = []


def _forget_signals() -> None:
    """In a child that was forked: a signal to it is not for its parent, whose loop would hear of it."""
    if _listening:
        signal.set_wakeup_fd(-1)
        for number in _listening:
            signal.signal(number, signal.SIG_DFL)
        _listening.clear()


os.register_at_fork(after_in_child=_forget_signals)


@contextmanager
def _signals(on_signal: Callable[[], None]) -> Iterator[None]:
    """Listens to the signals that end a program, in the thread that can."""
    loop = asyncio.get_running_loop()
    numbers = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    _listening.extend(numbers)
    try:
        yield
    finally:
        for number in numbers:
            _listening.remove(number)
            loop.remove_signal_handler(number)


# ---- on the io thread ----


async def _make_connection(target: str, opening: Opening, crew: Crew) -> tuple[WorkerProtocol, Connection]:
    protocol = WorkerProtocol(opening, crew)
    return protocol, Connection(target, protocol)


async def _keep_connected(protocol: WorkerProtocol, connection: Connection, watch: LoopWatch) -> None:
    guards = [
        asyncio.create_task(Fence(protocol).run()),
        asyncio.create_task(_finish_when_left(watch, connection)),
    ]
    try:
        await connection.run()
    finally:
        for guard in guards:
            guard.cancel()


async def _finish_when_left(watch: LoopWatch, connection: Connection) -> None:
    await watch.run()
    log.error("the event loop of the worker was closed without draining it; its runs are handed back")
    connection.finish()


# ---- on the worker's loop ----


async def _disconnect(running: Running) -> None:
    running.io.loop.call_soon_threadsafe(running.connection.finish)
    await asyncio.wait([running.ended], timeout=DISCONNECT_TIMEOUT_S)
    running.crew.close()


def _log_fault(ended: asyncio.Future[None]) -> None:
    if not ended.cancelled() and ended.exception() is not None:
        log.error("the worker has lost its gateway for good: %s", ended.exception())


def _definition(workflow: AnyWorkflow, sealing: Sealing) -> Definition:
    cron = tuple(_cron(one, sealing) for one in workflow.cron)
    is_sealed = any(one.input is not None and one.input.codec for one in cron)
    return Definition(
        name=workflow.name,
        # Another codec has other bytes registered.
        digest=_digest(workflow.digest, sealing.name) if is_sealed else workflow.digest,
        queue=workflow.queue,
        max_attempts=workflow.max_attempts,
        retry=workflow.retry,
        events=workflow.events,
        run_timeout=workflow.run_timeout,
        start_timeout=workflow.start_timeout,
        cron=cron,
        has_failure_handler=workflow.on_failure is not None,
        failure_handler_timeout=workflow.failure_handler_timeout,
    )


def _cron(cron: Cron, sealing: Sealing) -> CronDefinition:
    data = cron.data
    if data is None:
        return CronDefinition(cron.id, cron.expression, cron.timezone, None)
    payload = sealing.sealed("the input of a cron schedule", Payload(data))
    # The gateway would derive an id from the input, which may come out of the codec as other bytes each time.
    own_id = cron.id or (_digest(cron.expression, cron.timezone, data.hex()) if payload.codec else "")
    return CronDefinition(own_id, cron.expression, cron.timezone, payload)


def _build_id(workflows: Sequence[AnyWorkflow]) -> str:
    return _digest(*sorted(workflow.digest for workflow in workflows))


def _digest(*texts: str) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]
