"""What domain values look like in Redis: the one place that writes and reads their encodings.

Payload bytes are stored as they are. What goes with them (`meta`) and failures are compact JSON, which people and
Lua can read; a failure that the store itself decides on is written by `lua/lib/failures.lua` in the same form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from redflow_server.domain.events import NewEvent
from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.leases import StepRecord
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    FAILURE_HANDLER_MS,
    CronSchedule,
    PlannedSchedule,
    RetryPolicy,
    Workflow,
    WorkflowDefinition,
)
from redflow_server.domain.runs import HandlerState, Run, Step, WaitingFor, WaitingKind
from redflow_server.domain.session import SdkInfo
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.workers import Worker

Json = dict[str, Any]  # Any: a JSON document
Reply = Any  # Any: what Redis answers is typed by the script that answered

UNREADABLE: Final = Failure("UnreadableFailure", "the failure on record cannot be read")


def dump(document: object) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def text(raw: bytes | None) -> str:
    """A stored string; foreign hands may have written bytes that are no UTF-8."""
    return (raw or b"").decode("utf-8", "replace")


def number(raw: bytes | None) -> int | None:
    """A stored integer; None when there is none."""
    return int(float(raw)) if raw else None


def encode_meta(payload: Payload | None) -> bytes:
    """What goes with a payload; empty for plain JSON."""
    if payload is None or not (payload.content_type or payload.metadata):
        return b""
    return dump([payload.content_type, dict(payload.metadata)])


def decode_payload(data: bytes | None, meta: bytes | None) -> Payload | None:
    """The payload of stored bytes; None when there are none."""
    if data is None:
        return None
    if not meta:
        return Payload(data)
    content_type, metadata = json.loads(meta)
    return Payload(data, content_type, tuple(metadata.items()))


def encode_failure(failure: Failure) -> bytes:
    """A failure as JSON."""
    return dump(_failure_document(failure))


def _failure_document(failure: Failure) -> Json:
    document: Json = {"type": failure.type, "message": failure.message, "kind": failure.kind.value}
    if failure.traceback:
        document["traceback"] = failure.traceback
    if failure.language:
        document["language"] = failure.language
    if failure.hint:
        document["hint"] = failure.hint.value
    if failure.next_retry_delay_ms is not None:
        document["nextRetryDelayMs"] = failure.next_retry_delay_ms
    if failure.details:
        details = failure.details
        document["details"] = [base64.b64encode(details.data).decode(), details.content_type, dict(details.metadata)]
    if failure.cause:
        document["cause"] = _failure_document(failure.cause)
    return document


def decode_failure(raw: bytes | None) -> Failure | None:
    """The failure of stored JSON; None when there is none."""
    if not raw:
        return None
    try:
        return _failure(json.loads(raw))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return UNREADABLE


def _failure(document: Json) -> Failure:
    details, cause, hint = document.get("details"), document.get("cause"), document.get("hint")
    delay_ms = document.get("nextRetryDelayMs")
    return Failure(
        type=_text(document["type"]),
        message=_text(document["message"]),
        kind=FailureKind(document["kind"]),
        traceback=_text(document.get("traceback", "")),
        language=_text(document.get("language", "")),
        hint=RetryHint(hint) if hint else None,
        next_retry_delay_ms=None if delay_ms is None else int(delay_ms),
        details=Payload(base64.b64decode(details[0]), details[1], tuple(details[2].items())) if details else None,
        cause=_failure(cause) if cause else None,
    )


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is needed; got {value!r}")
    return value


def decode_run(run_id: str, record: Sequence[bytes], data: Sequence[bytes] = (), waits: Sequence[bytes] = ()) -> Run:
    """A run from its flat record, and its flat payloads and open waits where they were read."""
    fields = dict(zip(record[::2], record[1::2], strict=True))
    payloads = dict(zip(data[::2], data[1::2], strict=True))
    return Run(
        run_id=run_id,
        workflow=text(fields.get(b"workflow")),
        queue=text(fields.get(b"queue")),
        status=RunStatus(text(fields[b"status"])),
        attempt=number(fields.get(b"attempt")) or 0,
        max_attempts=number(fields.get(b"maxAttempts")) or 1,
        created_at_ms=number(fields.get(b"createdAt")) or 0,
        seq=number(fields.get(b"seq")) or 0,
        priority=number(fields.get(b"priority")) or 0,
        input=decode_payload(payloads.get(b"inputJson", fields.get(b"inputJson")), payloads.get(b"inputMeta")),
        output=decode_payload(payloads.get(b"outputJson"), payloads.get(b"outputMeta")),
        failure=decode_failure(payloads.get(b"errorJson")),
        available_at_ms=number(fields.get(b"availableAt")),
        started_at_ms=number(fields.get(b"startedAt")),
        finished_at_ms=number(fields.get(b"finishedAt")),
        cancel_requested_at_ms=number(fields.get(b"cancelRequestedAt")),
        cancel_reason=text(fields.get(b"cancelReason")),
        idempotency_key=text(fields.get(b"idempotencyKey")),
        parent_run_id=text(fields.get(b"parentRunId")),
        deliveries=number(fields.get(b"deliveries")) or 0,
        losses=number(fields.get(b"losses")) or 0,
        failures=number(fields.get(b"failures")) or 0,
        session_id=text(fields.get(b"leaseOwner")).partition(" ")[0],
        waiting_for=tuple(_decode_wait(*wait) for wait in zip(waits[::2], waits[1::2], strict=True)),
        failure_handler=_handler_state(fields),
        failure_handler_failure=decode_failure(payloads.get(b"handlerErrorJson")),
    )


def _decode_wait(name: bytes, entry: bytes) -> WaitingFor:
    _, since, target = entry.split(b"|", 2)
    return WaitingFor(WaitingKind.CHILD, detail=f"run {text(target)}", step_name=text(name), since_ms=number(since))


def _handler_state(fields: dict[bytes, bytes]) -> HandlerState | None:
    if b"phase" in fields:
        return HandlerState.PENDING
    state = text(fields.get(b"failureHandler"))
    return HandlerState(state) if state else None


def encode_event(event: NewEvent) -> tuple[bytes | str | int, ...]:
    """An event as scripts take it: id name payload payload_meta digest available_at key key_ttl_ms."""
    return (
        *(event.event_id, event.name, event.payload.data, encode_meta(event.payload), event.payload.digest),
        *("" if event.available_at_ms is None else event.available_at_ms, event.idempotency_key),
        event.idempotency_ttl_ms,
    )


def encode_step(step: StepRecord) -> tuple[bytes | str | int, ...]:
    """A step as scripts take it: name seq kind status final elapsed_ms meta value."""
    succeeded = step.status is StepStatus.SUCCEEDED
    value = step.output.data if step.output else encode_failure(step.failure) if step.failure else b""
    # An absent output is told from an empty one by its meta.
    meta = encode_meta(step.output) if step.output else b"none" if succeeded else b""
    return (step.name, step.seq, step.kind, step.status, int(step.is_final), step.elapsed_ms, meta, value)


def decode_step(name: bytes, header: bytes, value: bytes | None) -> Step:
    """A step from its header and value; without a value when that was left out of the answer."""
    status, kind, seq, attempt, final, started, finished, size, target, meta = header.split(b"|", 9)
    step_status = StepStatus(status.decode())
    succeeded = step_status is StepStatus.SUCCEEDED
    return Step(
        name=text(name),
        seq=number(seq) or 0,
        kind=StepKind(kind.decode()),
        status=step_status,
        attempt=number(attempt) or 0,
        is_final=final == b"1",
        started_at_ms=number(started),
        finished_at_ms=number(finished),
        output=decode_payload(value, meta) if succeeded and meta != b"none" else None,
        failure=decode_failure(value) if step_status is StepStatus.FAILED else None,
        child_run_id=text(target),
        size_bytes=number(size) or 0,
        is_left_out=value is None and meta != b"none" and step_status in (StepStatus.SUCCEEDED, StepStatus.FAILED),
    )


def decode_steps(flat: Sequence[bytes]) -> tuple[Step, ...]:
    """Steps from the whole flat hash, in order of first use."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    steps = [
        decode_step(field[2:], header, fields.get(b"o:" + field[2:]))
        for field, header in fields.items()
        if field.startswith(b"s:")
    ]
    return tuple(sorted(steps, key=lambda step: (step.seq, step.name)))


