"""The messages of the worker protocol from and to values of the session."""

from __future__ import annotations

import random
from typing import Final

from google.protobuf.message import Message

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.errors import InvalidInput, PayloadTooLarge, Refusal
from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.ids import run_id_of
from redflow_server.domain.leases import (
    AbortRun,
    ClaimedRun,
    CompleteRun,
    FailAttempt,
    LeaseStanding,
    RecordStep,
    Release,
    ReleaseReason,
    Standing,
    StepRecord,
    Stop,
    StopReason,
)
from redflow_server.domain.names import Limits, check_name, check_payload
from redflow_server.domain.runs import Step
from redflow_server.domain.session import (
    Capacity,
    Effect,
    GatewayMessage,
    Heartbeat,
    HeldLease,
    Item,
    ItemAnswer,
    ItemStatus,
    LeaseState,
    OpenSession,
    Receipt,
    RefusedItem,
    RejectReason,
    SdkInfo,
    SessionEnd,
    WorkerMessage,
)
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.rpc import convert

LEASE_STATE_OF: Final = {worker_pb2.LeaseState.Value(f"LEASE_STATE_{state.name}"): state for state in LeaseState}
REJECT_REASON_OF: Final = {
    worker_pb2.REJECT_REASON_UNSPECIFIED: None,
    worker_pb2.REJECT_REASON_UNKNOWN_WORKFLOW: RejectReason.UNKNOWN_WORKFLOW,
    worker_pb2.REJECT_REASON_OVERLOADED: RejectReason.OVERLOADED,
    worker_pb2.REJECT_REASON_DRAINING: RejectReason.DRAINING,
}
RELEASE_REASON_OF: Final = {
    worker_pb2.RELEASE_REASON_NOT_STARTED: ReleaseReason.NOT_STARTED,
    worker_pb2.RELEASE_REASON_SHUTDOWN: ReleaseReason.SHUTDOWN,
    worker_pb2.RELEASE_REASON_OVERLOADED: ReleaseReason.OVERLOADED,
    worker_pb2.RELEASE_REASON_CANCEL_IGNORED: ReleaseReason.CANCEL_IGNORED,
    worker_pb2.RELEASE_REASON_FENCED: ReleaseReason.FENCED,
}
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
CANCELED_FAILURE: Final = Failure(
    "CanceledError", "the handler ended as canceled, but nobody had asked for that", FailureKind.CANCELED
)

_ItemMessage = worker_pb2.StepReport | worker_pb2.RunResult | worker_pb2.LeaseRelease


