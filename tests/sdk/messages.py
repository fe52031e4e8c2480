"""What scripts are made of: payloads, steps on record, answers, orders. Plain messages of the protocol."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.sdk.wire_log import Item

Json = Any  # Any: a JSON document


def milliseconds(count: float) -> Duration:
    micros = round(count * 1000)
    return Duration(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def payload(value: Json) -> payload_pb2.Payload:
    return payload_pb2.Payload(data=json.dumps(value).encode(), content_type="application/json")


def value_of(message: payload_pb2.Payload) -> Json:
    """What a payload holds; fails when there is none, as in the output of a run that failed."""
    assert message.data, "there is no output"
    return json.loads(message.data)


def kind_of(failure: failure_pb2.Failure) -> str:
    return failure_pb2.FailureKind.Name(failure.failure_kind).removeprefix("FAILURE_KIND_").lower()


def forbids_retry(failure: failure_pb2.Failure) -> bool:
    """Whether a gateway that follows the protocol makes no further attempt after this failure."""
    never = {"canceled", "validation", "unknown_workflow", "serialization", "non_retriable", "non_deterministic"}
    return failure.retry_hint == failure_pb2.RETRY_HINT_NO_RETRY or kind_of(failure) in never


# ---- steps on record ----


def succeeded(name: str, value: Json, *, seq: int = 1, attempt: int = 1) -> pb.StepSnapshot:
    return pb.StepSnapshot(
        step_name=name,
        step_seq=seq,
        step_kind=run_pb2.STEP_KIND_FUNCTION,
        status=run_pb2.STEP_STATUS_SUCCEEDED,
        attempt=attempt,
        output=payload(value),
    )


def by_reference(name: str, size_bytes: int, *, seq: int = 1) -> pb.StepSnapshot:
    return pb.StepSnapshot(
        step_name=name,
        step_seq=seq,
        step_kind=run_pb2.STEP_KIND_FUNCTION,
        status=run_pb2.STEP_STATUS_SUCCEEDED,
        attempt=1,
        output_ref=pb.OutputRef(size_bytes=size_bytes),
    )


def failed(name: str, kind: str, message: str, *, attempt: int = 1, is_final: bool = True) -> pb.StepSnapshot:
    """A failed step; `kind` is the type of the exception."""
    return pb.StepSnapshot(
        step_name=name,
        step_seq=1,
        step_kind=run_pb2.STEP_KIND_FUNCTION,
        status=run_pb2.STEP_STATUS_FAILED,
        attempt=attempt,
        failure=failure_pb2.Failure(type=kind, message=message, failure_kind=failure_pb2.FAILURE_KIND_ERROR),
        final=is_final,
    )


def child_open(name: str, *, seq: int = 1) -> pb.StepSnapshot:
    """A wait for a run that has not ended."""
    return open_wait("child", name, seq=seq)


def child_succeeded(name: str, value: Json, *, seq: int = 1, attempt: int = 1) -> pb.StepSnapshot:
    step = succeeded(name, value, seq=seq, attempt=attempt)
    step.step_kind, step.final = run_pb2.STEP_KIND_CHILD, True
    return step


def child_by_reference(name: str, size_bytes: int, *, seq: int = 1) -> pb.StepSnapshot:
    step = by_reference(name, size_bytes, seq=seq)
    step.step_kind, step.final = run_pb2.STEP_KIND_CHILD, True
    return step


def child_failed(
    name: str, kind: str = "ChildFailedError", cause: str = "ValueError", *, attempt: int = 1
) -> pb.StepSnapshot:
    """A wait for a run that has failed, or was canceled; `cause` is the type of the exception it has raised."""
    step = failed(name, kind, "run run-7 has failed", attempt=attempt)
    step.step_kind = run_pb2.STEP_KIND_CHILD
    step.failure.cause.type, step.failure.cause.message = cause, "no money"
    return step


def emitted(name: str, *run_ids: str, seq: int = 1) -> pb.StepSnapshot:
    step = succeeded(name, list(run_ids), seq=seq)
    step.step_kind, step.final = run_pb2.STEP_KIND_EMIT, True
    return step


# ---- waits on record ----

KIND_OF_STEP = {
    "timer": run_pb2.STEP_KIND_TIMER,
    "event": run_pb2.STEP_KIND_EVENT,
    "child": run_pb2.STEP_KIND_CHILD,
    "token": run_pb2.STEP_KIND_TOKEN,
}


def open_wait(kind: str, name: str, *, seq: int = 1, token: str = "") -> pb.StepSnapshot:
    """A wait that is not over; `token` completes it, for one that waits for a token."""
    status = run_pb2.STEP_STATUS_WAITING
    step_kind = KIND_OF_STEP[kind]
    return pb.StepSnapshot(step_name=name, step_seq=seq, step_kind=step_kind, status=status, attempt=1, token=token)


def wait_over(
    kind: str, name: str, value: Json = None, *, seq: int = 1, number: int = 1, token: str = ""
) -> pb.StepSnapshot:
    """A wait that has its value. `number` is its place among those of its run that are over."""
    step = succeeded(name, value, seq=seq)
    step.step_kind, step.final, step.resolved_seq, step.token = KIND_OF_STEP[kind], True, number, token
    if kind == "event":
        step.event_id = f"event of {name}"
        step.event_time.FromSeconds(1_700_000_000)
    if value is None:
        step.ClearField("output")
    return step


def timed_out(kind: str, name: str, *, seq: int = 1, number: int = 1, token: str = "") -> pb.StepSnapshot:
    """A wait for which the time is over: for an event nothing has come, and any other has failed."""
    step = wait_over(kind, name, seq=seq, number=number, token=token)
    step.ClearField("event_id")
    step.ClearField("event_time")
    if kind != "event":
        step.status = run_pb2.STEP_STATUS_FAILED
        step.failure.type, step.failure.message = "TimeoutError", f"{name} took too long"
        step.failure.failure_kind = failure_pb2.FAILURE_KIND_TIMEOUT
    return step


def withdrawn(kind: str, name: str, *, seq: int = 1, token: str = "") -> pb.StepSnapshot:
    """A wait that has lost a race."""
    step = open_wait(kind, name, seq=seq, token=token)
    step.status = run_pb2.STEP_STATUS_WITHDRAWN
    return step


def lost_wait(name: str) -> pb.StepSnapshot:
    """A wait that the store does not have."""
    return pb.StepSnapshot(step_name=name)


def started(name: str, run_id: str, *, seq: int = 1) -> pb.StepSnapshot:
    step = succeeded(name, run_id, seq=seq)
    step.step_kind, step.final, step.child_run_id = run_pb2.STEP_KIND_START, True, run_id
    return step


# ---- answers and orders ----


def answer(item: Item, status: pb.ItemStatus.ValueType, **fields: Any) -> pb.ItemResult:  # Any: fields of the message
    return pb.ItemResult(request_id=item.request_id, status=status, **fields)


def ok(item: Item) -> pb.ItemResult:
    return answer(item, pb.ITEM_STATUS_OK)


def withheld(item: Item) -> None:
    """No answer."""


def suspended(item: Item) -> pb.ItemResult:
    return answer(item, pb.ITEM_STATUS_SUSPENDED)


def parked(item: Item) -> pb.ItemResult:
    return answer(item, pb.ITEM_STATUS_PARKED)


def resolution(token: str, step: pb.StepSnapshot) -> pb.WaitResolution:
    return pb.WaitResolution(lease_token=token, step=step)


def resolved(item: Item, *steps: pb.StepSnapshot) -> pb.ItemResult:
    return answer(item, pb.ITEM_STATUS_RESOLVED, resolutions=steps)


def cancellation(
    token: str, reason: pb.CancellationReason.ValueType = pb.CANCELLATION_REASON_USER, message: str = "no longer wanted"
) -> pb.Cancellation:
    return pb.Cancellation(lease_token=token, reason=reason, message=message)


def verdict(token: str, kind: pb.LeaseVerdictKind.ValueType, order: pb.Cancellation | None = None) -> pb.LeaseVerdict:
    return pb.LeaseVerdict(lease_token=token, verdict=kind, cancellation=order)


def session_error(reason: str, *, permanent: bool, retry_delay_ms: float = 0) -> pb.SessionResponse:
    error = pb.SessionError(
        reason=reason, message=f"this is {reason}", permanent=permanent, retry_delay=milliseconds(retry_delay_ms)
    )
    return pb.SessionResponse(error=error)
