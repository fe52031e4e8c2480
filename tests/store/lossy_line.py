"""A line between a pipeline and Redis that can lose the answer to a call that was executed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from redflow_server.store.scripts import Script, load_scripts


class LossyLine:
    """Stands between a pipeline and Redis on a socket of its own, and can lose an answer.

    `lose_answer_to` cuts the connection when Redis has executed the next call of that script.
    """

    def __init__(self, redis_url: str, folder: Path, scripts: Mapping[str, Script] | None = None) -> None:
        self.url = f"unix://{folder}/line.sock"
        self.cuts = 0
        self._redis_url = redis_url
        self._scripts = scripts or load_scripts()
        self._path = folder / "line.sock"
        self._marker: bytes | None = None
        self._server: asyncio.Server | None = None

    def lose_answer_to(self, script: str) -> None:
        self._marker = self._scripts[script].sha

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await self._connect()
        cuts = asyncio.Event()
        there = asyncio.create_task(self._carry(reader, redis_writer, cuts))
        back = asyncio.create_task(self._carry_back(redis_reader, writer, cuts))
        await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        for task in (there, back):
            task.cancel()
        writer.close()
        redis_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = urlsplit(self._redis_url)
        if url.scheme == "unix":
            return await asyncio.open_unix_connection(url.path)
        return await asyncio.open_connection(url.hostname, url.port)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cuts: asyncio.Event) -> None:
        while chunk := await reader.read(1 << 20):
            if self._marker is not None and self._marker in chunk:
                self._marker = None
                cuts.set()
            writer.write(chunk)

    async def _carry_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cuts: asyncio.Event
    ) -> None:
        while chunk := await reader.read(1 << 20):
            if cuts.is_set():
                self.cuts += 1
                return
            writer.write(chunk)
