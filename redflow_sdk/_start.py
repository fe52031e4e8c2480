"""A run to start, by a client or by a handler: what its caller asks for, checked and encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from redflow_sdk import converter
from redflow_sdk._messages import RunStart
from redflow_sdk._names import check_name
from redflow_sdk._numbers import MAX_ATTEMPTS, check_count, check_seconds
from redflow_sdk._readers import Describe, with_glimpse
from redflow_sdk._types import Value
from redflow_sdk.records import Payload

if TYPE_CHECKING:  # a workflow is of a handler that takes a context, whose steps start runs
    from redflow_sdk.workflow import AnyWorkflow

MAX_PRIORITY: Final = 1000


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a run is to be started; None is as its workflow says. `idempotency_ttl` is in seconds."""

    idempotency_key: str | None = None
    idempotency_ttl: float | None = None
    queue: str | None = None
    priority: int = 0
    max_attempts: int | None = None
    describe: Describe = with_glimpse
    """How the faults of the input are told."""


def run_start(workflow: AnyWorkflow | str, input: Value, options: StartOptions) -> RunStart:
    """Raises InvalidInputError, InputValidationError, SerializationError."""
    check_key(options.idempotency_key, options.idempotency_ttl)
    if options.queue is not None:
        check_name("queue", options.queue)
    if options.max_attempts is not None:
        check_count("max_attempts", options.max_attempts, 1, MAX_ATTEMPTS)
    check_count("priority", options.priority, -MAX_PRIORITY, MAX_PRIORITY)
    if not isinstance(workflow, str) and hasattr(workflow, "output_type"):
        checked = Payload(workflow.validate(input, options.describe))
        start = RunStart(workflow.name, checked, workflow.queue, workflow.max_attempts)
    else:
        named: Value = workflow  # a plain function, perhaps, which the check refuses
        name = check_name("workflow", named)
        start = RunStart(name, Payload(converter.encode(input, f"the input of workflow {name!r}")))
    return replace(
        start,
        queue=options.queue or start.queue,
        max_attempts=options.max_attempts or start.max_attempts,
        priority=options.priority,
        idempotency_key=options.idempotency_key,
        idempotency_ttl=options.idempotency_ttl,
    )


def check_key(key: str | None, key_ttl: float | None) -> None:
    """An idempotency key, and for how many seconds it counts. Raises InvalidInputError."""
    if key is not None:
        check_name("idempotency_key", key)
    if key_ttl is not None:
        check_seconds("idempotency_ttl", key_ttl)
