"""Runs, steps and failures, workflows, workers and lanes as they are on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from redflow_sdk._types import JsonValue
from redflow_sdk.retry import RetryPolicy

T_co = TypeVar("T_co", covariant=True)

CODEC_MARK: Final = "codec"
"""Under which the metadata of a payload names its codec."""

RunStatus = Literal["scheduled", "queued", "running", "waiting", "succeeded", "failed", "canceled", "unknown"]
"""`unknown` is one that a newer gateway has and this SDK does not."""
StepStatus = Literal["succeeded", "failed", "waiting", "withdrawn", "unknown"]
FailureKind = Literal[
    "error",
    "timeout",
    "canceled",
    "validation",
    "unknown_workflow",
    "serialization",
    "non_retriable",
    "worker_lost",
    "run_not_found",
    "non_deterministic",
    "await_cycle",
]


@dataclass(frozen=True, slots=True)
class Payload:
    """Encoded data: JSON in UTF-8 unless `content_type` says otherwise. `metadata` goes with it, readable by everyone:
    which codec has encoded it, and the headers of a start.
    """

    data: bytes
    content_type: str = "application/json"
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def codec(self) -> str:
        """The name of the codec that has encoded it; empty when none has."""
        return dict(self.metadata).get(CODEC_MARK, "") if self.metadata else ""


Recorded: TypeAlias = JsonValue | Payload | bytes
"""A value on record: decoded JSON, a Payload that its reader has no codec for, or the bytes of what is no JSON."""


@dataclass(frozen=True, slots=True)
class Event(Generic[T_co]):
    """An event that a wait has got. `key` is None for one without; `time` is when it was emitted, aware, in UTC."""

    id: str
    name: str
    key: str | None
    payload: T_co
    time: datetime | None


@dataclass(frozen=True, slots=True)
class Raced(Generic[T_co]):
    """How a race has ended: which member was first, by its name in the call, and its value."""

    winner: str
    value: T_co


@dataclass(frozen=True, slots=True)
class Failure:
    """How something failed."""

    type: str
    message: str
    kind: FailureKind = "error"
    traceback: str = ""
    language: str = ""
    details: Recorded = None
    cause: Failure | None = None
    no_retry: bool = False
    retry_after: float | None = None
    """Seconds until the next attempt, as the failing code wished."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One thing a run waits for, such as "backing_off" or "no_worker", since and until when if that is known."""

    kind: str
    until: datetime | None = None
    detail: str = ""
    step_name: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run. `input` and `output` are decoded JSON, a Payload that its reader has no codec for, or the bytes of what is
    no JSON; listings leave them out.
    """

    id: str
    workflow: str
    queue: str
    status: RunStatus
    attempt: int
    max_attempts: int
    created_at: datetime
    input: Recorded = None
    output: Recorded = None
    failure: Failure | None = None
    priority: int = 0
    available_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str = ""
    idempotency_key: str = ""
    parent_run_id: str = ""
    delivery_count: int = 0
    losses: int = 0
    waiting_for: tuple[WaitingFor, ...] = ()
    worker_name: str = ""
    failure_handler: str = ""
    """What became of the failure handler: pending, done, failed or not_run; empty when there is nothing to say."""
    failure_handler_failure: Failure | None = None
    open_waits: int = 0
    """How many of its steps wait; `waiting_for` says for what, which listings leave out."""
    deadline_at: datetime | None = None
    """When a time-out ends it: of its start until it has started, then of the run, then of its failure handler."""
    lease_expires_at: datetime | None = None
    """Until when its worker has it, unless that renews its lease, as one that lives does; listings leave it out."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a run."""

    name: str
    seq: int
    kind: str
    status: StepStatus
    attempt: int
    output: Recorded = None
    failure: Failure | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    child_run_id: str = ""
    """The run that the step waits for, waited for, or has started."""
    tries: int = 0
    """How often its function was called in that attempt; 0 for what is no function."""
    event_id: str = ""
    """The event that a wait has got; empty when it has timed out."""
    is_retrying: bool = False
    """Whether its function has failed and is to be called again in this attempt."""


@dataclass(frozen=True, slots=True)
class CronTrigger:
    """A schedule that starts runs; an empty `timezone` is UTC."""

    id: str
    expression: str
    timezone: str = ""
    input: Recorded = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron schedule in force: its next occurrence, the last one that started a run, and how many passed unseen."""

    id: str
    workflow: str
    cron: CronTrigger
    next_at: datetime | None
    last_at: datetime | None
    skipped: int
    problem: str
    """Why it can start no runs; empty when it can."""


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """A workflow as the gateway has it registered. Time-outs are in seconds; None where there is no limit."""

    name: str
    queue: str
    max_attempts: int
    retry: RetryPolicy | None
    """None is the gateway's: 0.25 s, doubled up to 30 s, plus up to 0.1 s."""
    owner: str
    build_id: str
    updated_at: datetime
    """When a worker said last that this definition is in use."""
    run_timeout: float | None = None
    start_timeout: float | None = None
    failure_handler_timeout: float | None = None
    has_failure_handler: bool = False
    cron: tuple[CronTrigger, ...] = ()
    events: tuple[str, ...] = ()
    """Each event of one of these names starts a run."""
    input_schema: Recorded = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that is connected to some gateway. `id` stays the same when it connects anew.

    `leases`, `parked` and `is_draining` may be ten seconds old: so often gateways tell of their workers.
    """

    id: str
    name: str
    owner: str
    build_id: str
    sdk_name: str
    sdk_version: str
    language: str
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    slot_limit: int
    """How many runs it works on at once."""
    leases: int
    """How many it holds."""
    parked: int
    """How many of these wait in its memory, and take up no slot."""
    is_draining: bool
    """It ends, and takes nothing more."""
    connected_at: datetime
    gateway_id: str
    session_id: str

    @property
    def free_slots(self) -> int:
        """How many more runs it would take."""
        return 0 if self.is_draining else max(0, self.slot_limit - self.leases + self.parked)

    def serves(self, queue: str, workflow: str) -> bool:
        """Whether it takes runs of the workflow from the queue."""
        return queue in self.queues and workflow in self.workflows


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """How many runs of a workflow wait in a queue for a worker."""

    queue: str
    workflow: str
    depth: int


@dataclass(frozen=True, slots=True)
class Stats:
    """How many runs there are in each status, and how many wait in which lane."""

    runs: Mapping[RunStatus, int]
    lanes: tuple[LaneDepth, ...]
    """Those with runs that filled last, at most 500."""
    lane_count: int
    """All those with runs."""
    events_remembered: int = 0
    events_dropped: int = 0
    """Events that waits can still get, and those that were forgotten early because there were too many."""
