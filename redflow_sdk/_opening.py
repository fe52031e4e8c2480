"""How a session begins: what a worker says of itself, and what its gateway dictates."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_sdk._messages import HeldLease, Stop
from redflow_sdk.records import Payload
from redflow_sdk.retry import RetryPolicy


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
