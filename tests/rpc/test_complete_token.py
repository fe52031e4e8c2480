"""CompleteToken: whoever was given the token of a step ends its wait, once."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Final

import grpc
import pytest

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.v1 import failure_pb2, payload_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.config import Config
from redflow_server.domain.names import Limits
from tests.conftest import StartGateway
from tests.rpc.calls import Calls, Refused, refused
from tests.rpc.conftest import CallsTo, OpenWorker, started
from tests.rpc.items import a_failure, a_payload, a_result
from tests.rpc.scripted_worker import ScriptedWorker
from tests.rpc.wait_items import a_sleep, a_suspension, a_token_wait, an_event_wait, ms, some_waits, token_of

LIMIT: Final = 50_000
SECRET: Final = "0123456789abcde"


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, limits=Limits(max_payload_bytes=LIMIT))


async def complete(calls: Calls, token: str, output: payload_pb2.Payload | None = None) -> None:
    """Gives the wait for a token a value, or none."""
    await calls.runs.CompleteToken(run_service_pb2.CompleteTokenRequest(token=token, output=output))


async def fail(calls: Calls, token: str, failure: failure_pb2.Failure) -> None:
    """Lets the wait for a token fail."""
    await calls.runs.CompleteToken(run_service_pb2.CompleteTokenRequest(token=token, failure=failure))


def is_over(answer: Refused) -> bool:
    """Whether a completion came too late."""
    assert "over" in answer.message
    return (answer.code, answer.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_WAITING")


async def outcome(worker: ScriptedWorker) -> pb.StepSnapshot:
    """What the wait has ended with, as its worker was told."""
    return (await worker.resolution()).step


# ---- once ----


async def test_what_a_token_is_completed_with_arrives_as_it_was_given(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)
    output = payload_pb2.Payload(data=b"\x00\xff", content_type="x/y", metadata={"k": "é"})

    await complete(calls, token, output)

    step = await outcome(worker)
    assert (step.step_name, step.status, step.output) == ("token", run_pb2.STEP_STATUS_SUCCEEDED, output)
    [on_record] = await calls.steps(run.run_id)
    assert on_record.output == output


async def test_a_failure_that_a_token_is_completed_with_fails_its_wait(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    failure = a_failure("refused by the boss", type="Refused", cause=a_failure("too dear"))

    await fail(calls, await token_of(worker, run), failure)

    step = await outcome(worker)
    assert (step.status, step.failure, step.final) == (run_pb2.STEP_STATUS_FAILED, failure, True)


async def test_a_token_may_be_completed_with_nothing(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)

    for _ in range(2):
        await complete(calls, token)

    step = await outcome(worker)
    assert (step.status, step.HasField("output")) == (run_pb2.STEP_STATUS_SUCCEEDED, False)
    assert is_over(await refused(complete(calls, token, a_payload(b""))))


@pytest.mark.parametrize("how", ["value", "failure"])
async def test_the_same_again_is_taken_and_anything_else_is_too_late(
    calls: Calls, open_worker: OpenWorker, how: str
) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)
    value, failure = a_payload(b'"yes"'), a_failure("no")
    for _ in range(3):
        await (complete(calls, token, value) if how == "value" else fail(calls, token, failure))

    others = [
        complete(calls, token, a_payload(b'"no"')),
        fail(calls, token, a_failure("other")),
        complete(calls, token),
    ]
    others.append(complete(calls, token, a_payload(b'"yes"', content_type="x/y")))
    others.append(fail(calls, token, failure) if how == "value" else complete(calls, token, value))
    for other in others:
        assert is_over(await refused(other))

    await worker.quiet()
    assert len(worker.resolutions) == 1


async def test_of_many_who_complete_a_token_at_once_one_is_taken(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)

    answers = await asyncio.gather(
        *(complete(calls, token, a_payload(f"{number}".encode())) for number in range(20)), return_exceptions=True
    )

    taken = [number for number, answer in enumerate(answers) if answer is None]
    assert len(taken) == 1
    assert (await outcome(worker)).output.data == f"{taken[0]}".encode()


async def test_it_wakes_a_run_that_was_set_aside_through_any_gateway(
    start_gateway: StartGateway, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    one, other = await start_gateway(), await start_gateway()
    worker = await open_worker("w", at=one)
    run_id = await calls_to(one).start()
    run = await worker.take()
    token = await token_of(worker, run)
    await worker.suspend(a_suspension(run, a_token_wait()))

    await complete(calls_to(other), token, a_payload(b'"yes"'))

    again = await worker.take()
    assert (again.run_id, again.steps[0].output.data) == (run_id, b'"yes"')


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "a: b.c/d|e {f}", "💥", "..", "-"])
async def test_a_step_of_any_name_can_be_completed_by_its_token(
    calls: Calls, open_worker: OpenWorker, name: str
) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run, name)
    assert token.isascii() and not set(token) & set(" /?#&%+")

    await complete(calls, token)

    assert (await outcome(worker)).step_name == name


# ---- too late ----


async def test_after_its_time_out_a_token_is_over(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run, timeout=ms(50))
    assert (await outcome(worker)).failure.type == "TimeoutError"

    assert is_over(await refused(complete(calls, token)))


async def test_a_token_that_has_lost_a_race_is_over(calls: Calls, open_worker: OpenWorker) -> None:
    worker, run = await started(calls, open_worker)
    answer = await worker.do(some_waits(run, a_token_wait(group="race"), an_event_wait(group="race")))
    await calls.emit("paid")

    assert is_over(await refused(complete(calls, answer.resolutions[0].token)))
    assert (await outcome(worker)).step_name == "event"


@pytest.mark.parametrize("end", ["returned", "canceled"])
async def test_when_its_run_has_ended_a_token_is_over_unless_it_was_completed_with_just_that(
    calls: Calls, open_worker: OpenWorker, end: str
) -> None:
    worker, run = await started(calls, open_worker)
    done, left = await token_of(worker, run, "done"), await token_of(worker, run, "left")
    await complete(calls, done, a_payload(b"1"))
    if end == "returned":
        await worker.do(a_result(run))
    else:
        await worker.suspend(a_suspension(run, a_sleep(), steps_recorded=1))
        await calls.cancel(run.run_id)

    await complete(calls, done, a_payload(b"1"))
    assert is_over(await refused(complete(calls, done, a_payload(b"2"))))
    assert is_over(await refused(complete(calls, left, a_payload(b"1"))))


# ---- unknown, malformed, too large ----


def a_token(run_id: str = "run_1", step: str = "token", secret: str = SECRET) -> str:
    name = base64.urlsafe_b64encode(step.encode()).decode().rstrip("=")
    return f"tok_{run_id}.{name}.{secret}"


MALFORMED: Final = {
    "nothing": "",
    "a word": "approve",
    "a lease token": f"run_1.{SECRET}",
    "no secret": "tok_run_1.dG9rZW4",
    "a short secret": a_token(secret="abc"),
    "a long secret": a_token(secret=SECRET + "f"),
    "no step": f"tok_run_1..{SECRET}",
    "a step that is no base64": f"tok_run_1.a.{SECRET}",
    "a step that is no UTF-8": f"tok_run_1.{base64.urlsafe_b64encode(bytes([0xFF, 0xFE, 0xFD])).decode()}.{SECRET}",
    "a run that is none": a_token("run 1"),
    "a run with a star": a_token("*"),
    "a line end": a_token() + "\n",
    "blanks around it": f" {a_token()} ",
    "emoji": "💥",
    "a megabyte": "tok_" + "x" * 1_000_000,
}


def is_unknown(answer: Refused) -> bool:
    """Whether there is no such token."""
    return (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "TOKEN_NOT_FOUND")


@pytest.mark.parametrize("kind", MALFORMED)
async def test_what_is_no_token_is_not_found(calls: Calls, kind: str) -> None:
    answer = await refused(complete(calls, MALFORMED[kind]))
    assert is_unknown(answer)
    assert len(answer.message) < 500


async def test_a_token_that_nobody_was_given_is_not_found_and_ends_no_wait(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)
    await worker.do(some_waits(run, an_event_wait("event")))

    for other in (
        token[:-1] + ("a" if token[-1] != "a" else "b"),
        a_token(run.run_id),
        a_token(run.run_id, "event"),
        a_token(run.run_id, "nothing"),
        token.replace(run.run_id, "run_of-nobody"),
        token.replace("tok_", "TOK_"),
    ):
        assert is_unknown(await refused(complete(calls, other))), other

    assert {step.status for step in await calls.steps(run.run_id)} == {run_pb2.STEP_STATUS_WAITING}


async def test_a_value_or_failure_at_the_limit_is_taken_and_one_byte_more_is_not(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)
    too_much = [complete(calls, token, a_payload(b"x" * (LIMIT + 1))), fail(calls, token, a_failure("x" * LIMIT))]
    for call in too_much:
        answer = await refused(call)
        assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PAYLOAD_TOO_LARGE")
        assert f"must be at most {LIMIT} bytes" in answer.message
    assert [step.status for step in await calls.steps(run.run_id)] == [run_pb2.STEP_STATUS_WAITING]

    await complete(calls, token, a_payload(b"x" * LIMIT))
    assert (await outcome(worker)).output.data == b"x" * LIMIT


@pytest.mark.parametrize(
    ("fields", "field", "came"),
    [
        ({"output": a_payload(metadata={"k": "x" * 9000})}, "output.metadata", "90"),
        ({"failure": a_failure(next_retry_delay={"seconds": -1})}, "failure.next_retry_delay", "-1 s"),
    ],
    ids=["metadata", "delay"],
)
async def test_what_makes_no_sense_is_refused_with_field_rule_and_what_came(
    calls: Calls, open_worker: OpenWorker, fields: dict[str, object], field: str, came: str
) -> None:
    worker, run = await started(calls, open_worker)
    token = await token_of(worker, run)
    request = run_service_pb2.CompleteTokenRequest(token=token, **fields)  # type: ignore[arg-type]  # either outcome

    answer = await refused(calls.runs.CompleteToken(request))

    assert (answer.code, answer.reason, answer.field) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT", field)
    assert "must" in answer.message
    assert came in answer.message

    await complete(calls, token)
    await outcome(worker)
