"""Values of the domain on the wire: payloads, failures, runs, steps, definitions; what a later version may add."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2, workflow_pb2
from redflow_server.domain.errors import InvalidInput
from redflow_server.domain.failures import Failure, FailureKind, RetryHint
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    MAX_DURATION_MS,
    CronSchedule,
    RegistrationResult,
    RegistrationStatus,
    RetryPolicy,
    Workflow,
    WorkflowDefinition,
    check_definition,
)
from redflow_server.domain.runs import HandlerState, Run, Step, WaitingFor, WaitingKind
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.rpc import convert
from tests.builders import AWKWARD_BYTES, Changes, a_failure, a_workflow

LATER: Final = 999
"""A value of an enum that this version does not have."""
CAUSES: Final = 16
CLEF: Final = "\N{MUSICAL SYMBOL G CLEF}"


# ---- payloads ----


@pytest.mark.parametrize("data", AWKWARD_BYTES.values(), ids=AWKWARD_BYTES.keys())
@pytest.mark.parametrize("metadata", [(), (("", ""),), (("a", CLEF), ("b", ""))])
@pytest.mark.parametrize("content_type", ["", "text/plain", "application/json; charset=utf-8"])
def test_a_payload_comes_back_as_it_went(data: bytes, content_type: str, metadata: tuple[tuple[str, str], ...]) -> None:
    payload = Payload(data, content_type, metadata)
    message = convert.payload(payload)
    assert message is not None
    assert convert.payload_of(payload_pb2.Payload.FromString(message.SerializeToString())) == payload


def test_json_is_what_a_payload_is_unless_it_says_otherwise() -> None:
    said, unsaid = payload_pb2.Payload(data=b"1", content_type="application/json"), payload_pb2.Payload(data=b"1")
    assert convert.payload_of(said) == convert.payload_of(unsaid) == Payload(b"1")
    message = convert.payload(Payload(b"1"))
    assert message is not None
    assert message.content_type == "application/json"


def test_no_payload_stays_none() -> None:
    assert convert.payload(None) is None


# ---- failures ----


@pytest.mark.parametrize(
    "failure",
    [
        a_failure(),
        Failure("", ""),
        *(a_failure(kind=kind) for kind in FailureKind),
        *(a_failure(hint=hint) for hint in (None, *RetryHint)),
        *(a_failure(next_retry_delay_ms=delay_ms) for delay_ms in (None, 0, 1, 1500, MAX_DURATION_MS)),
        a_failure(traceback=f"{CLEF}\n\x00", language="go"),
        a_failure(details=Payload(b"\xff\x00", "application/x-thing", (("a", "b"),))),
        a_failure(cause=a_failure(message="deeper", details=Payload(b""), cause=a_failure(message="deepest"))),
    ],
    ids=lambda failure: ascii(failure)[:60],
)
def test_a_failure_comes_back_as_it_went(failure: Failure) -> None:
    message = convert.failure(failure)
    assert message is not None
    assert convert.failure_of("failure", failure_pb2.Failure.FromString(message.SerializeToString())) == failure


def nested(causes: int) -> failure_pb2.Failure:
    message = failure_pb2.Failure(message=f"{causes}")
    for depth in reversed(range(causes)):
        message = failure_pb2.Failure(message=f"{depth}", cause=message)
    return message


def messages_of(failure: Failure) -> list[str]:
    found: list[str] = []
    cause: Failure | None = failure
    while cause is not None:
        found.append(cause.message)
        cause = cause.cause
    return found


@pytest.mark.parametrize("causes", [0, 1, CAUSES - 1, CAUSES])
def test_causes_are_kept_down_to_the_sixteenth(causes: int) -> None:
    found = messages_of(convert.failure_of("failure", nested(causes)))
    assert found == [str(depth) for depth in range(causes + 1)]


@pytest.mark.parametrize("causes", [CAUSES + 1, CAUSES + 2, 90])
def test_deeper_causes_are_left_out(causes: int) -> None:
    found = messages_of(convert.failure_of("failure", nested(causes)))
    assert found == [str(depth) for depth in range(CAUSES + 1)]


def test_a_failure_of_a_later_kind_is_an_error_and_a_later_hint_is_none() -> None:
    message = failure_pb2.Failure(failure_kind=LATER, retry_hint=LATER)  # type: ignore[arg-type]  # not of this version
    failure = convert.failure_of("failure", message)
    assert (failure.kind, failure.hint) == (FailureKind.ERROR, None)
    assert convert.failure_of("failure", failure_pb2.Failure()).kind is FailureKind.ERROR


def test_a_delay_that_makes_no_sense_is_refused_with_its_field() -> None:
    message = failure_pb2.Failure()
    message.next_retry_delay.seconds = -1
    with pytest.raises(InvalidInput, match=r"failure\.next_retry_delay must be between 0 and 100 years"):
        convert.failure_of("failure", message)


# ---- runs and steps ----


def a_stored_run(**changes: Changes) -> Run:
    return replace(Run("run_1", "w", "q", RunStatus.QUEUED, 0, 3, created_at_ms=1_700_000_000_001), **changes)


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_of_a_run_has_a_word_on_the_wire_and_is_read_back_from_it(status: RunStatus) -> None:
    message = convert.run(a_stored_run(status=status))
    assert run_pb2.RunStatus.Name(message.status) == f"RUN_STATUS_{status.name}"
    assert convert.RUN_STATUS_OF[message.status] is status


def test_a_status_that_is_not_said_or_of_a_later_version_selects_none() -> None:
    assert convert.RUN_STATUS_OF.get(run_pb2.RUN_STATUS_UNSPECIFIED) is None
    assert LATER not in convert.RUN_STATUS_OF


def test_every_field_of_a_run_is_shown() -> None:
    run = a_stored_run(
        attempt=2,
        priority=-1000,
        input=Payload(b"1"),
        output=Payload(b""),
        failure=a_failure(),
        available_at_ms=1,
        started_at_ms=2,
        finished_at_ms=3,
        cancel_requested_at_ms=4,
        cancel_reason="why",
        idempotency_key="k",
        parent_run_id="run_0",
        deliveries=7,
        losses=1,
        worker_name="w-1",
        waiting_for=(WaitingFor(WaitingKind.NO_SLOT, 5, "detail"),),
        failure_handler=HandlerState.FAILED,
        failure_handler_failure=a_failure(),
        open_waits=1,
        deadline_ms=6,
        lease_ends_at_ms=7,
    )
    message = convert.run(run)
    left_out = {"seq", "failures", "session_id", "placed_at_ms", "is_solo"}
    assert {field.name for field in run_pb2.Run.DESCRIPTOR.fields} == {field.name for field, _ in message.ListFields()}
    assert len(message.ListFields()) == len(run.__slots__) - len(left_out)
    assert message.output.data == b""
    assert message.waiting_for[0].until_time.ToMilliseconds() == 5


def test_what_a_run_does_not_have_is_absent_and_not_empty() -> None:
    message = convert.run(a_stored_run())
    optional = ("input", "output", "failure", "deadline_time", "lease_expire_time")
    for name in (*optional, "available_time", "start_time", "finish_time", "cancel_request_time"):
        assert not message.HasField(name), name


@pytest.mark.parametrize("kind", StepKind)
@pytest.mark.parametrize("status", StepStatus)
def test_every_kind_and_status_of_a_step_has_a_word_on_the_wire(kind: StepKind, status: StepStatus) -> None:
    message = convert.step(Step("a", 3, kind, status, 1, output=Payload(b""), started_at_ms=1000))
    assert run_pb2.StepKind.Name(message.step_kind) == f"STEP_KIND_{kind.name}"
    assert run_pb2.StepStatus.Name(message.status) == f"STEP_STATUS_{status.name}"
    assert message.HasField("output")
    assert not message.HasField("failure")
    assert (message.start_time.ToMilliseconds(), message.HasField("finish_time")) == (1000, False)


# ---- definitions ----


@pytest.mark.parametrize(
    "definition",
    [
        a_workflow(),
        a_workflow(name=CLEF, queue="a:b", max_attempts=1_000_000, has_failure_handler=True),
        a_workflow(run_timeout_ms=1, start_timeout_ms=1001, failure_handler_timeout_ms=MAX_DURATION_MS),
        a_workflow(retry_policy=RetryPolicy(0, 1.0000000000000002, MAX_DURATION_MS, 0.1)),
        a_workflow(event_names=("b", "a")),
        a_workflow(
            cron=(
                CronSchedule("nightly", "0 3 * * *", "Europe/Berlin", Payload(b"\xff")),
                CronSchedule("x", "y", "", None),
            )
        ),
        a_workflow(input_json_schema=Payload(b"{}", "application/schema+json")),
    ],
    ids=lambda definition: ascii(definition)[:40],
)
def test_a_definition_comes_back_as_it_went(definition: WorkflowDefinition) -> None:
    message = convert.workflow(Workflow(definition, "owner-1", "build-1", 1_700_000_000_001))
    read = workflow_pb2.Workflow.FromString(message.SerializeToString())
    assert convert.definition_of(read.definition) == definition
    assert (read.owner, read.build_id, read.update_time.ToMilliseconds()) == ("owner-1", "build-1", 1_700_000_000_001)


def test_a_definition_that_says_little_gets_one_attempt_and_the_default_queue() -> None:
    definition = convert.definition_of(workflow_pb2.WorkflowDefinition(name="w"))
    assert (definition.queue, definition.max_attempts) == ("default", 1)
    assert (definition.retry_policy, definition.run_timeout_ms) == (None, None)


@pytest.mark.parametrize("seconds", [-(2**63), -1, 0, MAX_DURATION_MS // 1000 + 1, 2**63 - 1])
@pytest.mark.parametrize("name", ["run_timeout", "start_timeout", "failure_handler_timeout"])
def test_a_timeout_that_makes_no_sense_can_be_read_and_is_refused_with_its_definition(name: str, seconds: int) -> None:
    message = workflow_pb2.WorkflowDefinition(name="w")
    getattr(message, name).SetInParent()
    getattr(message, name).seconds = seconds
    with pytest.raises(InvalidInput, match=rf"workflow\.{name}"):
        check_definition(convert.definition_of(message))


@pytest.mark.parametrize("status", RegistrationStatus)
def test_what_became_of_a_definition_has_a_reason_unless_it_is_in_force(status: RegistrationStatus) -> None:
    words = "" if status is RegistrationStatus.REGISTERED else "words"
    message = convert.registration_result(RegistrationResult("w", status, words))
    assert workflow_pb2.RegistrationStatus.Name(message.status) == f"REGISTRATION_STATUS_{status.name}"
    assert message.reason == ("" if status is RegistrationStatus.REGISTERED else status.name)
    assert (message.name, message.message) == ("w", words)


def test_a_definition_that_is_in_force_but_for_a_schedule_says_so() -> None:
    message = convert.registration_result(RegistrationResult("w", RegistrationStatus.REGISTERED, "no such zone"))
    assert (message.reason, message.message) == ("INVALID_SCHEDULE", "no such zone")
