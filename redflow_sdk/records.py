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
"""`scheduled` waits for a time: a delayed start, or the back-off before a retry. `queued` waits for a worker, `running`
has one. `waiting` is set aside until a wait of a step is over. `succeeded`, `failed` and `canceled` are ends. `unknown`
is one that a newer gateway has and this SDK does not.
"""
StepStatus = Literal["succeeded", "failed", "waiting", "withdrawn", "unknown"]
"""`waiting` is an open wait. `withdrawn` is one that nothing ends any more: it has lost a race, or its run has ended
before it. `unknown` is as in RunStatus.
"""
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
"""Why something failed. A handler whose exception is of one of the kinds marked * is not called for another attempt.

- `error`: an exception of user code
- `timeout`: a step, the run or its start took too long; the run is over when its own time is
- `canceled` *: the run was canceled while the code ran
- `validation` *: the input does not fit the workflow
- `unknown_workflow` *: no worker knows the workflow
- `serialization` *: a value cannot be written as JSON, or is too large
- `non_retriable` *: the code wanted no other attempt
- `worker_lost`: workers were lost with the run too often
- `run_not_found`: a wait was for a run that is not there
- `non_deterministic` *: a step is on record as another kind of step
- `await_cycle`: runs would wait for each other
"""


@dataclass(frozen=True, slots=True)
class Payload:
    """Encoded data: JSON in UTF-8 unless `content_type` says otherwise."""

    data: bytes
    content_type: str = "application/json"
    """What `data` is; `application/octet-stream` where a codec has encoded it."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that go with it, readable by everyone: which codec has encoded it, the headers of a start."""

    @property
    def codec(self) -> str:
        """The name of the codec that has encoded it; empty when none has."""
        return dict(self.metadata).get(CODEC_MARK, "") if self.metadata else ""


Recorded: TypeAlias = JsonValue | Payload | bytes
"""A value on record: decoded JSON, a Payload that its reader has no codec for, or the bytes of what is no JSON."""


@dataclass(frozen=True, slots=True)
class Event(Generic[T_co]):
    """An event that a wait has got."""

    id: str
    name: str
    key: str | None
    """None for one that was emitted without."""
    payload: T_co
    """Of the `payload_type` of the wait; plain JSON without one."""
    time: datetime | None
    """When it was emitted, aware, in UTC; None when the gateway does not say."""


