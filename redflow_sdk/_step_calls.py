"""What handlers ask of their steps, checked and encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from redflow_sdk import converter
from redflow_sdk._messages import ChildStart
from redflow_sdk._names import check_name
from redflow_sdk._numbers import MAX_ATTEMPTS, check_count, check_seconds
from redflow_sdk._types import Annotation, Function, Value
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.records import Payload

if TYPE_CHECKING:  # a workflow is of a handler that takes a context, whose steps make these calls
    from redflow_sdk.workflow import AnyWorkflow

MAX_PRIORITY: Final = 1000


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step that a handler asks for. `timeout` is in seconds."""

    name: str
    function: Function
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    timeout: float | None


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A run that a handler waits for."""

    name: str
    start: ChildStart
    output_type: Annotation


@dataclass(frozen=True, slots=True)
class EmitCall:
    """An event that a handler emits. `idempotency_ttl` is in seconds."""

    name: str
    event: str
    payload: Payload
    idempotency_key: str | None
    idempotency_ttl: float | None
    available_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a run is to be started; None is as its workflow says. `idempotency_ttl` is in seconds."""

    idempotency_key: str | None
    idempotency_ttl: float | None
    queue: str | None
    priority: int
    max_attempts: int | None


def child_call(name: str, workflow: AnyWorkflow | str, input: Value, options: StartOptions) -> ChildCall:
    """Raises InvalidInputError, InputValidationError, SerializationError."""
    check_name("step name", name)
    _check_key(options.idempotency_key, options.idempotency_ttl)
    if options.queue is not None:
        check_name("queue", options.queue)
    if options.max_attempts is not None:
        check_count("max_attempts", options.max_attempts, 1, MAX_ATTEMPTS)
    check_count("priority", options.priority, -MAX_PRIORITY, MAX_PRIORITY)
    if not isinstance(workflow, str) and hasattr(workflow, "output_type"):
        checked = Payload(workflow.validate(input))
        start = ChildStart(workflow.name, checked, workflow.queue, workflow.max_attempts)
    else:
        named: Value = workflow  # a plain function, perhaps, which the check refuses
        start = ChildStart(check_name("workflow", named), Payload(converter.encode(input)))
    start = replace(
        start,
        queue=options.queue or start.queue,
        max_attempts=options.max_attempts or start.max_attempts,
        priority=options.priority,
        idempotency_key=options.idempotency_key,
        idempotency_ttl=options.idempotency_ttl,
    )
    return ChildCall(name, start, Any if isinstance(workflow, str) else workflow.output_type)


def emit_call(name: str, event: str, payload: Value, key: str | None, key_ttl: float | None) -> EmitCall:
    """Raises InvalidInputError, SerializationError."""
    check_name("step name", name)
    check_name("event", event)
    _check_key(key, key_ttl)
    return EmitCall(name, event, Payload(converter.encode(payload)), key, key_ttl)


def _check_key(key: str | None, key_ttl: float | None) -> None:
    if key is not None:
        check_name("idempotency_key", key)
    if key_ttl is not None:
        check_seconds("idempotency_ttl", key_ttl)


def check_aware(field: str, at: datetime) -> datetime:
    """Returns the time. Raises InvalidInputError when it is none, or has no zone."""
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInputError(f"{field} must be an aware datetime; got {at!r}")
    return at
