"""Processes that can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from pathlib import Path

from redflow_server import tethered

ROOT = Path(__file__).parents[2]
PORTS = range(20_000, 30_000)
"""Below those that systems give to whoever asks for any: while a killed gateway is away, nobody else gets its port."""


def quiet_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _tether() -> list[str]:
    """What stands before a command for it to end with us, should we be killed."""
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", tethered.__file__, str(os.getpid())]


class Program:
    """A `redflow` command as a process of its own."""

    def __init__(self, name: str, *arguments: str, log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._arguments = arguments
        self._log = log
        ours = {name: value for name, value in os.environ.items() if not name.startswith("REDFLOW_")}
        self._environment = {**ours, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process of its last start."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        assert self._process is not None, "not started"
        return self._process.returncode

    @property
    def command(self) -> list[str]:
        """What is executed."""
        return [sys.executable, "-m", "redflow_server.cli", *self._arguments]

    async def start(self) -> None:
        """Starts it. Returns at once, not when it is ready."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_tether(),
                *self.command,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def freeze(self) -> None:
        """SIGSTOP: it does nothing more, and nobody is told."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "not started"
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        """kill -9."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        self._signal(number)
        assert self._process is not None
        return await self._process.wait()
