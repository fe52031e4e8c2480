"""The journal of side effects: a file that the workers append to, outside of the system under test.

Its lines: a handler `began` or `ended`; a failure handler has `handled` a run; a step function is called (`calls`), and
`ran` to its end, which may be much later in a process that stood still; a step `passed`, which the handler writes once
the step is recorded. The ticket is a number that each execution of a step function draws, and returns as part of its
value. A handler `saw` the end of a wait: its ticket stands for how. A run `asks` somebody outside, by a text in the
place of the step.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

NO_STEP: Final = "-"


@dataclass(frozen=True)
class Line:
    """What happened to a run, in which process."""

    event: str
    run_id: str
    pid: int
    step: str = NO_STEP
    ticket: int = 0


def append(path: str, line: Line) -> None:
    """One line, whole: appends of this size do not mix."""
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, (" ".join(str(part) for part in astuple(line)) + "\n").encode())
    finally:
        os.close(journal)


class Journal:
    """Reads what was appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._lines: list[Line] = []
        self._offset = 0

    def lines(self) -> list[Line]:
        """All lines so far, in the order in which they were written."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole + newline)
        for line in whole.decode().splitlines():
            event, run_id, pid, step, ticket = line.split()
            self._lines.append(Line(event, run_id, int(pid), step, int(ticket)))
        return self._lines

    def in_hand(self, pid: int) -> int:
        """How many handlers run in a process now."""
        events = Counter(line.event for line in self.lines() if line.pid == pid)
        return events["began"] - events["ended"]

    def tickets(self) -> dict[tuple[str, str], int]:
        """The ticket with which each step of each run passed."""
        return {(line.run_id, line.step): line.ticket for line in self.lines() if line.event == "passed"}

    def handled(self) -> set[str]:
        """The runs whose failure handler was called."""
        return {line.run_id for line in self.lines() if line.event == "handled"}

    def moved_runs(self) -> int:
        """How many runs began in more than one process: what a kill took from one, another finished."""
        pids: defaultdict[str, set[int]] = defaultdict(set)
        for line in self.lines():
            pids[line.run_id].add(line.pid)
        return sum(len(found) > 1 for found in pids.values())

    def repeated_steps(self) -> int:
        """How many steps ran more than once, which is right when the first one was not recorded any more."""
        ran = Counter((line.run_id, line.step) for line in self.lines() if line.event == "ran")
        return sum(times > 1 for times in ran.values())


def violations(lines: list[Line]) -> Iterator[str]:
    """Steps that ran again after they had passed, steps whose handlers saw another value than the recorded one, and
    waits that have ended in two ways.
    """
    ran: set[tuple[str, str, int]] = set()
    passed: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str], int] = {}
    for line in lines:
        step = line.run_id, line.step
        what = f"step {line.step} of {line.run_id}"
        if line.event == "calls" and step in passed:
            yield f"{what} ran again in process {line.pid} after it was recorded"
        elif line.event == "ran":
            ran.add((*step, line.ticket))
        elif line.event == "passed":
            if (*step, line.ticket) not in ran:
                yield f"{what} has the value of no execution of it in process {line.pid}"
            elif passed.setdefault(step, line.ticket) != line.ticket:
                yield f"{what} has another value in process {line.pid} than before"
        elif line.event == "saw" and seen.setdefault(step, line.ticket) != line.ticket:
            yield f"{what} has ended in another way in process {line.pid} than before"
