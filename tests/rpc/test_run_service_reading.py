"""RunService: reading, listing and canceling runs."""

from __future__ import annotations

import base64
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import run_pb2
from redflow_server.gateway import Gateway
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import OpenWorker
from tests.rpc.items import a_raised, a_result, a_step
from tests.rpc.scripted_worker import a_definition

ODD_IDS = ("", "x", "run_", "*", "run_*", "a:data", "../..", "💥", "a\nb", "x" * 65, "x" * 10_000, "run_x:steps", " ")
BAD_TOKENS = {
    "no base64": "%%%",
    "a letter": "ü",
    "no padding": "MQ",
    "a text": base64.urlsafe_b64encode(b"x").decode(),
    "a negative number": base64.urlsafe_b64encode(b"-1").decode(),
    "a number without end": base64.urlsafe_b64encode(b"9" * 5000).decode(),
    "a fraction": base64.urlsafe_b64encode(b"1.5").decode(),
    "other digits": base64.urlsafe_b64encode("٣".encode()).decode(),
    "no UTF-8": base64.urlsafe_b64encode(b"\xff").decode(),
    "with a space": "MQ== ",
}


async def pages(calls: Calls, **fields: Any) -> list[list[str]]:  # Any: its fields
    """The run ids of a listing, page by page."""
    found, token = [], ""
    while not found or token:
        page = await calls.runs.ListRuns(pb.ListRunsRequest(page_token=token, **fields))
        found.append([run.run_id for run in page.runs])
        token = page.next_page_token
    return found


# ---- runs that are not there ----


@pytest.mark.parametrize("run_id", ODD_IDS, ids=ascii)
async def test_an_id_that_no_run_has_is_not_found_by_any_call(gateway: Gateway, calls: Calls, run_id: str) -> None:
    runs = calls.runs
    for call in (
        runs.GetRun(pb.GetRunRequest(run_id=run_id)),
        runs.ListRunSteps(pb.ListRunStepsRequest(run_id=run_id)),
        runs.CancelRun(pb.CancelRunRequest(run_id=run_id)),
        runs.WaitRun(pb.WaitRunRequest(run_id=run_id)),
    ):
        answer = await refused(call)
        assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
        assert dict(answer.about)["run_id"] == run_id[:100]
        assert len(answer.message) < 300
    assert gateway.telemetry.counters["faults"] == 0


# ---- one run ----


