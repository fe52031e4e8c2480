"""What the registry and its listings look like in Redis: definitions, cron schedules, connected workers."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict

from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    FAILURE_HANDLER_MS,
    CronSchedule,
    PlannedSchedule,
    RetryPolicy,
    Workflow,
    WorkflowDefinition,
)
from redflow_server.domain.session import SdkInfo
from redflow_server.domain.workers import Worker
from redflow_server.store.codec import Json, dump, number, text


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
