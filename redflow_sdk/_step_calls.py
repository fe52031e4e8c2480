"""What handlers ask of their steps, checked and encoded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redflow_sdk import converter
from redflow_sdk._messages import RunStart
from redflow_sdk._names import check_name
from redflow_sdk._start import StartOptions, check_key, run_start
from redflow_sdk._types import Annotation, Function, Value
from redflow_sdk.errors import InvalidInputError
from redflow_sdk.records import Payload

if TYPE_CHECKING:  # a workflow is of a handler that takes a context, whose steps make these calls
    from redflow_sdk.workflow import AnyWorkflow


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
    start: RunStart
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


def child_call(name: str, workflow: AnyWorkflow | str, input: Value, options: StartOptions) -> ChildCall:
    """Raises InvalidInputError, InputValidationError, SerializationError."""
    check_name("step name", name)
    start = run_start(workflow, input, options)
    return ChildCall(name, start, Any if isinstance(workflow, str) else workflow.output_type)


def emit_call(name: str, event: str, payload: Value, key: str | None, key_ttl: float | None) -> EmitCall:
    """Raises InvalidInputError, SerializationError."""
    check_name("step name", name)
    check_name("event", event)
    check_key(key, key_ttl)
    return EmitCall(name, event, Payload(converter.encode(payload)), key, key_ttl)


def check_aware(field: str, at: datetime) -> datetime:
    """Returns the time. Raises InvalidInputError when it is none, or has no zone."""
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInputError(f"{field} must be an aware datetime; got {at!r}")
    return at
