"""What there is in a play: runs, their steps and waits, and the events that were emitted. Only state; the rules are in
the modules that change it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from redflow_sdk._messages import Assignment, RunStart, StepSnapshot, Stop, Wait
from redflow_sdk._types import JsonValue
from redflow_sdk.records import Failure, Payload, RunStatus
from redflow_sdk.testing._clock import Due, VirtualClock
from redflow_sdk.workflow import AnyWorkflow

ENDS: Final = ("succeeded", "failed", "canceled")
DEFAULT_KEY_TTL_S: Final = 7 * 86400.0
"""For how long an idempotency key counts when nothing else is said."""


class Holder(Protocol):
    """Who executes the runs of one workflow."""

    @property
    def workflow(self) -> AnyWorkflow:
        """The workflow."""

    def assign(self, assignment: Assignment) -> None:
        """A run to execute."""

    def stop(self, stop: Stop) -> None:
        """A handler that has to end."""

    def resolve(self, token: str, step: StepSnapshot) -> None:
        """A wait of a run that it has is over."""

    def has(self, token: str) -> bool:
        """Whether it still has the lease."""


@dataclass(slots=True)
class StepRecord:
    """A step on record, and when it began and ended."""

    snapshot: StepSnapshot
    began_ms: int
    ended_ms: int | None


@dataclass(slots=True)
class OpenWait:
    """A wait that is not over: when it is to be given up, and the run that it waits for."""

    wait: Wait
    number: int
    """Which of all waits it is: an event goes to the first one first."""
    due: Due | None = None
    child: RunRecord | None = None


@dataclass(slots=True)
class RunRecord:
    """A run."""

    id: str
    start: RunStart
    queue: str
    max_attempts: int
    holder: Holder | None
    created_ms: int
    number_of_last_event: int
    """Its waits get later ones only."""
    parent: RunRecord | None = None
    available_ms: int | None = None
    status: RunStatus = "queued"
    failures: int = 0
    attempt: int = 0
    deliveries: int = 0
    lease: str | None = None
    """The token of the delivery that has it."""
    started_ms: int | None = None
    finished_ms: int | None = None
    output: Payload | None = None
    failure: Failure | None = None
    cancel_reason: str | None = None
    is_late: bool = False
    """Whether its run time-out has passed while a handler was at work."""
    is_failing: bool = False
    """Whether it has failed, and its failure handler is to run first."""
    handler_state: str = ""
    handler_failure: Failure | None = None
    deadline: Due | None = None
    steps: dict[str, StepRecord] = field(default_factory=dict)
    waits: dict[str, OpenWait] = field(default_factory=dict)
    awaited_by: list[tuple[RunRecord, str]] = field(default_factory=list)
    """Runs that wait for its end, and in which step."""
    ends_along: list[RunRecord] = field(default_factory=list)
    """Runs that are to end with it."""
    resolutions: int = 0
    cursors: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """The last event that it got, by name and key."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing becomes of it any more."""
        return self.status in ENDS

    @property
    def workflow(self) -> str:
        """The name of its workflow."""
        return self.start.workflow

    @property
    def steps_done(self) -> int:
        """How many of its steps have a value or a failure."""
        return sum(step.snapshot.is_finished for step in self.steps.values())

    @property
    def snapshots(self) -> tuple[StepSnapshot, ...]:
        """Its steps in order of first use."""
        return tuple(sorted((step.snapshot for step in self.steps.values()), key=lambda known: (known.seq, known.name)))


@dataclass(frozen=True, slots=True)
class EmittedEvent:
    """An event that a run has emitted. Times are virtual, aware, in UTC."""

    name: str
    payload: JsonValue
    """Plain JSON."""
    key: str | None
    """None for one that was emitted without."""
    time: datetime
    """When it was emitted."""
    available_at: datetime | None
    """When the runs it started begin, if it was scheduled; else None."""
    started: tuple[str, ...]
    """The ids of the runs it started."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """An event that waits can still get."""

    number: int
    id: str
    at_ms: int
    payload: Payload


class World:
    """All of it. `on_token` is told of each token that a step has begun to wait for."""

    def __init__(self, clock: VirtualClock, on_token: Callable[[RunRecord, str], None]) -> None:
        self.clock = clock
        self.on_token = on_token
        self.numbers = itertools.count(1)
        self.runs: dict[str, RunRecord] = {}
        self.ready: deque[RunRecord] = deque()
        self.holders: dict[str, Holder] = {}
        """By the names of their workflows."""
        self.stand_ins: dict[tuple[str, str], Holder] = {}
        """Who executes the run that a step starts instead of its workflow, by the parent's id and the step's name."""
        self.keys: dict[tuple[str, str], tuple[RunRecord, int]] = {}
        """Runs by workflow and idempotency key, and until when."""
        self.last_event = 0
        self.memory: dict[tuple[str, str | None], list[Remembered]] = {}
        self.event_keys: dict[tuple[str, str], tuple[EmittedEvent, int]] = {}
        self.emitted: list[EmittedEvent] = []
        self.awaited_events: set[str] = set()
        """The names of those that a step has waited for."""

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self.clock.now_ms
