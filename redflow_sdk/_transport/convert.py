"""Values of the SDK from and to protobuf messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final, cast

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk._types import Value
from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2
from redflow_sdk.records import Failure, FailureKind, Payload, Run, RunStatus, Step, StepStatus, WaitingFor

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

UNKNOWN: Final = "unknown"
"""A value that a newer gateway has and this SDK does not, and one that was not said."""

RUN_STATUS_OF: Final = {
    number: cast("RunStatus", name.removeprefix("RUN_STATUS_").lower())  # cast: the names are the same
    for name, number in run_pb2.RunStatus.items()
    if number
}
RUN_STATUS: Final = {status: number for number, status in RUN_STATUS_OF.items()}
STEP_STATUS_OF: Final = {
    number: cast("StepStatus", name.removeprefix("STEP_STATUS_").lower())  # cast: as above
    for name, number in run_pb2.StepStatus.items()
    if number
}
STEP_KIND_OF: Final = {
    number: name.removeprefix("STEP_KIND_").lower() for name, number in run_pb2.StepKind.items() if number
}
WAITING_KIND_OF: Final = {
    number: name.removeprefix("WAITING_KIND_").lower() for name, number in run_pb2.WaitingKind.items() if number
}
KIND_OF: Final = {
    number: cast("FailureKind", name.removeprefix("FAILURE_KIND_").lower())  # cast: as above
    for name, number in failure_pb2.FailureKind.items()
    if number
}
KIND: Final = {kind: number for number, kind in KIND_OF.items()}


def moment_of(message: Message, field: str) -> datetime | None:
    """An optional time of a message, aware, in UTC."""
    if not message.HasField(field):
        return None
    value: Timestamp = getattr(message, field)
    return datetime.fromtimestamp(value.seconds, UTC).replace(microsecond=value.nanos // 1000)


def timestamp(at: datetime) -> Timestamp:
    """A time for the wire."""
    since = at - _EPOCH
    return Timestamp(seconds=since.days * 86400 + since.seconds, nanos=since.microseconds * 1000)


def duration(seconds: float) -> Duration:
    """A length of time for the wire, in whole microseconds."""
    micros = round(seconds * 1_000_000)
    return Duration(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def seconds_of(length: Duration) -> float:
    """A length of time in seconds."""
    return length.seconds + length.nanos / 1_000_000_000


def payload(value: Payload | None) -> payload_pb2.Payload | None:
    """A payload for the wire."""
    return None if value is None else payload_pb2.Payload(data=value.data, content_type=value.content_type)


def payload_of(message: payload_pb2.Payload) -> Payload:
    """A payload from the wire."""
    return Payload(message.data, message.content_type or "application/json")


def json_of(message: Message, field: str) -> Value:
    """The decoded JSON of an optional payload; its bytes when it is of another type."""
    if not message.HasField(field):
        return None
    value: payload_pb2.Payload = getattr(message, field)
    if value.content_type not in ("", "application/json"):
        return value.data
    try:
        return json.loads(value.data)
    except (ValueError, RecursionError):
        return value.data


def failure(value: Failure) -> failure_pb2.Failure:
    """A failure for the wire."""
    message = failure_pb2.Failure(
        type=value.type,
        message=value.message,
        failure_kind=KIND[value.kind],
        traceback=value.traceback,
        language=value.language,
        retry_hint=failure_pb2.RETRY_HINT_NO_RETRY if value.no_retry else failure_pb2.RETRY_HINT_UNSPECIFIED,
    )
    if value.retry_after is not None:
        message.next_retry_delay.CopyFrom(duration(value.retry_after))
    if value.details is not None:
        message.details.data = json.dumps(value.details).encode()
        message.details.content_type = "application/json"
    if value.cause is not None:
        message.cause.CopyFrom(failure(value.cause))
    return message


def failure_of(message: failure_pb2.Failure) -> Failure:
    """A failure from the wire."""
    return Failure(
        type=message.type,
        message=message.message,
        kind=KIND_OF.get(message.failure_kind, "error"),
        traceback=message.traceback,
        language=message.language,
        details=json_of(message, "details"),
        cause=failure_of(message.cause) if message.HasField("cause") else None,
        no_retry=message.retry_hint == failure_pb2.RETRY_HINT_NO_RETRY,
        retry_after=seconds_of(message.next_retry_delay) if message.HasField("next_retry_delay") else None,
    )


def run_of(message: run_pb2.Run) -> Run:
    """A run from the wire."""
    return Run(
        id=message.run_id,
        workflow=message.workflow,
        queue=message.queue,
        status=RUN_STATUS_OF.get(message.status, "unknown"),
        attempt=message.attempt,
        max_attempts=message.max_attempts,
        created_at=moment_of(message, "create_time") or _EPOCH,
        input=json_of(message, "input"),
        output=json_of(message, "output"),
        failure=failure_of(message.failure) if message.HasField("failure") else None,
        priority=message.priority,
        available_at=moment_of(message, "available_time"),
        started_at=moment_of(message, "start_time"),
        finished_at=moment_of(message, "finish_time"),
        cancel_requested_at=moment_of(message, "cancel_request_time"),
        cancel_reason=message.cancel_reason,
        idempotency_key=message.idempotency_key,
        parent_run_id=message.parent_run_id,
        delivery_count=message.delivery_count,
        losses=message.losses,
        waiting_for=tuple(
            WaitingFor(WAITING_KIND_OF.get(waiting.kind, UNKNOWN), moment_of(waiting, "until_time"), waiting.detail)
            for waiting in message.waiting_for
        ),
        worker_name=message.worker_name,
    )


def step_of(message: run_pb2.Step) -> Step:
    """A step from the wire."""
    return Step(
        name=message.step_name,
        seq=message.step_seq,
        kind=STEP_KIND_OF.get(message.step_kind, UNKNOWN),
        status=STEP_STATUS_OF.get(message.status, "unknown"),
        attempt=message.attempt,
        output=json_of(message, "output"),
        failure=failure_of(message.failure) if message.HasField("failure") else None,
        started_at=moment_of(message, "start_time"),
        finished_at=moment_of(message, "finish_time"),
    )
