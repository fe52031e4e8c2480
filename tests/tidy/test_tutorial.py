"""The tutorial does what it says: its files are written, its commands typed, and terminals show what stands there.

Only these are not as they stand there: the port of the gateway, ids, folders, times, and how long wrapping takes.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest_asyncio

from tests.cli.command import environment, processes_in
from tests.eventually import eventually
from tests.tidy.terminal import Terminal
from tests.tidy.test_docs import DOCS

TUTORIAL: Final = DOCS / "tutorial.md"
BLOCK: Final = re.compile(r"^```(\w*) ?(\w*)\n(.*?)^```$", re.M | re.S)
ACTIVATE: Final = "path/to/clone/.venv/bin/activate"
GATEWAY: Final = "redflow dev"
STAYS: Final = re.compile(r"redflow (dev|worker run)\b(?!.*&$)")
"""What goes on in the foreground of its terminal."""

LONG, SHORT = "asyncio.sleep(5)", "asyncio.sleep(1.5)"
RUN_ID: Final = re.compile(r"run_\w{22}")
VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "a time"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"), "a time of a log"),
    (re.compile(r"(?<=passed in )[\d.]+s"), "a length of time"),
    (re.compile(r"(?<=redflow  |python   )\d+\.\d+\.\d+"), "a version"),
    (re.compile(r"(?<=store    unix://)/\S+(?=/store\.sock)"), "a folder for the socket"),
    (re.compile(r"(?<=data     )/\S+(?=/shop/\.redflow)"), "the folder of the reader"),
    (re.compile(r"(localhost|127\.0\.0\.1):\d+"), "the gateway"),
)


@dataclass(frozen=True)
class File:
    """A block that is a file; its first line is a comment with the name."""

    name: str
    text: str


@dataclass(frozen=True)
class Typed:
    """A command or `^C` in a terminal, and the lines shown after it. Without a command they are of what runs there."""

    terminal: str
    command: str
    shown: tuple[str, ...]

    @property
    def stays(self) -> bool:
        """Whether the terminal is not free for another command after it."""
        return not self.command or STAYS.match(self.command) is not None


def steps_of(page: str) -> list[File | Typed]:
    """What the reader of the page does and sees, in order."""
    steps: list[File | Typed] = []
    for language, terminal, text in BLOCK.findall(page):
        if language == "console":
            for part in re.split(r"^(?=\$ |\^C$)", text, flags=re.M):
                first, *shown = part.splitlines() or [""]
                if first.startswith("$ ") or first == "^C":
                    steps.append(Typed(terminal, first.removeprefix("$ "), tuple(shown)))
                elif part:
                    steps.append(Typed(terminal, "", (first, *shown)))
        else:
            first, _, rest = text.partition("\n")
            steps.append(File(first.removeprefix("# "), rest))
    return steps


def without_what_varies(line: str) -> str:
    """The line, with words for what is another time or machine."""
    for pattern, word in VARYING:
        line = pattern.sub(f"<{word}>", line)
    return line


class Reader:
    """Somebody who follows the tutorial in an empty folder."""

    def __init__(self, folder: Path, still_open: AsyncExitStack) -> None:
        self._folder = folder
        self._still_open = still_open
        self._terminals: dict[str, Terminal] = {}
        self._environment = environment()
        self._runs: dict[str, str] = {}

    async def follow(self, page: str) -> None:
        """Does what the page says. Raises AssertionError at the first line that is not as it says."""
        for step in steps_of(page):
            if isinstance(step, File):
                (self._folder / "shop" / step.name).write_text(step.text.replace(LONG, SHORT))
            else:
                await self._do(step)

    async def _do(self, typed: Typed) -> None:
        terminal = self._terminals.get(typed.terminal) or await self._open(typed.terminal)
        if typed.command == "^C":
            terminal.interrupt()
        elif typed.command:
            terminal.type(self._on_this_machine(typed.command))
        for told in typed.shown:
            shown = await terminal.line()
            self._learn(told, shown)
            assert without_what_varies(shown) == without_what_varies(self._with_runs(told)), typed
        if not typed.stays:
            assert await terminal.ended() == 0, typed

    async def _open(self, name: str) -> Terminal:
        terminal = await Terminal.open(self._folder, self._environment)
        self._still_open.push_async_callback(terminal.close)
        self._terminals[name] = terminal
        return terminal

    def _on_this_machine(self, command: str) -> str:
        command = self._with_runs(command).replace(ACTIVATE, f"{Path(sys.executable).parent}/activate")
        return f"{command} --port 0" if command.startswith(GATEWAY) else command

    def _learn(self, told: str, shown: str) -> None:
        """Which run of the page is which one here, and where the gateway listens: what commands need to know."""
        for there, here in zip(RUN_ID.findall(told), RUN_ID.findall(shown), strict=False):
            if here not in self._runs.values():
                self._runs.setdefault(there, here)
        if listens := re.match(r"gateway  (\S+)$", shown):
            self._environment["REDFLOW_TARGET"] = listens[1]

    def _with_runs(self, text: str) -> str:
        return RUN_ID.sub(lambda found: self._runs.get(found[0], found[0]), text)


@pytest_asyncio.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    """A reader, whose terminals are closed at the end of the test: then nothing may run any more."""
    async with AsyncExitStack() as still_open:
        yield Reader(tmp_path, still_open)
    try:
        await eventually(lambda: not running_below(tmp_path), within=10)
    finally:
        for pid in running_below(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def running_below(folder: Path) -> list[int]:
    """The processes in the folder of the tutorial and in the folder of its store."""
    return [pid for below in (folder, folder / "shop", folder / "shop" / ".redflow") for pid in processes_in(below)]


def test_every_block_is_a_file_or_has_a_terminal() -> None:
    steps = steps_of(TUTORIAL.read_text())
    assert {step.terminal for step in steps if isinstance(step, Typed)} == {"gateway", "worker", "client"}
    assert all(re.fullmatch(r"\w+\.(py|ini)", step.name) for step in steps if isinstance(step, File))
    assert LONG in TUTORIAL.read_text()


async def test_the_tutorial_does_what_it_says(reader: Reader) -> None:
    await reader.follow(TUTORIAL.read_text())
