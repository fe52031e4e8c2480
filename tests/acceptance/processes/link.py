"""A link between a client and its server that can be held and cut: what a slow or broken network does to both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

from redflow_server.config import Config
from redflow_server.gateway import Gateway

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CHUNK_BYTES = 64 * 1024


@dataclass(eq=False)
class Connection:
    """One connection through a link."""

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    replies_pass: asyncio.Event


@dataclass(eq=False)
class Link:
    """Listens on a port of its own and passes everything on to the server that `connect` reaches.

    What is held is passed on by `let_go`; what is held when the link is cut is lost.
    """

    connect: Callable[[], Awaitable[Streams]]
    port: int = 0
    holding: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the request has come for whose sake something is held."""
    _request_mark: bytes = b""
    _reply_mark: bytes = b""
    _requests_pass: asyncio.Event = field(default_factory=asyncio.Event)
    _connections: set[Connection] = field(default_factory=set)
    _pumps: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def hold_requests(self) -> None:
        """From now on nothing reaches the server."""
        self._requests_pass.clear()

    def hold_requests_from(self, mark: bytes) -> None:
        """From the next request with these bytes in it, nothing reaches the server."""
        self._request_mark = mark

    def hold_replies_from(self, mark: bytes) -> None:
        """From the reply to the next request with these bytes in it, nothing comes back on its connection."""
        self._reply_mark = mark

    def let_go(self) -> None:
        """Everything passes again, beginning with what was held."""
        self._request_mark = self._reply_mark = b""
        self.holding.clear()
        self._requests_pass.set()
        for connection in self._connections:
            connection.replies_pass.set()

    def cut(self) -> None:
        """Breaks all connections; new ones pass."""
        for connection in list(self._connections):
            self._break(connection)
        self.let_go()

    def _break(self, connection: Connection) -> None:
        self._connections.discard(connection)
        for writer in connection.writers:
            writer.transport.abort()
        connection.replies_pass.set()

    def _look_at(self, connection: Connection, request: bytes) -> None:
        if self._request_mark and self._request_mark in request:
            self._request_mark = b""
            self._requests_pass.clear()
            self.holding.set()
        if self._reply_mark and self._reply_mark in request:
            self._reply_mark = b""
            connection.replies_pass.clear()
            self.holding.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self.connect()
        connection = Connection((writer, server_writer), asyncio.Event())
        connection.replies_pass.set()
        self._connections.add(connection)
        for pump in (self._pump_requests(connection, reader), self._pump_replies(connection, server_reader)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump_requests(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        _, server = connection.writers
        try:
            while data := await reader.read(CHUNK_BYTES):
                self._look_at(connection, data)
                await self._requests_pass.wait()
                server.write(data)
                await server.drain()
        except ConnectionError:
            pass
        self._break(connection)

    async def _pump_replies(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        client, _ = connection.writers
        try:
            while data := await reader.read(CHUNK_BYTES):
                await connection.replies_pass.wait()
                client.write(data)
                await client.drain()
        except ConnectionError:
            pass
        self._break(connection)

    async def __aenter__(self) -> Link:
        self._requests_pass.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._pumps:
            await asyncio.wait(self._pumps)
        await self._server.wait_closed()


def link_to_gateway(gateway: Gateway) -> Link:
    """A link for a worker or client."""
    return Link(lambda: asyncio.open_connection("127.0.0.1", gateway.port))


def link_to_redis(url: str) -> Link:
    """A link for a gateway."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Link(lambda: asyncio.open_unix_connection(parts.path))
    return Link(lambda: asyncio.open_connection(parts.hostname, parts.port or 6379))


def _through(link: Link, url: str) -> str:
    """The URL of the same Redis, on the port of the link."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"redis://127.0.0.1:{link.port}/0"
    login, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{link.port}"))


@asynccontextmanager
async def gateway_behind_link(config: Config) -> AsyncIterator[tuple[Gateway, Link]]:
    """A gateway, and the link that it has to Redis."""
    async with link_to_redis(config.redis_url) as link:
        gateway = Gateway(replace(config, redis_url=_through(link, config.redis_url)))
        await gateway.start()
        try:
            yield gateway, link
        finally:
            link.let_go()
            await gateway.stop()
