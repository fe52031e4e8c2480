"""What the demo shows while it happens, and checks at the end."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from pathlib import Path

HEARD_AFTER_S = 0.2


class Timeline:
    """What happens, in the order in which it happens, whoever is heard of it first."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._held: list[tuple[float, str, str]] = []
        self.checks: list[tuple[bool, str]] = []

    def say(self, who: str, what: str, at: float | None = None) -> None:
        """Something that happens now, or that happened `at` a moment of the monotonic clock."""
        self._held.append((time.monotonic() if at is None else at, who, what))

    def show(self, until: float = math.inf) -> None:
        """Prints what happened before the moment: nobody will be heard of anything earlier."""
        self._held.sort(key=lambda event: event[0])
        while self._held and self._held[0][0] < until:
            at, who, what = self._held.pop(0)
            sys.stdout.write(f"{at - self._began:6.2f} s  {who:<10} {what}\n")
        sys.stdout.flush()

    def check(self, holds: bool, what: str) -> None:  # noqa: FBT001  # the outcome is what is checked
        """One line of the list at the end."""
        self.checks.append((holds, what))

    def verdict(self) -> int:
        """Prints the list; the exit code."""
        self.show()
        sys.stdout.write("\n")
        for holds, what in self.checks:
            sys.stdout.write(f"  [{'x' if holds else ' '}] {what}\n")
        failed = sum(not holds for holds, _ in self.checks)
        took = time.monotonic() - self._began
        sys.stdout.write(f"\n{len(self.checks) - failed} of {len(self.checks)} checks hold; {took:.1f} s\n")
        return 1 if failed else 0


class Journal:
    """What the workflows did to the world."""

    def __init__(self, path: Path, timeline: Timeline) -> None:
        self.path = path
        path.touch()
        self._timeline = timeline
        self._seen = 0
        self.lines: list[tuple[str, str, str]] = []

    async def follow(self) -> None:
        """Has the timeline show what is old enough for every process to have written it down."""
        while True:
            self.read()
            self._timeline.show(time.monotonic() - HEARD_AFTER_S)
            await asyncio.sleep(0.05)

    def read(self) -> None:
        """Reads what is new."""
        lines = self.path.read_text().splitlines()
        for line in lines[self._seen :]:
            at, worker, run_id, what = line.split("\t")
            self.lines.append((worker, run_id, what))
            self._timeline.say(worker, what, float(at))
        self._seen = len(lines)

    def count(self, run_id: str, what: str) -> int:
        """How often a run did something."""
        return sum(1 for _, run, done in self.lines if run == run_id and done.startswith(what))

    def worker_of(self, run_id: str, what: str) -> str | None:
        """The worker that did something last."""
        workers = [worker for worker, run, done in self.lines if run == run_id and done.startswith(what)]
        return workers[-1] if workers else None
