"""One session stream: values in, values out."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc

from redflow_sdk._messages import (
    Answer,
    Assignment,
    Canceled,
    Completed,
    Definition,
    Failed,
    HeldLease,
    Incoming,
    Item,
    LeaseState,
    Opened,
    Opening,
    Outgoing,
    RegistrationProblem,
    RejectReason,
    Release,
    ReleaseReason,
    SessionError,
    StepReport,
    StepSnapshot,
    Stop,
    StopReason,
    Timing,
    Verdict,
)
from redflow_sdk._transport import convert
from redflow_sdk._transport.channel import open_channel
from redflow_sdk.proto.v1 import run_pb2, workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.proto.worker.v1 import worker_pb2_grpc
from redflow_sdk.version import VERSION

REVISION: Final = 1
FETCH_TIMEOUT_S: Final = 15.0
FETCH_STEPS: Final = 500

LEASE_STATE: Final = {state: pb.LeaseState.Value(f"LEASE_STATE_{state.name}") for state in LeaseState}
REJECT_REASON: Final = {reason: pb.RejectReason.Value(f"REJECT_REASON_{reason.name}") for reason in RejectReason}
RELEASE_REASON: Final = {reason: pb.ReleaseReason.Value(f"RELEASE_REASON_{reason.name}") for reason in ReleaseReason}
VERDICT_OF: Final = {pb.ItemStatus.Value(f"ITEM_STATUS_{verdict.name}"): verdict for verdict in Verdict}
STOP_REASON_OF: Final = {
    pb.CancellationReason.Value(f"CANCELLATION_REASON_{reason.name}"): reason
    for reason in StopReason
    if reason is not StopReason.WORKER_STOPPED
}


# grpc.aio raises the last one when a stream ends in the middle of a write or read.
BREAKS: Final = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


class BrokenStream(Exception):
    """The stream ended; the session goes on elsewhere, in `retry_delay_s` at the earliest."""

    def __init__(self, message: str, retry_delay_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_delay_s = retry_delay_s


class Stream:
    """An open stream on a channel of its own."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target)
        self._call = worker_pb2_grpc.WorkerServiceStub(self._channel).Session()

    async def write(self, outgoing: Outgoing) -> None:
        """Sends a message. Raises BrokenStream."""
        try:
            await self._call.write(_request(outgoing))
        except BREAKS as error:
            raise _broken(error) from None

    async def read(self) -> Incoming:
        """The next message. Raises BrokenStream."""
        try:
            response = await self._call.read()
        except BREAKS as error:
            raise _broken(error) from None
        if not isinstance(response, pb.SessionResponse):
            raise BrokenStream("the gateway ended the stream")
        return _incoming(response)

    async def fetch(self, lease_token: str, step_name: str) -> StepSnapshot | None:
        """A step whose output was too large for the assignment. Raises BrokenStream."""
        stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        request = pb.GetStepOutputsRequest(lease_token=lease_token, step_names=[step_name])
        try:
            response = await stub.GetStepOutputs(request, timeout=FETCH_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise _broken(error) from None
        return _snapshot(response.steps[0]) if response.steps else None

    async def fetch_all(self, lease_token: str) -> tuple[StepSnapshot, ...]:
        """Every step on record of a run, page by page. Raises BrokenStream."""
        stub = worker_pb2_grpc.WorkerServiceStub(self._channel)
        request = pb.GetStepOutputsRequest(lease_token=lease_token, page_size=FETCH_STEPS)
        steps: list[StepSnapshot] = []
        while True:
            try:
                response = await stub.GetStepOutputs(request, timeout=FETCH_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                raise _broken(error) from None
            steps += map(_snapshot, response.steps)
            if not response.next_page_token:
                return tuple(steps)
            request.page_token = response.next_page_token

    async def close(self) -> None:
        """Ends the stream and its connection."""
        self._call.cancel()
        await self._channel.close()


def _broken(error: Exception) -> BrokenStream:
    if isinstance(error, grpc.aio.AioRpcError):
        return BrokenStream(f"{error.code().name}: {error.details()}")
    return BrokenStream(str(error))


# ---- to the gateway ----


def _request(outgoing: Outgoing) -> pb.SessionRequest:
    request = pb.SessionRequest()
    if outgoing.opening is not None:
        request.open.CopyFrom(_open(outgoing.opening))
    if outgoing.beat:
        request.heartbeat.sequence = outgoing.beat
        request.heartbeat.leases.extend(map(_held, outgoing.held))
    for receipt in outgoing.receipts:
        ack = request.assignment_acks.add(lease_token=receipt.lease_token)
        if receipt.rejected is not None:
            ack.reject_reason = REJECT_REASON[receipt.rejected]
    for request_id, item in outgoing.items:
        _add(request, request_id, item)
    if outgoing.slot_limit is not None:
        request.capacity.slot_limit = outgoing.slot_limit
    if outgoing.drains:
        request.drain.SetInParent()
    if outgoing.closes:
        request.close.SetInParent()
    return request


def _held(lease: HeldLease) -> pb.HeldLease:
    return pb.HeldLease(lease_token=lease.lease_token, state=LEASE_STATE[lease.state])


def _open(opening: Opening) -> pb.OpenSession:
    return pb.OpenSession(
        min_revision=REVISION,
        max_revision=REVISION,
        capabilities=[pb.CAPABILITY_LAZY_OUTPUTS],
        owner=opening.owner,
        worker_name=opening.worker_name,
        instance_id=opening.instance_id,
        build_id=opening.build_id,
        sdk=pb.SdkInfo(name="redflow-sdk", version=VERSION, language="python"),
        queues=opening.queues,
        workflows=map(_definition, opening.definitions),
        slot_limit=opening.slot_limit,
        session_number=opening.session_number,
        held_leases=map(_held, opening.held),
    )


def _definition(definition: Definition) -> workflow_pb2.WorkflowDefinition:
    message = workflow_pb2.WorkflowDefinition(
        name=definition.name,
        definition_digest=definition.digest,
        queue=definition.queue,
        max_attempts=definition.max_attempts,
        event_triggers=[workflow_pb2.EventTrigger(event_name=name) for name in definition.events],
    )
    if definition.retry is not None:
        retry = definition.retry
        message.retry_policy.initial_interval.CopyFrom(convert.duration(retry.initial))
        message.retry_policy.backoff_multiplier = retry.multiplier
        message.retry_policy.maximum_interval.CopyFrom(convert.duration(retry.maximum))
        message.retry_policy.jitter_ratio = retry.jitter
    if definition.run_timeout is not None:
        message.run_timeout.CopyFrom(convert.duration(definition.run_timeout))
    if definition.start_timeout is not None:
        message.start_timeout.CopyFrom(convert.duration(definition.start_timeout))
    return message


def _add(request: pb.SessionRequest, request_id: int, item: Item) -> None:
    token, recorded = item.lease_token, item.steps_recorded
    match item:
        case StepReport():
            report = request.step_reports.add(
                request_id=request_id,
                lease_token=token,
                steps_recorded=recorded,
                step_name=item.name,
                step_seq=item.seq,
                step_kind=run_pb2.STEP_KIND_FUNCTION,
                status=run_pb2.STEP_STATUS_FAILED if item.failure else run_pb2.STEP_STATUS_SUCCEEDED,
                final=item.is_final,
            )
            report.elapsed.CopyFrom(convert.duration(item.elapsed_s))
            if item.failure is not None:
                report.failure.CopyFrom(convert.failure(item.failure))
            elif (output := convert.payload(item.output)) is not None:
                report.output.CopyFrom(output)
        case Completed():
            result = request.run_results.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            if (output := convert.payload(item.output)) is not None:
                result.output.CopyFrom(output)
        case Failed():
            result = request.run_results.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            result.failure.CopyFrom(convert.failure(item.failure))
        case Canceled():
            result = request.run_results.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            stopped = item.is_worker_stopped
            result.canceled.reason = pb.CANCELED_REASON_WORKER_STOPPED if stopped else pb.CANCELED_REASON_REQUESTED
        case Release():
            request.lease_releases.add(
                request_id=request_id,
                lease_token=token,
                steps_recorded=recorded,
                reason=RELEASE_REASON[item.reason],
            )


# ---- from the gateway ----


def _incoming(response: pb.SessionResponse) -> Incoming:
    reply = response.heartbeat_reply
    answers = [(request_id, Answer(Verdict.OK)) for request_id in response.ok_request_ids]
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
            if result.status != workflow_pb2.REGISTRATION_STATUS_REGISTERED
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
        stored=_snapshot(result.conflicting_steps[0]) if result.conflicting_steps else None,
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
        steps=tuple(map(_snapshot, message.steps)),
        has_more_steps=message.steps_truncated,
        stop=_stop(message.cancellation) if message.HasField("cancellation") else None,
    )


def _snapshot(message: pb.StepSnapshot) -> StepSnapshot:
    value = message.WhichOneof("value")
    return StepSnapshot(
        name=message.step_name,
        seq=message.step_seq,
        succeeded=message.status == run_pb2.STEP_STATUS_SUCCEEDED,
        attempt=message.attempt,
        is_final=message.final,
        output=convert.payload_of(message.output) if value == "output" else None,
        failure=convert.failure_of(message.failure) if value == "failure" else None,
        is_by_reference=value == "output_ref",
    )
