"""What a worker says, read into values: each item by itself, in its order; and what a later version may say."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.domain.failures import FailureKind
from redflow_server.domain.leases import (
    AbortRun,
    ClaimedRun,
    CompleteRun,
    FailAttempt,
    Lane,
    RecordStep,
    Release,
    ReleaseReason,
    Stop,
    StopReason,
)
from redflow_server.domain.names import Limits
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import Step
from redflow_server.domain.session import GatewayMessage, Item, ItemAnswer, ItemStatus, RefusedItem, SessionEnd
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.rpc.session_reader import SessionReader
from redflow_server.rpc.session_writer import SessionWriter, snapshot
from tests.rpc import items
from tests.rpc.items import Fields

LATER: Final = 999
TOKEN: Final = "run_1.0123456789abcde"
MAX_BYTES: Final = 1000
READER: Final = SessionReader(Limits(max_payload_bytes=MAX_BYTES))
WRITER: Final = SessionWriter(30_000, 5000, pb.SessionOpened(gateway_id="g"))


def read(**fields: Fields) -> tuple[Item | RefusedItem, ...]:
    return READER.message(pb.SessionRequest(**fields)).items


def effect_of(**fields: Fields) -> object:
    [item] = read(**fields)
    assert isinstance(item, Item), item
    return item.effect


def refusal_of(**fields: Fields) -> RefusedItem:
    [item] = read(**fields)
    assert isinstance(item, RefusedItem), item
    return item


# ---- items ----


def test_items_keep_their_order_within_a_kind_and_end_with_what_ends_leases() -> None:
    reports = [items.a_step(TOKEN, name) for name in "ab"]
    results = [items.a_result(TOKEN), items.a_raised(TOKEN)]
    release = items.a_release(TOKEN)
    command, suspension = pb.StepCommand(request_id=901), pb.Suspension(request_id=902)

    found = read(
        lease_releases=[release],
        run_results=results,
        step_reports=reports,
        step_commands=[command],
        suspensions=[suspension],
    )

    expected: tuple[Fields, ...] = (*reports, command, suspension, *results, release)
    assert [item.request_id for item in found] == [item.request_id for item in expected]


def test_a_handler_that_returned_nothing_is_not_one_that_returned_an_empty_value() -> None:
    nothing = effect_of(run_results=[pb.RunResult(lease_token=TOKEN)])
    empty = effect_of(run_results=[items.a_result(TOKEN, b"")])
    assert nothing == CompleteRun("run_1", TOKEN, 0, None)
    assert empty == CompleteRun("run_1", TOKEN, 0, Payload(b""))


def test_a_failure_brings_a_random_part_of_its_delay_below_one() -> None:
    jitters = set()
    for _ in range(20):
        effect = effect_of(run_results=[items.a_raised(TOKEN)])
        assert isinstance(effect, FailAttempt)
        jitters.add(effect.jitter)
    assert len(jitters) == 20
    assert all(0 <= jitter < 1 for jitter in jitters)


@pytest.mark.parametrize(
    ("reason", "is_worker_stopped"),
    [(pb.CANCELED_REASON_WORKER_STOPPED, True), (pb.CANCELED_REASON_UNSPECIFIED, False), (LATER, False)],
)
def test_a_handler_that_ended_as_canceled_is_believed_only_when_its_worker_stops(
    reason: pb.CanceledReason.ValueType, is_worker_stopped: bool
) -> None:
    effect = effect_of(run_results=[items.a_result(TOKEN, canceled={"reason": reason})])
    assert isinstance(effect, AbortRun)
    assert effect.is_worker_stopped is is_worker_stopped
    assert effect.failure.kind is FailureKind.CANCELED


def test_a_token_that_is_none_refuses_its_item_and_no_other() -> None:
    good = items.a_step(TOKEN)
    refused, taken = read(step_reports=[items.a_step("nonsense"), good])
    assert isinstance(refused, RefusedItem)
    assert (refused.status, refused.reason) == (ItemStatus.INVALID, "INVALID_INPUT")
    assert "lease_token" in refused.message
    assert isinstance(taken, Item)


def test_one_bad_final_step_makes_the_whole_result_invalid() -> None:
    steps = [items.a_step("", "good"), items.a_step("", "bad\n")]
    refused = refusal_of(run_results=[items.a_result(TOKEN, final_steps=steps)])
    assert refused.status is ItemStatus.INVALID


@pytest.mark.parametrize(
    "fields",
    [
        {"run_results": [items.a_result(TOKEN, b"x" * (MAX_BYTES + 1))]},
        {"step_reports": [items.a_step(TOKEN, data=b"x" * (MAX_BYTES + 1))]},
        {"run_results": [items.a_result(TOKEN, final_steps=[items.a_step("", data=b"x" * (MAX_BYTES + 1))])]},
        {"run_results": [items.a_raised(TOKEN, message="x" * (MAX_BYTES + 1))]},
        {"step_reports": [items.a_failed_step(TOKEN, failure=items.a_failure("x" * (MAX_BYTES + 1)))]},
    ],
    ids=["output", "output of a step", "output of a final step", "failure", "failure of a step"],
)
def test_what_is_over_the_limit_is_answered_too_large(fields: Fields) -> None:
    assert refusal_of(**fields).status is ItemStatus.TOO_LARGE


def test_what_is_as_large_as_the_limit_is_taken() -> None:
    effect = effect_of(run_results=[items.a_result(TOKEN, b"x" * MAX_BYTES)])
    assert isinstance(effect, CompleteRun)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": run_pb2.STEP_STATUS_WAITING},
        {"status": run_pb2.STEP_STATUS_UNSPECIFIED},
        {"status": LATER},
        {"status": run_pb2.STEP_STATUS_FAILED},
        {"failure": failure_pb2.Failure()},
        {"step_seq": -1},
        {"step_name": ""},
    ],
    ids=str,
)
def test_a_step_that_contradicts_itself_is_refused(changes: Fields) -> None:
    assert refusal_of(step_reports=[items.a_step(TOKEN, **changes)]).status is ItemStatus.INVALID


# ---- what a later version may say ----


def test_a_step_of_a_later_kind_is_kept_as_a_function() -> None:
    effect = effect_of(step_reports=[items.a_step(TOKEN, step_kind=LATER)])
    assert isinstance(effect, RecordStep)
    assert effect.step.kind is StepKind.FUNCTION


def test_a_release_for_a_later_reason_hands_the_lease_back_at_no_cost() -> None:
    effect = effect_of(lease_releases=[items.a_release(TOKEN, LATER)])  # type: ignore[arg-type]  # not of this version
    assert effect == Release("run_1", TOKEN, ReleaseReason.NOT_STARTED)


def test_an_assignment_that_is_rejected_for_a_later_reason_is_rejected() -> None:
    ack = pb.AssignmentAck(lease_token=TOKEN, reject_reason=LATER)  # type: ignore[arg-type]  # not of this version
    [receipt] = READER.message(pb.SessionRequest(assignment_acks=[ack])).receipts
    assert receipt.rejected is not None


def test_an_assignment_without_a_reject_reason_is_taken() -> None:
    [receipt] = READER.message(pb.SessionRequest(assignment_acks=[pb.AssignmentAck(lease_token=TOKEN)])).receipts
    assert (receipt.lease_token, receipt.rejected) == (TOKEN, None)


# ---- what the gateway says ----


def test_an_answer_that_says_nothing_but_ok_is_packed() -> None:
    plain, asked = ItemAnswer(1, ItemStatus.OK), ItemAnswer(2, ItemStatus.OK, cancel_requested=True)
    response = WRITER.message(GatewayMessage(answers=(plain, asked, ItemAnswer(3, ItemStatus.DUPLICATE))))
    assert list(response.ok_request_ids) == [1]
    assert [result.request_id for result in response.item_results] == [2, 3]


@pytest.mark.parametrize("status", ItemStatus)
def test_every_status_of_an_answer_has_a_word_on_the_wire(status: ItemStatus) -> None:
    answer = ItemAnswer(1, status, "REASON", "words", retry_delay_ms=1500, cancel_requested=True)
    [result] = WRITER.message(GatewayMessage(answers=(answer,))).item_results
    assert pb.ItemStatus.Name(result.status) == f"ITEM_STATUS_{status.name}"
    assert (result.reason, result.message, result.retry_delay.ToMilliseconds()) == ("REASON", "words", 1500)


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_to_stop_has_a_word_on_the_wire(reason: StopReason) -> None:
    [stop] = WRITER.message(GatewayMessage(stops=(Stop(TOKEN, reason, "why"),))).cancellations
    assert pb.CancellationReason.Name(stop.reason) == f"CANCELLATION_REASON_{reason.name}"
    assert (stop.lease_token, stop.message, stop.grace.ToMilliseconds()) == (TOKEN, "why", 5000)


def test_an_assignment_says_what_its_handler_needs_and_an_order_to_stop_goes_with_it() -> None:
    stop = Stop(TOKEN, StopReason.USER, "why")
    run = ClaimedRun("run_1", TOKEN, Lane("q", "w"), 2, 3, 4, Payload(b""), (), 1500, "run_0", stop=stop)
    [assignment] = WRITER.message(GatewayMessage(assignments=(run,))).assignments
    assert (assignment.run_id, assignment.lease_token) == ("run_1", TOKEN)
    assert (assignment.queue, assignment.workflow, assignment.parent_run_id) == ("q", "w", "run_0")
    assert (assignment.attempt, assignment.max_attempts, assignment.delivery_count) == (2, 3, 4)
    assert (assignment.run_timeout.ToMilliseconds(), assignment.lease_duration.ToMilliseconds()) == (1500, 30_000)
    assert assignment.HasField("input")
    assert assignment.cancellation.lease_token == TOKEN


def test_a_run_whose_time_is_over_has_no_time_left_and_not_less() -> None:
    run = ClaimedRun("run_1", TOKEN, Lane("q", "w"), 1, 1, 1, None, (), run_time_left_ms=-5)
    [assignment] = WRITER.message(GatewayMessage(assignments=(run,))).assignments
    assert assignment.HasField("run_timeout")
    assert assignment.run_timeout.ToMilliseconds() == 0
    assert not assignment.HasField("input")
    assert not assignment.HasField("cancellation")


def test_a_step_on_record_brings_its_value_or_says_how_large_it_is_or_has_none() -> None:
    step = Step("a", 1, StepKind.FUNCTION, StepStatus.SUCCEEDED, 1, size_bytes=7)
    with_value = snapshot(Step("a", 1, StepKind.FUNCTION, StepStatus.SUCCEEDED, 1, output=Payload(b"1")))
    left_out = snapshot(Step("a", 1, StepKind.FUNCTION, StepStatus.SUCCEEDED, 1, size_bytes=7, is_left_out=True))
    assert with_value.output == payload_pb2.Payload(data=b"1", content_type="application/json")
    assert left_out.output_ref.size_bytes == 7
    assert snapshot(step).WhichOneof("value") is None


def test_a_session_that_ends_as_agreed_ends_without_an_error() -> None:
    assert WRITER.message(GatewayMessage(end=SessionEnd("", ""))).ByteSize() == 0
    error = WRITER.message(GatewayMessage(end=SessionEnd("WHY", "words", True, 1500))).error
    assert (error.reason, error.message, error.permanent) == ("WHY", "words", True)
    assert error.retry_delay.ToMilliseconds() == 1500
