"""What the model knows: the things that are stored, as plain data. What Redis holds twice, such as indexes, is derived
in `places.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redflow_server.domain.leases import Lane, Stamp
from redflow_server.domain.registry import WorkflowDefinition
from redflow_server.domain.runs import HandlerState
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.workers import Worker
from tests.oracle.model.luck import Luck

MAX_EFFECTS = 100
MAX_EFFECT_BYTES = 4 * 1024 * 1024


@dataclass
class Expiry:
    """When Redis removes a key by itself, by the real clock; that is not read to the millisecond."""

    at_ms: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expiry) and abs(self.at_ms - other.at_ms) < 10_000

    __hash__ = None  # type: ignore[assignment]  # it is compared with tolerance


@dataclass
class StepOnRecord:
    """A step, with the exact bytes of its value."""

    status: StepStatus
    kind: StepKind
    seq: int
    attempt: int
    started_at: int | None
    finished_at: int | None = None
    is_final: bool = False
    tries: int = 0
    resolved: int = 0
    target: str = ""
    meta: bytes = b""
    value: bytes = b""


@dataclass
class OpenWait:
    """A wait that is not over. One for an event has a registration number."""

    kind: StepKind
    since: int
    deadline: int | None
    group: str
    target: str
    number: int | None = None


@dataclass
class RunOnRecord:
    """A run with all that belongs to it."""

    id: str
    workflow: str
    queue: str
    status: RunStatus
    max_attempts: int
    created_at: int
    seq: int
    digest: str
    input: bytes
    input_meta: bytes = b""
    priority: int = 0
    is_typed: bool = False
    parent: str = ""
    waiters: list[str] = field(default_factory=list)
    event_seq: int | None = None
    key: str = ""
    key_expires_at: int | None = None
    output: bytes | None = None
    output_meta: bytes = b""
    error: bytes | None = None
    handler_error: bytes | None = None

    # Where it stands.
    place: int | None = None
    placed_at: int | None = None
    available_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    purge_from: int | None = None

    # What is counted.
    attempt: int = 0
    failures: int = 0
    deliveries: int = 0
    fruitful: int = 0
    losses: int = 0
    losses_total: int = 0
    undelivered: int = 0
    is_solo: bool = False
    resolutions: int = 0

    # Its lease, and how the last one ended.
    token: str = ""
    stamp: Stamp | None = None
    lease_ends_at: int | None = None
    is_acked: bool = False
    is_parked: bool = False
    is_woken: bool = False
    ended_token: str = ""
    ended_as: str = ""

    # Its end: times by which it comes, who asked for it, its failure handler.
    start_deadline: int | None = None
    run_deadline: int | None = None
    failing_deadline: int | None = None
    look_again_at: int | None = None
    timeout_requested_at: int | None = None
    cancel_requested_at: int | None = None
    cancel_reason: str = ""
    cancel_request_ids: list[str] = field(default_factory=list)
    retry_policy: str = ""
    handler_ms: int | None = None
    is_failing: bool = False
    failure_handler: HandlerState | None = None

    # Steps, and others.
    is_awaited: bool = False
    steps: dict[str, StepOnRecord] = field(default_factory=dict)
    waits: dict[str, OpenWait] = field(default_factory=dict)
    awaiters: set[tuple[str, str]] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    cursors: dict[str, int] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.status.is_terminal

    @property
    def steps_done(self) -> int:
        return sum(step.status in (StepStatus.SUCCEEDED, StepStatus.FAILED) for step in self.steps.values())

    @property
    def steps_bytes(self) -> int:
        return sum(len(step.value) for step in self.steps.values())

    @property
    def lane(self) -> Lane:
        return Lane(self.queue, self.workflow, self.is_solo)


@dataclass
class Pointer:
    """What a key leads to until Redis removes it."""

    target: str
    expiry: Expiry


@dataclass
class RememberedEvent:
    """An event that waits may still get."""

    number: int
    channel: str
    id: str
    at: int
    payload: bytes
    meta: bytes

    @property
    def size(self) -> int:
        return len(self.payload) + len(self.meta) + len(self.channel.encode()) + 200


@dataclass
class FanOut:
    """Subscribers of an event that are still to be started, in parts; and the queues in which they were then."""

    payload: bytes
    meta: bytes
    digest: str
    available_at: int | None
    number: int | None
    parts: list[list[str]]
    part: int = 1


@dataclass
class Emitted:
    """An event as repeats of it are answered."""

    name: str
    run_ids: tuple[str, ...]
    expires_at: int
    expiry: Expiry | None = None
    fan_out: FanOut | None = None
    queues: dict[str, str] = field(default_factory=dict)


@dataclass
class CronOnRecord:
    """A cron schedule."""

    document: bytes
    next_at: int | None = None
    skipped: int = 0
    problem: str = ""


@dataclass
class Registered:
    """A workflow of the registry."""

    definition: WorkflowDefinition
    owner: str
    build: str
    updated_at: int
    cron_ids: list[str]
    former_queues: list[tuple[str, int]]
    retry_policy: str
    handler_ms: int | None


@dataclass
class Announced:
    """The description of a session."""

    worker: Worker
    expiry: Expiry


@dataclass
class World:
    """Everything under a prefix."""

    is_ours: bool = False
    run_seq: int = 0
    lane_seq: int = 0
    event_seq: int | None = None
    events_dropped: int = 0
    reap_last: int | None = None
    reap_not_before: int | None = None
    runs: dict[str, RunOnRecord] = field(default_factory=dict)
    lane_changes: dict[Lane, int] = field(default_factory=dict)
    pointers: dict[tuple[str, str], Pointer] = field(default_factory=dict)
    outbox: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, Emitted] = field(default_factory=dict)
    fan_outs: dict[str, int] = field(default_factory=dict)
    event_keys: dict[tuple[str, str], Pointer] = field(default_factory=dict)
    memory: list[RememberedEvent] = field(default_factory=list)
    deliveries: dict[tuple[int, str], int] = field(default_factory=dict)
    workflows: dict[str, Registered] = field(default_factory=dict)
    builds: dict[str, dict[str, int]] = field(default_factory=dict)
    crons: dict[str, CronOnRecord] = field(default_factory=dict)
    cron_last: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    session_documents: dict[str, Announced] = field(default_factory=dict)


class Moment:
    """A world at the time of one script call, with what that call may still do to others and what chance decides."""

    def __init__(self, world: World, now: int, real_ms: float, luck: Luck) -> None:
        self.world = world
        self.now = now
        self.luck = luck
        self.max_losses = 3
        self._real_ms = real_ms
        self._effects = 0
        self._effect_bytes = 0

    def run(self, run_id: str) -> RunOnRecord | None:
        return self.world.runs.get(run_id)

    def expiry(self, window_ms: int) -> Expiry:
        """Of a key that Redis keeps for a minute longer than its window."""
        return Expiry(self._real_ms + window_ms + 60_000)

    def plain_expiry(self, keep_ms: int) -> Expiry:
        return Expiry(self._real_ms + keep_ms)

    @property
    def is_full(self) -> bool:
        """Whether the rest of the effects has to wait in the outbox."""
        return self._effects >= MAX_EFFECTS or self._effect_bytes >= MAX_EFFECT_BYTES

    def count_effect(self, size: int = 0) -> None:
        self._effects += 1
        self._effect_bytes += size

    def put_off(self, what: str, run_id: str) -> None:
        self.world.outbox[f"{what} {run_id}"] = self.now


Verb = Callable[..., object]
