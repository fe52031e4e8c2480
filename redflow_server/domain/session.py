"""What a worker and a gateway say to each other in a session, as values.

`rpc/session_reader.py` makes them from messages, `rpc/session_writer.py` renders them; the rules are in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from redflow_server.domain.leases import (
    AbortRun,
    BeginWaits,
    ClaimedRun,
    CompleteRun,
    EmitStep,
    EndFailing,
    FailAttempt,
    LeaseStanding,
    RecordStep,
    Release,
    Resolution,
    StartStep,
    Stop,
    Suspend,
)
from redflow_server.domain.registry import RegistrationResult, WorkflowDefinition
from redflow_server.domain.runs import Step


class LeaseState(StrEnum):
    """State of a lease as its worker knows it."""

    NOT_STARTED = "not_started"
    RUNNING = "running"
    PARKED = "parked"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease that a worker says it holds."""

    lease_token: str
    state: LeaseState
    open_waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SdkInfo:
    """The program that speaks for a worker."""

    name: str
    version: str
    language: str


@dataclass(frozen=True, slots=True)
class OpenSession:
    """First message of a worker. No `queues` serves those of its workflows."""

    min_revision: int
    max_revision: int
    owner: str
    worker_name: str
    instance_id: str
    build_id: str
    sdk: SdkInfo
    queues: tuple[str, ...]
    workflows: tuple[WorkflowDefinition, ...]
    slot_limit: int
    max_receive_bytes: int
    session_number: int
    held_leases: tuple[HeldLease, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Every lease the worker holds; what it leaves out is lost."""

    sequence: int
    leases: tuple[HeldLease, ...]


class RejectReason(StrEnum):
    """Why a worker does not take an assignment."""

    UNKNOWN_WORKFLOW = "unknown_workflow"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A worker has an assignment, or does not take it."""

    lease_token: str
    rejected: RejectReason | None = None


Effect = (
    RecordStep
    | BeginWaits
    | EmitStep
    | StartStep
    | Suspend
    | CompleteRun
    | FailAttempt
    | EndFailing
    | AbortRun
    | Release
)


class ItemStatus(StrEnum):
    """Answer to an item."""

    OK = "ok"
    DUPLICATE = "duplicate"
    LEASE_LOST = "lease_lost"
    MOVED = "moved"
    STEPS_MISSING = "steps_missing"
    CONFLICT = "conflict"
    RESOLVED = "resolved"
    PARKED = "parked"
    SUSPENDED = "suspended"
    RUN_FAILURE_HANDLER = "run_failure_handler"
    CANCELED = "canceled"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Item:
    """Something a worker wants done, and the number under which it waits for the answer."""

    request_id: int
    effect: Effect


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item that is answered without the store: it is not valid, too large, or of a kind not served here."""

    request_id: int
    status: ItemStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many runs a worker takes at once, and whether it takes new ones."""

    slot_limit: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class WorkerMessage:
    """One message of a worker; its parts are dealt with in this order."""

    opening: OpenSession | None = None
    heartbeat: Heartbeat | None = None
    receipts: tuple[Receipt, ...] = ()
    items: tuple[Item | RefusedItem, ...] = ()
    capacity: Capacity | None = None
    drains: bool = False
    closes: bool = False


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """Answer to an item; `conflicting` are steps that had another value before, `resolutions` waits that are over."""

    request_id: int
    status: ItemStatus
    reason: str = ""
    message: str = ""
    retry_delay_ms: int = 0
    cancel_requested: bool = False
    conflicting: tuple[Step, ...] = ()
    resolutions: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The session is open: what became of the registration and of the leases the worker holds."""

    session_id: str
    revision: int
    registrations: tuple[RegistrationResult, ...]
    standings: tuple[LeaseStanding, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Answer to a heartbeat: the orders to stop that stand, and the leases that are gone."""

    sequence: int
    stops: tuple[Stop, ...]
    lost_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Draining:
    """The gateway is going away."""

    grace_ms: int
    reconnect_delay_ms: int


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """Why the gateway ends a session."""

    reason: str
    message: str
    is_permanent: bool = False
    retry_delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class GatewayMessage:
    """One message of a gateway."""

    opened: SessionOpened | None = None
    heartbeat_reply: HeartbeatReply | None = None
    answers: tuple[ItemAnswer, ...] = ()
    stops: tuple[Stop, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    assignments: tuple[ClaimedRun, ...] = ()
    is_drained: bool = False
    draining: Draining | None = None
    end: SessionEnd | None = None
