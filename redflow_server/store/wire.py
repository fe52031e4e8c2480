"""Connections to Redis: redis-py opens them (URL, TLS, credentials), and hiredis packs and parses what goes over them.

redis-py's own reading costs more than many a script that is answered. So the transport that it has opened gets a
protocol of ours, which wakes no task for what arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.store.redis_options import check_options
from redflow_server.store.sentinels import Fields, disconnect_sentinels, is_sentinel_url, primary_pool, read_url
from redflow_server.version import VERSION

try:
    from redis.driver_info import DriverInfo

    _SHOWN_AS: Fields = {"driver_info": DriverInfo("redflow-gateway", VERSION)}
except ImportError:  # before 7.2
    _SHOWN_AS = {"lib_name": "redflow-gateway", "lib_version": VERSION}
"""In CLIENT LIST. Without it redis-py reads its own version from disk for each connection, which costs 2 ms."""

Reply = Any  # Any: what Redis answers is typed by the script that answered
Argument = str | bytes | int | float
Heard = Callable[[Reply], None]

CONNECT_TIMEOUT_S: Final = 5.0
REPLY_TIMEOUT_S: Final = 5.0
"""For what redis-py asks, such as its log-in. Some versions of it would wait for ever."""
CANCEL_AGAIN_S: Final = 0.1


class Dial:
    """Opens connections to one Redis, or to the primary that its sentinels name. Its client library repeats nothing: an
    answer lost is not a command undone.

    A URL that redis-py does not understand, an option in its query included, raises ValueError.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._pool = _pool(url)
            self._connection()
        except TypeError as error:
            option = str(error).rpartition("'")[0].rpartition("'")[2]
            raise ValueError(f"{option or 'one'} is no option of a Redis URL") from error
        except RedisError as error:
            raise ValueError(str(error)) from error

    async def wire(self, heard: Heard | None = None) -> Wire:
        """A new connection; `heard` is told what Redis says unasked. Raises StoreUnavailable."""
        connection = self._connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py
        except (OSError, RedisError) as error:
            raise unavailable(error) from error
        return Wire(connection, heard or _unasked)

    def _connection(self) -> AbstractConnection:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py
        return connection

    def client(self) -> Redis:
        """redis-py's client, for what is neither hot nor a transition: INFO, SCAN."""
        return Redis(connection_pool=self._pool)

    async def close(self) -> None:
        """Closes what the client opened."""
        await self._pool.disconnect()
        if isinstance(self._pool, SentinelConnectionPool):
            await disconnect_sentinels(self._pool)


def _pool(url: str) -> ConnectionPool:
    settings: Fields = {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        **_SHOWN_AS,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": REPLY_TIMEOUT_S,
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
    }
    check_options(url)
    return primary_pool(read_url(url), settings) if is_sentinel_url(url) else ConnectionPool.from_url(url, **settings)


@dataclass(slots=True, eq=False)
class Exchange:
    """Commands that were sent together, and the replies that have come."""

    count: int
    answer: asyncio.Future[list[Reply]]
    replies: list[Reply] = field(default_factory=list)


class Wire(asyncio.Protocol):
    """One open connection. It takes the transport over from redis-py, which is done with it."""

    def __init__(self, connection: AbstractConnection, heard: Heard) -> None:
        writer = connection._writer  # redis-py has no public way to its streams
        assert writer is not None
        # Else it would close the transport when it is no longer used.
        self._writer = writer
        connection._reader = connection._writer = None
        self._transport = writer.transport
        self._transport.set_protocol(self)
        self._heard = heard
        self._parser = hiredis.Reader()
        self._exchanges: deque[Exchange] = deque()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""

    def ask(self, commands: Iterable[bytes], count: int) -> asyncio.Future[list[Reply]]:
        """Sends so many packed commands, at least one. The future gets their replies, in order, errors among them as
        hiredis.ReplyError; it raises BrokenWire.
        """
        assert count
        exchange = Exchange(count, self._loop.create_future())
        if self.ended.done():
            exchange.answer.set_exception(BrokenWire([]))
            return exchange.answer
        self._exchanges.append(exchange)
        self._write(commands)
        return exchange.answer

    def send(self, commands: Iterable[bytes]) -> None:
        """Sends packed commands, while nothing is asked: what is replied is heard."""
        assert not self._exchanges
        self._write(commands)

    def _write(self, commands: Iterable[bytes]) -> None:
        self._transport.writelines(commands)

    def close(self) -> None:
        """Ends the connection at once; what was not answered stays unknown."""
        self._transport.abort()

    # ---- asyncio.Protocol ----

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        while (reply := self._parser.gets()) is not False:
            if not self._exchanges:
                self._heard(reply)
                continue
            exchange = self._exchanges[0]
            exchange.replies.append(reply)
            if len(exchange.replies) == exchange.count:
                self._exchanges.popleft()
                if not exchange.answer.done():
                    exchange.answer.set_result(exchange.replies)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        while self._exchanges:
            exchange = self._exchanges.popleft()
            if not exchange.answer.done():
                exchange.answer.set_exception(BrokenWire(exchange.replies))


def unavailable(error: OSError | RedisError) -> StoreUnavailable:
    """What a failure of redis-py means for whoever needed an answer."""
    is_answer = isinstance(error, (ResponseError, AuthenticationError, BusyLoadingError))
    return StoreUnavailable(f"Redis {'refuses' if is_answer else 'does not answer'}: {error}")


class BrokenWire(Exception):
    """The connection ended; `replies` came before."""

    def __init__(self, replies: list[Reply]) -> None:
        super().__init__("the connection to Redis ended")
        self.replies = replies


def _unasked(reply: Reply) -> None:
    raise BrokenWire([reply])


async def end(task: asyncio.Task[None]) -> None:
    """Cancels work on connections until it has ended: redis-py loses a cancellation that comes while it sends."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)


def pack(*command: Argument) -> bytes:
    """A command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub says one item
    return packed
