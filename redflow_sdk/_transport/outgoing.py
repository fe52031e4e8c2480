"""What a worker says, as messages of the protocol."""

from __future__ import annotations

from typing import Final

from redflow_sdk._envelopes import Outgoing
from redflow_sdk._messages import (
    BeginWaits,
    Canceled,
    ChildTarget,
    Completed,
    Emit,
    EventTarget,
    Failed,
    FailureHandled,
    HeldLease,
    Item,
    LeaseState,
    RejectReason,
    Release,
    ReleaseReason,
    RunStart,
    Start,
    StepReport,
    Suspend,
    TimerTarget,
    TokenTarget,
    Wait,
)
from redflow_sdk._opening import Definition, Opening
from redflow_sdk._transport import convert
from redflow_sdk.proto.v1 import run_pb2, workflow_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_sdk.version import VERSION

REVISION: Final = 1
LEASE_STATE: Final = {state: pb.LeaseState.Value(f"LEASE_STATE_{state.name}") for state in LeaseState}
REJECT_REASON: Final = {reason: pb.RejectReason.Value(f"REJECT_REASON_{reason.name}") for reason in RejectReason}
RELEASE_REASON: Final = {reason: pb.ReleaseReason.Value(f"RELEASE_REASON_{reason.name}") for reason in ReleaseReason}


def outgoing_request(outgoing: Outgoing) -> pb.SessionRequest:
    """A whole message."""
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
    return pb.HeldLease(lease_token=lease.lease_token, state=LEASE_STATE[lease.state], open_waits=lease.open_waits)


def _open(opening: Opening) -> pb.OpenSession:
    return pb.OpenSession(
        min_revision=REVISION,
        max_revision=REVISION,
        capabilities=[pb.CAPABILITY_PARKING, pb.CAPABILITY_LAZY_OUTPUTS, pb.CAPABILITY_FAILURE_HANDLERS],
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
        has_failure_handler=definition.has_failure_handler,
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
    if definition.failure_handler_timeout is not None:
        message.failure_handler_timeout.CopyFrom(convert.duration(definition.failure_handler_timeout))
    for cron in definition.cron:
        schedule = message.cron.add(schedule_id=cron.schedule_id, expression=cron.expression, timezone=cron.timezone)
        if cron.input is not None:
            schedule.input.CopyFrom(convert.payload(cron.input))
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
                tries=item.tries,
                rivals=item.rivals,
            )
            report.elapsed.CopyFrom(convert.duration(item.elapsed_s))
            if item.failure is not None:
                report.failure.CopyFrom(convert.failure(item.failure))
            elif item.output is not None:
                convert.fill_payload(report.output, item.output)
        case BeginWaits():
            command = request.step_commands.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            for wait in item.waits:
                _fill_wait(command.wait.waits.add(), wait)
        case Start():
            command = request.step_commands.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            command.step_name, command.step_seq = item.name, item.seq
            _fill_start(command.start_child, item.start)
            policy = pb.PARENT_CLOSE_POLICY_CANCEL if item.ends_with_parent else pb.PARENT_CLOSE_POLICY_ABANDON
            command.start_child.parent_close_policy = policy
        case Emit():
            command = request.step_commands.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            command.step_name, command.step_seq = item.name, item.seq
            _fill_emit(command.emit_event, item)
        case Suspend():
            suspension = request.suspensions.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            suspension.park = item.parks
            for wait in item.waits:
                _fill_wait(suspension.waits.add(), wait)
        case FailureHandled():
            result = request.run_results.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            result.failure_handler_done = True
            if item.failure is not None:
                result.failure.CopyFrom(convert.failure(item.failure))
        case Completed():
            result = request.run_results.add(request_id=request_id, lease_token=token, steps_recorded=recorded)
            if item.output is not None:
                convert.fill_payload(result.output, item.output)
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


def _fill_wait(message: pb.Wait, wait: Wait) -> None:
    message.step_name, message.step_seq, message.group = wait.name, wait.seq, wait.group
    match wait.target:
        case TimerTarget(delay_s=delay_s, until=until):
            message.timer.SetInParent()
            if until is not None:
                message.timer.until_time.CopyFrom(convert.timestamp(until))
            else:
                message.timer.delay.CopyFrom(convert.duration(delay_s or 0.0))
        case EventTarget(event=event, key=key):
            message.event.event_name = event
            if key is not None:
                message.event.key = key
            _fill_timeout(message.event, wait)
        case ChildTarget(start=start):
            _fill_start(message.child.start, start)
            _fill_timeout(message.child, wait)
        case TokenTarget():
            message.token.SetInParent()
            _fill_timeout(message.token, wait)


def _fill_timeout(message: pb.EventWait | pb.ChildWait | pb.TokenWait, wait: Wait) -> None:
    if wait.timeout_s is not None:
        message.timeout.CopyFrom(convert.duration(wait.timeout_s))


def _fill_start(message: pb.ChildStart, start: RunStart) -> None:
    message.workflow = start.workflow
    message.input.CopyFrom(convert.payload(start.input))
    message.queue = start.queue or ""
    message.idempotency_key = start.idempotency_key or ""
    if start.max_attempts is not None:
        message.max_attempts = start.max_attempts
    if start.priority:
        message.priority = start.priority
    if start.idempotency_ttl is not None:
        message.idempotency_ttl.CopyFrom(convert.duration(start.idempotency_ttl))


def _fill_emit(message: pb.EmitCommand, emit: Emit) -> None:
    message.event_name = emit.event
    if emit.key is not None:
        message.key = emit.key
    message.payload.CopyFrom(convert.payload(emit.payload))
    message.idempotency_key = emit.idempotency_key or ""
    if emit.idempotency_ttl is not None:
        message.idempotency_ttl.CopyFrom(convert.duration(emit.idempotency_ttl))
    if emit.available_at is not None:
        message.available_time.CopyFrom(convert.timestamp(emit.available_at))
