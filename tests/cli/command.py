"""The real program in a process of its own: run to its end, or watched while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-m", "redflow_server.cli")
DEADLINE_S = 20.0
ROOT = Path(__file__).parents[2]

INHERITED = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
"""What a process needs of its machine. No more: PYTHONUNBUFFERED alone changes how a command ends."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # whatever the command shows
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error, and nothing else was written."""
        assert self.err.count("\n") == 1, self
        return self.last_error

    @property
    def last_error(self) -> str:
        """The line of an error, after those of a log."""
        assert self.out == "" and self.err.endswith("\n") and "Traceback" not in self.err, self
        last = self.err.splitlines()[-1]
        assert last.startswith("redflow: "), self
        return last.removeprefix("redflow: ")


class Command:
    """A process of the program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def line(self) -> str:
        """The next line on stdout, without its break."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def error_line(self, containing: str = "") -> str:
        """The next line on stderr that contains the text; "" when it ends without."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := (await self.process.stderr.readline()).decode():
                if containing in line:
                    return line.rstrip("\n")
        return ""

    async def end(self, stdin: bytes | None = None) -> Ended:
        """Its end, with what it wrote since."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self.process.communicate(stdin)
        assert self.process.returncode is not None
        return Ended(self.process.returncode, (out or b"").decode(), (err or b"").decode())


def environment() -> dict[str, str]:
    """The variables of every command: what the machine of the tests sets besides does not reach it."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}


async def spawn(
    *arguments: str | bytes | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    program: tuple[str, ...] = PROGRAM,
) -> Command:
    """Starts the program in the directory, in an environment that is the same everywhere but for these variables."""
    process = await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        cwd=cwd,
        env={**environment(), **(env or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    return Command(process)


async def redflow(
    *arguments: str | bytes | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    program: tuple[str, ...] = PROGRAM,
) -> Ended:
    """Runs the program to its end."""
    command = await spawn(*arguments, cwd=cwd, env=env, program=program)
    try:
        return await command.end(stdin)
    finally:
        if command.is_running:
            command.process.kill()
            await command.process.wait()


def processes_in(directory: Path) -> list[int]:
    """The processes whose working directory it is, as that of a store is where its data is (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        # What has ended since, or is not ours, does not say.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink() == directory:
                found.append(int(entry.name))
    return found
