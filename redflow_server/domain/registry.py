"""Workflow definitions as they are registered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.names import MAX_ATTEMPTS, check_label, check_name, check_payload
from redflow_server.domain.payloads import Payload

DEFAULT_QUEUE: Final = "default"
MAX_TRIGGERS: Final = 100
MAX_DEFINITION_BYTES: Final = 256 * 1024
"""Of a schema, or of the input of a cron schedule: a definition is not a place for data."""
FAILURE_HANDLER_MS: Final = 5 * 60 * 1000
"""How long the failure handler of a workflow may take that does not say it."""
MAX_DURATION_MS: Final = 100 * 366 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays between attempts; without one, 250 ms doubled up to 30 s, plus up to 100 ms."""

    initial_ms: int
    multiplier: float
    maximum_ms: int
    jitter_ratio: float


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A cron schedule that starts runs; "" as zone is UTC, None as input an empty object."""

    schedule_id: str
    expression: str
    timezone: str
    input: Payload | None


@dataclass(frozen=True, slots=True)
class WorkflowDefinition:
    """Everything the gateway needs to know about a workflow."""

    name: str
    digest: str
    queue: str = DEFAULT_QUEUE
    max_attempts: int = 1
    retry_policy: RetryPolicy | None = None
    run_timeout_ms: int | None = None
    start_timeout_ms: int | None = None
    failure_handler_timeout_ms: int | None = None
    cron: tuple[CronSchedule, ...] = ()
    event_names: tuple[str, ...] = ()
    input_json_schema: Payload | None = None
    has_failure_handler: bool = False


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A cron schedule of a workflow with the id by which it is known and its next occurrence."""

    schedule_id: str
    workflow: str
    cron: CronSchedule
    next_at_ms: int


@dataclass(frozen=True, slots=True)
class Registration:
    """The whole set of an owner's workflows, as one build of it defines them."""

    owner: str
    build_id: str
    workflows: tuple[WorkflowDefinition, ...]
    schedules: tuple[PlannedSchedule, ...] = ()


class RegistrationStatus(StrEnum):
    """What became of one definition."""

    REGISTERED = "registered"
    SUPERSEDED = "superseded"
    FOREIGN_OWNER = "foreign_owner"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """Answer for one definition; `former_queues` may still hold runs of it."""

    name: str
    status: RegistrationStatus
    message: str = ""
    former_queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """Answers for the definitions of a registration, and the names of the owner's workflows that it has retired."""

    results: tuple[RegistrationResult, ...]
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow as the registry holds it."""

    definition: WorkflowDefinition
    owner: str
    build_id: str
    updated_at_ms: int


@dataclass(frozen=True, slots=True)
class Assertion:
    """A live session's word that this definition is in use."""

    owner: str
    build_id: str
    name: str
    digest: str


def check_definition(definition: WorkflowDefinition) -> None:
    """Raises InvalidInput when a definition cannot be registered."""
    check_name("workflow.name", definition.name)
    check_name("workflow.queue", definition.queue)
    check_label("workflow.definition_digest", definition.digest)
    if not 1 <= definition.max_attempts <= MAX_ATTEMPTS:
        raise InvalidInput("workflow.max_attempts", f"must be between 1 and {MAX_ATTEMPTS}", definition.max_attempts)
    for field in ("run_timeout_ms", "start_timeout_ms", "failure_handler_timeout_ms"):
        value: int | None = getattr(definition, field)
        if value is not None and not 1 <= value <= MAX_DURATION_MS:
            raise InvalidInput(f"workflow.{field}", "must be between 1 ms and 100 years", f"{value} ms")
    if definition.retry_policy is not None:
        check_retry_policy(definition.retry_policy)
    for field, entries in (("cron", definition.cron), ("event_triggers", definition.event_names)):
        if len(entries) > MAX_TRIGGERS:
            raise InvalidInput(f"workflow.{field}", f"must be at most {MAX_TRIGGERS}", len(entries))
    for event_name in definition.event_names:
        check_name("workflow.event_triggers.event_name", event_name)
    for cron in definition.cron:
        check_label("workflow.cron.schedule_id", cron.schedule_id)
        if cron.input is not None:
            check_payload("workflow.cron.input", cron.input, MAX_DEFINITION_BYTES)
    if definition.input_json_schema is not None:
        check_payload("workflow.input_json_schema", definition.input_json_schema, MAX_DEFINITION_BYTES)


def check_retry_policy(policy: RetryPolicy) -> None:
    """Raises InvalidInput when a delay is negative, shrinking, endless or not a number."""
    field = "workflow.retry_policy"
    if not 0 <= policy.initial_ms <= MAX_DURATION_MS:
        raise InvalidInput(f"{field}.initial_interval", "must be between 0 and 100 years", f"{policy.initial_ms} ms")
    if not policy.initial_ms <= policy.maximum_ms <= MAX_DURATION_MS:
        rule = "must be at least initial_interval and at most 100 years"
        raise InvalidInput(f"{field}.maximum_interval", rule, f"{policy.maximum_ms} ms")
    if not 1 <= policy.multiplier <= 1000:
        raise InvalidInput(f"{field}.backoff_multiplier", "must be between 1 and 1000", policy.multiplier)
    if not 0 <= policy.jitter_ratio <= 1:
        raise InvalidInput(f"{field}.jitter_ratio", "must be between 0 and 1", policy.jitter_ratio)
