"""Runs and steps: what is asked for, and what is on record. Times are milliseconds since 1970 by Redis' clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redflow_server.domain.failures import Failure
from redflow_server.domain.payloads import Payload
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


class WaitingKind(StrEnum):
    """Why a run does not move."""

    DELAYED = "delayed"
    BACKING_OFF = "backing_off"
    NO_WORKER = "no_worker"
    NO_SLOT = "no_slot"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One thing a run waits for, in `detail` in words."""

    kind: WaitingKind
    until_ms: int | None = None
    detail: str = ""


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
    failures: int = 0
    session_id: str = ""
    worker_name: str = ""
    waiting_for: tuple[WaitingFor, ...] = ()


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
