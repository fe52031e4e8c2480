"""The process of `redflow worker run --reload`: runs the worker as a child, and another one when its code has changed.

Each child hands back at once what it has: the next one goes on with it, and it costs nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Final

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.output import say
from redflow_server.cli.signals import Signals
from redflow_server.cli.source_watch import SourceWatch
from redflow_server.cli.watched import END_S

POLL_S: Final = 0.5
SETTLE_S: Final = 0.1
"""Several files that are written together change within so long of each other."""
TERMINAL_S: Final = 0.5
"""A terminal sends its signals to parent and child. What the child has from there needs not be said again."""

FINAL: Final = (ExitCode.OK, ExitCode.USAGE)
"""After these no other code makes a difference: somebody has ended the worker, or the command line is wrong."""

PROGRAM: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from redflow_server.cli.watched import run
run(*sys.argv[2:])
"""
"""The child finds the modules that its parent finds, whichever way that was started."""


def run_reloading(place: str, command: Sequence[str]) -> ExitCode:
    """Runs the command of a worker, which has `--reload` in it, until a signal."""
    path, folder = list(sys.path), Path.cwd()
    sys.path.insert(0, str(folder))  # where the child looks for the module, too
    watch = SourceWatch(place.partition(":")[0], folder)
    return asyncio.run(_live(watch, path, _of_child(command)))


def _of_child(command: Sequence[str]) -> list[str]:
    flags = [argument for argument in command if argument != "--reload"]
    end = flags.index("--") if "--" in flags else len(flags)
    return [*flags[:end], "--drain-grace", "0", *flags[end:]]


async def _live(watch: SourceWatch, path: list[str], command: list[str]) -> ExitCode:
    with Signals() as signals:
        while True:
            watch.begin()
            child = await Child.start(watch, path, command)
            change = asyncio.create_task(_change(watch))
            try:
                await _first(signals.first.wait(), child.wait(), _until(change))
                if child.code is not None and not signals.first.is_set():
                    if child.code in FINAL:
                        return ExitCode(child.code)
                    say("the worker has ended: waiting for a change")
                    watch.widen()
                    await _first(signals.first.wait(), _until(change))
                if signals.first.is_set():
                    await _first(asyncio.sleep(TERMINAL_S), child.wait())
                    return ExitCode.OK
                say(f"{change.result()} has changed: restarting the worker")
            finally:
                change.cancel()
                await child.end()
            await _settle(watch)


class Child:
    """A process of the worker."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int, watch: SourceWatch) -> None:
        self._process = process
        self._pipe = pipe
        self._watch = watch
        self._unfinished = b""
        asyncio.get_running_loop().add_reader(pipe, self._read)

    @classmethod
    async def start(cls, watch: SourceWatch, path: list[str], command: list[str]) -> Child:
        """Starts it."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-B",  # compiled files are told apart by seconds: of two changes in one the second would not be seen
            "-P",
            *("-c", PROGRAM, json.dumps(path), str(writing), str(os.getpid()), *command),
            pass_fds=[writing],
        )
        os.close(writing)
        return cls(process, reading, watch)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    async def wait(self) -> None:
        """Waits for its end."""
        await self._process.wait()

    async def end(self) -> None:
        """Has it hand back what it has, and end."""
        if self.code is None:
            self._process.terminate()
            await _first(asyncio.sleep(END_S), self.wait())
        if self.code is None:
            say(f"the worker does not end within {END_S:g} s: killing it")
            self._process.kill()
            await self.wait()
        self._read()
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)

    def _read(self) -> None:
        try:
            came = os.read(self._pipe, 65_536)
        except BlockingIOError:
            return
        if not came:
            asyncio.get_running_loop().remove_reader(self._pipe)
        *files, self._unfinished = (self._unfinished + came).split(b"\0")
        self._watch.add(os.fsdecode(file) for file in files)


async def _change(watch: SourceWatch) -> str:
    while True:
        file = watch.change()
        if file is not None:
            return file
        await asyncio.sleep(POLL_S)


async def _settle(watch: SourceWatch) -> None:
    while True:
        await asyncio.sleep(SETTLE_S)
        if watch.change() is None:
            return


async def _until(task: asyncio.Task[str]) -> None:
    await asyncio.wait([task])


async def _first(*awaited: Coroutine[object, object, object]) -> None:
    """Returns when one of them is done; the others are dropped."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
