"""What a worker and its gateway say to each other, as values. `_transport` turns them into messages and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from redflow_sdk.records import Failure, Payload
from redflow_sdk.retry import RetryPolicy


class LeaseState(Enum):
    """State of a lease as this worker knows it."""

    NOT_STARTED = auto()
    RUNNING = auto()
    FENCED = auto()


class StopReason(Enum):
    """Why a handler has to stop."""

    USER = auto()
    PARENT = auto()
    TIMEOUT = auto()
    LEASE_LOST = auto()
    MOVED = auto()
    UNPARKED = auto()
    WORKER_STOPPED = auto()
    """This worker was stopped; not from the gateway."""

    @property
    def is_lost(self) -> bool:
        """Whether the run is no longer this worker's: nothing may be reported for it."""
        return self in (StopReason.LEASE_LOST, StopReason.MOVED, StopReason.UNPARKED)


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease in a list of all that a worker holds."""

    lease_token: str
    state: LeaseState


@dataclass(frozen=True, slots=True)
class Stop:
    """The order to stop a handler."""

    lease_token: str
    reason: StopReason
    message: str = ""


class StepKind(Enum):
    """What a step is; a name keeps its kind."""

    FUNCTION = auto()
    TIMER = auto()
    EVENT = auto()
    CHILD = auto()
    TOKEN = auto()
    EMIT = auto()


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """A step on record. `is_by_reference` when its output has to be fetched."""

    name: str
    seq: int
    succeeded: bool
    attempt: int
    is_final: bool = False
    output: Payload | None = None
    failure: Failure | None = None
    is_by_reference: bool = False
    kind: StepKind = StepKind.FUNCTION
    is_open: bool = False
    """Whether it is a wait that is not over."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A leased run."""

    lease_token: str
    run_id: str
    workflow: str
    queue: str
    attempt: int
    max_attempts: int
    delivery_count: int
    input: Payload | None
    steps: tuple[StepSnapshot, ...]
    has_more_steps: bool = False
    """Whether more steps are on record than these."""
    stop: Stop | None = None
    """An order to stop that came before the assignment."""
    failure: Failure | None = None
    """The failure to handle, when the failure handler is to be called instead of the handler."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step function did. `is_final` when it failed and is not to be run again in this attempt."""

    lease_token: str
    steps_recorded: int
    name: str
    seq: int
    output: Payload | None
    failure: Failure | None
    elapsed_s: float
    is_final: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned."""

    lease_token: str
    steps_recorded: int
    output: Payload | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    lease_token: str
    steps_recorded: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Canceled:
    """The handler ended because it was told to."""

    lease_token: str
    steps_recorded: int
    is_worker_stopped: bool


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run to start. None leaves the choice to the gateway; `idempotency_ttl` is in seconds."""

    workflow: str
    input: Payload
    queue: str | None = None
    max_attempts: int | None = None
    priority: int = 0
    idempotency_key: str | None = None
    idempotency_ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that waits for the end of a run."""

    name: str
    seq: int
    start: RunStart


@dataclass(frozen=True, slots=True)
class StartWait:
    """A wait begins while other steps of the run are at work."""

    lease_token: str
    steps_recorded: int
    wait: Wait


@dataclass(frozen=True, slots=True)
class Suspend:
    """The handler can go on only when one of these waits is over."""

    lease_token: str
    steps_recorded: int
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """An event to emit as a step, for its subscribers to start at `available_at`, or at once. Times are seconds."""

    lease_token: str
    steps_recorded: int
    name: str
    seq: int
    event: str
    payload: Payload
    idempotency_key: str | None
    idempotency_ttl: float | None
    available_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailureHandled:
    """The failure handler has ended; `failure` is how it failed itself."""

    lease_token: str
    steps_recorded: int
    failure: Failure | None


class ReleaseReason(Enum):
    """Why a lease is handed back."""

    NOT_STARTED = auto()
    SHUTDOWN = auto()
    OVERLOADED = auto()
    CANCEL_IGNORED = auto()
    FENCED = auto()


@dataclass(frozen=True, slots=True)
class Release:
    """The worker hands a lease back."""

    lease_token: str
    steps_recorded: int
    reason: ReleaseReason


Item = StepReport | StartWait | Emit | Suspend | Completed | Failed | FailureHandled | Canceled | Release
ENDS_LEASE = (Suspend, Completed, Failed, FailureHandled, Canceled, Release)
"""The items that end a lease, or may."""


class Verdict(Enum):
    """What the gateway did with an item."""

    OK = auto()
    DUPLICATE = auto()
    CONFLICT = auto()
    RESOLVED = auto()
    SUSPENDED = auto()
    RUN_FAILURE_HANDLER = auto()
    LEASE_LOST = auto()
    MOVED = auto()
    STEPS_MISSING = auto()
    CANCELED = auto()
    TOO_LARGE = auto()
    INVALID = auto()
    UNAVAILABLE = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to an item."""

    verdict: Verdict
    reason: str = ""
    message: str = ""
    retry_delay_s: float = 0.0
    cancel_requested: bool = False
    stored: StepSnapshot | None = None
    resolutions: tuple[StepSnapshot, ...] = ()
    """The waits that are over, or the step that an emit has recorded."""