class SessionReader:
    """Makes values of what a worker says. Items that are not valid become RefusedItem, for an answer of their own."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def message(self, request: worker_pb2.SessionRequest) -> WorkerMessage:
        """A whole message. Raises ProtocolViolation."""
        items: list[Item | RefusedItem] = [self._item(report) for report in request.step_reports]
        items += [_unserved(command.request_id, "StepCommand") for command in request.step_commands]
        items += [_unserved(suspension.request_id, "Suspension") for suspension in request.suspensions]
        items += [self._item(result) for result in request.run_results]
        items += [self._item(release) for release in request.lease_releases]
        return WorkerMessage(
            opening=self.opening(request.open) if request.HasField("open") else None,
            heartbeat=_heartbeat(request.heartbeat) if request.HasField("heartbeat") else None,
            receipts=tuple(
                Receipt(ack.lease_token, REJECT_REASON_OF.get(ack.reject_reason, RejectReason.OTHER))
                for ack in request.assignment_acks
            ),
            items=tuple(items),
            capacity=Capacity(request.capacity.slot_limit, request.capacity.paused)
            if request.HasField("capacity")
            else None,
            drains=request.HasField("drain"),
            closes=request.HasField("close"),
        )

    def opening(self, message: worker_pb2.OpenSession) -> OpenSession:
        """The first message of a worker. Raises InvalidInput."""
        return OpenSession(
            min_revision=message.min_revision,
            max_revision=message.max_revision,
            owner=message.owner,
            worker_name=message.worker_name,
            instance_id=message.instance_id,
            build_id=message.build_id,
            sdk=SdkInfo(message.sdk.name, message.sdk.version, message.sdk.language),
            queues=tuple(dict.fromkeys(message.queues)),
            workflows=tuple(convert.definition_of(definition) for definition in message.workflows),
            slot_limit=message.slot_limit,
            max_receive_bytes=message.max_receive_bytes,
            session_number=message.session_number,
            held_leases=tuple(_held(lease) for lease in message.held_leases),
        )

    def _item(self, message: _ItemMessage) -> Item | RefusedItem:
        try:
            return Item(message.request_id, self._effect(message))
        except PayloadTooLarge as refusal:
            return RefusedItem(message.request_id, ItemStatus.TOO_LARGE, refusal.reason, str(refusal))
        except Refusal as refusal:
            return RefusedItem(message.request_id, ItemStatus.INVALID, refusal.reason, str(refusal))

    def _effect(self, message: _ItemMessage) -> Effect:
        token = message.lease_token
        run_id = run_id_of(token)
        if run_id is None:
            raise InvalidInput("lease_token", "must be one that an assignment carried", token)
        if isinstance(message, worker_pb2.StepReport):
            return RecordStep(run_id, token, message.steps_recorded, self._step(message))
        if isinstance(message, worker_pb2.LeaseRelease):
            reason = RELEASE_REASON_OF.get(message.reason, ReleaseReason.NOT_STARTED)
            delay_ms = convert.length_ms_of("delay", message.delay)
            return Release(run_id, token, reason, None, delay_ms, message.steps_recorded)
        return self._result(run_id, message)

    def _result(self, run_id: str, message: worker_pb2.RunResult) -> CompleteRun | FailAttempt | AbortRun:
        token, recorded = message.lease_token, message.steps_recorded
        final_steps = tuple(self._step(report) for report in message.final_steps)
        outcome = message.WhichOneof("outcome")
        if outcome == "failure":
            failure = convert.failure_of("failure", message.failure)
            self._check_failure(message.failure)
            return FailAttempt(run_id, token, recorded, failure, random.random(), final_steps)
        if outcome == "canceled":
            stopped = message.canceled.reason == worker_pb2.CANCELED_REASON_WORKER_STOPPED
            reason = "the worker was stopped" if stopped else ""
            return AbortRun(run_id, token, recorded, stopped, reason, CANCELED_FAILURE, final_steps)
        output = convert.payload_of(message.output) if outcome == "output" else None
        if output is not None:
            check_payload("output", output, self._limits.max_payload_bytes)
        return CompleteRun(run_id, token, recorded, output, final_steps)

    def _step(self, report: worker_pb2.StepReport) -> StepRecord:
        check_name("step_name", report.step_name)
        status = convert.STEP_STATUS_OF.get(report.status)
        if status not in (StepStatus.SUCCEEDED, StepStatus.FAILED):
            raise InvalidInput("status", "must be SUCCEEDED or FAILED", report.status)
        if report.step_seq < 0:
            raise InvalidInput("step_seq", "must not be negative", report.step_seq)
        outcome = report.WhichOneof("outcome")
        if (outcome == "failure") != (status is StepStatus.FAILED):
            raise InvalidInput("outcome", f"must fit the status {status.name}", outcome)
        output = convert.payload_of(report.output) if outcome == "output" else None
        if output is not None:
            check_payload(f"output of step {report.step_name!r}", output, self._limits.max_payload_bytes)
        failure = None
        if outcome == "failure":
            failure = convert.failure_of("failure", report.failure)
            self._check_failure(report.failure)
        return StepRecord(
            name=report.step_name,
            seq=report.step_seq,
            kind=convert.STEP_KIND_OF.get(report.step_kind, StepKind.FUNCTION),
            status=status,
            output=output,
            failure=failure,
            is_final=report.final,
            elapsed_ms=convert.length_ms_of("elapsed", report.elapsed),
        )

    def _check_failure(self, message: Message) -> None:
        if message.ByteSize() > self._limits.max_payload_bytes:
            raise PayloadTooLarge("failure", self._limits.max_payload_bytes, message.ByteSize())


def _unserved(request_id: int, kind: str) -> RefusedItem:
    return RefusedItem(request_id, ItemStatus.INVALID, "UNIMPLEMENTED", f"this gateway does not serve {kind}")


def _heartbeat(message: worker_pb2.Heartbeat) -> Heartbeat:
    return Heartbeat(message.sequence, tuple(_held(lease) for lease in message.leases))


def _held(message: worker_pb2.HeldLease) -> HeldLease:
    # A state of a later revision is, for this gateway, one more in which the handler is at work.
    return HeldLease(message.lease_token, LEASE_STATE_OF.get(message.state, LeaseState.RUNNING))


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
            if answer.status is ItemStatus.OK and not answer.cancel_requested and not answer.conflicting:
                response.ok_request_ids.append(answer.request_id)
            else:
                response.item_results.append(_item_result(answer))
        response.cancellations.extend(map(self._stop, message.stops))
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
            assignment_kind=worker_pb2.ASSIGNMENT_KIND_RUN,
            attempt=run.attempt,
            max_attempts=run.max_attempts,
            delivery_count=run.deliveries,
            lease_duration=self._lease,
            input=convert.payload(run.input),
            parent_run_id=run.parent_run_id,
        )
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
    )
    if (failure := convert.failure(step.failure)) is not None:
        message.failure.CopyFrom(failure)
    elif (output := convert.payload(step.output)) is not None:
        message.output.CopyFrom(output)
    elif step.is_left_out:
        message.output_ref.size_bytes = step.size_bytes
    return message


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
    )
    if answer.retry_delay_ms:
        result.retry_delay.CopyFrom(convert.duration(answer.retry_delay_ms))
    return result