def encode_retry_policy(policy: RetryPolicy | None) -> str:
    """A retry policy as `lua/lib/backoff.lua` reads it: initial multiplier maximum jitter."""
    if policy is None:
        return ""
    return f"{policy.initial_ms} {policy.multiplier!r} {policy.maximum_ms} {policy.jitter_ratio!r}"


def encode_definition(definition: WorkflowDefinition) -> bytes:
    """A definition as JSON."""
    document: Json = {
        "name": definition.name,
        "digest": definition.digest,
        "queue": definition.queue,
        "maxAttempts": definition.max_attempts,
        "runTimeoutMs": definition.run_timeout_ms,
        "startTimeoutMs": definition.start_timeout_ms,
        "failureHandlerTimeoutMs": definition.failure_handler_timeout_ms,
        "hasFailureHandler": definition.has_failure_handler,
        "events": list(definition.event_names),
        "cron": [_cron_document(schedule) for schedule in definition.cron],
        "inputJsonSchema": _payload_document(definition.input_json_schema),
    }
    if policy := definition.retry_policy:
        document["retry"] = [policy.initial_ms, policy.multiplier, policy.maximum_ms, policy.jitter_ratio]
    return dump({name: value for name, value in document.items() if value})


def encode_registration(
    definition: WorkflowDefinition, schedules: Sequence[PlannedSchedule]
) -> tuple[bytes | str | int, ...]:
    """A definition as `register` takes it: name digest queue max_attempts retry run_timeout start_timeout
    failure_handler_ms events schedules definition.
    """
    handler_ms = (definition.failure_handler_timeout_ms or FAILURE_HANDLER_MS) if definition.has_failure_handler else ""
    return (
        *(definition.name, definition.digest, definition.queue, definition.max_attempts),
        encode_retry_policy(definition.retry_policy),
        *(definition.run_timeout_ms or "", definition.start_timeout_ms or "", handler_ms),
        dump(sorted(set(definition.event_names))),
        dump([_planned(schedule) for schedule in schedules if schedule.workflow == definition.name]),
        encode_definition(definition),
    )


