"""What domain values look like in Redis: the one place, with `codec_registry.py` for definitions, that writes
and reads their encodings.

Payload bytes are stored as they are. What goes with them (`meta`) and failures are compact JSON, which people and
Lua can read; a failure that the store itself decides on is written by `lua/lib/failures.lua` in the same form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from redflow_server.domain.events import NewEvent
from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.leases import StepRecord
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import HandlerState, NewRun, Run, Step, WaitingFor, WaitingKind
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.waits import ChildWait, EventWait, TimerWait, TokenWait, Wait, event_channel
from redflow_server.store.keys import split_channel

Json = dict[str, Any]  # Any: a JSON document
Reply = Any  # Any: what Redis answers is typed by the script that answered

_DEADLINES: Final = (b"startDeadline", b"runDeadline", b"failingDeadline")
UNREADABLE: Final = Failure("UnreadableFailure", "the failure on record cannot be read")


def dump(document: object) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def text(raw: bytes | None) -> str:
    """A stored string; foreign hands may have written bytes that are no UTF-8."""
    return (raw or b"").decode("utf-8", "replace")


def optional_text(raw: bytes | None) -> str | None:
    """A stored string; None when there is none."""
    return None if raw is None else text(raw)


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


def decode_run(
    run_id: str,
    record: Sequence[bytes],
    data: Sequence[bytes] = (),
    waits: Sequence[bytes] = (),
    lease_ends_at: bytes | None = None,
) -> Run:
    """A run from its flat record, and its flat payloads, open waits and the end of its lease where they were read."""
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
        is_solo=b"solo" in fields,
        failures=number(fields.get(b"failures")) or 0,
        open_waits=number(fields.get(b"openWaits")) or 0,
        placed_at_ms=number(fields.get(b"placedAt")),
        deadline_ms=min(filter(None, (number(fields.get(name)) for name in _DEADLINES)), default=None),
        lease_ends_at_ms=number(lease_ends_at),
        session_id=text(fields.get(b"leaseOwner")).partition(" ")[0],
        waiting_for=tuple(_decode_wait(*wait) for wait in zip(waits[::2], waits[1::2], strict=True)),
        failure_handler=_handler_state(fields),
        failure_handler_failure=decode_failure(payloads.get(b"handlerErrorJson")),
    )


def _decode_wait(name: bytes, entry: bytes) -> WaitingFor:
    kind, since, deadline, rest = entry.split(b"|", 3)
    size, _, tail = rest.partition(b":")
    target = text(tail[int(size) :])
    return WaitingFor(
        kind=WaitingKind(text(kind)),
        until_ms=number(deadline),
        detail=_WAITS_FOR[WaitingKind(text(kind))](target),
        step_name=text(name),
        since_ms=number(since),
        run_id=target if kind == b"child" else "",
    )


def _said_of_channel(channel: str) -> str:
    name, key = split_channel(channel)
    return f"event {name!r} without a key" if key is None else f"event {name!r} with the key {key!r}"


_WAITS_FOR: Final[dict[WaitingKind, Callable[[str], str]]] = {
    WaitingKind.TIMER: lambda _: "sleeps",
    WaitingKind.EVENT: _said_of_channel,
    WaitingKind.CHILD: lambda target: f"run {target}",
    WaitingKind.TOKEN: lambda _: "somebody to complete its token",
}


def _handler_state(fields: dict[bytes, bytes]) -> HandlerState | None:
    if b"phase" in fields:
        return HandlerState.PENDING
    state = text(fields.get(b"failureHandler"))
    return HandlerState(state) if state else None


def encode_event(event: NewEvent) -> tuple[bytes | str | int, ...]:
    """An event as scripts take it: id name payload payload_meta digest available_at key key_ttl_ms channel."""
    return (
        *(event.event_id, event.name, event.payload.data, encode_meta(event.payload), event.payload.digest),
        *("" if event.available_at_ms is None else event.available_at_ms, event.idempotency_key),
        *(event.idempotency_ttl_ms, event_channel(event.name, event.key)),
    )


def encode_wait(wait: Wait) -> tuple[bytes | str | int, ...]:
    """A wait as scripts take it: name seq kind group timeout_ms until_ms target workflow queue max_attempts priority
    input input_meta digest key key_ttl_ms.
    """
    timeout = "" if wait.timeout_ms is None else wait.timeout_ms
    until, of_child = "", ("",) * 9
    match wait.target:
        case TimerWait(until_ms=until_ms):
            target, until = "", "" if until_ms is None else str(until_ms)
        case EventWait() as event:
            target = event.channel
        case TokenWait(token=token):
            target = token
        case ChildWait(start=start):
            return (*(wait.name, wait.seq, wait.kind, wait.group, timeout, until, start.run_id), *encode_start(start))
    return (wait.name, wait.seq, wait.kind, wait.group, timeout, until, target, *of_child)


def encode_start(start: NewRun) -> tuple[bytes | str | int, ...]:
    """A run that a step starts: workflow queue max_attempts priority input input_meta digest key key_ttl_ms."""
    return (
        *(start.workflow, start.queue or "", start.max_attempts or "", start.priority, start.input.data),
        *(encode_meta(start.input), start.input.digest, start.idempotency_key or "", start.idempotency_ttl_ms),
    )


def encode_step(step: StepRecord) -> tuple[bytes | str | int, ...]:
    """A step as scripts take it: name seq kind status final tries elapsed_ms meta value."""
    meta, value = encode_outcome(step.output, step.failure)
    tries = step.tries or ""
    return (step.name, step.seq, step.kind, step.status, int(step.is_final), tries, step.elapsed_ms, meta, value)


def encode_outcome(output: Payload | None, failure: Failure | None) -> tuple[bytes, bytes]:
    """Meta and value of what a step came to."""
    if output is not None:
        return encode_meta(output), output.data
    # An absent output is told from an empty one by its meta.
    return (b"", encode_failure(failure)) if failure else (b"none", b"")


def decode_step(name: bytes, header: bytes, value: bytes | None) -> Step:
    """A step from its header and value; without a value when that was left out of the answer."""
    fields = header.split(b"|", 11)
    status, kind, seq, attempt, final, started, finished, size, tries, resolved, target, meta = fields
    step_status, step_kind = StepStatus(status.decode()), StepKind(kind.decode())
    succeeded = step_status is StepStatus.SUCCEEDED
    failure = decode_failure(value) if step_status is StepStatus.FAILED else None
    event_id, _, event_at = text(target).partition("@") if step_kind is StepKind.EVENT else ("", "", "")
    return Step(
        name=text(name),
        seq=number(seq) or 0,
        kind=step_kind,
        status=step_status,
        attempt=number(attempt) or 0,
        is_final=final == b"1",
        started_at_ms=number(started),
        finished_at_ms=number(finished),
        output=decode_payload(value, meta) if succeeded and meta != b"none" else None,
        failure=failure,
        child_run_id=text(target) if step_kind in (StepKind.CHILD, StepKind.START) else "",
        event_id=event_id,
        event_at_ms=int(event_at) if event_at else None,
        token=text(target) if step_kind is StepKind.TOKEN else "",
        tries=number(tries) or 0,
        is_retrying=step_kind is StepKind.FUNCTION and final != b"1" and _is_of_a_try(failure),
        resolved_seq=number(resolved) or 0,
        size_bytes=number(size) or 0,
        is_left_out=value is None and meta != b"none" and step_status in (StepStatus.SUCCEEDED, StepStatus.FAILED),
    )


def _is_of_a_try(failure: Failure | None) -> bool:
    """What a cancel has interrupted is not final either, and not tried again."""
    return failure is not None and failure.kind is not FailureKind.CANCELED


def decode_steps(flat: Sequence[bytes]) -> tuple[Step, ...]:
    """Steps from the whole flat hash, in order of first use."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    steps = [
        decode_step(field[2:], header, fields.get(b"o:" + field[2:]))
        for field, header in fields.items()
        if field.startswith(b"s:")
    ]
    return tuple(sorted(steps, key=lambda step: (step.seq, step.name)))
