"""An assignment carries everything that its handler needs; what is too large for it is fetched by its holder."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.api.v1 import run_service_pb2
from redflow_sdk.proto.v1 import payload_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import OpenWorker
from tests.rpc.items import a_failed_step, a_raised, a_release, a_step
from tests.rpc.scripted_worker import ScriptedWorker, a_definition

KIB = 1024


async def handed_on(worker: ScriptedWorker, assignment: pb.Assignment) -> pb.Assignment:
    """The run as it is delivered after its holder has released it."""
    assert (await worker.do(a_release(assignment))).status == pb.ITEM_STATUS_OK
    return await worker.take()


async def outputs(calls: Calls, assignment: pb.Assignment, *names: str, **fields: object) -> pb.GetStepOutputsResponse:
    request = pb.GetStepOutputsRequest(lease_token=assignment.lease_token, step_names=names, **fields)  # type: ignore[arg-type]  # any field
    return await calls.workers.GetStepOutputs(request)


async def test_an_assignment_names_run_lease_attempt_and_times_and_brings_the_input(
    calls: Calls, open_worker: OpenWorker
) -> None:
    definition = a_definition("w", "q", max_attempts=3, run_timeout=Duration(seconds=60))
    worker = await open_worker(definition)
    data = b'\x00\xff {"n": 9007199254740993}'
    sent = payload_pb2.Payload(data=data, content_type="text/plain", metadata={"enc": "aes", "": "x"})

    request = run_service_pb2.StartRunRequest(workflow="w", queue="q", input=sent)
    run_id = (await calls.runs.StartRun(request)).run_id

    assignment = await worker.take()
    assert (assignment.run_id, assignment.workflow, assignment.queue) == (run_id, "w", "q")
    assert (assignment.attempt, assignment.max_attempts, assignment.delivery_count) == (1, 3, 1)
    assert assignment.assignment_kind == pb.ASSIGNMENT_KIND_RUN
    assert assignment.input == sent
    assert len(assignment.lease_token.encode()) <= 64
    assert assignment.lease_duration.ToMilliseconds() == 6000
    assert 50_000 < assignment.run_timeout.ToMilliseconds() <= 60_000
    assert (list(assignment.steps), assignment.steps_truncated, assignment.parent_run_id) == ([], False, "")
    assert not assignment.HasField("cancellation")
    assert not assignment.HasField("failure")


async def test_a_run_without_a_run_timeout_has_none(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    await calls.start()

    assert not (await worker.take()).HasField("run_timeout")


async def test_a_second_delivery_brings_the_steps_and_keeps_the_attempt(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    await calls.start()
    first = await worker.take()
    await worker.do(a_step(first, "b", b'"b"', step_seq=2))
    await worker.do(a_step(first, "a", b"\xff\x00", step_seq=1))
    await worker.do(a_failed_step(first, "c", step_seq=3))

    second = await handed_on(worker, first)

    assert second.lease_token != first.lease_token
    assert (second.attempt, second.delivery_count) == (1, 2)
    assert [(step.step_name, step.step_seq, step.attempt) for step in second.steps] == [
        ("a", 1, 1),
        ("b", 2, 1),
        ("c", 3, 1),
    ]
    assert [step.output.data for step in second.steps[:2]] == [b"\xff\x00", b'"b"']
    failed = second.steps[2]
    assert (failed.status, failed.final, failed.failure.message) == (run_pb2.STEP_STATUS_FAILED, True, "no luck")


async def test_the_next_attempt_counts_up_and_still_brings_the_steps(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker(a_definition("w", max_attempts=2))
    await calls.start()
    first = await worker.take()
    await worker.do(a_step(first, "a"))
    await worker.do(a_raised(first, next_retry_delay=Duration()))

    second = await worker.take()

    assert (second.attempt, second.max_attempts) == (2, 2)
    assert [(step.step_name, step.attempt) for step in second.steps] == [("a", 1)]


async def test_outputs_that_do_not_fit_are_left_out_by_reference_and_fetched_by_the_holder_alone(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await calls.start()
    first = await worker.take()
    values = {f"s{number}": bytes([number]) * 60 * KIB for number in range(12)}
    for number, (name, data) in enumerate(values.items()):
        await worker.do(a_step(first, name, data, step_seq=number))

    second = await handed_on(worker, first)

    assert [step.step_name for step in second.steps] == list(values)
    inline = {step.step_name: step.output.data for step in second.steps if step.HasField("output")}
    by_reference = [step for step in second.steps if step.HasField("output_ref")]
    assert sum(map(len, inline.values())) <= 512 * KIB
    assert len(inline) + len(by_reference) == 12
    assert all(step.output_ref.size_bytes == 60 * KIB for step in by_reference)
    assert {name: values[name] for name in inline} == inline
    names = [step.step_name for step in by_reference]
    fetched = await outputs(calls, second, *names)
    assert {step.step_name: step.output.data for step in fetched.steps} == {name: values[name] for name in names}
    stale = await refused(outputs(calls, first, "s0"))
    assert (stale.code, stale.reason) == (grpc.StatusCode.ABORTED, "LEASE_LOST")


async def test_an_output_above_64_kib_comes_by_reference_also_when_it_is_the_only_one(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await calls.start()
    first = await worker.take()
    await worker.do(a_step(first, "large", b"x" * (64 * KIB + 1)))
    await worker.do(a_step(first, "small", b"y" * 64))

    second = await handed_on(worker, first)

    large, small = sorted(second.steps, key=lambda step: step.step_name)
    assert large.WhichOneof("value") == "output_ref"
    assert small.output.data == b"y" * 64


async def test_step_outputs_come_in_pages(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w")
    await calls.start()
    assignment = await worker.take()
    names = [f"s{number:02}" for number in range(7)]
    for number, name in enumerate(names):
        await worker.do(a_step(assignment, name, b"%d" % number, step_seq=number))

    found, token, pages = [], "", 0
    while pages == 0 or token:
        page = await outputs(calls, assignment, page_size=3, page_token=token)
        found += [(step.step_name, step.output.data) for step in page.steps]
        token = page.next_page_token
        pages += 1

    assert pages == 3
    assert found == [(name, b"%d" % number) for number, name in enumerate(names)]
    assert [step.step_name for step in (await outputs(calls, assignment, "s03", "no such step")).steps] == ["s03"]


@pytest.mark.parametrize("token", ["%%%", "eHg=", "MQ", "ü", "MQ==\n"])
async def test_a_page_token_that_no_page_answered_is_refused(calls: Calls, open_worker: OpenWorker, token: str) -> None:
    worker = await open_worker("w")
    await calls.start()
    assignment = await worker.take()
    await worker.do(a_step(assignment, "a"))

    bad = await refused(outputs(calls, assignment, page_token=token))

    assert (bad.code, bad.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert bad.field == "page_token"


async def test_step_outputs_need_a_lease_token(calls: Calls, open_worker: OpenWorker) -> None:
    await open_worker("w", slot_limit=0)
    run_id = await calls.start()

    for token in ("", "x", run_id, f"{run_id}.{'x' * 15}", "💥"):
        answer = await refused(calls.workers.GetStepOutputs(pb.GetStepOutputsRequest(lease_token=token)))
        assert (answer.code, answer.reason) == (grpc.StatusCode.ABORTED, "LEASE_LOST")


async def test_an_assignment_lists_at_most_two_thousand_steps_and_says_so(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await calls.start()
    first = await worker.take()
    reports = [a_step(first, f"s{number:04}", step_seq=number) for number in range(2001)]
    for begin in range(0, len(reports), 200):
        await worker.send(*reports[begin : begin + 200])
    await asyncio.gather(*(worker.answer_to(report) for report in reports))

    second = await handed_on(worker, first)

    assert len(second.steps) <= 2000
    assert second.steps_truncated
