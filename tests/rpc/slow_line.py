"""A line between a gateway and Redis on which a test can hold up a script call, or the answer to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from redflow_server.store.scripts import load_scripts


class SlowLine:
    """Carries everything, until it meets the script that it was told of: from there on it waits for `let_go`.

    Whatever else the gateway asks of the store waits behind that.
    """

    def __init__(self, redis_url: str, folder: Path) -> None:
        self.url = f"unix://{folder}/line.sock"
        self._redis_url = redis_url
        self._call_marker = self._answer_marker = b""
        self._holds = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    def hold_call(self, script: str) -> None:
        """The next call of the script does not reach Redis until `let_go`."""
        self._call_marker = load_scripts()[script].sha
        self._holds.clear()
        self._goes_on.clear()

    def hold_answer(self, script: str) -> None:
        """Redis executes the next call of the script, and its answer does not come back until `let_go`."""
        self._answer_marker = load_scripts()[script].sha
        self._holds.clear()
        self._goes_on.clear()

    async def holds(self) -> None:
        """Returns when the call has been met."""
        await asyncio.wait_for(self._holds.wait(), 5)

    def let_go(self) -> None:
        """What was held up is carried."""
        self._goes_on.set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[SlowLine]:
        """The line while it can be connected to."""
        server = await asyncio.start_unix_server(self._accept, urlsplit(self.url).path)
        yield self
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await self._connect()
        held_back = asyncio.Event()
        carriers = [
            asyncio.create_task(self._carry_calls(reader, redis_writer, held_back)),
            asyncio.create_task(self._carry_answers(redis_reader, writer, held_back)),
        ]
        try:
            await asyncio.wait(carriers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for carrier in carriers:
                carrier.cancel()
            await asyncio.gather(*carriers, return_exceptions=True)
            for end in (writer, redis_writer):
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in (writer, redis_writer)), return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = urlsplit(self._redis_url)
        if url.scheme == "unix":
            return await asyncio.open_unix_connection(url.path)
        return await asyncio.open_connection(url.hostname, url.port)

    async def _carry_calls(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held_back: asyncio.Event
    ) -> None:
        while chunk := await reader.read(1 << 20):
            if self._call_marker and self._call_marker in chunk:
                self._call_marker = b""
                self._holds.set()
                await self._goes_on.wait()
            if self._answer_marker and self._answer_marker in chunk:
                self._answer_marker = b""
                held_back.set()
            writer.write(chunk)

    async def _carry_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held_back: asyncio.Event
    ) -> None:
        while chunk := await reader.read(1 << 20):
            if held_back.is_set():
                self._holds.set()
                await self._goes_on.wait()
                held_back.clear()
            writer.write(chunk)
