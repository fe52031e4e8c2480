"""Which verbs a run of the oracle has reached: had an effect, or answered something."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from redflow_server.store.scripts import load_scripts

READS: Final = frozenset(
    {
        *("read_run", "read_steps", "list_runs", "list_workflows", "read_workflows", "read_schedules"),
        *("read_sessions", "read_stats", "due", "due_schedules"),
    }
)
"""Verbs that change nothing."""


@dataclass
class Counts:
    """By verb: all calls, those that were successful, those that were repeated, those whose answer was lost."""

    calls: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    last: str = ""
    """The verb that was called last."""

    def note(self, verb: str, answer: object, *, is_changed: bool) -> None:
        self.calls[verb] += 1
        has_answer = bool(answer) if isinstance(answer, tuple) else True
        is_good = has_answer if verb in READS else is_changed
        self.reached[verb] += is_good and not isinstance(answer, BaseException)

    def never_reached(self) -> list[str]:
        return sorted(load_scripts().keys() - +self.reached)

    def table(self) -> str:
        lines = [f"{'verb':<20} calls reached repeated  lost"]
        for verb in sorted(load_scripts()):
            numbers = (self.calls[verb], self.reached[verb], self.repeated[verb], self.lost[verb])
            lines.append(f"{verb:<20}" + "".join(f"{number:>7}" for number in numbers))
        return "\n".join(lines)
