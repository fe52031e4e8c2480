"""The composition root: what a gateway is made of, in which order it starts, and in which it stops."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

from redflow_server.config import Config
from redflow_server.domain.errors import RedisUnfit
from redflow_server.domain.ids import new_name
from redflow_server.domain.leases import Stop, WaitOver
from redflow_server.engine.dispatcher import Dispatcher
from redflow_server.engine.events import Events
from redflow_server.engine.registry import Registry
from redflow_server.engine.runs import Runs
from redflow_server.engine.schedules import Schedules
from redflow_server.engine.sessions import Sessions
from redflow_server.engine.steps import Steps
from redflow_server.engine.stops import EarlyStops
from redflow_server.engine.system import System
from redflow_server.engine.tokens import Tokens
from redflow_server.engine.upkeep import Upkeep
from redflow_server.engine.waiters import Waiters
from redflow_server.loops.duties import Duties
from redflow_server.loops.loop import Loop
from redflow_server.rpc import convert_server
from redflow_server.rpc.errors import Answering
from redflow_server.rpc.event_service import EventService
from redflow_server.rpc.run_service import RunService
from redflow_server.rpc.server import RpcServer
from redflow_server.rpc.session_reader import SessionReader
from redflow_server.rpc.session_writer import SessionWriter
from redflow_server.rpc.system_service import SystemService
from redflow_server.rpc.worker_service import WorkerService
from redflow_server.rpc.workflow_service import WorkflowService
from redflow_server.store.admin import Admin, RedisReport
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import Pipeline, ScriptFault
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wakeups import Wakeups
from redflow_server.store.wire import Dial
from redflow_server.telemetry import Telemetry

log = logging.getLogger("redflow.gateway")

HEALTH_S = 1.0
FINDS_BACK_S = 10.0


class Gateway:
    """One gateway process' worth of everything."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.gateway_id = new_name()
        self.telemetry = Telemetry()
        keys = Keys(config.prefix)
        self._dial = Dial(config.redis_url)
        self._pipeline = Pipeline(self._dial, load_scripts(), config.prefix)
        self._admin = Admin(self._dial, keys)
        self.store = Store(self._pipeline, config.max_losses)
        self._wakeups = Wakeups(self._dial, keys, self.gateway_id, self)

        self._waiters = Waiters(self.store, self.gateway_id)
        self._schedules = Schedules(self.store, self.telemetry)
        self._registry = Registry(self.store, self._schedules)
        early_stops = EarlyStops(keep_s=config.timing.delivery_ms / 1000)
        self._dispatcher = Dispatcher(self.store, config.timing, early_stops, self.telemetry)
        self._sessions = Sessions(
            self.gateway_id,
            store=self.store,
            timing=config.timing,
            registry=self._registry,
            dispatcher=self._dispatcher,
            early_stops=early_stops,
            telemetry=self.telemetry,
        )
        self._runs = Runs(
            self.store, self._waiters, config.limits, dispatcher=self._dispatcher, telemetry=self.telemetry
        )
        self._events = Events(self.store, config.limits)
        self._tokens = Tokens(self.store, config.limits)
        self._system = System(self.store, self._admin, config.prefix, config.allows_reset)
        upkeep = Upkeep(self.store, config.timing, self._dispatcher, self.telemetry, config.upkeep)
        self.duties = Duties(
            upkeep, self._schedules, self._sessions, self._waiters, timing=config.timing, telemetry=self.telemetry
        )
        self._health_loop = Loop("health", self._report_health, HEALTH_S, self.telemetry)
        self._is_draining = False
        self._reported_unfit: tuple[str, ...] = ()
        self._store_unfit_at = -math.inf
        self._rpc: RpcServer | None = None
        self.port = 0

    # ---- life ----

    async def start(self) -> None:
        """Starts, and takes calls. Raises StoreUnavailable, RedisUnfit, PrefixTaken, OSError."""
        async with AsyncExitStack() as unless_started:
            # Whatever keeps it from starting, nothing of it is left behind.
            unless_started.push_async_callback(self.stop)
            await self._start()
            unless_started.pop_all()

    async def _start(self) -> None:
        report = await self._admin.inspect(self.config.accepts_eviction)
        for problem in report.problems:
            if problem.is_fatal:
                raise RedisUnfit(problem.sentence)
            log.warning("redis: %s", problem.sentence)
        await self._pipeline.start()
        try:
            await self.store.claim_prefix()
        except ScriptFault as fault:
            raise RedisUnfit(f"this Redis does not run the gateway's scripts: {fault}") from fault
        self._rpc = self._make_rpc(report)
        self.port = self._rpc.listen(self.config.host, self.config.port)
        self._wakeups.start()
        self.duties.start()
        await self._rpc.start()
        self._health_loop.start()
        log.info("gateway %s listens on %s:%d", self.gateway_id, self.config.host, self.port)

    def _make_rpc(self, report: RedisReport) -> RpcServer:
        timing, limits = self.config.timing, self.config.limits
        opened = convert_server.opened(self.gateway_id, timing, limits, report)
        info = convert_server.server_info(opened, report, self.config.prefix)
        reader = SessionReader(limits)
        writer = SessionWriter(timing.lease_ms, timing.cancel_grace_ms, opened)
        return RpcServer(
            worker=WorkerService(self._sessions, Steps(self.store), reader, writer, self.telemetry),
            runs=RunService(self._runs, self._tokens, self.telemetry),
            events=EventService(self._events),
            workflows=WorkflowService(self._registry),
            system=SystemService(self._system, self._runs, info),
            answering=Answering(self.telemetry, limits.max_message_bytes),
            limits=limits,
            has_reflection=self.config.has_reflection,
            shares_port=self.config.shares_port,
        )

    async def drain(self) -> None:
        """Tells workers to go elsewhere and gives them the time to do it."""
        self._is_draining = True
        await self._report_health()
        self._sessions.drain(self.config.drain_grace_ms)
        try:
            async with asyncio.timeout(self.config.drain_grace_ms / 1000):
                await self._sessions.wait_until_empty()
        except TimeoutError:
            log.warning("sessions that did not move within the grace: %d", len(self._sessions))

    async def stop(self) -> None:
        """Stops: sessions end, calls under way are answered or end, the store is let go."""
        self._is_draining = True
        self._sessions.end_all()
        await self._health_loop.stop()
        if self._rpc is not None:
            await self._rpc.stop(grace_s=0.5)
        await self.duties.stop()
        await self._wakeups.stop()
        await self._pipeline.stop()
        await self._dial.close()
        log.info("gateway %s has stopped", self.gateway_id)

    async def _report_health(self) -> bool:
        """Tells probes how it is. Whether Redis still refuses is asked: who was refused may not come again."""
        is_store_fit = self._pipeline.is_fit
        if not is_store_fit:
            self._store_unfit_at = time.monotonic()
        if self._pipeline.is_refused:
            self.store.try_write().add_done_callback(partial(self.telemetry.watch, "try_write"))
        unfit = tuple(self._unfit())
        for reason in unfit:
            if reason not in self._reported_unfit:
                log.warning("takes no workers: %s", reason)
        self._reported_unfit = unfit
        is_fit = is_store_fit and not (unfit or self._is_draining)
        if self._rpc is not None:
            await self._rpc.set_health(is_fit and self._wakeups.is_subscribed)
        return False

    def _unfit(self) -> Iterator[str]:
        """What of this process does not work. After an outage of Redis it has time to find back."""
        for name in self.duties.dead:
            yield f"the loop {name} does not run, or does not get on"
        if self._dispatcher.is_stuck and time.monotonic() - self._store_unfit_at > FINDS_BACK_S:
            yield "runs are not brought to workers"

    # ---- messages of other gateways ----

    def lane_filled(self, name: str, change: int) -> None:
        """A lane went from empty to non-empty."""
        self._dispatcher.lane_filled(name, change)

    def due(self, kind: str, at_ms: int) -> None:
        """Something is due earlier than anything else of its kind."""
        self.duties.timetable.due(kind, at_ms)

    def stop_handler(self, stop: Stop) -> None:
        """The holder of a lease has to stop its handler."""
        self._sessions.push_stop(stop)

    def wait_over(self, over: WaitOver) -> None:
        """A wait is over of a run whose lease is held here."""
        self._sessions.push_resolution(over)

    def finished(self, run_id: str) -> None:
        """A run that somebody here waits for has ended."""
        self._waiters.finished(run_id)

    def may_have_missed(self) -> None:
        """The subscription is new."""
        self._dispatcher.suspect_all()
        self._sessions.suspect_all()
        self.duties.catch_up()
