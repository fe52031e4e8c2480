"""Domain values from and to protobuf messages: what all services share.

Where the wire says it differently: `StartRun` is enqueue, `StepReport` is record_step, `RunResult` is complete, fail or
abort, `LeaseRelease` is release, `OpenSession.session_number` is the epoch of a stamp, `AssignmentAck` is a receipt,
`Cancellation` is a stop.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2, workflow_pb2
from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    DEFAULT_QUEUE,
    MAX_DURATION_MS,
    CronSchedule,
    RegistrationResult,
    RegistrationStatus,
    RetryPolicy,
    Workflow,
    WorkflowDefinition,
)
from redflow_server.domain.runs import HandlerState, Run, Step, WaitingFor, WaitingKind
from redflow_server.domain.schedules import Schedule
from redflow_server.domain.states import RunStatus, StepKind, StepStatus

MAX_CAUSES: Final = 16
_MAX_SECONDS: Final = 253_402_300_799
_MIN_SECONDS: Final = -62_135_596_800

RUN_STATUS: Final = {status: run_pb2.RunStatus.Value(f"RUN_STATUS_{status.name}") for status in RunStatus}
RUN_STATUS_OF: Final = {number: status for status, number in RUN_STATUS.items()}
WAITING_KIND: Final = {kind: run_pb2.WaitingKind.Value(f"WAITING_KIND_{kind.name}") for kind in WaitingKind}
STEP_STATUS: Final = {status: run_pb2.StepStatus.Value(f"STEP_STATUS_{status.name}") for status in StepStatus}
STEP_STATUS_OF: Final = {number: status for status, number in STEP_STATUS.items()}
STEP_KIND: Final = {kind: run_pb2.StepKind.Value(f"STEP_KIND_{kind.name}") for kind in StepKind}
STEP_KIND_OF: Final = {number: kind for kind, number in STEP_KIND.items()}
FAILURE_KIND: Final = {kind: failure_pb2.FailureKind.Value(f"FAILURE_KIND_{kind.name}") for kind in FailureKind}
FAILURE_KIND_OF: Final = {number: kind for kind, number in FAILURE_KIND.items()}
RETRY_HINT: Final = {hint: failure_pb2.RetryHint.Value(f"RETRY_HINT_{hint.name}") for hint in RetryHint}
RETRY_HINT_OF: Final = {number: hint for hint, number in RETRY_HINT.items()}
HANDLER_STATE: Final = {
    state: run_pb2.FailureHandlerState.Value(f"FAILURE_HANDLER_STATE_{state.name}") for state in HandlerState
}
REGISTRATION_STATUS: Final = {
    status: workflow_pb2.RegistrationStatus.Value(f"REGISTRATION_STATUS_{status.name}") for status in RegistrationStatus
}


# ---- times ----


def timestamp(at_ms: int | None) -> Timestamp | None:
    """A moment for people."""
    if at_ms is None:
        return None
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def at_ms_of(field: str, moment: Timestamp) -> int:
    """Milliseconds of a moment. Raises InvalidInput outside the years 1 to 9999."""
    if not (_MIN_SECONDS <= moment.seconds <= _MAX_SECONDS and 0 <= moment.nanos < 1_000_000_000):
        raise InvalidInput(field, "must be within the years 1 to 9999", f"{moment.seconds} s {moment.nanos} ns")
    return moment.seconds * 1000 + moment.nanos // 1_000_000


def duration(length_ms: int) -> Duration:
    """A length of time."""
    return Duration(seconds=length_ms // 1000, nanos=length_ms % 1000 * 1_000_000)


def length_ms_of(field: str, length: Duration) -> int:
    """Milliseconds of a length of time, rounded up. Raises InvalidInput when it is negative or over 100 years."""
    length_ms = plain_ms(length)
    if length_ms < 0 or length_ms > MAX_DURATION_MS:
        raise InvalidInput(field, "must be between 0 and 100 years", f"{length.seconds} s {length.nanos} ns")
    return length_ms


def plain_ms(length: Duration) -> int:
    """Milliseconds of a length of time, rounded up, whether or not it makes sense."""
    return length.seconds * 1000 - -length.nanos // 1_000_000


def optional_ms(field: str, message: Message, name: str) -> int | None:
    """Milliseconds of an optional length of time."""
    return length_ms_of(field, getattr(message, name)) if message.HasField(name) else None


# ---- payloads and failures ----


def payload_of(message: payload_pb2.Payload) -> Payload:
    """A payload from the wire."""
    content_type = message.content_type
    if content_type == "application/json":
        content_type = ""
    metadata = message.metadata
    return Payload(message.data, content_type, tuple(sorted(metadata.items())) if metadata else ())


def payload(value: Payload | None) -> payload_pb2.Payload | None:
    """A payload for the wire."""
    if value is None:
        return None
    message = payload_pb2.Payload(data=value.data, content_type=value.content_type or "application/json")
    if value.metadata:
        message.metadata.update(value.metadata)
    return message


def failure_of(field: str, message: failure_pb2.Failure, depth: int = 0) -> Failure:
    """A failure from the wire; causes deeper than 16 are left out."""
    has_cause = message.HasField("cause") and depth < MAX_CAUSES
    return Failure(
        type=message.type,
        message=message.message,
        kind=FAILURE_KIND_OF.get(message.failure_kind, FailureKind.ERROR),
        traceback=message.traceback,
        language=message.language,
        hint=RETRY_HINT_OF.get(message.retry_hint),
        next_retry_delay_ms=optional_ms(f"{field}.next_retry_delay", message, "next_retry_delay"),
        details=payload_of(message.details) if message.HasField("details") else None,
        cause=failure_of(field, message.cause, depth + 1) if has_cause else None,
    )


def failure(value: Failure | None) -> failure_pb2.Failure | None:
    """A failure for the wire."""
    if value is None:
        return None
    delay_ms = value.next_retry_delay_ms
    return failure_pb2.Failure(
        type=value.type,
        message=value.message,
        failure_kind=FAILURE_KIND[value.kind],
        traceback=value.traceback,
        language=value.language,
        retry_hint=RETRY_HINT[value.hint] if value.hint else failure_pb2.RETRY_HINT_UNSPECIFIED,
        next_retry_delay=None if delay_ms is None else duration(delay_ms),
        details=payload(value.details),
        cause=failure(value.cause),
    )


# ---- runs and steps ----


def run(value: Run) -> run_pb2.Run:
    """A run for the wire."""
    return run_pb2.Run(
        run_id=value.run_id,
        workflow=value.workflow,
        queue=value.queue,
        status=RUN_STATUS[value.status],
        input=payload(value.input),
        output=payload(value.output),
        failure=failure(value.failure),
        attempt=value.attempt,
        max_attempts=value.max_attempts,
        priority=value.priority,
        create_time=timestamp(value.created_at_ms),
        available_time=timestamp(value.available_at_ms),
        start_time=timestamp(value.started_at_ms),
        finish_time=timestamp(value.finished_at_ms),
        cancel_request_time=timestamp(value.cancel_requested_at_ms),
        cancel_reason=value.cancel_reason,
        idempotency_key=value.idempotency_key,
        parent_run_id=value.parent_run_id,
        delivery_count=value.deliveries,
        losses=value.losses,
        waiting_for=map(waiting_for, value.waiting_for),
        worker_name=value.worker_name,
        failure_handler=HANDLER_STATE[value.failure_handler]
        if value.failure_handler
        else run_pb2.FAILURE_HANDLER_STATE_UNSPECIFIED,
        failure_handler_failure=failure(value.failure_handler_failure),
        open_waits=value.open_waits,
        deadline_time=timestamp(value.deadline_ms),
        lease_expire_time=timestamp(value.lease_ends_at_ms),
    )


def waiting_for(value: WaitingFor) -> run_pb2.WaitingFor:
    """What a run waits for, for the wire."""
    return run_pb2.WaitingFor(
        kind=WAITING_KIND[value.kind],
        step_name=value.step_name,
        since_time=timestamp(value.since_ms),
        until_time=timestamp(value.until_ms),
        detail=value.detail,
    )


def step(value: Step) -> run_pb2.Step:
    """A step for the wire."""
    return run_pb2.Step(
        step_name=value.name,
        step_seq=value.seq,
        step_kind=STEP_KIND[value.kind],
        status=STEP_STATUS[value.status],
        attempt=value.attempt,
        output=payload(value.output),
        failure=failure(value.failure),
        start_time=timestamp(value.started_at_ms),
        finish_time=timestamp(value.finished_at_ms),
        child_run_id=value.child_run_id,
        tries=value.tries,
        event_id=value.event_id,
        retrying=value.is_retrying,
    )


# ---- registry ----


def definition_of(message: workflow_pb2.WorkflowDefinition) -> WorkflowDefinition:
    """A definition from the wire. What makes no sense in it is refused by the registry, for this definition only."""
    policy = message.retry_policy
    retry_policy = None
    if message.HasField("retry_policy"):
        retry_policy = RetryPolicy(
            plain_ms(policy.initial_interval),
            policy.backoff_multiplier,
            plain_ms(policy.maximum_interval),
            policy.jitter_ratio,
        )
    return WorkflowDefinition(
        name=message.name,
        digest=message.definition_digest,
        queue=message.queue or DEFAULT_QUEUE,
        max_attempts=message.max_attempts or 1,
        retry_policy=retry_policy,
        run_timeout_ms=plain_ms(message.run_timeout) if message.HasField("run_timeout") else None,
        start_timeout_ms=plain_ms(message.start_timeout) if message.HasField("start_timeout") else None,
        failure_handler_timeout_ms=plain_ms(message.failure_handler_timeout)
        if message.HasField("failure_handler_timeout")
        else None,
        cron=tuple(
            CronSchedule(
                cron.schedule_id,
                cron.expression,
                cron.timezone,
                payload_of(cron.input) if cron.HasField("input") else None,
            )
            for cron in message.cron
        ),
        event_names=tuple(trigger.event_name for trigger in message.event_triggers),
        input_json_schema=payload_of(message.input_json_schema) if message.HasField("input_json_schema") else None,
        has_failure_handler=message.has_failure_handler,
    )


def workflow(value: Workflow) -> workflow_pb2.Workflow:
    """A registry entry for the wire."""
    definition = value.definition
    message = workflow_pb2.WorkflowDefinition(
        name=definition.name,
        definition_digest=definition.digest,
        queue=definition.queue,
        max_attempts=definition.max_attempts,
        cron=map(_cron, definition.cron),
        event_triggers=[workflow_pb2.EventTrigger(event_name=name) for name in definition.event_names],
        input_json_schema=payload(definition.input_json_schema),
        has_failure_handler=definition.has_failure_handler,
    )
    if policy := definition.retry_policy:
        message.retry_policy.CopyFrom(
            workflow_pb2.RetryPolicy(
                initial_interval=duration(policy.initial_ms),
                backoff_multiplier=policy.multiplier,
                maximum_interval=duration(policy.maximum_ms),
                jitter_ratio=policy.jitter_ratio,
            )
        )
    for name in ("run_timeout", "start_timeout", "failure_handler_timeout"):
        length_ms: int | None = getattr(definition, f"{name}_ms")
        if length_ms is not None:
            getattr(message, name).CopyFrom(duration(length_ms))
    return workflow_pb2.Workflow(
        definition=message,
        owner=value.owner,
        build_id=value.build_id,
        update_time=timestamp(value.updated_at_ms),
    )


def _cron(value: CronSchedule) -> workflow_pb2.CronSchedule:
    return workflow_pb2.CronSchedule(
        schedule_id=value.schedule_id,
        expression=value.expression,
        timezone=value.timezone,
        input=payload(value.input),
    )


def schedule(value: Schedule) -> workflow_pb2.Schedule:
    """A cron schedule in force, for the wire."""
    return workflow_pb2.Schedule(
        schedule_id=value.schedule_id,
        workflow=value.workflow,
        cron=_cron(value.cron),
        next_time=timestamp(value.next_at_ms),
        last_time=timestamp(value.last_at_ms),
        skipped_count=value.skipped,
        problem=value.problem,
    )


def registration_result(value: RegistrationResult) -> workflow_pb2.RegistrationResult:
    """What became of a definition, for the wire."""
    is_registered = value.status is RegistrationStatus.REGISTERED
    return workflow_pb2.RegistrationResult(
        name=value.name,
        status=REGISTRATION_STATUS[value.status],
        reason=value.status.name if not is_registered else "INVALID_SCHEDULE" if value.message else "",
        message=value.message,
    )


# ---- pages ----


def page_token(position: int | str | None) -> str:
    """An opaque token for where the next page begins; empty when there is none."""
    return base64.urlsafe_b64encode(str(position).encode()).decode() if position else ""


def position_of(token: str) -> str:
    """Where a page begins; "" for the first. Raises InvalidInput for a token that we did not make."""
    try:
        position = base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        position = ""
    # Compared, because Python skips what is no base64.
    if page_token(position) != token:
        raise InvalidInput("page_token", "must be one that a listing answered", token)
    return position


def number_of(token: str) -> int | None:
    """The number in a page token; None for the first page."""
    position = position_of(token)
    if position and not re.fullmatch("[0-9]{1,15}", position):
        raise InvalidInput("page_token", "must be one that a listing answered", token)
    return int(position) if position else None


def page_size(asked: int) -> int:
    """The size of a page: 50 when none is asked for, and at most 500."""
    return min(asked, 500) if asked > 0 else 50
