"""A shell at a terminal of its own, as a reader has one: what is typed into it, and the lines that it shows."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import sys
import termios
from pathlib import Path
from typing import Final, Self

DEADLINE_S: Final = 20.0
DONE: Final = "the command has ended with"
OF_A_JOB: Final = re.compile(r"\[\d+\][+-]?\s+(\d+$|Killed|Terminated|Done)")
"""What an interactive shell says of its jobs, when it comes to it."""

SHELL: Final = (
    "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp('bash', ['bash', '--norc', '--noprofile', '--noediting', '-i'])"
)
"""Makes the terminal that of its session, so that Ctrl-C reaches who is in the foreground."""

QUIET: Final = {"PS1": "", "TERM": "dumb", "HISTFILE": "", "VIRTUAL_ENV_DISABLE_PROMPT": "1"}


class Terminal:
    """An interactive bash. It shows nothing but what commands write: no prompt, no echo."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        device: io.FileIO,
        shown: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
    ) -> None:
        self._process = process
        self._device = device
        self._shown = shown
        self._reading = reading

    @classmethod
    async def open(cls, folder: Path, environment: dict[str, str]) -> Self:
        """Opens one in the folder."""
        master, slave = pty.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SHELL),
            cwd=folder,
            env={**environment, **QUIET},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        device, shown = io.FileIO(master, "r+"), asyncio.StreamReader()
        reading, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(shown), device
        )
        return cls(process, device, shown, reading)

    def type(self, line: str) -> None:
        """Types a line, and Enter."""
        self._device.write(f"{line}\n".encode())

    def interrupt(self) -> None:
        """Types Ctrl-C."""
        self._device.write(b"\x03")

    async def line(self) -> str:
        """The next line that it shows, but for those of the shell about its jobs."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    line = (await self._shown.readline()).decode()
                    assert line, "the shell has ended"
                    if not OF_A_JOB.match(line):
                        return line.rstrip("\n")
        except TimeoutError:
            raise AssertionError(f"no line is shown within {DEADLINE_S} s") from None

    async def ended(self) -> int:
        """The exit code of what was typed last. Nothing may be shown before it has ended."""
        self.type(f'echo "{DONE} $?"')
        line = await self.line()
        assert line.startswith(DONE), f"one more line is shown: {line}"
        return int(line.removeprefix(DONE))

    async def close(self) -> None:
        """Closes its window: SIGHUP tells those that still run in it."""
        self._reading.close()
        await asyncio.wait_for(self._process.wait(), DEADLINE_S)
