"""The states of a run and of a step, and which may follow which."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run is in its life."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing but retention leaves this state."""
        return self in TERMINAL


TERMINAL: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED})
OPEN: Final = frozenset(RunStatus) - TERMINAL

ALLOWED: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.SCHEDULED: frozenset({RunStatus.QUEUED, RunStatus.FAILED, RunStatus.CANCELED}),
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELED}),
    RunStatus.RUNNING: frozenset(RunStatus) - {RunStatus.RUNNING},
    RunStatus.WAITING: frozenset({RunStatus.QUEUED, RunStatus.FAILED, RunStatus.CANCELED}),
    **{status: frozenset[RunStatus]() for status in TERMINAL},
}


class StepStatus(StrEnum):
    """State of a recorded step. SUCCEEDED and WITHDRAWN are for ever; the others may still change."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    WAITING = "waiting"
    WITHDRAWN = "withdrawn"


class StepKind(StrEnum):
    """What a step is; a name keeps its kind for the life of the run."""

    FUNCTION = "function"
    TIMER = "timer"
    EVENT = "event"
    CHILD = "child"
    TOKEN = "token"
    EMIT = "emit"
    START = "start"
