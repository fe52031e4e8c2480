"""Connections to Redis: redis-py opens them (URL, TLS, credentials), and hiredis packs and parses what goes over them.

redis-py's own reading costs about 20 us an answer, which is more than the script that is answered; a pipeline of a few
dozen scripts over its streams costs about 5 us each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from redflow_server.domain.errors import StoreUnavailable

Reply = Any  # Any: what Redis answers is typed by the script that answered
Argument = str | bytes | int | float

CONNECT_TIMEOUT_S: Final = 5.0
CANCEL_AGAIN_S: Final = 0.1
_CHUNK_BYTES: Final = 256 * 1024


class Dial:
    """Opens connections to one Redis. Its client library repeats nothing: an answer lost is not a command undone.

    A URL that redis-py does not understand, an option in its query included, raises ValueError.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = ConnectionPool.from_url(
            url,
            protocol=2,
            decode_responses=False,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            **({} if url.startswith("unix:") else {"socket_keepalive": True}),
        )
        try:
            self._connection()
        except TypeError as error:
            option = str(error).rpartition("'")[0].rpartition("'")[2]
            raise ValueError(f"{option or 'one'} is no option of a Redis URL") from error
        except RedisError as error:
            raise ValueError(str(error)) from error

    async def wire(self) -> Wire:
        """A new connection. Raises StoreUnavailable."""
        connection = self._connection()
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py
        except (OSError, RedisError) as error:
            raise StoreUnavailable(f"Redis does not take connections: {error}") from error
        return Wire(connection)

    def _connection(self) -> AbstractConnection:
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py
        return connection

    def client(self) -> Redis:
        """redis-py's client, for what is neither hot nor a transition: INFO, SCAN."""
        return Redis(connection_pool=self._pool)

    async def close(self) -> None:
        """Closes what the client opened."""
        await self._pool.disconnect()


class Wire:
    """One open connection."""

    def __init__(self, connection: AbstractConnection) -> None:
        reader, writer = connection._reader, connection._writer  # redis-py has no public way to its streams
        assert reader is not None and writer is not None
        self._connection = connection
        self._reader: asyncio.StreamReader = reader
        self._writer: asyncio.StreamWriter = writer
        self._parser = hiredis.Reader()

    def send(self, commands: Iterable[bytes]) -> None:
        """Sends packed commands."""
        self._writer.writelines(commands)

    async def replies(self, count: int) -> list[Reply]:
        """The next replies; errors among them are hiredis.ReplyError. Raises ConnectionError with those that came."""
        found: list[Reply] = []
        while len(found) < count:
            reply = self._parser.gets()
            if reply is False:
                try:
                    chunk = await self._reader.read(_CHUNK_BYTES)
                except OSError as error:
                    raise BrokenWire(found) from error
                if not chunk:
                    raise BrokenWire(found)
                self._parser.feed(chunk)
            else:
                found.append(reply)
        return found

    async def messages(self) -> list[Reply]:
        """What has come, at least one. Raises BrokenWire."""
        found = await self.replies(1)
        while (reply := self._parser.gets()) is not False:
            found.append(reply)
        return found

    async def close(self) -> None:
        """Closes the connection; what was not answered stays unknown."""
        await self._connection.disconnect(nowait=True)


class BrokenWire(Exception):
    """The connection ended; `replies` came before."""

    def __init__(self, replies: list[Reply]) -> None:
        super().__init__("the connection to Redis ended")
        self.replies = replies


async def end(task: asyncio.Task[None]) -> None:
    """Cancels work on connections until it has ended: redis-py loses a cancellation that comes while it sends."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)


def pack(*command: Argument) -> bytes:
    """A command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub says one item
    return packed
