"""How runs come to be: by whom they are named, in which queue, and what a new one looks like."""

from __future__ import annotations

from dataclasses import dataclass

from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import RunStatus, StepKind
from redflow_server.store import codec
from tests.oracle.model.effects import Outcome, failed_with, is_missing
from tests.oracle.model.moves import enter_lane, enter_schedule
from tests.oracle.model.world import Moment, Pointer, RunOnRecord


@dataclass(frozen=True)
class Origin:
    """Who starts a run, and what it has from there."""

    parent: str = ""
    waiter: str = ""
    event_seq: int | None = None
    is_typed: bool = True


def by_key(moment: Moment, workflow: str, key: str | None) -> RunOnRecord | None:
    """The run that a key names in its window."""
    pointer = moment.world.pointers.get((workflow, key)) if key else None
    run = moment.run(pointer.target) if pointer else None
    if run is None or (run.key_expires_at is not None and run.key_expires_at <= moment.now):
        return None
    return run


def refresh_key(moment: Moment, run: RunOnRecord, start: NewRun) -> None:
    """Its window counts anew."""
    run.key_expires_at = moment.now + start.idempotency_ttl_ms
    pointer = moment.world.pointers.get((run.workflow, start.idempotency_key or ""))
    if pointer:
        pointer.expiry = moment.expiry(start.idempotency_ttl_ms)


def queue_for(moment: Moment, start: NewRun) -> str | None:
    """The queue that is named, else that of the registered workflow."""
    known = moment.world.workflows.get(start.workflow)
    return start.queue or (known.definition.queue if known else None)


def create(moment: Moment, start: NewRun, origin: Origin) -> RunOnRecord:
    """A new run in its lane, or among the scheduled. There is a queue for it, and no such run."""
    world, known = moment.world, moment.world.workflows.get(start.workflow)
    queue = queue_for(moment, start)
    assert queue is not None
    world.run_seq += 1
    run = RunOnRecord(
        id=start.run_id,
        workflow=start.workflow,
        queue=queue,
        status=RunStatus.SCHEDULED,
        max_attempts=start.max_attempts or (known.definition.max_attempts if known else 1),
        created_at=moment.now,
        seq=world.run_seq,
        digest=start.input.digest,
        input=start.input.data,
        input_meta=codec.encode_meta(start.input),
        priority=start.priority,
        is_typed=origin.is_typed or known is not None,
        parent=origin.parent,
        waiters=[origin.waiter] if origin.waiter else [],
        event_seq=world.event_seq if origin.event_seq is None else origin.event_seq,
    )
    if start.idempotency_key:
        run.key, run.key_expires_at = start.idempotency_key, moment.now + start.idempotency_ttl_ms
        expiry = moment.expiry(start.idempotency_ttl_ms)
        world.pointers[start.workflow, start.idempotency_key] = Pointer(run.id, expiry)
    if known and known.definition.start_timeout_ms:
        due = max(moment.now, start.available_at_ms or 0)
        run.start_deadline = due + known.definition.start_timeout_ms
    world.runs[run.id] = run
    if start.available_at_ms is not None and start.available_at_ms > moment.now:
        enter_schedule(run, start.available_at_ms)
    else:
        enter_lane(moment, run)
    return run


def named_by_step(moment: Moment, run: RunOnRecord, start: NewRun) -> RunOnRecord | Outcome:
    """The run that a step of `run` names, by id or key, or a new one; or why there is none."""
    found = moment.run(start.run_id)
    if found is None and (found := by_key(moment, start.workflow, start.idempotency_key)):
        refresh_key(moment, found, start)
    if found is not None:
        return found
    if not start.workflow:
        return is_missing(start.run_id)
    if queue_for(moment, start) is None:
        message = f"workflow {start.workflow} is not registered, and no queue was named"
        return failed_with("unknown_workflow", "UnknownWorkflowError", message)
    return create(moment, start, Origin(parent=run.id))


def closes_a_circle(moment: Moment, run: RunOnRecord, child: RunOnRecord) -> bool:
    """Whether the child waits already, over however many others, for the run that is to wait for it."""
    reached, ahead = {child.id}, [child.id]
    while ahead:
        at = moment.run(ahead.pop())
        for wait in at.waits.values() if at else ():
            if wait.kind is StepKind.CHILD and wait.target not in reached:
                reached.add(wait.target)
                ahead.append(wait.target)
    return run.id in reached


def input_of(data: bytes, meta: bytes) -> Payload:
    payload = codec.decode_payload(data, meta)
    assert payload is not None
    return payload
