"""Redis by way of its sentinels: what such a URL says, and connections to the primary that they name at the moment.

    redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DB][?OPTIONS]

`rediss+sentinel` is TLS for both. `sentinel_username` and `sentinel_password` are for the sentinels, all other options
for Redis, as redis-py takes them in its URLs. redis-py has no such URL; other programs that use it do, so it is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ResponseError

SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
DEFAULT_PORT: Final = 26379
ASK_TIMEOUT_S: Final = 1.0
"""Each sentinel is asked in turn, so one that is gone must not take long."""

_URL: Final = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?:(?P<login>[^@/?]*)@)?(?P<hosts>[^@/?]+)"
    r"/(?P<service>[^/?]+)(?:/(?P<db>[0-9]*))?(?:\?(?P<options>.*))?",
    re.ASCII,
)
_KINDS: Final = re.compile(r" - (?:\w+:)?(\w+Error)\b")
"""The kinds of what went wrong, in redis-py's error, which says no more of it that is of use."""
_FOR_SENTINELS: Final = {"sentinel_username": "username", "sentinel_password": "password"}

Settings = Mapping[str, Any]  # Any: redis-py's settings have all types


@dataclass(frozen=True, slots=True)
class Watched:
    """A service that sentinels watch: where they are, and how to talk to them and to Redis."""

    service: str
    sentinels: tuple[tuple[str, int], ...]
    sentinel_settings: Settings
    redis_settings: Settings

    @property
    def shown(self) -> str:
        """The sentinels, for a sentence."""
        return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.sentinels)


def is_sentinel_url(url: str) -> bool:
    """Whether it names sentinels."""
    return url.partition("://")[0] in SCHEMES


def read_url(url: str) -> Watched:
    """What such a URL says. Raises ValueError."""
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError("it is not redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB")
    options = dict(parse_qsl(parts["options"] or "", keep_blank_values=True))
    asked = {_FOR_SENTINELS[name]: options.pop(name) for name in _FOR_SENTINELS if name in options}
    login = f"{parts['login']}@" if parts["login"] else ""
    plain = parse_url(f"{parts['scheme']}://{login}primary/{parts['db'] or 0}?{urlencode(options)}")
    settings = {name: value for name, value in plain.items() if name not in ("host", "port", "connection_class")}
    tls = {name: value for name, value in settings.items() if name.startswith("ssl_")}
    encrypted = {"ssl": True} if parts["scheme"] == "rediss" else {}
    sentinels = tuple(_address(one) for one in parts["hosts"].split(","))
    return Watched(unquote(parts["service"]), sentinels, {**asked, **tls, **encrypted}, {**settings, **encrypted})


def _address(one: str) -> tuple[str, int]:
    parts = urlsplit(f"//{one}")
    if not parts.hostname or parts.port == 0:
        raise ValueError(f"{one!r} is not the HOST:PORT of a sentinel")
    return parts.hostname, parts.port or DEFAULT_PORT


class _Sentinels(Sentinel):
    """As redis-py asks them, with an error that says who was asked and what for, and no more."""

    shown: str

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Where the primary is. Raises redis-py's ConnectionError."""
        ask: Callable[[str], Awaitable[tuple[str, int]]] = super().discover_master
        try:
            return await ask(service_name)
        except MasterNotFoundError as error:
            sentence = f"none of the sentinels {self.shown} answers that {service_name!r} has a primary"
            why = ", ".join(sorted(set(_KINDS.findall(str(error)))))
            raise NoConnection(f"{sentence} ({why})" if why else sentence) from None
        except ResponseError as error:
            raise NoConnection(f"not all of {self.shown} are sentinels: {error}") from error


# redis-py's are not typed.
_make_sentinels: Final[Callable[..., _Sentinels]] = _Sentinels
_make_pool: Final[Callable[..., SentinelConnectionPool]] = SentinelConnectionPool


def primary_pool(watched: Watched, settings: Settings) -> SentinelConnectionPool:
    """Connections to the primary: each that is opened asks the sentinels anew. `settings` are for those to Redis, where
    the URL says nothing else.
    """
    patience = {"socket_connect_timeout": ASK_TIMEOUT_S, "socket_timeout": ASK_TIMEOUT_S}
    ask = {"retry": Retry(NoBackoff(), 0), **patience, **watched.sentinel_settings}
    sentinels = _make_sentinels(watched.sentinels, sentinel_kwargs=ask)
    sentinels.shown = watched.shown
    return _make_pool(watched.service, sentinels, **{**settings, **watched.redis_settings})


async def disconnect_sentinels(pool: SentinelConnectionPool) -> None:
    """Ends what was opened for asking."""
    for sentinel in pool.sentinel_manager.sentinels:
        await sentinel.aclose()
