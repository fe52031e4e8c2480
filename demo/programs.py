"""The processes of the demo: the development gateway, two workers, and the plain client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"


def generate_plain_stubs(python: str, folder: Path) -> None:
    """Makes stubs the way any user of the proto files does."""
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    subprocess.run([python, "-m", "grpc_tools.protoc", f"-I{PROTO}", *outputs, *sources], check=True)


class Program:
    """A `redflow` command in a process of its own, its output in a log."""

    def __init__(self, log: Path, *arguments: str, **environment: str) -> None:
        self._log = log
        self._arguments = arguments
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it."""
        command = [sys.executable, "-m", "redflow_server.cli", *self._arguments]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    async def kill(self) -> None:
        """Kill -9."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()


class PlainClient:
    """The client process; each call is one of its commands."""

    def __init__(self, target: str, stubs: Path) -> None:
        self._target = target
        self._stubs = stubs
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Starts it, with nothing but the plain stubs on its path."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "demo" / "plain_client.py"),
            self._target,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(self._stubs)},
            start_new_session=True,
        )

    async def call(self, do: str, **arguments: Any) -> Any:  # Any: JSON
        """One command and its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the plain client has ended")
        return json.loads(line)

    async def stop(self) -> None:
        """Ends it."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
