"""What the gateway says, from values of the session to messages of the protocol."""

from __future__ import annotations

from typing import Final

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.leases import ClaimedRun, LeaseStanding, Resolution, Standing, Stop, StopReason
from redflow_server.domain.runs import Step
from redflow_server.domain.session import GatewayMessage, ItemAnswer, ItemStatus, SessionEnd
from redflow_server.rpc import convert

ITEM_STATUS: Final = {status: worker_pb2.ItemStatus.Value(f"ITEM_STATUS_{status.name}") for status in ItemStatus}
STOP_REASON: Final = {
    reason: worker_pb2.CancellationReason.Value(f"CANCELLATION_REASON_{reason.name}") for reason in StopReason
}
VERDICT: Final = {
    Standing.HELD: worker_pb2.LEASE_VERDICT_KIND_HELD,
    Standing.LOST: worker_pb2.LEASE_VERDICT_KIND_LOST,
    Standing.MOVED: worker_pb2.LEASE_VERDICT_KIND_LOST,
    Standing.FINISHED: worker_pb2.LEASE_VERDICT_KIND_FINISHED,
}
MAX_INDEX: Final = 2_000
"""Steps of an assignment: with more the worker reads the rest, so that the message keeps its size."""


class SessionWriter:
    """Renders what the gateway says."""

    def __init__(self, lease_ms: int, grace_ms: int, opened: worker_pb2.SessionOpened) -> None:
        """`opened` holds what is the same for every session."""
        self._lease = convert.duration(lease_ms)
        self._grace = convert.duration(grace_ms)
        self._opened = opened

    def message(self, message: GatewayMessage) -> worker_pb2.SessionResponse:
        """A whole message."""
        response = worker_pb2.SessionResponse()
        if message.opened is not None:
            opened = message.opened
            response.opened.CopyFrom(self._opened)
            response.opened.session_id = opened.session_id
            response.opened.revision = opened.revision
            response.opened.registration_results.extend(map(convert.registration_result, opened.registrations))
            response.opened.lease_verdicts.extend(map(self._verdict, opened.standings))
        if message.heartbeat_reply is not None:
            reply = message.heartbeat_reply
            response.heartbeat_reply.sequence = reply.sequence
            response.heartbeat_reply.cancellations.extend(map(self._stop, reply.stops))
            response.heartbeat_reply.lost_lease_tokens.extend(reply.lost_tokens)
        for answer in message.answers:
            if answer.status is ItemStatus.OK and not (
                answer.cancel_requested or answer.conflicting or answer.resolutions
            ):
                response.ok_request_ids.append(answer.request_id)
            else:
                response.item_results.append(_item_result(answer))
        response.cancellations.extend(map(self._stop, message.stops))
        response.wait_resolutions.extend(map(_resolution, message.resolutions))
        response.assignments.extend(map(self._assignment, message.assignments))
        if message.is_drained:
            response.drain_ack.SetInParent()
        if message.draining is not None:
            response.gateway_draining.grace.CopyFrom(convert.duration(message.draining.grace_ms))
            response.gateway_draining.reconnect_delay.CopyFrom(convert.duration(message.draining.reconnect_delay_ms))
        if message.end is not None and message.end.reason:
            response.error.CopyFrom(session_error(message.end))
        return response

    def _stop(self, stop: Stop) -> worker_pb2.Cancellation:
        return worker_pb2.Cancellation(
            lease_token=stop.lease_token, reason=STOP_REASON[stop.reason], message=stop.message, grace=self._grace
        )

    def _verdict(self, standing: LeaseStanding) -> worker_pb2.LeaseVerdict:
        if standing.stop is None:
            return worker_pb2.LeaseVerdict(lease_token=standing.lease_token, verdict=VERDICT[standing.standing])
        return worker_pb2.LeaseVerdict(
            lease_token=standing.lease_token,
            verdict=worker_pb2.LEASE_VERDICT_KIND_CANCEL_REQUESTED,
            cancellation=self._stop(standing.stop),
        )

    def _assignment(self, run: ClaimedRun) -> worker_pb2.Assignment:
        assignment = worker_pb2.Assignment(
            lease_token=run.lease_token,
            run_id=run.run_id,
            workflow=run.lane.workflow,
            queue=run.lane.queue,
            attempt=run.attempt,
            max_attempts=run.max_attempts,
            delivery_count=run.deliveries,
            lease_duration=self._lease,
            input=convert.payload(run.input),
            parent_run_id=run.parent_run_id,
        )
        if (failure := convert.failure(run.failure)) is None:
            assignment.assignment_kind = worker_pb2.ASSIGNMENT_KIND_RUN
        else:
            assignment.assignment_kind = worker_pb2.ASSIGNMENT_KIND_FAILURE_HANDLER
            assignment.failure.CopyFrom(failure)
        if run.stop is not None:
            assignment.cancellation.CopyFrom(self._stop(run.stop))
        if run.steps:
            assignment.steps.extend(map(snapshot, run.steps[:MAX_INDEX]))
            assignment.steps_truncated = len(run.steps) > MAX_INDEX
        if run.run_time_left_ms is not None:
            assignment.run_timeout.CopyFrom(convert.duration(max(0, run.run_time_left_ms)))
        return assignment


def snapshot(step: Step) -> worker_pb2.StepSnapshot:
    """A step on record; by reference when its value was left out."""
    message = worker_pb2.StepSnapshot(
        step_name=step.name,
        step_seq=step.seq,
        step_kind=convert.STEP_KIND[step.kind],
        status=convert.STEP_STATUS[step.status],
        attempt=step.attempt,
        final=step.is_final,
        child_run_id=step.child_run_id,
        resolved_seq=step.resolved_seq,
        event_id=step.event_id,
        event_time=convert.timestamp(step.event_at_ms),
        tries=step.tries,
        token=step.token,
    )
    if (failure := convert.failure(step.failure)) is not None:
        message.failure.CopyFrom(failure)
    elif (output := convert.payload(step.output)) is not None:
        message.output.CopyFrom(output)
    elif step.is_left_out:
        message.output_ref.size_bytes = step.size_bytes
    return message


def _resolution(resolution: Resolution) -> worker_pb2.WaitResolution:
    step = resolution.step
    found = worker_pb2.StepSnapshot(step_name=resolution.step_name) if step is None else snapshot(step)
    return worker_pb2.WaitResolution(lease_token=resolution.lease_token, step=found)


def session_error(end: SessionEnd) -> worker_pb2.SessionError:
    """Why a session ends."""
    return worker_pb2.SessionError(
        reason=end.reason,
        message=end.message,
        permanent=end.is_permanent,
        retry_delay=convert.duration(end.retry_delay_ms),
    )


def _item_result(answer: ItemAnswer) -> worker_pb2.ItemResult:
    result = worker_pb2.ItemResult(
        request_id=answer.request_id,
        status=ITEM_STATUS[answer.status],
        reason=answer.reason,
        message=answer.message,
        cancel_requested=answer.cancel_requested,
        conflicting_steps=map(snapshot, answer.conflicting),
        resolutions=map(snapshot, answer.resolutions),
    )
    if answer.retry_delay_ms:
        result.retry_delay.CopyFrom(convert.duration(answer.retry_delay_ms))
    return result
