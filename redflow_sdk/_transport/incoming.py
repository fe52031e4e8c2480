"""What the gateway says, from messages of the protocol."""

from __future__ import annotations

from typing import Final

from redflow_sdk._envelopes import Incoming
from redflow_sdk._messages import (
    Answer,
    Assignment,
    Resolution,
    SessionError,
    StepKind,
    StepSnapshot,
    StepState,
    Stop,
    StopReason,
    Verdict,
)
from redflow_sdk._opening import Opened, RegistrationProblem, Timing
from redflow_sdk._transport import convert
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb

VERDICT_OF: Final = {pb.ItemStatus.Value(f"ITEM_STATUS_{verdict.name}"): verdict for verdict in Verdict}
STOP_REASON_OF: Final = {
    pb.CancellationReason.Value(f"CANCELLATION_REASON_{reason.name}"): reason
    for reason in StopReason
    if reason is not StopReason.WORKER_STOPPED
}
STEP_STATE_OF: Final = {
    run_pb2.StepStatus.Value(f"STEP_STATUS_{state.name}"): state
    for state in StepState
    if state is not StepState.UNKNOWN
}
STEP_KIND_OF: Final = {
    run_pb2.STEP_KIND_UNSPECIFIED: StepKind.FUNCTION,
    **{run_pb2.StepKind.Value(f"STEP_KIND_{kind.name}"): kind for kind in StepKind if kind is not StepKind.UNKNOWN},
}


DONE: Final = Answer(Verdict.OK)


def incoming(response: pb.SessionResponse) -> Incoming:
    """A whole message."""
    reply = response.heartbeat_reply
    answers = [(request_id, DONE) for request_id in response.ok_request_ids]
    answers += [(result.request_id, _answer(result)) for result in response.item_results]
    error = None
    if response.HasField("error"):
        delay = convert.seconds_of(response.error.retry_delay)
        error = SessionError(response.error.reason, response.error.message, response.error.permanent, delay)
    draining = response.HasField("gateway_draining")
    return Incoming(
        opened=_opened(response.opened) if response.HasField("opened") else None,
        answered_beat=reply.sequence if response.HasField("heartbeat_reply") else 0,
        stops=tuple(map(_stop, (*response.cancellations, *reply.cancellations))),
        lost=tuple(reply.lost_lease_tokens),
        answers=tuple(answers),
        resolutions=tuple(Resolution(each.lease_token, snapshot(each.step)) for each in response.wait_resolutions),
        assignments=tuple(map(_assignment, response.assignments)),
        is_drained=response.HasField("drain_ack"),
        reconnect_delay_s=convert.seconds_of(response.gateway_draining.reconnect_delay) if draining else None,
        error=error,
    )


def _opened(message: pb.SessionOpened) -> Opened:
    timing = message.timing
    by_verdict: dict[int, list[str]] = {}
    for verdict in message.lease_verdicts:
        by_verdict.setdefault(verdict.verdict, []).append(verdict.lease_token)
    return Opened(
        timing=Timing(
            lease_s=convert.seconds_of(timing.lease),
            heartbeat_s=convert.seconds_of(timing.heartbeat_interval),
            fence_margin_s=convert.seconds_of(timing.fence_margin),
            silence_s=convert.seconds_of(timing.silence_timeout),
            cancel_grace_s=convert.seconds_of(timing.cancel_grace),
        ),
        max_payload_bytes=message.limits.max_payload_bytes,
        problems=tuple(
            RegistrationProblem(result.name, result.reason, result.message)
            for result in message.registration_results
            if result.reason
        ),
        lost=tuple(by_verdict.get(pb.LEASE_VERDICT_KIND_LOST, ())),
        finished=tuple(by_verdict.get(pb.LEASE_VERDICT_KIND_FINISHED, ())),
        stops=tuple(
            _stop(verdict.cancellation)
            for verdict in message.lease_verdicts
            if verdict.verdict == pb.LEASE_VERDICT_KIND_CANCEL_REQUESTED
        ),
    )


def _stop(message: pb.Cancellation) -> Stop:
    return Stop(message.lease_token, STOP_REASON_OF.get(message.reason, StopReason.USER), message.message)


def _answer(result: pb.ItemResult) -> Answer:
    return Answer(
        verdict=VERDICT_OF.get(result.status, Verdict.INVALID),
        reason=result.reason,
        message=result.message,
        retry_delay_s=convert.seconds_of(result.retry_delay),
        cancel_requested=result.cancel_requested,
        stored=snapshot(result.conflicting_steps[0]) if result.conflicting_steps else None,
        resolutions=tuple(map(snapshot, result.resolutions)),
    )


def _assignment(message: pb.Assignment) -> Assignment:
    return Assignment(
        lease_token=message.lease_token,
        run_id=message.run_id,
        workflow=message.workflow,
        queue=message.queue,
        attempt=message.attempt,
        max_attempts=message.max_attempts,
        delivery_count=message.delivery_count,
        input=convert.payload_of(message.input) if message.HasField("input") else None,
        steps=tuple(map(snapshot, message.steps)),
        has_more_steps=message.steps_truncated,
        stop=_stop(message.cancellation) if message.HasField("cancellation") else None,
        failure=convert.failure_of(message.failure) if message.HasField("failure") else None,
    )


def snapshot(message: pb.StepSnapshot) -> StepSnapshot:
    """A step on record."""
    value = message.WhichOneof("value")
    return StepSnapshot(
        name=message.step_name,
        seq=message.step_seq,
        state=STEP_STATE_OF.get(message.status, StepState.UNKNOWN),
        attempt=message.attempt,
        is_final=message.final,
        output=convert.payload_of(message.output) if value == "output" else None,
        failure=convert.failure_of(message.failure) if value == "failure" else None,
        is_by_reference=value == "output_ref",
        kind=STEP_KIND_OF.get(message.step_kind, StepKind.UNKNOWN),
        resolved_seq=message.resolved_seq,
        event_id=message.event_id,
        event_time=convert.moment_of(message, "event_time"),
        tries=message.tries,
        token=message.token,
        child_run_id=message.child_run_id,
    )
