"""A worker as a process of its own, and the program that is that process: `python -m tests.sdk.worker_program`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from redflow_sdk import BlockingContext, Context, Worker, workflow

ROOT: Final = Path(__file__).resolve().parents[2]


@workflow(name="naps")
async def naps(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@workflow(name="two-steps-and-a-nap")
async def two_steps_and_a_nap(ctx: Context, seconds: float) -> str:
    await ctx.step.run("a", lambda: "A")
    await ctx.step.run("b", lambda: "B")
    await ctx.step.run("nap", asyncio.sleep, seconds)
    return "rested"


@workflow(name="holds-a-thread")
def holds_a_thread(ctx: BlockingContext, seconds: float) -> str:
    time.sleep(seconds)
    return "held"


WORKFLOWS: Final = (naps, two_steps_and_a_nap, holds_a_thread)


class WorkerProcess:
    """A worker process for a test to signal."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, target: str, *, drain_grace: float = 30.0) -> WorkerProcess:
        """Starts a worker of `WORKFLOWS` for the gateway at `target`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.sdk.worker_program",
            target,
            str(drain_grace),
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    async def exit_code(self, *, within: float) -> int:
        """How it ended; fails when it has not within so many seconds."""
        return await asyncio.wait_for(self._process.wait(), within)

    async def errors(self) -> str:
        """What it wrote to stderr; only when it has ended."""
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()

    async def kill(self) -> None:
        """Is gone, whatever state it is in."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


if __name__ == "__main__":
    asyncio.run(Worker(sys.argv[1], workflows=WORKFLOWS, drain_grace=float(sys.argv[2])).run())
