"""Runs and steps: what is asked for, and what is on record. Times are milliseconds since 1970 by Redis' clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redflow_server.domain.errors import InvalidInput, Refusal
from redflow_server.domain.failures import Failure
from redflow_server.domain.names import MAX_ATTEMPTS, MAX_PRIORITY, Limits, check_name, check_payload
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import MAX_DURATION_MS
from redflow_server.domain.states import RunStatus, StepKind, StepStatus

DEFAULT_IDEMPOTENCY_TTL_MS: Final = 7 * 24 * 3600 * 1000


class InputMismatch(StrEnum):
    """What to do when an idempotency key was used with other input."""

    RETURN = "return"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be enqueued. `queue` and `max_attempts` None take the workflow's."""

    run_id: str
    workflow: str
    input: Payload
    queue: str | None = None
    priority: int = 0
    max_attempts: int | None = None
    available_at_ms: int | None = None
    idempotency_key: str | None = None
    idempotency_ttl_ms: int = DEFAULT_IDEMPOTENCY_TTL_MS
    on_input_mismatch: InputMismatch = InputMismatch.RETURN
    is_typed: bool = False


@dataclass(frozen=True, slots=True)
class StartedRun:
    """Answer to a start: the new run, or the one that an idempotency key names."""

    run_id: str
    was_created: bool
    input_differs: bool = False
    is_repeat: bool = False
    """Whether this very start had been made before."""


class HandlerState(StrEnum):
    """What became of the failure handler of a run."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    NOT_RUN = "not_run"


class WaitingKind(StrEnum):
    """Why a run does not move."""

    DELAYED = "delayed"
    BACKING_OFF = "backing_off"
    NO_WORKER = "no_worker"
    NO_SLOT = "no_slot"
    TIMER = "timer"
    EVENT = "event"
    CHILD = "child"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One thing a run waits for, in `detail` in words."""

    kind: WaitingKind
    until_ms: int | None = None
    detail: str = ""
    step_name: str = ""
    since_ms: int | None = None
    run_id: str = ""
    """The run that it waits for."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is on record. Listings leave the payloads out."""

    run_id: str
    workflow: str
    queue: str
    status: RunStatus
    attempt: int
    max_attempts: int
    created_at_ms: int
    seq: int = 0
    priority: int = 0
    input: Payload | None = None
    output: Payload | None = None
    failure: Failure | None = None
    available_at_ms: int | None = None
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    cancel_requested_at_ms: int | None = None
    cancel_reason: str = ""
    idempotency_key: str = ""
    parent_run_id: str = ""
    deliveries: int = 0
    losses: int = 0
    is_solo: bool = False
    """Whether it is delivered to a worker alone, because its next loss would end it."""
    failures: int = 0
    open_waits: int = 0
    placed_at_ms: int | None = None
    """Since when it stands where it is queued or scheduled, where that is not since its creation."""
    deadline_ms: int | None = None
    """When a time-out ends it: of its start until it has started, then of the run, then of its failure handler."""
    lease_ends_at_ms: int | None = None
    """Until when it is its worker's unless that renews its lease. Listings leave it out."""
    session_id: str = ""
    worker_name: str = ""
    waiting_for: tuple[WaitingFor, ...] = ()
    failure_handler: HandlerState | None = None
    failure_handler_failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it is on record."""

    name: str
    seq: int
    kind: StepKind
    status: StepStatus
    attempt: int
    is_final: bool = False
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    output: Payload | None = None
    failure: Failure | None = None
    size_bytes: int = 0
    child_run_id: str = ""
    event_id: str = ""
    event_at_ms: int | None = None
    token: str = ""
    tries: int = 0
    is_retrying: bool = False
    """Whether its function has failed, and another try of it was to follow."""
    resolved_seq: int = 0
    """Its number among the waits of its run that have ended, from 1; 0 for what is none, or open."""
    is_left_out: bool = False
    """Whether it has a value that was too large for the answer."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list: newest first, `status` and `workflow` together; before run number `before_seq`."""

    status: RunStatus | None = None
    workflow: str | None = None
    limit: int = 50
    offset: int = 0
    before_seq: int | None = None


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """What became of a start, by the number that its caller gave it."""

    number: int
    result: StartedRun | Refusal


@dataclass(frozen=True, slots=True)
class RunNews:
    """For somebody who starts runs and waits for them: what became of starts, runs that have ended, the ids of which
    there is none, and those of which nothing is told here, because there is no room to wait for more, or no way to read
    the run: whoever waits for these asks by a call.
    """

    starts: tuple[StartAnswer, ...]
    runs: tuple[Run, ...]
    unknown: tuple[str, ...]
    untold: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of a listing; `next_seq` is None on the last one."""

    runs: tuple[Run, ...]
    next_seq: int | None


@dataclass(frozen=True, slots=True)
class StepPage:
    """A page of the steps of a run; `next_seq` is None on the last one."""

    steps: tuple[Step, ...]
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """How many runs wait in a lane."""

    queue: str
    workflow: str
    depth: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Runs by status, and the lanes that are not empty (the 500 that changed last)."""

    runs: tuple[tuple[RunStatus, int], ...]
    lanes: tuple[LaneDepth, ...]
    lane_count: int
    events_remembered: int = 0
    events_dropped: int = 0


def check_new_run(run: NewRun, limits: Limits) -> None:
    """Raises InvalidInput or PayloadTooLarge when a run cannot be started."""
    check_name("workflow", run.workflow)
    if run.queue is not None:
        check_name("queue", run.queue)
    if run.idempotency_key is not None:
        check_name("idempotency_key", run.idempotency_key)
    check_payload("input", run.input, limits.max_payload_bytes)
    if not -MAX_PRIORITY <= run.priority <= MAX_PRIORITY:
        raise InvalidInput("priority", f"must be between -{MAX_PRIORITY} and {MAX_PRIORITY}", run.priority)
    if run.max_attempts is not None and not 1 <= run.max_attempts <= MAX_ATTEMPTS:
        raise InvalidInput("max_attempts", f"must be between 1 and {MAX_ATTEMPTS}", run.max_attempts)
    check_idempotency_ttl(run.idempotency_ttl_ms)


def check_idempotency_ttl(ttl_ms: int) -> None:
    """Raises InvalidInput when an idempotency key cannot hold for so long."""
    if not 1 <= ttl_ms <= MAX_DURATION_MS:
        raise InvalidInput("idempotency_ttl", "must be between 1 ms and 100 years", f"{ttl_ms} ms")
