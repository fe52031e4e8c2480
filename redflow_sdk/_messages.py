"""What a worker and its gateway say to each other, as values. `_transport` turns them into messages and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from redflow_sdk.records import Failure, Payload


class LeaseState(Enum):
    """State of a lease as this worker knows it."""

    NOT_STARTED = auto()
    RUNNING = auto()
    PARKED = auto()
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
    open_waits: tuple[str, ...] = ()
    """The steps that its handler waits for."""


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
    START = auto()
    UNKNOWN = auto()
    """One of a later revision: no step of a handler is of it."""


class StepState(Enum):
    """How a step stands on record. UNKNOWN is a wait that the store has lost."""

    SUCCEEDED = auto()
    FAILED = auto()
    WAITING = auto()
    WITHDRAWN = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """A step on record. `is_by_reference` when its output has to be fetched."""

    name: str
    seq: int
    state: StepState
    attempt: int
    is_final: bool = False
    output: Payload | None = None
    failure: Failure | None = None
    is_by_reference: bool = False
    kind: StepKind = StepKind.FUNCTION
    resolved_seq: int = 0
    """Its number among the waits of its run that are over, and the functions that have won a race; or 0."""
    event_id: str = ""
    event_time: datetime | None = None
    """The event that a wait has got; one that has timed out has none."""
    tries: int = 0
    token: str = ""
    child_run_id: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it has a value."""
        return self.state is StepState.SUCCEEDED

    @property
    def is_finished(self) -> bool:
        """Whether it has a value, or a failure that may be final."""
        return self.state in (StepState.SUCCEEDED, StepState.FAILED)


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
    tries: int = 1
    rivals: tuple[str, ...] = ()
    """The other steps of its race; its success withdraws the waits among them."""


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
class TimerTarget:
    """A time: so many seconds from the first registration on, or a moment."""

    delay_s: float | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventTarget:
    """An event of this name, with exactly this key, or without one."""

    event: str
    key: str | None


@dataclass(frozen=True, slots=True)
class ChildTarget:
    """The end of a run."""

    start: RunStart


@dataclass(frozen=True, slots=True)
class TokenTarget:
    """Somebody completes the token of the step."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that waits, at most `timeout_s`. Of the waits with one `group`, which is not empty, the first to end
    withdraws the others.
    """

    name: str
    seq: int
    target: TimerTarget | EventTarget | ChildTarget | TokenTarget
    timeout_s: float | None = None
    group: str = ""

    @property
    def size_bytes(self) -> int:
        """About how much of a message it takes."""
        return len(self.target.start.input.data) if isinstance(self.target, ChildTarget) else 0


@dataclass(frozen=True, slots=True)
class BeginWaits:
    """Waits begin while other steps of the run are at work."""

    lease_token: str
    steps_recorded: int
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class Suspend:
    """The handler can go on only when one of these waits is over. One that `parks` stays in memory."""

    lease_token: str
    steps_recorded: int
    waits: tuple[Wait, ...]
    parks: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """A run to start as a step, without waiting for it; with `ends_with_parent` it ends when this run does."""

    lease_token: str
    steps_recorded: int
    name: str
    seq: int
    start: RunStart
    ends_with_parent: bool


@dataclass(frozen=True, slots=True)
class Emit:
    """An event to emit as a step, for its subscribers to start at `available_at`, or at once. Times are seconds."""

    lease_token: str
    steps_recorded: int
    name: str
    seq: int
    event: str
    key: str | None
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


Item = StepReport | BeginWaits | Start | Emit | Suspend | Completed | Failed | FailureHandled | Canceled | Release
ENDS_LEASE = (Suspend, Completed, Failed, FailureHandled, Canceled, Release)
"""The items that end a lease, or may."""


class Verdict(Enum):
    """What the gateway did with an item."""

    OK = auto()
    DUPLICATE = auto()
    CONFLICT = auto()
    RESOLVED = auto()
    PARKED = auto()
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
    """The waits that are over, rivals in a race that are, or the step that an emit or a start has recorded."""


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
class SessionError:
    """The gateway ends the session."""

    reason: str
    message: str
    is_permanent: bool
    retry_delay_s: float


@dataclass(frozen=True, slots=True)
class Resolution:
    """A wait of a run in memory is over, or the store has lost it."""

    lease_token: str
    step: StepSnapshot
