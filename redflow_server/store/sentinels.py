"""Redis by way of its sentinels: what such a URL says, and connections to the primary that they name at the moment.

    redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DB][?OPTIONS]

`rediss+sentinel` is TLS for both. `sentinel_username` and `sentinel_password` are for the sentinels, all other options
for Redis, as redis-py takes them in its URLs. redis-py has no such URL; other programs that use it do, so it is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


class PrimaryPool(SentinelConnectionPool):
    """Connections to the primary: each that is opened asks the sentinels anew."""

    def __init__(self, watched: Watched, settings: Settings) -> None:
        """`settings` are for connections to Redis, beside those of the URL."""
        patience = {"socket_connect_timeout": ASK_TIMEOUT_S, "socket_timeout": ASK_TIMEOUT_S}
        ask = {"retry": Retry(NoBackoff(), 0), **patience, **watched.sentinel_settings}
        sentinels = Sentinel(watched.sentinels, sentinel_kwargs=ask)  # type: ignore[no-untyped-call]  # redis-py
        super().__init__(watched.service, sentinels, **{**settings, **watched.redis_settings})  # type: ignore[no-untyped-call]  # redis-py
        self._watched = watched

    async def get_master_address(self) -> tuple[str, int]:
        """Where the primary is. Raises redis-py's ConnectionError, without what only confuses."""
        watched = self._watched
        try:
            host, port = await super().get_master_address()  # type: ignore[no-untyped-call]  # redis-py
        except MasterNotFoundError:
            raise NoConnection(
                f"none of the sentinels {watched.shown} answers that {watched.service!r} has a primary"
            ) from None
        except ResponseError as error:
            raise NoConnection(f"not all of {watched.shown} are sentinels: {error}") from error
        return str(host), int(port)

    async def disconnect_sentinels(self) -> None:
        """Ends what was opened for asking."""
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()
