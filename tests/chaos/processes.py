"""Processes that can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Program:
    """A `redflow` command as a process of its own."""

    def __init__(self, name: str, *arguments: str, log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._arguments = arguments
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "redflow_server.cli",
                *self._arguments,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    async def kill(self) -> None:
        """kill -9."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "not started"
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    async def restart(self) -> None:
        """Kills it and starts it again."""
        await self.kill()
        await self.start()
