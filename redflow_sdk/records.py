"""Runs, steps and failures as they are on record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from redflow_sdk._types import Json

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
    """Encoded data: JSON in UTF-8 unless `content_type` says otherwise."""

    data: bytes
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Failure:
    """How something failed."""

    type: str
    message: str
    kind: FailureKind = "error"
    traceback: str = ""
    language: str = ""
    details: Json = None
    cause: Failure | None = None
    no_retry: bool = False
    retry_after: float | None = None
    """Seconds until the next attempt, as the failing code wished."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """One thing a run waits for, such as "backing_off" or "no_worker", and until when if that is known."""

    kind: str
    until: datetime | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run. `input` and `output` are decoded JSON; listings leave them out."""

    id: str
    workflow: str
    queue: str
    status: RunStatus
    attempt: int
    max_attempts: int
    created_at: datetime
    input: Json = None
    output: Json = None
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


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a run."""

    name: str
    seq: int
    kind: str
    status: StepStatus
    attempt: int
    output: Json = None
    failure: Failure | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
