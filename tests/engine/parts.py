"""What a gateway is made of between its port and Redis, put together as the gateway does it, without port and timers.

Nothing happens in an `Engine` because time passes: a test calls the passes itself. What other gateways publish is heard
only `async with engine.listening()`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from redflow_server.domain.ids import new_name
from redflow_server.domain.leases import Stop, WaitOver
from redflow_server.domain.names import Limits
from redflow_server.domain.timing import Timing
from redflow_server.engine.dispatcher import Dispatcher
from redflow_server.engine.registry import Registry
from redflow_server.engine.runs import Runs
from redflow_server.engine.schedules import Schedules
from redflow_server.engine.sessions import Sessions
from redflow_server.engine.stops import EarlyStops
from redflow_server.engine.upkeep import Upkeep, UpkeepSettings
from redflow_server.engine.waiters import Waiters
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wakeups import Wakeups
from redflow_server.store.wire import Dial
from redflow_server.telemetry import Telemetry
from tests.eventually import eventually

TIMING = Timing(lease_ms=30_000)
"""Long enough that no lease ends by accident. Tests of what happens in time set their own."""


class Engine:
    """The engine of one gateway. It is told of messages as a gateway is; those in `deaf_to` are lost on it."""

    def __init__(self, store: Store, timing: Timing = TIMING, settings: UpkeepSettings | None = None) -> None:
        self.gateway_id = new_name()
        self.store = store
        self.timing = timing
        self.telemetry = Telemetry()
        self.early_stops = EarlyStops(keep_s=timing.delivery_ms / 1000)
        self.dispatcher = Dispatcher(store, timing, self.early_stops, self.telemetry)
        self.schedules = Schedules(store, self.telemetry)
        self.registry = Registry(store, self.schedules)
        self.waiters = Waiters(store, self.gateway_id)
        self.sessions = Sessions(
            self.gateway_id,
            store=store,
            timing=timing,
            registry=self.registry,
            dispatcher=self.dispatcher,
            early_stops=self.early_stops,
            telemetry=self.telemetry,
        )
        self.runs = Runs(store, self.waiters, Limits(), dispatcher=self.dispatcher, telemetry=self.telemetry)
        self.upkeep = Upkeep(store, timing, self.dispatcher, self.telemetry, settings or UpkeepSettings())
        self.deaf_to: set[str] = set()
        self.heard: list[str] = []
        """The messages that came, by kind, whether it was deaf to them or not."""

    @asynccontextmanager
    async def listening(self, redis_url: str, keys: Keys) -> AsyncIterator[None]:
        """It hears what is published, from here to the end of the block."""
        dial = Dial(redis_url)
        wakeups = Wakeups(dial, keys, self.gateway_id, self)
        wakeups.start()
        try:
            await eventually(lambda: wakeups.is_subscribed)
            yield
        finally:
            await wakeups.stop()
            await dial.close()

    # ---- messages of other gateways ----

    def lane_filled(self, name: str, change: int) -> None:
        self.heard.append("lane")
        if "lane" not in self.deaf_to:
            self.dispatcher.lane_filled(name, change)

    def due(self, kind: str, at_ms: int) -> None:
        """There are no timers here."""

    def stop_handler(self, stop: Stop) -> None:
        self.heard.append("stop")
        if "stop" not in self.deaf_to:
            self.sessions.push_stop(stop)

    def wait_over(self, over: WaitOver) -> None:
        self.heard.append("resolved")
        if "resolved" not in self.deaf_to:
            self.sessions.push_resolution(over)

    def finished(self, run_id: str) -> None:
        self.heard.append("finished")
        if "finished" not in self.deaf_to:
            self.waiters.finished(run_id)

    def may_have_missed(self) -> None:
        self.dispatcher.suspect_all()
        self.sessions.suspect_all()


class Stores:
    """Opens stores on one prefix, each with a connection of its own."""

    def __init__(self, redis_url: str, prefix: str) -> None:
        self.redis_url = redis_url
        self.prefix = prefix
        self._stack = AsyncExitStack()

    async def open(self, kind: type[Store] = Store, redis_url: str = "") -> Store:
        """A store, of a class that looks on if a test has one, at this Redis or by another way to it."""
        dial = Dial(redis_url or self.redis_url)
        pipeline = Pipeline(dial, load_scripts(), self.prefix)
        await pipeline.start()
        self._stack.push_async_callback(dial.close)
        self._stack.push_async_callback(pipeline.stop)
        return kind(pipeline)

    async def close(self) -> None:
        """Closes them."""
        await self._stack.aclose()


async def tell_of_lanes(store: Store, engine: Engine) -> None:
    """What messages about all lanes that are not empty would tell the engine."""
    for name, change in (await store.due(0)).lanes:
        engine.lane_filled(name, change)
