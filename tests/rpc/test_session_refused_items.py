"""Items that the gateway does not take: too large, or not valid. Each is answered by itself with what is wrong with it,
changes nothing, and leaves the session and the lease as they were. Waits have a file of their own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.config import Config
from redflow_server.domain.names import Limits
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import REQUEST_IDS, a_failed_step, a_failure, a_payload, a_raised, a_release, a_result, a_step
from tests.rpc.scripted_worker import Item

LIMIT = 50_000
TOKEN = "the-token"
INVALID = pb.ITEM_STATUS_INVALID
TOO_LARGE = pb.ITEM_STATUS_TOO_LARGE


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, limits=Limits(max_payload_bytes=LIMIT))


def under(assignment: pb.Assignment, item: Item) -> Item:
    """The item, with the token of a lease that is held if it was made with `TOKEN`."""
    if item.lease_token == TOKEN:
        item.lease_token = assignment.lease_token
    return item


def fail_at(size: int, **fields: object) -> pb.RunResult:
    """A failed attempt whose failure has just this size on the wire."""
    item = a_raised(TOKEN, message="x" * size, **fields)
    item.failure.message = "x" * (2 * size - item.failure.ByteSize())
    assert item.failure.ByteSize() == size
    return item


# ---- too large ----


AT_LIMIT = {
    "step": lambda size: a_step(TOKEN, "a", b"x" * size),
    "result": lambda size: a_result(TOKEN, b"x" * size),
    "final step": lambda size: a_result(TOKEN, final_steps=[a_step("", "a", b"x" * size)]),
    "failure": fail_at,
}


@pytest.mark.parametrize("kind", AT_LIMIT)
async def test_a_payload_at_the_limit_is_taken_and_one_byte_more_is_too_large(
    calls: Calls, open_worker: OpenWorker, kind: str
) -> None:
    worker, assignment = await started(calls, open_worker)
    for size in (LIMIT + 1, 10 * LIMIT):
        answer = await worker.do(under(assignment, AT_LIMIT[kind](size)))

        assert (answer.status, answer.reason) == (TOO_LARGE, "PAYLOAD_TOO_LARGE")
        assert str(LIMIT) in answer.message
        assert str(size) in answer.message
        assert await calls.status(assignment.run_id) == "running"
        assert await calls.steps(assignment.run_id) == []

    assert (await worker.do(under(assignment, AT_LIMIT[kind](LIMIT)))).status == pb.ITEM_STATUS_OK


async def test_a_too_large_result_can_be_reported_as_a_failure_and_the_worker_takes_the_next_run(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    await worker.do(a_result(assignment, b"x" * (LIMIT + 1)))

    assert (await worker.do(a_raised(assignment, message="too large"))).status == pb.ITEM_STATUS_OK

    assert await calls.status(assignment.run_id) == "failed"
    run_id = await calls.start()
    assert (await worker.take()).run_id == run_id


# ---- not valid ----

SUCCEEDED = run_pb2.STEP_STATUS_SUCCEEDED
CASES: dict[str, tuple[Item, str, str]] = {
    "a step without a name": (a_step(TOKEN, ""), "step_name", "''"),
    "a step name of 257 bytes": (a_step(TOKEN, "x" * 257), "step_name", "257"),
    "a step name with a NUL": (a_step(TOKEN, "a\x00b"), "step_name", "\\x00"),
    "a step name with an escape": (a_step(TOKEN, "\x1b[31m"), "step_name", "\\x1b"),
    "a step of no status": (a_step(TOKEN, status=0), "status", "0"),
    "a step that waits": (a_step(TOKEN, status=run_pb2.STEP_STATUS_WAITING), "status", "3"),
    "a step of a later status": (a_step(TOKEN, status=77), "status", "77"),
    "a failed step with an output": (
        a_step(TOKEN, status=run_pb2.STEP_STATUS_FAILED, output=a_payload()),
        "outcome",
        "output",
    ),
    "a failed step with nothing": (
        pb.StepReport(request_id=1, lease_token=TOKEN, step_name="a", status=run_pb2.STEP_STATUS_FAILED),
        "outcome",
        "None",
    ),
    "a succeeded step with a failure": (a_failed_step(TOKEN, status=SUCCEEDED), "outcome", "failure"),
    "a negative place": (a_step(TOKEN, step_seq=-1), "step_seq", "-1"),
    "a negative time": (a_step(TOKEN, elapsed=Duration(seconds=-5)), "elapsed", "-5"),
    "an endless time": (a_step(TOKEN, elapsed=Duration(seconds=2**62)), "elapsed", str(2**62)),
    "a negative retry delay": (a_raised(TOKEN, next_retry_delay=Duration(seconds=-1)), "next_retry_delay", "-1"),
    "an endless retry delay": (
        a_raised(TOKEN, next_retry_delay=Duration(seconds=2**62)),
        "next_retry_delay",
        str(2**62),
    ),
    "a negative release delay": (a_release(TOKEN, delay=Duration(seconds=-1)), "delay", "-1"),
    "an endless release delay": (a_release(TOKEN, delay=Duration(seconds=2**62)), "delay", str(2**62)),
    "metadata over 8 KiB": (
        a_step(TOKEN, output=a_payload(metadata={"k": "x" * 9000})),
        "metadata",
        "90",
    ),
    "a bad final step": (
        a_result(TOKEN, final_steps=[a_step("", "good"), a_step("", "")]),
        "step_name",
        "''",
    ),
    "an empty token": (a_step(""), "lease_token", "''"),
    "a token that is none": (a_result("x"), "lease_token", "'x'"),
    "a token of 10,000 bytes": (a_release("x" * 10_000), "lease_token", "xxx"),
    "a token with emoji": (a_step("💥"), "lease_token", "\\U0001f4a5"),
}


@pytest.mark.parametrize("kind", CASES)
async def test_an_invalid_item_is_answered_with_field_rule_and_what_came(
    calls: Calls, open_worker: OpenWorker, kind: str
) -> None:
    item, field, came = CASES[kind]
    worker, assignment = await started(calls, open_worker)

    answer = await worker.do(under(assignment, item))

    assert (answer.status, answer.reason) == (INVALID, "INVALID_INPUT")
    assert field in answer.message
    assert "must" in answer.message
    assert came in answer.message
    assert answer.message.isprintable() and len(answer.message) < 500
    assert await calls.steps(assignment.run_id) == []
    assert (await worker.do(a_result(assignment))).status == pb.ITEM_STATUS_OK


async def test_an_invalid_item_spoils_no_other_of_its_message(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker)
    good, bad, result = a_step(assignment, "good"), a_step(assignment, ""), a_result(assignment)

    await worker.send(bad, good, result)

    assert [(await worker.answer_to(item)).status for item in (bad, good, result)] == [
        INVALID,
        pb.ITEM_STATUS_OK,
        pb.ITEM_STATUS_OK,
    ]


@pytest.mark.parametrize("recorded", ["by itself", "with a result"])
async def test_another_kind_of_step_under_a_known_name_is_non_deterministic(
    calls: Calls, open_worker: OpenWorker, recorded: str
) -> None:
    worker, assignment = await started(calls, open_worker)
    emission = pb.StepCommand(
        request_id=next(REQUEST_IDS),
        lease_token=assignment.lease_token,
        step_name="a",
        emit_event=pb.EmitCommand(event_name="e"),
    )
    function = a_step(assignment, "a", step_kind=run_pb2.STEP_KIND_FUNCTION)
    first: Item = function if recorded == "by itself" else emission
    assert (await worker.do(first)).status == pb.ITEM_STATUS_OK

    item: Item = emission if recorded == "by itself" else a_result(assignment, final_steps=[function])
    answer = await worker.do(item)

    assert (answer.status, answer.reason) == (INVALID, "NON_DETERMINISTIC")
    assert "another kind" in answer.message
    assert await calls.status(assignment.run_id) == "running"


async def test_a_step_of_a_kind_that_is_recorded_by_what_it_asks_for_cannot_be_reported(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    answer = await worker.do(a_step(assignment, "a", step_kind=run_pb2.STEP_KIND_TIMER))
    assert (answer.status, answer.reason) == (INVALID, "INVALID_INPUT")
    assert "step_kind" in answer.message


# ---- many ----


@pytest.mark.parametrize("count", [900, 1500, 10_000])
async def test_a_result_may_bring_as_many_steps_as_a_run_may_have_and_spoils_no_result_beside_it(
    calls: Calls, open_worker: OpenWorker, count: int
) -> None:
    worker = await open_worker("w", slot_limit=2)
    await calls.start_many(2)
    large, small = await worker.take(), await worker.take()
    steps = [a_step("", f"s{number}", step_seq=number) for number in range(count)]
    results = [a_result(small), a_result(large, final_steps=steps)]

    await worker.send(*results)

    assert (await worker.answer_to(results[0])).status == pb.ITEM_STATUS_OK, "the result beside it was refused"
    assert (await worker.answer_to(results[1])).status == pb.ITEM_STATUS_OK
    assert await calls.status(large.run_id) == "succeeded"


async def test_a_step_over_the_most_that_a_run_may_have_is_refused_with_its_name(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    reports = [a_step(assignment, f"s{number}", step_seq=number) for number in range(10_000)]
    for begin in range(0, 10_000, 500):
        await worker.send(*reports[begin : begin + 500])
    for report in reports:
        assert (await worker.answer_to(report)).status == pb.ITEM_STATUS_OK

    answer = await worker.do(a_step(assignment, "one-too-many"))

    assert (answer.status, answer.reason) == (INVALID, "TOO_MANY_STEPS")
    answer = await worker.do(a_result(assignment, final_steps=[a_step("", "one-too-many")]))
    assert (answer.status, answer.reason) == (INVALID, "TOO_MANY_STEPS")
    assert "one-too-many" in answer.message
    assert (await worker.do(a_step(assignment, "s0"))).status == pb.ITEM_STATUS_DUPLICATE
    assert (await worker.do(a_raised(assignment, cause=a_failure()))).status == pb.ITEM_STATUS_OK
