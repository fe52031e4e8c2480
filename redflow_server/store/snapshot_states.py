"""What a snapshot holds: the things under a prefix, each as it was at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.store.key_kinds import Kind
from redflow_server.store.keys import Keys

HEADER: Final = (
    *("status", "kind", "seq", "attempt", "final", "startedAt", "finishedAt", "size", "tries", "resolved"),
    *("target", "meta"),
)


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
    """An open wait of a run, and where it stands. One whose `entry` cannot be read has no kind."""

    step: str
    entry: str
    kind: str
    since: str
    deadline: str
    target: str
    timer_at: float | None
    """Its score among the timers."""
    place: float | None
    """Its score on its channel, of one for an event."""
    is_known: bool
    """Whether the run that it is for knows of it."""
    has_end: bool
    """Whether that run is open, or its end is to come by the outbox."""
    missed: str | None
    """An event on its channel that its run has not had, and that no open delivery will bring."""


@dataclass(frozen=True, slots=True)
class Awaiter:
    """Who waits for the end of a run, as `run_id step`, and whether that run has such a wait."""

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
    is_closing: bool
    """Whether the outbox is to end its children."""
    cursors: Mapping[str, str]
    """The number of the last event that it got, by channel."""
    has_children: bool

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
class StandingWait:
    """An entry of a wait in a set of such, as `run_id step`: `belongs` when that run has a wait that puts it there."""

    key: str
    member: str
    belongs: bool


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
class RememberedEvent:
    """An entry of the event memory, and whether the log of its channel has the same of it."""

    entry: str
    score: float
    is_logged: bool


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event in the log of its channel, and whether the event memory has the same of it."""

    entry_id: str
    is_remembered: bool


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The log of a channel; `is_held` while waits are left to hear of one of its events."""

    key: str
    events: tuple[LoggedEvent, ...]
    is_held: bool


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """An event that waits are left to hear of, and for how long; None when it is not remembered."""

    entry: str
    age_ms: float | None


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
    timers: list[StandingWait] = field(default_factory=list)
    event_waits: list[StandingWait] = field(default_factory=list)
    remembered: list[RememberedEvent] = field(default_factory=list)
    channels: list[ChannelState] = field(default_factory=list)
    deliveries: list[DeliveryState] = field(default_factory=list)
    event_bytes: tuple[str, int] = ("0", 0)
    """How many bytes the remembered events take: as counted, and as their entries say."""
    schedules: list[ScheduleState] = field(default_factory=list)
    numbers: list[StoredNumber] = field(default_factory=list)


def number(raw: str | None) -> float | None:
    """A stored number, in whatever notation; None when it is none."""
    try:
        return float(raw) if raw else None
    except ValueError:
        return None


def header_of(raw: str) -> dict[str, str]:
    """The fields of a step's header, as many as it has."""
    return dict(zip(HEADER, raw.split("|", len(HEADER) - 1), strict=False))
