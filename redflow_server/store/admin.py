"""The Redis behind a gateway: whether it will do, what it promises, and starting over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial, unavailable

MINIMUM: Final = {"redis": (6, 2), "valkey": (7, 2)}


UNKNOWN: Final = "unknown"


class Persistence(StrEnum):
    """What an acknowledgement survives."""

    MEMORY = "memory"
    SNAPSHOT = "snapshot"
    AOF_EVERYSEC = "aof_everysec"
    AOF_ALWAYS = "aof_always"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the Redis, in one sentence. A gateway does not start on a fatal one."""

    sentence: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class RedisReport:
    """What a Redis says of itself."""

    name: str
    version: str
    persistence: Persistence
    replicas: int
    max_memory_bytes: int
    eviction_policy: str
    problems: tuple[Problem, ...]


class Admin:
    """Commands that are no transitions."""

    def __init__(self, dial: Dial, keys: Keys) -> None:
        self._dial = dial
        self._keys = keys

    async def inspect(self, accepts_eviction: bool) -> RedisReport:
        """Reads settings and judges them. Raises StoreUnavailable."""
        async with self._dial.client() as client:
            try:
                info: dict[str, Any] = await client.info()  # Any: numbers and strings
            except (RedisError, OSError) as error:
                raise unavailable(error) from error
            fsync = await _setting(client, "appendfsync")
            save = await _setting(client, "save")
        name = "valkey" if "valkey_version" in info else "redis"
        version = str(info.get("valkey_version", info["redis_version"]))
        persistence = Persistence.MEMORY if save == b"" else Persistence.SNAPSHOT
        if info.get("aof_enabled"):
            persistence = Persistence.AOF_ALWAYS if fsync == b"always" else Persistence.AOF_EVERYSEC
        policy = str(info.get("maxmemory_policy", UNKNOWN))
        return RedisReport(
            name=name,
            version=version,
            persistence=persistence,
            replicas=int(info.get("connected_slaves", 0)),
            max_memory_bytes=int(info.get("maxmemory", 0)),
            eviction_policy=policy,
            problems=tuple(_problems(info, name, version, persistence, accepts_eviction)),
        )

    async def reset(self) -> int:
        """Deletes every key under the prefix but the mark that it is ours; how many. Raises StoreUnavailable.

        Workers register again meanwhile: without the mark their keys would look like another engine's.
        """
        mark = self._keys.config.encode()
        deleted = 0
        pattern = "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in self._keys.prefix) + ":*"
        async with self._dial.client() as client:
            try:
                batch: list[bytes] = []
                async for key in client.scan_iter(match=pattern, count=500):
                    if key != mark:
                        batch.append(key)
                    if len(batch) == 500:
                        deleted += await client.unlink(*batch)
                        batch.clear()
                if batch:
                    deleted += await client.unlink(*batch)
            except (RedisError, OSError) as error:
                raise unavailable(error) from error
        return deleted


async def _setting(client: Redis, name: str) -> bytes | None:
    """A setting of the server; None where CONFIG is denied, as managed services do."""
    try:
        _, value = await client.execute_command("CONFIG", "GET", name)  # type: ignore[no-untyped-call]  # redis-py
    except RedisError:
        return None
    return bytes(value)


def _problems(
    info: dict[str, Any],  # Any: numbers and strings
    name: str,
    version: str,
    persistence: Persistence,
    accepts_eviction: bool,
) -> list[Problem]:
    found: list[Problem] = []
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < MINIMUM[name]:
        least = ".".join(map(str, MINIMUM[name]))
        found.append(Problem(f"{name} {version} is too old: {least} or newer is needed", is_fatal=True))
    if "cluster" in (info.get("redis_mode"), info.get("server_mode")):
        found.append(Problem("this is a node of a Redis Cluster, which is not supported", is_fatal=True))
    if info.get("role") == "slave":
        found.append(Problem("this is a read-only replica; connect to its primary", is_fatal=True))
    policy = str(info.get("maxmemory_policy", UNKNOWN))
    if policy == UNKNOWN:
        found.append(Problem("cannot read maxmemory-policy: see to it that it is noeviction", is_fatal=False))
    elif int(info.get("maxmemory", 0)) > 0 and policy != "noeviction":
        sentence = f"maxmemory-policy is {policy}: runs would be evicted when memory is full; set noeviction"
        found.append(Problem(sentence, is_fatal=not accepts_eviction))
    # Redis names the replicas that keep up only where it is to count them.
    if int(info.get("connected_slaves", 0)) and "min_slaves_good_slaves" not in info:
        sentence = "min-replicas-to-write is 0: a primary that was cut off goes on, and a fail-over loses what it took"
        found.append(Problem(sentence, is_fatal=False))
    if persistence is Persistence.MEMORY:
        found.append(Problem("nothing is persisted: what was acknowledged is lost with the Redis process", False))
    elif persistence is Persistence.SNAPSHOT:
        found.append(Problem("only snapshots are persisted: what was acknowledged since is lost in a crash", False))
    return found