def _planned(schedule: PlannedSchedule) -> list[str]:
    # By its timing a change of a schedule's times is seen.
    timing = f"{schedule.cron.expression}|{schedule.cron.timezone}"
    document = dump({"workflow": schedule.workflow, "timing": timing, **_cron_document(schedule.cron)})
    return [schedule.schedule_id, timing, str(schedule.next_at_ms), document.decode()]


def decode_schedule(document: bytes) -> tuple[str, CronSchedule]:
    """The workflow of a schedule, and the schedule. Raises ValueError, LookupError for what is none."""
    stored: Json = json.loads(document)
    return stored["workflow"], _cron(stored)


def _cron(document: Json) -> CronSchedule:
    return CronSchedule(document["id"], document["expression"], document["timezone"], _payload(document["input"]))


def _cron_document(schedule: CronSchedule) -> Json:
    return {
        "id": schedule.schedule_id,
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "input": _payload_document(schedule.input),
    }


def _payload_document(payload: Payload | None) -> Json | None:
    if payload is None:
        return None
    data = base64.b64encode(payload.data).decode()
    return {"data": data, "contentType": payload.content_type, "metadata": dict(payload.metadata)}


def _payload(document: Json | None) -> Payload | None:
    if document is None:
        return None
    data = base64.b64decode(document["data"])
    return Payload(data, document["contentType"], tuple(document["metadata"].items()))


def decode_workflow(flat: Sequence[bytes]) -> Workflow:
    """A registry entry."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    document: Json = json.loads(fields[b"definitionJson"])
    retry = document.get("retry")
    definition = WorkflowDefinition(
        name=document["name"],
        digest=document.get("digest", ""),
        queue=document["queue"],
        max_attempts=document["maxAttempts"],
        retry_policy=RetryPolicy(*retry) if retry else None,
        run_timeout_ms=document.get("runTimeoutMs"),
        start_timeout_ms=document.get("startTimeoutMs"),
        failure_handler_timeout_ms=document.get("failureHandlerTimeoutMs"),
        has_failure_handler=document.get("hasFailureHandler", False),
        event_names=tuple(document.get("events", ())),
        cron=tuple(map(_cron, document.get("cron", ()))),
        input_json_schema=_payload(document.get("inputJsonSchema")),
    )
    return Workflow(
        definition=definition,
        owner=text(fields.get(b"owner")),
        build_id=text(fields.get(b"buildId")),
        updated_at_ms=number(fields.get(b"updatedAt")) or 0,
    )


def encode_worker(worker: Worker) -> bytes:
    """A connected worker as JSON."""
    return dump(asdict(worker))


def decode_worker(raw: bytes) -> Worker:
    """A connected worker."""
    document: Json = json.loads(raw)
    document["sdk"] = SdkInfo(**document["sdk"])
    document["queues"] = tuple(document["queues"])
    document["workflows"] = tuple(document["workflows"])
    return Worker(**document)
