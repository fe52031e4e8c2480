"""A line between a client and its server that can be held up, slowed down and cut: what networks do to both.

It has a port of its own. What is held up is not lost, for TCP sends it again: it is passed on when the line is let go,
and neither end hears before that what has become of the other. What is held up when the line is cut is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from redflow_server.config import Config
from redflow_server.gateway import Gateway

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

CHUNK_BYTES: Final = 1024 * 1024


def to_port(port: int) -> Connect:
    """To a server on this machine."""
    return lambda: asyncio.open_connection("127.0.0.1", port)


def to_redis(url: str) -> Connect:
    """To a Redis."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return lambda: asyncio.open_unix_connection(parts.path)
    return lambda: asyncio.open_connection(parts.hostname, parts.port or 6379)


@dataclass(eq=False)
class Direction:
    """One way through a line, for all its connections."""

    passes: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        self.passes.set()


@dataclass(eq=False)
class Connection:
    """One connection through a line."""

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    replies_pass: asyncio.Event
    loses_reply: bool = False
    """Whether it breaks instead of passing on the next reply."""


class Line:
    """Listens, and passes everything on to what it connects to."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.port = 0
        self.requests = Direction()
        self.replies = Direction()
        self.holding = asyncio.Event()
        """Set when the request has come for whose sake something is held."""
        self.lost_replies = 0
        self._hold_at = self._hold_reply_at = self._lose_reply_at = b""
        self._connections: set[Connection] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Both."""
        return self.requests, self.replies

    def through(self, url: str) -> str:
        """The URL of the same Redis, by way of the line."""
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"redis://127.0.0.1:{self.port}/0"
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}"))

    # ---- what it does to what passes ----

    def hold_requests(self) -> None:
        """From now on nothing reaches the server."""
        self.requests.passes.clear()

    def hold_requests_from(self, mark: bytes) -> None:
        """From the next request with these bytes in it, nothing reaches the server."""
        self._hold_at = mark

    def hold_replies_from(self, mark: bytes) -> None:
        """From the reply to the next request with these bytes in it, nothing comes back on its connection."""
        self._hold_reply_at = mark

    def lose_reply_to(self, mark: bytes) -> None:
        """The connection on which the next request with these bytes comes is cut when the server has replied to it."""
        self._lose_reply_at = mark

    def let_go(self) -> None:
        """Everything passes, and at once, beginning with what was held."""
        self._hold_at = self._hold_reply_at = b""
        self.holding.clear()
        for direction in self.directions:
            direction.delay_s = 0.0
            direction.passes.set()
        for connection in self._connections:
            connection.replies_pass.set()

    def cut(self) -> None:
        """Breaks all connections; new ones pass."""
        for connection in tuple(self._connections):
            self._break(connection)
        self.let_go()

    def refuse(self) -> None:
        """Takes no new connections, for good."""
        assert self._server is not None
        self._server.close()

    def _break(self, connection: Connection) -> None:
        self._connections.discard(connection)
        for writer in connection.writers:
            writer.transport.abort()
        connection.replies_pass.set()

    def _look_at(self, connection: Connection, request: bytes) -> None:
        if self._hold_at and self._hold_at in request:
            self._hold_at = b""
            self.requests.passes.clear()
            self.holding.set()
        if self._hold_reply_at and self._hold_reply_at in request:
            self._hold_reply_at = b""
            connection.replies_pass.clear()
            self.holding.set()
        if self._lose_reply_at and self._lose_reply_at in request:
            self._lose_reply_at = b""
            connection.loses_reply = True

    # ---- passing on ----

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        connection = Connection((writer, far_writer), asyncio.Event())
        connection.replies_pass.set()
        self._connections.add(connection)
        for pump in (self._pump_requests(connection, reader), self._pump_replies(connection, far_reader)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump_requests(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        _, server = connection.writers
        try:
            while data := await reader.read(CHUNK_BYTES):
                self._look_at(connection, data)
                await self._pass(self.requests)
                server.write(data)
                await server.drain()
        except OSError:
            pass
        await self.requests.passes.wait()
        self._break(connection)

    async def _pump_replies(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        client, _ = connection.writers
        try:
            while data := await reader.read(CHUNK_BYTES):
                if connection.loses_reply:
                    self.lost_replies += 1
                    break
                await self._pass(self.replies)
                await connection.replies_pass.wait()
                client.write(data)
                await client.drain()
        except OSError:
            pass
        await self.replies.passes.wait()
        self._break(connection)

    async def _pass(self, direction: Direction) -> None:
        if direction.delay_s:
            await asyncio.sleep(direction.delay_s)
        await direction.passes.wait()

    # ---- its life ----

    async def open(self) -> None:
        """From now on it can be connected to."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Breaks what goes over it, and listens no more."""
        self.refuse()
        self.cut()
        if self._pumps:
            await asyncio.wait(self._pumps)

    async def __aenter__(self) -> Line:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@asynccontextmanager
async def gateway_behind_line(config: Config) -> AsyncIterator[tuple[Gateway, Line]]:
    """A gateway, and the line that it has to Redis."""
    async with Line(to_redis(config.redis_url)) as line:
        gateway = Gateway(replace(config, redis_url=line.through(config.redis_url)))
        await gateway.start()
        try:
            yield gateway, line
        finally:
            line.let_go()
            await gateway.stop()
