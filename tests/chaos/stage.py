"""What the faults strike: a Redis, two gateways, three workers, and lines between them, each of which can be broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.clocks import Clock
from tests.chaos.processes import Program, quiet_port
from tests.chaos.redis_server import RedisServer
from tests.line import Line, to_port

LEASE_S: Final = 3
SLOTS: Final = 8
DRAIN_GRACE_S: Final = 5
GATEWAYS: Final = 2
WORKERS: Final = 3
PASSWORD: Final = "open 5es@me/%"
"""Of the Redis: gateways know it, and must not tell it."""


@dataclass(frozen=True)
class Node:
    """A gateway or a worker: its process, and its line to what it talks to."""

    program: Program
    line: Line


@dataclass(frozen=True)
class Stage:
    """All of them. `client_line` is the one of whoever starts runs, to the first gateway."""

    redis: RedisServer
    redis_clock: Clock
    gateway_clocks: tuple[Clock, ...]
    gateways: tuple[Node, ...]
    workers: tuple[Node, ...]
    client_line: Line

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Gateways and workers."""
        return (*self.gateways, *self.workers)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Between any two."""
        return (*(node.line for node in self.nodes), self.client_line)


@dataclass(frozen=True)
class Play:
    """Where the processes find their prefix, workflows and journal, and where they leave logs and data; how Redis
    writes these down.
    """

    prefix: str
    app: str
    environment: Mapping[str, str]
    folder: Path
    appendfsync: str = "always"


@asynccontextmanager
async def set_up(play: Play) -> AsyncIterator[Stage]:
    """Starts everything. At the end workers, gateways and Redis are stopped in this order; what has failed to end well
    raises AssertionError.
    """
    log = play.folder / "log"
    redis_clock = Clock(play.folder / "clock of redis")
    environment = redis_clock.environment
    redis = RedisServer(play.folder / "redis", PASSWORD, log=log, environment=environment, appendfsync=play.appendfsync)
    async with AsyncExitStack() as stack:
        await redis.start()
        stack.push_async_callback(redis.kill)
        gateways, gateway_clocks, workers = [], [], []
        for number in range(GATEWAYS):
            line = await stack.enter_async_context(Line(to_port(redis.port)))
            settings = ("--prefix", play.prefix, "--port", str(port := quiet_port()), "--lease", str(LEASE_S))
            gateway_clocks.append(clock := Clock(play.folder / f"clock of gateway {number}"))
            environment = {"REDFLOW_REDIS_URL": redis.url_by(line.port), **clock.environment}
            program = Program(f"gateway {number}", "server", *settings, log=log, environment=environment)
            gateways.append((Node(program, line), port))
        for number in range(WORKERS):
            line = await stack.enter_async_context(Line(to_port(gateways[number % GATEWAYS][1])))
            settings = ("--target", f"127.0.0.1:{line.port}", "--concurrency", str(SLOTS), "--name", f"worker {number}")
            program = Program(
                f"worker {number}",
                *("worker", "run", play.app, *settings, "--drain-grace", str(DRAIN_GRACE_S)),
                log=log,
                environment=dict(play.environment),
            )
            workers.append(Node(program, line))
        client_line = await stack.enter_async_context(Line(to_port(gateways[0][1])))
        nodes = tuple(node for node, _ in gateways)
        stage = Stage(redis, redis_clock, tuple(gateway_clocks), nodes, tuple(workers), client_line)
        for node in stage.nodes:
            await node.program.start()
        stack.push_async_callback(_stop, stage)
        yield stage


async def _stop(stage: Stage) -> None:
    """The gateways last: the workers say goodbye to them."""
    codes = {}
    for node in reversed(stage.nodes):
        node.program.thaw()
        codes[node.program.name] = await node.program.stop()
    assert not any(codes.values()), f"stopped with {codes}"
