"""The items of a worker, from messages to effects on the store. What is not valid becomes a RefusedItem, for an answer
of its own.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from redflow_sdk.proto.worker.v1 import worker_pb2
from redflow_server.domain.errors import InvalidInput, PayloadTooLarge, Refusal
from redflow_server.domain.events import REPEATED_WITHIN_MS, NewEvent, check_event
from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.ids import counted, event_id_for, run_id_of
from redflow_server.domain.leases import (
    AbortRun,
    BeginWaits,
    ClosePolicy,
    CompleteRun,
    EmitStep,
    EndFailing,
    FailAttempt,
    RecordStep,
    Release,
    ReleaseReason,
    StartStep,
    StepRecord,
    Suspend,
)
from redflow_server.domain.names import MAX_WAITS, Limits, check_name, check_payload
from redflow_server.domain.payloads import EMPTY_OBJECT
from redflow_server.domain.runs import DEFAULT_IDEMPOTENCY_TTL_MS
from redflow_server.domain.session import Effect, Item, ItemStatus, RefusedItem
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.rpc import convert
from redflow_server.rpc.wait_reader import CLOSE_POLICY_OF, WaitReader

RELEASE_REASON_OF: Final = {
    worker_pb2.RELEASE_REASON_NOT_STARTED: ReleaseReason.NOT_STARTED,
    worker_pb2.RELEASE_REASON_SHUTDOWN: ReleaseReason.SHUTDOWN,
    worker_pb2.RELEASE_REASON_OVERLOADED: ReleaseReason.OVERLOADED,
    worker_pb2.RELEASE_REASON_CANCEL_IGNORED: ReleaseReason.CANCEL_IGNORED,
    worker_pb2.RELEASE_REASON_FENCED: ReleaseReason.FENCED,
}
CANCELED_FAILURE: Final = Failure(
    "CanceledError", "the handler ended as canceled, but nobody had asked for that", FailureKind.CANCELED
)

_ItemMessage = (
    worker_pb2.StepReport
    | worker_pb2.StepCommand
    | worker_pb2.Suspension
    | worker_pb2.RunResult
    | worker_pb2.LeaseRelease
)


class ItemReader:
    """Makes effects of items."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waits = WaitReader(limits)

    def items(self, request: worker_pb2.SessionRequest) -> tuple[Item | RefusedItem, ...]:
        """All items of a message, in the order in which they are dealt with."""
        kinds = (
            *(request.step_reports, request.step_commands, request.suspensions),
            *(request.run_results, request.lease_releases),
        )
        return tuple(self._item(message) for kind in kinds for message in kind)

    def _item(self, message: _ItemMessage) -> Item | RefusedItem:
        if unserved := _unserved(message):
            text = f"this gateway does not serve {unserved}"
            return RefusedItem(message.request_id, ItemStatus.INVALID, "UNIMPLEMENTED", text)
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
            rivals = _rivals(message) if message.rivals else ()
            return RecordStep(run_id, token, message.steps_recorded, self._step(message), rivals)
        if isinstance(message, worker_pb2.LeaseRelease):
            reason = RELEASE_REASON_OF.get(message.reason, ReleaseReason.NOT_STARTED)
            delay_ms = convert.length_ms_of("delay", message.delay)
            return Release(run_id, token, reason, None, delay_ms, message.steps_recorded)
        if isinstance(message, worker_pb2.StepCommand):
            return self._command(run_id, message)
        if isinstance(message, worker_pb2.Suspension):
            return self._suspension(run_id, message)
        return self._result(run_id, message)

    def _command(self, run_id: str, message: worker_pb2.StepCommand) -> BeginWaits | EmitStep | StartStep:
        token, recorded = message.lease_token, message.steps_recorded
        if message.WhichOneof("command") == "wait":
            return BeginWaits(run_id, token, recorded, self._waits.waits(run_id, message.wait.waits))
        name = check_name("step_name", message.step_name)
        if message.step_seq < 0:
            raise InvalidInput("step_seq", "must not be negative", message.step_seq)
        if message.WhichOneof("command") == "start_child":
            start = self._waits.start(run_id, name, message.start_child)
            policy = CLOSE_POLICY_OF.get(message.start_child.parent_close_policy, ClosePolicy.ABANDON)
            return StartStep(run_id, token, recorded, name, message.step_seq, start, policy)
        event = self._event(run_id, name, message.emit_event)
        delay_ms = convert.optional_ms("delay", message.emit_event, "delay")
        return EmitStep(run_id, token, recorded, name, message.step_seq, event, delay_ms)

    def _suspension(self, run_id: str, message: worker_pb2.Suspension) -> Suspend:
        asks_to_go_on = message.park and not message.waits
        waits = () if asks_to_go_on else self._waits.waits(run_id, message.waits)
        return Suspend(run_id, message.lease_token, message.steps_recorded, waits, message.park)

    def _event(self, run_id: str, step: str, message: worker_pb2.EmitCommand) -> NewEvent:
        ttl_ms = convert.optional_ms("idempotency_ttl", message, "idempotency_ttl")
        available_at_ms = None
        if message.HasField("available_time"):
            available_at_ms = convert.at_ms_of("available_time", message.available_time)
        event = NewEvent(
            event_id=event_id_for("step", run_id, step),
            name=message.event_name,
            payload=convert.payload_of(message.payload) if message.HasField("payload") else EMPTY_OBJECT,
            idempotency_key=message.idempotency_key,
            idempotency_ttl_ms=DEFAULT_IDEMPOTENCY_TTL_MS if ttl_ms is None else ttl_ms,
            available_at_ms=available_at_ms,
            key=message.key if message.HasField("key") else None,
        )
        check_event(event, self._limits)
        key = f"stepev:{counted(run_id)}:{counted(step)}:{counted(message.event_name)}"
        if event.idempotency_key:
            return event
        return replace(event, idempotency_key=key, idempotency_ttl_ms=REPEATED_WITHIN_MS)

    def _result(self, run_id: str, message: worker_pb2.RunResult) -> CompleteRun | FailAttempt | AbortRun | EndFailing:
        token, recorded = message.lease_token, message.steps_recorded
        final_steps = tuple(self._step(report) for report in message.final_steps)
        outcome = message.WhichOneof("outcome")
        if message.failure_handler_done:
            failed = convert.failure_of("failure", message.failure) if outcome == "failure" else None
            self._check_failure(message.failure)
            return EndFailing(run_id, token, recorded, failed)
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
        if report.tries < 0:
            raise InvalidInput("tries", "must not be negative", report.tries)
        kind = convert.STEP_KIND_OF.get(report.step_kind, StepKind.FUNCTION)
        if kind is not StepKind.FUNCTION:
            raise InvalidInput("step_kind", "must be FUNCTION: the others are recorded by what they ask for", kind)
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
            kind=kind,
            status=status,
            output=output,
            failure=failure,
            is_final=report.final,
            elapsed_ms=convert.length_ms_of("elapsed", report.elapsed),
            tries=report.tries,
        )

    def _check_failure(self, message: Message) -> None:
        if message.ByteSize() > self._limits.max_payload_bytes:
            raise PayloadTooLarge("failure", self._limits.max_payload_bytes, message.ByteSize())


def _rivals(report: worker_pb2.StepReport) -> tuple[str, ...]:
    if len(report.rivals) > MAX_WAITS:
        raise InvalidInput("rivals", f"must be at most {MAX_WAITS}", len(report.rivals))
    return tuple(check_name("rivals", name) for name in report.rivals)


def _unserved(message: _ItemMessage) -> str:
    """What is asked for that this gateway does not know; empty for what is served."""
    if isinstance(message, worker_pb2.StepCommand) and message.WhichOneof("command") is None:
        return "the command of a later revision"
    # A success may be without an output, so that an outcome of a later revision would pass for one.
    if isinstance(message, worker_pb2.RunResult) and message.WhichOneof("outcome") is None:
        return "the outcome of a later revision" if len(UnknownFieldSet(message)) else ""
    return ""
