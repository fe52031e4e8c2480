"""Leases: what a gateway asks of the store on behalf of a session, and what the store answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from redflow_server.domain.events import NewEvent
from redflow_server.domain.failures import Failure
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun, Step
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.waits import Wait


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which session of which gateway a lease was last seen in. A higher epoch replaces a lower one."""

    session_id: str
    epoch: int
    gateway_id: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The queued runs of one workflow in one queue; `is_solo` those of them that are delivered to a worker alone."""

    queue: str
    workflow: str
    is_solo: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for runs from these lanes, which are of one kind, taken in turn."""

    stamp: Stamp
    lanes: tuple[Lane, ...]
    count: int
    secret: str
    lease_ms: int

    @property
    def is_solo(self) -> bool:
        """Whether they are lanes of runs that are delivered alone."""
        return self.lanes[0].is_solo


class StopReason(StrEnum):
    """Why a handler has to stop."""

    USER = "user"
    PARENT = "parent"
    TIMEOUT = "timeout"
    LEASE_LOST = "lease_lost"
    MOVED = "moved"
    UNPARKED = "unparked"


@dataclass(frozen=True, slots=True)
class Stop:
    """The order to stop a handler."""

    lease_token: str
    reason: StopReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class ListedLease:
    """A lease that a worker has listed, and the waits that it takes to be open."""

    lease_token: str
    open_waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseToRenew:
    """A listed lease, and the run that its token is of."""

    run_id: str
    listed: ListedLease


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome of a wait of a leased run, for its worker. `step` None: the store has lost the wait."""

    lease_token: str
    step_name: str
    step: Step | None


@dataclass(frozen=True, slots=True)
class WaitOver:
    """The message that a wait of a leased run is over. `step` is its outcome, unless that was too large to go along."""

    lease_token: str
    step_name: str
    step: Step | None


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A leased run with what its handler needs. `steps` is None when they are too many for the answer."""

    run_id: str
    lease_token: str
    lane: Lane
    attempt: int
    max_attempts: int
    deliveries: int
    input: Payload | None
    steps: tuple[Step, ...] | None
    run_time_left_ms: int | None = None
    parent_run_id: str = ""
    failure: Failure | None = None
    """The failure to handle, when the run's failure handler is to be run instead of its handler."""
    stop: Stop | None = None
    """An order to stop that came before the assignment: its handler is not to be started."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Answer to a claim: the runs, which of the lanes were left empty, and how often a lane had filled until then."""

    runs: tuple[ClaimedRun, ...]
    emptied: tuple[Lane, ...]
    lane_change: int


class Standing(StrEnum):
    """How a lease stands in the store."""

    HELD = "held"
    LOST = "lost"
    MOVED = "moved"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class LeaseStanding:
    """How one lease stands; `stop` when its handler has to end although the lease is held, and whether no other run
    is to be delivered beside its.
    """

    lease_token: str
    standing: Standing
    stop: Stop | None = None
    is_solo: bool = False
    waits_over: tuple[str, ...] = ()
    waits_unknown: tuple[str, ...] = ()
    """Of the waits that its worker takes to be open, those that are not, and those that the store has lost."""


class Outcome(StrEnum):
    """What the store did with an item of a worker."""

    OK = "ok"
    RESOLVED = "resolved"
    PARKED = "parked"
    RUN_FAILURE_HANDLER = "run_failure_handler"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    LEASE_LOST = "lost"
    MOVED = "moved"
    STEPS_MISSING = "steps_missing"
    NON_DETERMINISTIC = "non_deterministic"
    TOO_MANY_STEPS = "too_many_steps"
    NOT_ALLOWED = "not_allowed"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What a step function did."""

    name: str
    seq: int
    kind: StepKind
    status: StepStatus
    output: Payload | None
    failure: Failure | None
    is_final: bool
    elapsed_ms: int
    tries: int = 0


@dataclass(frozen=True, slots=True)
class RecordStep:
    """A step to be recorded under a lease."""

    run_id: str
    lease_token: str
    steps_recorded: int
    step: StepRecord
    rivals: tuple[str, ...] = ()
    """The other steps of its race: its success withdraws the waits among them that are open."""


@dataclass(frozen=True, slots=True)
class BeginWaits:
    """Waits that begin while their run goes on."""

    run_id: str
    lease_token: str
    steps_recorded: int
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class Suspend:
    """A run that can go on only when one of these waits is over. One that `parks` keeps its lease, without a slot."""

    run_id: str
    lease_token: str
    steps_recorded: int
    waits: tuple[Wait, ...]
    parks: bool = False


class ClosePolicy(StrEnum):
    """What becomes of a run that nobody waits for when the run that has started it ends."""

    ABANDON = "abandon"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class StartStep:
    """A run to be started as a step of another one, which does not wait for it."""

    run_id: str
    lease_token: str
    steps_recorded: int
    name: str
    seq: int
    start: NewRun
    close_policy: ClosePolicy


@dataclass(frozen=True, slots=True)
class EmitStep:
    """An event to be emitted as a step of a run; its subscribers start after `delay_ms`, or at once."""

    run_id: str
    lease_token: str
    steps_recorded: int
    name: str
    seq: int
    event: NewEvent
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Suspended:
    """Answer to waits: where the run went, if its lease is over; else the waits that are, with their values."""

    outcome: Outcome
    status: RunStatus | None = None
    resolutions: tuple[Step, ...] = ()
    step_name: str = ""
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class StepRecorded:
    """Answer to a step; `stored` is the other value that was there first, or what an emit or a start has recorded, and
    `rivals_over` are the waits of its race that have an outcome.
    """

    outcome: Outcome
    cancel_requested: bool = False
    stored: Step | None = None
    step_name: str = ""
    rivals_over: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class EndFailing:
    """The failure handler of a run has run; `failure` is how it failed itself."""

    run_id: str
    lease_token: str
    steps_recorded: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class CompleteRun:
    """A run that returned."""

    run_id: str
    lease_token: str
    steps_recorded: int
    output: Payload | None
    final_steps: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """An attempt that raised. `jitter` is a random number in [0, 1)."""

    run_id: str
    lease_token: str
    steps_recorded: int
    failure: Failure
    jitter: float
    final_steps: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortRun:
    """A run that its worker stopped: canceled if that was asked for or the worker itself stops, else `failure`."""

    run_id: str
    lease_token: str
    steps_recorded: int
    is_worker_stopped: bool
    reason: str
    failure: Failure
    final_steps: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """Answer to an item that ends a lease: the status the run went to, and the final steps that are on record with
    another value, without it.

    `step_name` is the final step that made the store refuse the item.
    """

    outcome: Outcome
    status: RunStatus | None = None
    conflicts: tuple[Step, ...] = ()
    step_name: str = ""


class ReleaseReason(StrEnum):
    """Why a lease is handed back."""

    NOT_STARTED = "not_started"
    SHUTDOWN = "shutdown"
    OVERLOADED = "overloaded"
    CANCEL_IGNORED = "cancel_ignored"
    FENCED = "fenced"
    UNDELIVERED = "undelivered"
    VANISHED = "vanished"
    CLOSED = "closed"
    UNPARKED = "unparked"


@dataclass(frozen=True, slots=True)
class Release:
    """A lease to be handed back. With a `stamp` only if the lease still carries it."""

    run_id: str
    lease_token: str
    reason: ReleaseReason
    stamp: Stamp | None = None
    delay_ms: int = 0
    steps_recorded: int = 0
