"""Values of the SDK from and to protobuf messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final, cast, overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from redflow_sdk._types import Value
from redflow_sdk.proto.api.v1 import system_service_pb2
from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2, workflow_pb2
from redflow_sdk.records import (
    CODEC_MARK,
    CronTrigger,
    Failure,
    FailureKind,
    LaneDepth,
    Payload,
    Run,
    RunStatus,
    Schedule,
    Stats,
    Step,
    StepStatus,
    WaitingFor,
    WorkerInfo,
    WorkflowInfo,
)
from redflow_sdk.retry import RetryPolicy

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
HANDLER_STATE_OF: Final = {
    number: name.removeprefix("FAILURE_HANDLER_STATE_").lower()
    for name, number in run_pb2.FailureHandlerState.items()
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


def optional_seconds_of(message: Message, field: str) -> float | None:
    """An optional length of time of a message, in seconds."""
    return seconds_of(getattr(message, field)) if message.HasField(field) else None


@overload
def payload(value: Payload) -> payload_pb2.Payload: ...
@overload
def payload(value: Payload | None) -> payload_pb2.Payload | None: ...
def payload(value: Payload | None) -> payload_pb2.Payload | None:
    """A payload for the wire."""
    if value is None:
        return None
    message = payload_pb2.Payload()
    fill_payload(message, value)
    return message


def fill_payload(message: payload_pb2.Payload, value: Payload) -> None:
    """Makes an empty message that of a payload."""
    message.data, message.content_type = value.data, value.content_type
    if value.metadata:
        message.metadata.update(value.metadata)


def payload_of(message: payload_pb2.Payload) -> Payload:
    """A payload from the wire."""
    metadata = tuple(sorted(message.metadata.items())) if message.metadata else ()
    return Payload(message.data, message.content_type or "application/json", metadata)


def json_of(message: Message, field: str) -> Value:
    """The decoded JSON of an optional payload; the payload itself when a codec has encoded it, and its bytes when it is
    of another type.
    """
    if not message.HasField(field):
        return None
    value: payload_pb2.Payload = getattr(message, field)
    if CODEC_MARK in value.metadata:
        return payload_of(value)
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
    if isinstance(value.details, Payload):
        fill_payload(message.details, value.details)
    elif value.details is not None:
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
        retry_after=optional_seconds_of(message, "next_retry_delay"),
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
            WaitingFor(
                WAITING_KIND_OF.get(waiting.kind, UNKNOWN),
                moment_of(waiting, "until_time"),
                waiting.detail,
                waiting.step_name,
                moment_of(waiting, "since_time"),
            )
            for waiting in message.waiting_for
        ),
        worker_name=message.worker_name,
        failure_handler=HANDLER_STATE_OF.get(message.failure_handler, UNKNOWN) if message.failure_handler else "",
        failure_handler_failure=failure_of(message.failure_handler_failure)
        if message.HasField("failure_handler_failure")
        else None,
        open_waits=message.open_waits,
        deadline_at=moment_of(message, "deadline_time"),
        lease_expires_at=moment_of(message, "lease_expire_time"),
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
        child_run_id=message.child_run_id,
        tries=message.tries,
        event_id=message.event_id,
        is_retrying=message.retrying,
    )


def schedule_of(message: workflow_pb2.Schedule) -> Schedule:
    """A cron schedule from the wire."""
    return Schedule(
        id=message.schedule_id,
        workflow=message.workflow,
        cron=_cron_of(message.cron),
        next_at=moment_of(message, "next_time"),
        last_at=moment_of(message, "last_time"),
        skipped=message.skipped_count,
        problem=message.problem,
    )


def _cron_of(message: workflow_pb2.CronSchedule) -> CronTrigger:
    return CronTrigger(message.schedule_id, message.expression, message.timezone, json_of(message, "input"))


def workflow_of(message: workflow_pb2.Workflow) -> WorkflowInfo:
    """A registered workflow from the wire."""
    definition = message.definition
    return WorkflowInfo(
        name=definition.name,
        queue=definition.queue,
        max_attempts=definition.max_attempts,
        retry=_retry_of(definition),
        owner=message.owner,
        build_id=message.build_id,
        updated_at=moment_of(message, "update_time") or _EPOCH,
        run_timeout=optional_seconds_of(definition, "run_timeout"),
        start_timeout=optional_seconds_of(definition, "start_timeout"),
        failure_handler_timeout=optional_seconds_of(definition, "failure_handler_timeout"),
        has_failure_handler=definition.has_failure_handler,
        cron=tuple(map(_cron_of, definition.cron)),
        events=tuple(trigger.event_name for trigger in definition.event_triggers),
        input_schema=json_of(definition, "input_json_schema"),
        digest=definition.definition_digest,
    )


def _retry_of(definition: workflow_pb2.WorkflowDefinition) -> RetryPolicy | None:
    if not definition.HasField("retry_policy"):
        return None
    policy = definition.retry_policy
    return RetryPolicy(
        max_attempts=definition.max_attempts,
        initial=seconds_of(policy.initial_interval),
        multiplier=policy.backoff_multiplier,
        maximum=seconds_of(policy.maximum_interval),
        jitter=policy.jitter_ratio,
    )


def worker_of(message: system_service_pb2.Worker) -> WorkerInfo:
    """A connected worker from the wire."""
    return WorkerInfo(
        id=message.instance_id,
        name=message.worker_name,
        owner=message.owner,
        build_id=message.build_id,
        sdk_name=message.sdk.name,
        sdk_version=message.sdk.version,
        language=message.sdk.language,
        queues=tuple(message.queues),
        workflows=tuple(message.workflows),
        slot_limit=message.slot_limit,
        leases=message.leases,
        parked=message.parked,
        is_draining=message.draining,
        connected_at=moment_of(message, "connect_time") or _EPOCH,
        gateway_id=message.gateway_id,
        session_id=message.session_id,
    )


def stats_of(message: system_service_pb2.GetStatsResponse) -> Stats:
    """Counts from the wire."""
    return Stats(
        runs={RUN_STATUS_OF.get(count.status, "unknown"): count.count for count in message.runs},
        lanes=tuple(LaneDepth(lane.queue, lane.workflow, lane.depth) for lane in message.lanes),
        lane_count=message.lane_count,
        events_remembered=message.events_remembered,
        events_dropped=message.events_dropped,
    )