async def test_a_run_is_read_with_its_times_and_payloads_as_it_goes(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker(a_definition("w", max_attempts=2))
    run_id = await calls.start(data=b'"in"')
    await worker.do(a_raised(await worker.take(), message="once", next_retry_delay=Duration()))
    running = await calls.run((await worker.take()).run_id)
    assert (running.status, running.attempt, running.delivery_count) == (run_pb2.RUN_STATUS_RUNNING, 2, 2)
    assert (running.failure.message, running.HasField("output")) == ("once", False)
    await worker.do(a_result(worker.assignments[-1], b'"out"'))

    done = await calls.run(run_id)

    assert (done.status, done.input.data, done.output.data) == (run_pb2.RUN_STATUS_SUCCEEDED, b'"in"', b'"out"')
    assert done.start_time == running.start_time, "the first start of all"
    times = [done.create_time, done.start_time, done.finish_time]
    assert times == sorted(times, key=lambda time: time.ToMilliseconds())
    assert not done.HasField("failure")


# ---- listings ----


async def test_runs_are_listed_newest_first_in_pages_that_new_runs_do_not_shift(calls: Calls) -> None:
    run_ids = await calls.start_many(25)
    first = await calls.runs.ListRuns(pb.ListRunsRequest(page_size=10))
    await calls.start_many(3)
    second = await calls.runs.ListRuns(pb.ListRunsRequest(page_size=10, page_token=first.next_page_token))
    third = await calls.runs.ListRuns(pb.ListRunsRequest(page_size=10, page_token=second.next_page_token))

    assert [run.run_id for page in (first, second, third) for run in page.runs] == run_ids[::-1]
    assert third.next_page_token == ""


async def test_a_page_has_50_runs_unless_asked_for_otherwise_and_never_more_than_500(calls: Calls) -> None:
    run_ids = await calls.start_many(510)

    sizes = {}
    for asked in (0, -1, -(2**31), 7, 500, 501, 2**31 - 1):
        page = await calls.runs.ListRuns(pb.ListRunsRequest(page_size=asked))
        sizes[asked] = len(page.runs)

    assert sizes == {0: 50, -1: 50, -(2**31): 50, 7: 7, 500: 500, 501: 500, 2**31 - 1: 500}
    assert [run_id for page in await pages(calls, page_size=500) for run_id in page] == run_ids[::-1]


async def test_filters_hold_together_and_an_unknown_status_is_none(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("a", "b", slot_limit=2)
    done_a, done_b = await calls.start("a"), await calls.start("b")
    for _ in range(2):
        await worker.do(a_result(await worker.take()))
    await worker.fall_silent()
    waiting_a = await calls.start("a", "elsewhere")
    everything = [waiting_a, done_b, done_a]

    async def listed(**fields: Any) -> list[str]:  # Any: its fields
        return (await pages(calls, **fields))[0]

    succeeded, queued = run_pb2.RUN_STATUS_SUCCEEDED, run_pb2.RUN_STATUS_QUEUED
    assert await listed() == everything
    assert await listed(status=succeeded) == [done_b, done_a]
    assert await listed(workflow="a") == [waiting_a, done_a]
    assert await listed(workflow="a", status=succeeded) == [done_a]
    assert await listed(workflow="b", status=queued) == []
    assert await listed(workflow="nobody's") == []
    assert await listed(status=77) == everything
    assert await listed(workflow="a", page_size=1) == [waiting_a]


async def test_listings_leave_payloads_out_however_large_they_are(calls: Calls) -> None:
    for _ in range(8):
        await calls.start(data=b"x" * 1024 * 1024)

    page = await calls.runs.ListRuns(pb.ListRunsRequest())

    assert len(page.runs) == 8
    assert page.ByteSize() < 10_000
    assert not any(run.HasField("input") for run in page.runs)


async def test_an_offset_skips_runs_within_its_bounds(calls: Calls) -> None:
    run_ids = (await calls.start_many(6))[::-1]

    async def skipping(offset: int) -> list[str]:
        page = await calls.runs.ListRuns(pb.ListRunsRequest(offset=offset, page_size=2))
        return [run.run_id for run in page.runs]

    assert await skipping(0) == await skipping(-1) == run_ids[:2]
    assert await skipping(3) == run_ids[3:5]
    assert await skipping(5) == run_ids[5:]
    assert await skipping(6) == await skipping(10_000) == []
    for offset in (10_001, 2**31 - 1):
        answer = await refused(calls.runs.ListRuns(pb.ListRunsRequest(offset=offset)))
        assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
        assert answer.field == "offset"


async def test_an_offset_and_a_page_token_exclude_each_other(calls: Calls) -> None:
    await calls.start_many(6)
    token = (await calls.runs.ListRuns(pb.ListRunsRequest(page_size=2))).next_page_token

    answer = await refused(calls.runs.ListRuns(pb.ListRunsRequest(page_size=2, page_token=token, offset=1)))

    assert (answer.reason, answer.field) == ("INVALID_INPUT", "offset")


@pytest.mark.parametrize("kind", BAD_TOKENS)
async def test_a_page_token_that_no_listing_answered_is_refused(gateway: Gateway, calls: Calls, kind: str) -> None:
    run_id = await calls.start()
    token = BAD_TOKENS[kind]

    for call in (
        calls.runs.ListRuns(pb.ListRunsRequest(page_token=token)),
        calls.runs.ListRunSteps(pb.ListRunStepsRequest(run_id=run_id, page_token=token)),
    ):
        answer = await refused(call)
        assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
        assert answer.field == "page_token"
    assert gateway.telemetry.counters["faults"] == 0


async def test_a_filter_that_is_no_name_is_refused(calls: Calls) -> None:
    for name in ("x" * 257, "a\x00"):
        answer = await refused(calls.runs.ListRuns(pb.ListRunsRequest(workflow=name)))
        assert (answer.reason, answer.field) == ("INVALID_INPUT", "workflow")


# ---- steps ----


async def test_steps_are_listed_in_order_of_first_use_in_pages_cut_by_count_and_by_size(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    assignment = await worker.take()
    sizes = [10, 900_000, 900_000, 900_000, 1024 * 1024, 10, 10]
    for number, size in enumerate(sizes):
        step = a_step(assignment, f"s{10 - number:02}", bytes([number]) * size, step_seq=number)
        assert (await worker.do(step)).status == 1

    found: list[run_pb2.Step] = []
    token, counts = "", []
    while not counts or token:
        page = await calls.runs.ListRunSteps(pb.ListRunStepsRequest(run_id=run_id, page_size=3, page_token=token))
        found += page.steps
        counts.append(len(page.steps))
        token = page.next_page_token
        assert page.ByteSize() < 4 * 1024 * 1024

    assert max(counts) <= 3
    assert [step.step_name for step in found] == [f"s{10 - number:02}" for number in range(7)]
    assert [step.output.data for step in found] == [bytes([number]) * size for number, size in enumerate(sizes)]


async def test_a_run_without_steps_has_an_empty_listing(calls: Calls) -> None:
    assert await calls.steps(await calls.start()) == []


# ---- cancel ----


async def test_a_cancel_is_accepted_until_the_run_has_ended_and_its_first_reason_stays(
    calls: Calls, open_worker: OpenWorker
) -> None:
    queued = await calls.start("elsewhere")
    scheduled = await calls.start("elsewhere", available_time={"seconds": 4_000_000_000})
    worker = await open_worker("w")
    running = await calls.start("w")
    assignment = await worker.take()

    for run_id in (queued, scheduled, running):
        assert await calls.cancel(run_id, "first")
        run = await calls.run(run_id)
        assert run.cancel_reason == "first"
        assert run.HasField("cancel_request_time")
    assert [await calls.status(one) for one in (queued, scheduled, running)] == ["canceled", "canceled", "running"]
    assert await calls.cancel(running, "second")
    assert not await calls.cancel(queued, "second"), "it has ended"
    await worker.do(a_result(assignment))
    assert (await calls.run(running)).cancel_reason == "first"
    assert not await calls.cancel(running)


async def test_a_cancel_of_a_run_that_ended_by_itself_is_not_accepted_and_leaves_no_trace(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start()
    await worker.do(a_result(await worker.take()))
    before = await calls.run(run_id)

    assert not await calls.cancel(run_id)

    assert await calls.run(run_id) == before


async def test_a_cancel_repeated_with_its_request_id_is_accepted_again_and_no_other_is(calls: Calls) -> None:
    run_id = await calls.start()

    async def cancel(request_id: str) -> bool:
        return (await calls.runs.CancelRun(pb.CancelRunRequest(run_id=run_id, request_id=request_id))).accepted

    assert await cancel("request 1")
    assert await cancel("request 1")
    assert [other for other in ("request", "1", "request 2", "est 1", "") if await cancel(other)] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"reason": "x" * 4097}, "reason"), ({"reason": "€" * 1366}, "reason"), ({"request_id": "x" * 257}, "request_id")],
)
async def test_a_cancel_with_too_long_a_text_is_refused(calls: Calls, fields: dict[str, str], field: str) -> None:
    run_id = await calls.start()

    answer = await refused(calls.runs.CancelRun(pb.CancelRunRequest(run_id=run_id, **fields)))

    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")
    assert answer.field == field
    assert await calls.status(run_id) == "queued"
