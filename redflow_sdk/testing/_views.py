"""Runs and steps of a play as a client of a gateway would see them."""

from __future__ import annotations

import json
from typing import Final, Literal

from redflow_sdk._messages import ChildTarget, EventTarget, StepKind, StepState, TimerTarget
from redflow_sdk._types import Json
from redflow_sdk._wait_steps import KIND_OF
from redflow_sdk.records import Payload, Run, Step, WaitingFor
from redflow_sdk.testing._world import OpenWait, RunRecord, StepRecord, World

STATUS_OF: Final[dict[StepState, Literal["succeeded", "failed", "waiting", "withdrawn", "unknown"]]] = {
    StepState.SUCCEEDED: "succeeded",
    StepState.FAILED: "failed",
    StepState.WAITING: "waiting",
    StepState.WITHDRAWN: "withdrawn",
    StepState.UNKNOWN: "unknown",
}


def run_of(world: World, run: RunRecord) -> Run:
    """A run."""
    time_of = world.clock.time_of
    return Run(
        id=run.id,
        workflow=run.workflow,
        queue=run.queue,
        status=run.status,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        created_at=time_of(run.created_ms),
        input=_json(run.start.input),
        output=_json(run.output) if run.status == "succeeded" else None,
        failure=run.failure,
        priority=run.start.priority,
        available_at=None if run.available_ms is None else time_of(run.available_ms),
        started_at=None if run.started_ms is None else time_of(run.started_ms),
        finished_at=None if run.finished_ms is None else time_of(run.finished_ms),
        cancel_reason=run.cancel_reason or "",
        idempotency_key=run.start.idempotency_key or "",
        parent_run_id="" if run.parent is None else run.parent.id,
        delivery_count=run.deliveries,
        waiting_for=tuple(_waiting_for(world, run, open_wait) for open_wait in run.waits.values()),
        failure_handler=run.handler_state,
        failure_handler_failure=run.handler_failure,
        open_waits=len(run.waits),
    )


def step_of(world: World, step: StepRecord) -> Step:
    """A step on record."""
    known = step.snapshot
    failure = known.failure
    is_of_a_try = known.kind is StepKind.FUNCTION and failure is not None and failure.kind != "canceled"
    return Step(
        name=known.name,
        seq=known.seq,
        kind=known.kind.name.lower(),
        status=STATUS_OF[known.state],
        attempt=known.attempt,
        output=_json(known.output),
        failure=failure,
        started_at=world.clock.time_of(step.began_ms),
        finished_at=None if step.ended_ms is None else world.clock.time_of(step.ended_ms),
        child_run_id=known.child_run_id,
        tries=known.tries,
        event_id=known.event_id,
        is_retrying=is_of_a_try and not known.is_final,
    )


def _waiting_for(world: World, run: RunRecord, open_wait: OpenWait) -> WaitingFor:
    wait = open_wait.wait
    match wait.target:
        case EventTarget(event=event, key=key):
            detail = f"event {event}" if key is None else f"event {event} with key {key}"
        case ChildTarget():
            detail = "a run" if open_wait.child is None else f"run {open_wait.child.id} of {open_wait.child.workflow}"
        case TimerTarget():
            detail = "a time"
        case _:
            detail = "its token"
    since = world.clock.time_of(run.steps[wait.name].began_ms)
    until = None if open_wait.due is None else world.clock.time_of(open_wait.due.at_ms)
    return WaitingFor(KIND_OF[type(wait.target)].name.lower(), until, detail, wait.name, since)


def _json(payload: Payload | None) -> Json:
    return None if payload is None else json.loads(payload.data)