class RejectReason(Enum):
    """Why an assignment is not taken."""

    UNKNOWN_WORKFLOW = auto()
    OVERLOADED = auto()
    DRAINING = auto()


@dataclass(frozen=True, slots=True)
class Receipt:
    """An assignment has arrived."""

    lease_token: str
    rejected: RejectReason | None = None


@dataclass(frozen=True, slots=True)
class CronDefinition:
    """A cron schedule as it is registered; without input its runs get an empty object."""

    schedule_id: str
    expression: str
    timezone: str
    input: Payload | None


@dataclass(frozen=True, slots=True)
class Definition:
    """A workflow as it is registered. Times are seconds."""

    name: str
    digest: str
    queue: str
    max_attempts: int
    retry: RetryPolicy | None
    events: tuple[str, ...]
    run_timeout: float | None
    start_timeout: float | None
    cron: tuple[CronDefinition, ...] = ()
    has_failure_handler: bool = False
    failure_handler_timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """First message of a session."""

    owner: str
    worker_name: str
    instance_id: str
    build_id: str
    queues: tuple[str, ...]
    definitions: tuple[Definition, ...]
    slot_limit: int
    session_number: int
    held: tuple[HeldLease, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """The times the gateway dictates."""

    lease_s: float
    heartbeat_s: float
    fence_margin_s: float
    silence_s: float
    cancel_grace_s: float


@dataclass(frozen=True, slots=True)
class RegistrationProblem:
    """A definition that is not in force as this worker brought it."""

    workflow: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open. `lost` are leases this worker no longer has; `stops` those whose handlers have to end."""

    timing: Timing
    max_payload_bytes: int
    problems: tuple[RegistrationProblem, ...]
    lost: tuple[str, ...]
    finished: tuple[str, ...]
    stops: tuple[Stop, ...]


@dataclass(frozen=True, slots=True)
class SessionError:
    """The gateway ends the session."""

    reason: str
    message: str
    is_permanent: bool
    retry_delay_s: float


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message of the gateway."""

    opened: Opened | None
    answered_beat: int
    stops: tuple[Stop, ...]
    lost: tuple[str, ...]
    answers: tuple[tuple[int, Answer], ...]
    assignments: tuple[Assignment, ...]
    is_drained: bool
    reconnect_delay_s: float | None
    """How long to wait before going elsewhere, when the gateway goes away."""
    error: SessionError | None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message of the worker."""

    opening: Opening | None = None
    beat: int = 0
    held: tuple[HeldLease, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    items: tuple[tuple[int, Item], ...] = ()
    slot_limit: int | None = None
    drains: bool = False
    closes: bool = False