@dataclass(frozen=True, slots=True)
class Raced(Generic[T_co]):
    """How a race has ended."""

    winner: str
    """The member that was first, by its keyword in the call."""
    value: T_co
    """What it has returned."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How something failed."""

    type: str
    """The name of the exception, such as `LookupError`."""
    message: str
    kind: FailureKind = "error"
    traceback: str = ""
    """The way through the user's code, as text; empty where there is none, such as for causes."""
    language: str = ""
    """That of the code that failed, such as `python`; empty when the gateway itself has said so."""
    details: Recorded = None
    """JSON about it, such as the fields of an input that does not fit. A Payload where there is no codec for it."""
    cause: Failure | None = None
    """What has led to it."""
    no_retry: bool = False
    """Whether the failing code wanted no further attempt."""
    retry_after: float | None = None
    """Seconds until the next attempt, as the failing code wished."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One thing a run waits for."""

    kind: str
    """`delayed` (its start), `backing_off` (before the next attempt), `no_worker` (none serves it), `no_slot` (all that
    do are busy), or what a step waits for: `timer`, `event`, `child`, `token`.
    """
    until: datetime | None = None
    """When the wait is over at the latest, in UTC; None when no time ends it."""
    detail: str = ""
    """The event and its key, the other run, the queue: what it is, in words."""
    step_name: str = ""
    """The step that waits; empty when the run itself does."""
    since: datetime | None = None
    """Since when it waits, in UTC, if that is known."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is on record. All times are aware, in UTC.

    Listings leave out `input`, `output`, `waiting_for` and `lease_expires_at`.
    """

    id: str
    workflow: str
    """The name of its workflow."""
    queue: str
    status: RunStatus
    attempt: int
    """The attempt that runs or ran last, from 1; 0 before the first start."""
    max_attempts: int
    """Attempts in all, the first one included."""
    created_at: datetime
    input: Recorded = None
    """Decoded JSON; a Payload that its reader has no codec for; the bytes of what is no JSON."""
    output: Recorded = None
    """As `input`; None until the run has succeeded. `RunHandle.result` gives it typed."""
    failure: Failure | None = None
    """How the last attempt that failed has failed: of a run that goes on, too."""
    priority: int = 0
    """-1000 to 1000, higher first."""
    available_at: datetime | None = None
    """When it becomes due; only while it is `scheduled`."""
    started_at: datetime | None = None
    """The first start of all."""
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str = ""
    """What was said with the request."""
    idempotency_key: str = ""
    """Empty for none."""
    parent_run_id: str = ""
    """The run whose step has started it; empty for none."""
    delivery_count: int = 0
    """How often workers have received it so far."""
    losses: int = 0
    """How many workers were lost with it since its last progress."""
    waiting_for: tuple[WaitingFor, ...] = ()
    """What it waits for, the waits that began first, at most 100."""
    worker_name: str = ""
    """The worker that has it; empty when none has."""
    failure_handler: str = ""
    """What became of the failure handler: pending, done, failed or not_run; empty when there is nothing to say."""
    failure_handler_failure: Failure | None = None
    """How the failure handler itself has failed."""
    open_waits: int = 0
    """How many of its steps wait; `waiting_for` says for what."""
    deadline_at: datetime | None = None
    """When a time-out ends it: of its start until it has started, then of the run, then of its failure handler."""
    lease_expires_at: datetime | None = None
    """Until when its worker has it, unless that renews its lease, as one that lives does."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a run as it is on record. Times are aware, in UTC."""

    name: str
    seq: int
    """The order of first use within the run."""
    kind: str
    """`function`, `timer`, `event`, `child`, `token`; `emit` for an event that it emitted, `start` for a run that it
    started and does not wait for.
    """
    status: StepStatus
    attempt: int
    """The attempt of the run that wrote the record."""
    output: Recorded = None
    """Decoded JSON; a Payload that its reader has no codec for; the bytes of what is no JSON."""
    failure: Failure | None = None
    """How it has failed; also of a function that is to be called again."""
    started_at: datetime | None = None
    """Of a function, when the first of its tries in that attempt began."""
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
    """A schedule that starts runs, as a workflow names it."""

    id: str
    """Empty when the workflow gives it none."""
    expression: str
    timezone: str = ""
    """An IANA name; empty is UTC."""
    input: Recorded = None
    """What its runs get, as `Run.input`; None for nothing of its own."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron schedule in force. Times are aware, in UTC."""

    id: str
    """Made of the workflow and of the id or the fields of `cron`."""
    workflow: str
    cron: CronTrigger
    next_at: datetime | None
    """The occurrence that starts the next run; None when none can."""
    last_at: datetime | None
    """The last occurrence that has started a run."""
    skipped: int
    """How many occurrences passed unseen, such as while no gateway ran."""
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
    """Whose set of workflows it is in."""
    build_id: str
    """The build that this definition is of."""
    updated_at: datetime
    """When a worker said last that this definition is in use."""
    run_timeout: float | None = None
    """From the first start to the end, waits and back-off included."""
    start_timeout: float | None = None
    """From being due to the first start."""
    failure_handler_timeout: float | None = None
    """From the failure to the end of the failure handler."""
    has_failure_handler: bool = False
    cron: tuple[CronTrigger, ...] = ()
    events: tuple[str, ...] = ()
    """Each event of one of these names starts a run."""
    input_schema: Recorded = None
    """The JSON Schema of the input, if its worker's SDK tells it; this one does not."""
    digest: str = ""
    """Equal digests are the same definition."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that is connected to some gateway.

    `leases`, `parked` and `is_draining` may be ten seconds old: so often gateways tell of their workers.
    """

    id: str
    """Stays the same when the worker connects anew."""
    name: str
    owner: str
    """The set of workflows that it serves."""
    build_id: str
    sdk_name: str
    sdk_version: str
    language: str
    """That of its SDK, such as `python`."""
    queues: tuple[str, ...]
    """The queues that it serves."""
    workflows: tuple[str, ...]
    """The names of the workflows that it has."""
    slot_limit: int
    """How many runs it works on at once."""
    leases: int
    """How many it holds."""
    parked: int
    """How many of these wait in its memory, and take up no slot."""
    is_draining: bool
    """It ends, and takes nothing more."""
    connected_at: datetime
    """Aware, in UTC."""
    gateway_id: str
    """The gateway that it is connected to."""
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
    """How many."""


@dataclass(frozen=True, slots=True)
class Stats:
    """How many runs there are in each status, and how many wait in which lane."""

    runs: Mapping[RunStatus, int]
    """How many runs are in each status."""
    lanes: tuple[LaneDepth, ...]
    """Those with runs that filled last, at most 500."""
    lane_count: int
    """All those with runs."""
    events_remembered: int = 0
    """Events that waits can still get."""
    events_dropped: int = 0
    """Events that were forgotten early because there were too many."""
