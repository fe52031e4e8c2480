"""What is looked at: a Redis, a gateway and a worker as processes, and this process, in which clients are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from redflow_sdk import Client
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.processes import quiet_port
from tests.eventually import eventually
from tests.leaks.flatness import Sample, grown, growth
from tests.leaks.watched import CountedProgram, CountedRedis, Watched, calm
from tests.line import Line, to_port

PREFIX: Final = "leaks"
WARM_UP: Final = 3
"""Rounds that are played and not judged: pools fill, caches too, and malloc finds its arenas."""
ROUNDS: Final = 10
RETENTION_S: Final = 1
PURGED_WITHIN_S: Final = 120.0
READY_S: Final = 60.0


@dataclass
class Report:
    """What came of a scenario."""

    scenario: str
    operations: int
    grew: dict[str, dict[str, float]] = field(default_factory=dict)
    more: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Scene:
    """The processes."""

    redis: CountedRedis
    gateway: CountedProgram
    worker: CountedProgram
    worker_line: Line
    target: str
    client: Client

    async def all_purged(self, left: int = 0) -> None:
        """Returns when no more runs than these are on record."""

        async def is_so() -> bool:
            return sum((await self.client.stats()).runs.values()) <= left

        await eventually(is_so, within=PURGED_WITHIN_S, every=0.2, saying="runs are left after their retention")

    async def has_worker(self) -> None:
        """Returns when the worker is connected, and nobody else."""

        async def is_so() -> bool:
            return [worker.name for worker in await self.client.list_workers()] == [self.worker.name]

        await eventually(is_so, within=READY_S, every=0.1, saying="others than the worker are connected")

    async def judge(
        self,
        report: Report,
        watched: Sequence[Watched],
        play: Callable[[int], Awaitable[None]],
        *,
        rounds: int = ROUNDS,
        lost_kb: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Plays the rounds, with a look at what is watched after each, and says what has grown. `lost_kb` is memory
        that is known to be lost to others than us, by who loses it.
        """
        samples: dict[str, list[Sample]] = {each.name: [] for each in watched}
        for number in range(WARM_UP + rounds):
            await play(number)
            found = [await calm(each) for each in watched]
            if number >= WARM_UP:
                for each, sample in zip(watched, found, strict=True):
                    samples[each.name].append(sample)
        for name, of_it in samples.items():
            report.grew[name] = {
                quantity: round(growth([sample.quantities[quantity] for sample in of_it]), 1)
                for quantity in of_it[0].quantities
            }
            report.violations += grown(name, of_it, lost_kb.get(name, 0.0))


@asynccontextmanager
async def set_up(folder: Path, report: Report) -> AsyncIterator[Scene]:
    """Starts everything. In the end all is stopped, and what is stored has to keep its invariants."""
    log = folder / "log"
    redis = CountedRedis(folder / "redis", "secret", log=log, appendfsync="everysec")
    port = quiet_port()
    target = f"127.0.0.1:{port}"
    url = redis.url
    settings = ("--redis", url, "--prefix", PREFIX, "--port", str(port), "--retention", str(RETENTION_S))
    async with AsyncExitStack() as stack:
        await redis.start()
        stack.push_async_callback(redis.stop)
        line = await stack.enter_async_context(Line(to_port(port)))
        gateway = CountedProgram("gateway", "server", *settings, log=log)
        arguments = ("worker", "run", "tests.leaks.workflows:app", "--target", f"127.0.0.1:{line.port}")
        worker = CountedProgram("worker", *arguments, "--name", "worker", "--drain-grace", "1", log=log)
        await gateway.start()
        await worker.start()
        stack.push_async_callback(_stop, gateway, worker, report)
        client = await stack.enter_async_context(Client(target))
        scene = Scene(redis, gateway, worker, line, target, client)
        await scene.has_worker()
        yield scene
        await _check(url, report)


async def _stop(gateway: CountedProgram, worker: CountedProgram, report: Report) -> None:
    for program in (worker, gateway):
        if code := await program.stop():
            report.violations.append(f"{program.name} ended with {code}")


async def _check(url: str, report: Report) -> None:
    dial = Dial(url)
    async with dial.client() as client:
        found = await check(client, Keys(PREFIX))
    await dial.close()
    report.violations += (f"{one.rule}: {one.subject} {one.detail}" for one in found)


async def at_once(count: int, lanes: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Does so much work, so many at a time."""
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(lane())
