"""What is looked at from outside: processes of ours, this process, and a Redis."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Final, Protocol

from redis.asyncio import Redis

from tests.chaos.processes import Program
from tests.chaos.redis_server import RedisServer
from tests.eventually import eventually
from tests.leaks.counted import Held, held_here
from tests.leaks.flatness import Sample

PAGE_KB: Final = os.sysconf("SC_PAGE_SIZE") / 1024
CALM_S: Final = 10.0
TELLS_WITHIN_S: Final = 30.0


class Watched(Protocol):
    """Something that may grow."""

    @property
    def name(self) -> str:
        """What it is called in reports."""

    async def sample(self) -> Sample:
        """What it holds now."""


def _sample(pid: int, held: Held) -> Sample:
    quantities = {
        "rss_kb": int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KB,
        "tasks": held.tasks,
        "files": len(os.listdir(f"/proc/{pid}/fd")),  # sockets are among them
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "objects": held.objects,
    }
    return Sample(quantities, held.kinds)


class CountedProgram(Program):
    """A gateway or a worker, by its command, that tells what it holds."""

    def __init__(self, name: str, *arguments: str, log: Path, environment: dict[str, str] | None = None) -> None:
        super().__init__(name, *arguments, log=log, environment=environment)
        self._counts = log.parent / f"counts of {name}"

    @property
    def command(self) -> list[str]:
        """The command, which was told where to write."""
        return [sys.executable, "-m", "tests.leaks.counted", str(self._counts), *self._arguments]

    async def sample(self) -> Sample:
        """What it holds now."""
        return _sample(self.pid, await self._held())

    async def _held(self) -> Held:
        self._counts.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        await eventually(self._counts.exists, within=TELLS_WITHIN_S, saying=f"{self.name} does not tell what it holds")
        return Held(**json.loads(self._counts.read_text()))


class ThisProcess:
    """The one that plays the clients."""

    name: Final = "client"

    async def sample(self) -> Sample:
        """What it holds now."""
        return _sample(os.getpid(), held_here())


class CountedRedis(RedisServer):
    """A Redis with only what the test stores in it, which survives a restart."""

    async def sample(self) -> Sample:
        """Its clients but for whoever asks, and its keys."""
        async with self._asking() as client:
            clients = (await client.info("clients"))["connected_clients"] - 1
            return Sample({"clients": clients, "keys": await client.dbsize()}, {})

    async def used_bytes(self) -> int:
        """The memory it has taken, its own included."""
        async with self._asking() as client:
            used: int = (await client.info("memory"))["used_memory"]
            return used

    def _asking(self) -> Redis:
        return self.client()


async def calm(watched: Watched) -> Sample:
    """What is left when two looks in a row find the same number of everything but memory, or when that takes long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CALM_S
    earlier = await watched.sample()
    while True:
        await asyncio.sleep(0.5)
        sample = await watched.sample()
        same = ("tasks", "files", "threads", "clients", "keys")
        if loop.time() > until or all(sample.quantities.get(name) == earlier.quantities.get(name) for name in same):
            return sample
        earlier = sample
