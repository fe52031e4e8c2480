"""What a snapshot holds: the things under a prefix, each as it was at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.store.key_kinds import Kind
from redflow_server.store.keys import Keys


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key: its kind is None when no rule knows it, its TTL -1 when it has none."""

    name: str
    kind: Kind | None
    type: str
    ttl_ms: int
    has_owner: bool = True
    """Whether that which it is kept for is there; only read for an owner's builds."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An entry of a run in a sorted set where its record does not put it."""

    kind: str
    key: str
    score: float


@dataclass(frozen=True, slots=True)
class OpenWait:
    """An open wait of a run. `is_known` to the run that it is for; `has_end` when that is open, or its end is to come
    by the outbox.
    """

    step: str
    entry: str
    is_known: bool
    has_end: bool

    @property
    def target(self) -> str:
        """The run that it is for."""
        return self.entry.rpartition("|")[2]


@dataclass(frozen=True, slots=True)
class Awaiter:
    """Who waits for a run, as `run_id step`, and whether that run has such a wait."""

    name: str
    has_wait: bool


@dataclass(frozen=True, slots=True)
class RunState:
    """A run, or what is left of one: an id that stands somewhere and has no record."""

    run_id: str
    record: Mapping[str, str]
    scores: Mapping[str, float]
    """Its scores in the sets of PLACES that its record puts it in."""
    strays: tuple[Stray, ...]
    headers: Mapping[str, str]
    sizes: Mapping[str, int]
    """Bytes of the values of steps."""
    other_step_fields: tuple[str, ...]
    pointer: str | None
    """The run that its idempotency key leads to."""
    has_data: bool
    has_steps: bool
    now_ms: int
    waits: tuple[OpenWait, ...]
    awaiters: tuple[Awaiter, ...]
    is_waking: bool
    """Whether the outbox is to tell of its end."""
    is_withdrawing: bool
    """Whether the outbox is to withdraw its waits."""

    @property
    def status(self) -> RunStatus | None:
        """None when there is no record that scripts can read."""
        if not (self.record.get("workflow") and self.record.get("queue")):
            return None
        name = self.record.get("status")
        return RunStatus(name) if name in set(RunStatus) else None

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    def number(self, field_name: str) -> float | None:
        """A field as a number, in whatever notation; None when there is none."""
        return number(self.record.get(field_name))


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane's number among the non-empty ones, and how many runs it has."""

    key: str
    change: float | None
    depth: int


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """A registered workflow and the sets that have it or should."""

    name: str
    exists: bool
    is_registered: bool
    missing: tuple[str, ...]
    strays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PointerState:
    """An idempotency key, and what the record of the run that it leads to says."""

    key: str
    target: str
    target_exists: bool
    own_key: str | None
    """The name of the pointer that the run's record asks for."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """What the end of a run left to be done, and how long ago."""

    entry: str
    age_ms: float


@dataclass(frozen=True, slots=True)
class EventState:
    """An emitted event; it `has_part` while subscribers of it are left to start."""

    event_id: str
    exists: bool
    ttl_ms: int
    is_fanning_out: bool
    name: str | None
    expires_at: str | None
    has_part: bool


@dataclass(frozen=True, slots=True)
class EventKeyState:
    """An event's idempotency key; `name` is that of the event that it leads to, None when that is gone."""

    key: str
    event_id: str
    name: str | None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A cron schedule and what names it."""

    schedule_id: str
    is_defined: bool
    workflow: str
    listed_by: tuple[str, ...]
    has_next: bool
    has_problem: bool
    has_skipped: bool


@dataclass(frozen=True, slots=True)
class StoredNumber:
    """What stands where an integer should, outside of the runs."""

    key: str
    what: str
    value: str | float


@dataclass(slots=True)
class Snapshot:
    """Everything under the prefix."""

    keys: Keys
    stored: list[KeyState] = field(default_factory=list)
    runs: list[RunState] = field(default_factory=list)
    lanes: list[LaneState] = field(default_factory=list)
    workflows: list[WorkflowState] = field(default_factory=list)
    pointers: list[PointerState] = field(default_factory=list)
    outbox: list[OutboxEntry] = field(default_factory=list)
    events: list[EventState] = field(default_factory=list)
    event_keys: list[EventKeyState] = field(default_factory=list)
    schedules: list[ScheduleState] = field(default_factory=list)
    numbers: list[StoredNumber] = field(default_factory=list)


def number(raw: str | None) -> float | None:
    """A stored number, in whatever notation; None when it is none."""
    try:
        return float(raw) if raw else None
    except ValueError:
        return None
