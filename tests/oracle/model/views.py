"""What is on record, as answers show it."""

from __future__ import annotations

from collections.abc import Iterable

from redflow_server.domain.leases import Stamp
from redflow_server.domain.runs import HandlerState, Run, Step, WaitingFor, WaitingKind
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.store import codec
from redflow_server.store.keys import split_channel
from tests.oracle.model.world import OpenWait, RunOnRecord, StepOnRecord

ANSWER_BYTES = 1024 * 1024
"""Values of waits that go into one answer."""
ENDED = (StepStatus.SUCCEEDED, StepStatus.FAILED)


def listed(run: RunOnRecord) -> Run:
    """A run as listings show it, without payloads."""
    deadlines = (run.start_deadline, run.run_deadline, run.failing_deadline)
    return Run(
        run_id=run.id,
        workflow=run.workflow,
        queue=run.queue,
        status=run.status,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        created_at_ms=run.created_at,
        seq=run.seq,
        priority=run.priority,
        available_at_ms=run.available_at,
        started_at_ms=run.started_at,
        finished_at_ms=run.finished_at,
        cancel_requested_at_ms=run.cancel_requested_at,
        cancel_reason=run.cancel_reason,
        idempotency_key=run.key,
        parent_run_id=run.parent,
        deliveries=run.deliveries,
        losses=run.losses,
        is_solo=run.is_solo,
        failures=run.failures,
        open_waits=0 if run.has_ended else len(run.waits),
        placed_at_ms=run.placed_at,
        deadline_ms=min((at for at in deadlines if at is not None), default=None),
        session_id=run.stamp.session_id if run.stamp else "",
        failure_handler=HandlerState.PENDING if run.is_failing else run.failure_handler,
    )


def payloads(run: RunOnRecord) -> dict[str, object]:
    """What reading one run adds to that."""
    return {
        "input": codec.decode_payload(run.input, run.input_meta),
        "output": codec.decode_payload(run.output, run.output_meta),
        "failure": codec.decode_failure(run.error),
        "failure_handler_failure": codec.decode_failure(run.handler_error),
        "lease_ends_at_ms": run.lease_ends_at,
        "waiting_for": tuple(_waiting_for(name, wait) for name, wait in sorted(run.waits.items())),
    }


def _waiting_for(name: str, wait: OpenWait) -> WaitingFor:
    event, key = split_channel(wait.target) if wait.kind is StepKind.EVENT else ("", None)
    detail = {
        StepKind.TIMER: "sleeps",
        StepKind.EVENT: f"event {event!r} " + ("without a key" if key is None else f"with the key {key!r}"),
        StepKind.CHILD: f"run {wait.target}",
        StepKind.TOKEN: "somebody to complete its token",
    }[wait.kind]
    child = wait.target if wait.kind is StepKind.CHILD else ""
    return WaitingFor(WaitingKind(wait.kind.value), wait.deadline, detail, name, wait.since, child)


def step(name: str, stored: StepOnRecord, *, with_value: bool = True) -> Step:
    """A step; without its value where that did not fit."""
    has_ended = stored.status in ENDED
    value = stored.value if with_value else None
    failure = codec.decode_failure(value) if stored.status is StepStatus.FAILED else None
    event_id, _, event_at = stored.target.partition("@") if stored.kind is StepKind.EVENT else ("", "", "")
    has_output = stored.status is StepStatus.SUCCEEDED and stored.meta != b"none"
    return Step(
        name=name,
        seq=stored.seq,
        kind=stored.kind,
        status=stored.status,
        attempt=stored.attempt,
        is_final=stored.is_final,
        started_at_ms=stored.started_at,
        finished_at_ms=stored.finished_at,
        output=codec.decode_payload(value, stored.meta) if has_output else None,
        failure=failure,
        size_bytes=len(stored.value),
        child_run_id=stored.target if stored.kind in (StepKind.CHILD, StepKind.START) else "",
        event_id=event_id,
        event_at_ms=int(event_at) if event_at else None,
        token=stored.target if stored.kind is StepKind.TOKEN else "",
        tries=stored.tries,
        is_retrying=_is_retrying(stored, failure.kind.value if failure else ""),
        resolved_seq=stored.resolved,
        is_left_out=not with_value and has_ended and stored.meta != b"none",
    )


def _is_retrying(stored: StepOnRecord, kind: str) -> bool:
    return stored.kind is StepKind.FUNCTION and not stored.is_final and kind not in ("", "canceled")


def steps_of(run: RunOnRecord) -> tuple[Step, ...]:
    """All steps, in order of first use."""
    found = (step(name, stored) for name, stored in run.steps.items())
    return tuple(sorted(found, key=lambda one: (one.seq, one.name)))


def over(run: RunOnRecord, names: Iterable[str]) -> tuple[Step, ...]:
    """Of these steps those that wait no more, in the order of their ends, with values while they fit."""
    found, room = [], ANSWER_BYTES
    for name in names:
        stored = run.steps[name]
        if stored.status is StepStatus.WAITING:
            continue
        fits = len(stored.value) <= room
        room -= len(stored.value) if fits else 0
        found.append(step(name, stored, with_value=fits))
    return tuple(sorted(found, key=lambda one: (one.resolved_seq, one.name)))


def stamp_text(stamp: Stamp | None) -> str:
    return f"{stamp.session_id} {stamp.epoch} {stamp.gateway_id}" if stamp else ""
