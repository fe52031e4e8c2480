"""A line between two processes that can be cut, slowed down, or frozen in one direction or both: what networks do.

What is frozen is not lost: a network that drops packets makes TCP send them again, so the bytes come when it is mended.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

CHUNK_BYTES: Final = 64 * 1024


@dataclass(eq=False)
class Direction:
    """One way through the line, for all its connections."""

    passes: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        self.passes.set()


class Line:
    """Listens on a port of its own, and passes everything on to another one of this machine."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self.port = 0
        self.requests = Direction()
        self.replies = Direction()
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Both."""
        return self.requests, self.replies

    def cut(self) -> None:
        """Breaks all connections; new ones pass."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def mend(self) -> None:
        """Everything passes, beginning with what was frozen."""
        for direction in self.directions:
            direction.delay_s = 0.0
            direction.passes.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.transport.abort()
            return
        writers = {writer, far_writer}
        self._writers |= writers
        pumps = {
            asyncio.create_task(self._pump(source, target, direction))
            for source, target, direction in ((reader, far_writer, self.requests), (far_reader, writer, self.replies))
        }
        self._pumps |= pumps
        await asyncio.wait(pumps)
        self._pumps -= pumps
        self._writers -= writers
        for ended in writers:
            ended.close()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, direction: Direction) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                if direction.delay_s:
                    await asyncio.sleep(direction.delay_s)
                await direction.passes.wait()
                target.write(data)
                await target.drain()
            await direction.passes.wait()
            if target.can_write_eof():
                target.write_eof()
        except (OSError, RuntimeError):
            target.transport.abort()

    async def __aenter__(self) -> Line:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.mend()
        for pump in tuple(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self.cut()
