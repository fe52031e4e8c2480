"""Redis by way of its sentinels: what such a URL says, and connections to the primary that they name at the moment.

    redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DB][?OPTIONS]

`rediss+sentinel` is TLS for both. `sentinel_username` and `sentinel_password` are for the sentinels, all other options
for Redis, as redis-py takes them in its URLs. redis-py has no such URL; other programs that use it do, so it is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from redis.asyncio import Connection, ConnectionPool, Redis, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError

from redflow_server.store.redis_options import FOR_SENTINELS, options_of

SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
DEFAULT_PORT: Final = 26379
ASK_TIMEOUT_S: Final = 1.0
"""Each sentinel is asked in turn, so one that is gone must not take long."""

_URL: Final = re.compile(
    r"(?P<scheme>(?i:rediss?))\+(?i:sentinel)://(?:(?P<login>[^@/?]*)@)?(?P<hosts>[^@/?]+)"
    r"/(?P<service>[^/?]+)(?:/(?P<db>[0-9]*))?(?:\?.*)?",
    re.ASCII,
)

Address = tuple[str, int]
"""Host and port."""
Fields = Mapping[str, Any]  # Any: what redis-py takes and gives by name has all types


@dataclass(frozen=True, slots=True)
class Watched:
    """A service that sentinels watch: where they are, and how to talk to them and to Redis."""

    service: str
    sentinels: tuple[Address, ...]
    sentinel_settings: Fields
    redis_settings: Fields


def is_sentinel_url(url: str) -> bool:
    """Whether it names sentinels."""
    return url.partition("://")[0].lower() in SCHEMES


def read_url(url: str) -> Watched:
    """What such a URL says. Raises ValueError."""
    parts = _URL.fullmatch(url)
    if parts is None:
        form = "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB, with names and passwords percent-encoded"
        raise ValueError(f"it is not {form}")
    options, scheme = options_of(url), parts["scheme"].lower()
    asked = {FOR_SENTINELS[name]: options.pop(name) for name in FOR_SENTINELS if name in options}
    login = f"{parts['login']}@" if parts["login"] else ""
    plain = parse_url(f"{scheme}://{login}primary/{parts['db'] or 0}?{urlencode(options)}")
    settings = {name: value for name, value in plain.items() if name not in ("host", "port", "connection_class")}
    tls = {name: value for name, value in settings.items() if name.startswith("ssl_")}
    encrypted = {"ssl": True} if scheme == "rediss" else {}
    sentinels = tuple(_address(one) for one in parts["hosts"].split(","))
    return Watched(unquote(parts["service"]), sentinels, {**asked, **tls, **encrypted}, {**settings, **encrypted})


def _address(one: str) -> Address:
    parts = urlsplit(f"//{one}")
    if not parts.hostname or parts.port == 0:
        raise ValueError(f"{one!r} is not the HOST:PORT of a sentinel")
    return parts.hostname, parts.port or DEFAULT_PORT


class _Sentinels(Sentinel):
    """As redis-py asks them, one after the other; but whatever is wrong with one, the next is asked, and a primary that
    one names has to say that it is one, as the "Guidelines for Redis clients with support for Redis Sentinel" of
    redis.io want it: a sentinel that was cut off names the one before.
    """

    sentinels: list[Redis]

    async def discover_master(self, service_name: str) -> Address:
        """Where the primary is. Raises redis-py's ConnectionError, which says what is wrong with each."""
        faults: list[str] = []
        seen: dict[Address, str] = {}
        for sentinel in tuple(self.sentinels):
            asked = _shown(_address_of(sentinel))
            try:
                said = await sentinel.sentinel_master(service_name)
                assert not isinstance(said, bool)  # which redis-py's types allow for
                primary = _named(said)
            except (RedisError, LookupError) as error:
                faults.append(f"{asked} does not name one ({error or type(error).__name__})")
                continue
            if primary not in seen:
                seen[primary] = await self._fault_of(primary)
            if not seen[primary]:
                # Asked first the next time.
                self.sentinels.sort(key=lambda other: other is not sentinel)
                return primary
            faults.append(f"{asked} names {_shown(primary)}, which {seen[primary]}")
        raise NoConnection(f"no sentinel leads to a primary of {service_name!r}: {'; '.join(faults)}")

    async def _fault_of(self, primary: Address) -> str:
        """What is wrong with one that has been named; nothing if it says that it is one, or may not say it."""
        settings = {**self.connection_kwargs, "host": primary[0], "port": primary[1]}
        kind = SSLConnection if settings.pop("ssl", False) else Connection
        async with Redis.from_pool(ConnectionPool(kind, **settings)) as client:
            try:
                role = (await client.role())[0]
            except ResponseError:
                return ""
            except (RedisError, OSError) as error:
                return f"cannot be used ({error})"
        return "" if role == b"master" else f"is a {role.decode()}"


def _address_of(sentinel: Redis) -> Address:
    settings = sentinel.connection_pool.connection_kwargs
    return settings["host"], settings["port"]


def _named(state: Fields) -> Address:
    """The primary of a service, of which a sentinel says this. Raises LookupError that says why there is none."""
    if state["is_sdown"] or state["is_odown"] or not state["is_master"]:
        raise LookupError(f"it takes the primary, {_shown((state['ip'], state['port']))}, for down")
    return state["ip"], state["port"]


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# redis-py's are not typed.
_make_sentinels: Final[Callable[..., _Sentinels]] = _Sentinels
_make_pool: Final[Callable[..., SentinelConnectionPool]] = SentinelConnectionPool


def primary_pool(watched: Watched, settings: Fields) -> SentinelConnectionPool:
    """Connections to the primary: each that is opened asks the sentinels anew. `settings` are for those to Redis, where
    the URL says nothing else.
    """
    patience = {"socket_connect_timeout": ASK_TIMEOUT_S, "socket_timeout": ASK_TIMEOUT_S}
    ask = {"retry": Retry(NoBackoff(), 0), **patience, **watched.sentinel_settings}
    to_redis = {**settings, **watched.redis_settings}
    sentinels = _make_sentinels(watched.sentinels, sentinel_kwargs=ask, **to_redis)
    return _make_pool(watched.service, sentinels, **to_redis)


async def disconnect_sentinels(pool: SentinelConnectionPool) -> None:
    """Ends what was opened for asking."""
    for sentinel in pool.sentinel_manager.sentinels:
        await sentinel.aclose()
