"""A Redis with two replicas, and three sentinels that watch them and put a replica in its place when it is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from redis.asyncio import Redis
from redis.exceptions import RedisError

from redflow_server.embedded import find_server
from tests.chaos.processes import Program, quiet_port
from tests.chaos.redis_server import RedisServer
from tests.chaos.stage import PASSWORD
from tests.eventually import eventually

SERVICE: Final = "mymaster"
SENTINEL_PASSWORD: Final = "watch@the/house"
SENTINELS: Final = 3
SERVERS: Final = 3
DOWN_AFTER_MS: Final = 1000
WATCHED_WITHIN_S: Final = 30.0

# A primary that is cut off from its replicas takes nothing more, after so many seconds at most.
CAREFUL: Final = (
    "--min-replicas-to-write",
    "1",
    "--min-replicas-max-lag",
    "2",
    "--masterauth",
    PASSWORD,
    "--repl-diskless-sync-delay",
    "0",
)


class SentinelServer(Program):
    """A sentinel; what it finds out stands in its file."""

    def __init__(self, folder: Path, primary_port: int, *, log: Path) -> None:
        super().__init__("sentinel", log=log)
        self.port = quiet_port()
        folder.mkdir()
        self._file = folder / "sentinel.conf"
        self._file.write_text(
            f'port {self.port}\nbind 127.0.0.1\ndir "{folder}"\nrequirepass "{SENTINEL_PASSWORD}"\n'
            f'sentinel sentinel-pass "{SENTINEL_PASSWORD}"\n'
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port} {SENTINELS // 2 + 1}\n"
            f'sentinel auth-pass {SERVICE} "{PASSWORD}"\n'
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
        )

    @property
    def command(self) -> list[str]:
        """The server as a sentinel."""
        return [str(find_server()), str(self._file), "--sentinel"]

    def client(self) -> Redis:
        """For questions and orders."""
        return Redis(port=self.port, password=SENTINEL_PASSWORD, socket_timeout=5.0, decode_responses=True)


@dataclass(frozen=True)
class Replicated:
    """The servers, of which one is the primary, and the sentinels."""

    servers: tuple[RedisServer, ...]
    sentinels: tuple[SentinelServer, ...]

    @property
    def url(self) -> str:
        """For gateways."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        login, asked = quote(PASSWORD, safe=""), quote(SENTINEL_PASSWORD, safe="")
        return f"redis+sentinel://:{login}@{hosts}/{SERVICE}/0?sentinel_password={asked}"

    async def primary(self) -> RedisServer:
        """The server that the sentinels name."""
        async with self.sentinels[0].client() as sentinel:
            _, port = await sentinel.sentinel_get_master_addr_by_name(SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    async def is_whole(self) -> bool:
        """Whether every sentinel names the same primary, and sees it, all its replicas and the others."""
        try:
            seen = [await self._seen_by(sentinel) for sentinel in self.sentinels]
            return set(seen) == {((await self.primary()).port, len(self.sentinels) - 1, len(self.servers) - 1)}
        except RedisError:
            return False

    async def _seen_by(self, sentinel: SentinelServer) -> tuple[int, int, int]:
        """The port of the primary, how many other sentinels, and how many replicas that are up to date."""
        async with sentinel.client() as client:
            state = (await client.sentinel_masters())[SERVICE]
            replicas = await client.sentinel_slaves(SERVICE)
        up = [one for one in replicas if one["master-link-status"] == "ok" and not one["is_sdown"]]
        return state["port"] if not state["is_sdown"] else 0, state["num-other-sentinels"], len(up)


@asynccontextmanager
async def replicated(folder: Path, log: Path) -> AsyncIterator[Replicated]:
    """Starts all of them, and waits until they know each other."""
    first = RedisServer(folder / "redis 0", PASSWORD, *CAREFUL, log=log)
    others = [
        RedisServer(
            folder / f"redis {number}", PASSWORD, *CAREFUL, "--replicaof", "127.0.0.1", str(first.port), log=log
        )
        for number in range(1, SERVERS)
    ]
    sentinels = [SentinelServer(folder / f"sentinel {number}", first.port, log=log) for number in range(SENTINELS)]
    programs: list[Program] = []
    try:
        for program in (first, *others, *sentinels):
            await program.start()
            programs.append(program)
        them = Replicated((first, *others), tuple(sentinels))
        await eventually(
            them.is_whole, within=WATCHED_WITHIN_S, every=0.2, saying="the sentinels do not see all servers"
        )
        yield them
    finally:
        for program in reversed(programs):
            program.thaw()
            await program.kill()
