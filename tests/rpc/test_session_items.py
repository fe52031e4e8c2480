"""The items of a worker, one answer each: what is recorded, what is repeated, and what a lost lease is answered."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration

from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.store.keys import Keys
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls
from tests.rpc.conftest import OpenWorker, started
from tests.rpc.items import a_failed_step, a_failure, a_payload, a_raised, a_release, a_result, a_step
from tests.rpc.scripted_worker import Item

OK = pb.ITEM_STATUS_OK
DUPLICATE = pb.ITEM_STATUS_DUPLICATE
CONFLICT = pb.ITEM_STATUS_CONFLICT
LEASE_LOST = pb.ITEM_STATUS_LEASE_LOST


# ---- what is done ----


async def test_done_items_are_answered_together_and_packed(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker)
    reports = [a_step(assignment, f"s{number}", step_seq=number) for number in range(100)]

    await worker.send(*reports)

    for report in reports:
        assert (await worker.answer_to(report)).status == OK
    assert sorted(worker.packed) == [report.request_id for report in reports]
    assert worker.order.count("ok_request_ids") < 20, "the answers did not travel together"
    assert [step.step_name for step in await calls.steps(assignment.run_id)] == [report.step_name for report in reports]


async def test_a_step_is_on_record_as_it_was_reported(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker)
    output = a_payload(b"\x00\xff", content_type="application/x", metadata={"enc": "1"})
    failure = a_failure("it broke", type="OSError", traceback="at 1", details=a_payload(b"{}"), cause=a_failure("why"))
    await worker.do(a_step(assignment, "good", output=output, step_seq=3, elapsed=Duration(seconds=2)))
    await worker.do(a_failed_step(assignment, "bad", failure=failure, step_seq=4))

    good, bad = await calls.steps(assignment.run_id)

    assert (good.step_name, good.step_seq, good.attempt) == ("good", 3, 1)
    assert (good.step_kind, good.status) == (run_pb2.STEP_KIND_FUNCTION, run_pb2.STEP_STATUS_SUCCEEDED)
    assert good.output == output
    assert good.finish_time.ToMilliseconds() - good.start_time.ToMilliseconds() == 2000
    assert bad.status == run_pb2.STEP_STATUS_FAILED
    failure.details.content_type = "application/json"
    assert bad.failure == failure


async def test_steps_that_come_with_a_result_are_recorded_with_it(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker)
    last = [a_step("", "a", b"1", step_seq=1), a_failed_step("", "b", step_seq=2)]

    assert (await worker.do(a_result(assignment, b'"out"', final_steps=last))).status == OK

    run = await calls.run(assignment.run_id)
    assert (run.status, run.output.data) == (run_pb2.RUN_STATUS_SUCCEEDED, b'"out"')
    assert [step.step_name for step in await calls.steps(assignment.run_id)] == ["a", "b"]


async def test_steps_and_result_in_one_message_are_dealt_with_in_that_order(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    result = a_result(assignment, steps_recorded=3)
    reports = [a_step(assignment, name) for name in ("a", "b", "c")]

    await worker.send(result, *reports)

    for item in (*reports, result):
        assert (await worker.answer_to(item)).status == OK
    assert len(await calls.steps(assignment.run_id)) == 3


async def test_a_failed_attempt_is_retried_after_its_delay_and_the_last_one_fails_the_run(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, first = await started(calls, open_worker, max_attempts=2)
    await worker.do(a_raised(first, message="once", next_retry_delay=Duration(nanos=200_000_000)))
    run = await calls.run(first.run_id)
    assert run.status == run_pb2.RUN_STATUS_SCHEDULED
    assert run.failure.message == "once"

    await worker.do(a_raised(await worker.take(), message="twice"))

    run = await calls.run(first.run_id)
    assert (run.status, run.attempt, run.failure.message) == (run_pb2.RUN_STATUS_FAILED, 2, "twice")


@pytest.mark.parametrize(
    "failure",
    [
        a_failure(failure_kind=failure_pb2.FAILURE_KIND_NON_RETRIABLE),
        a_failure(failure_kind=failure_pb2.FAILURE_KIND_VALIDATION),
        a_failure(failure_kind=failure_pb2.FAILURE_KIND_SERIALIZATION),
        a_failure(failure_kind=failure_pb2.FAILURE_KIND_CANCELED),
        a_failure(retry_hint=failure_pb2.RETRY_HINT_NO_RETRY),
    ],
    ids=["non_retriable", "validation", "serialization", "canceled", "hint"],
)
async def test_a_failure_that_is_not_to_be_retried_fails_the_run_at_once(
    calls: Calls, open_worker: OpenWorker, failure: failure_pb2.Failure
) -> None:
    worker, assignment = await started(calls, open_worker, max_attempts=5)

    assert (await worker.do(a_result(assignment, failure=failure))).status == OK

    run = await calls.run(assignment.run_id)
    assert (run.status, run.attempt, run.failure) == (run_pb2.RUN_STATUS_FAILED, 1, failure)


# ---- what is repeated ----


async def test_a_step_reported_again_is_a_duplicate_under_the_same_and_under_a_new_number(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    report = a_step(assignment, "a", b"1")
    assert (await worker.do(report)).status == OK

    for again in (report, report, a_step(assignment, "a", b"1"), a_step(assignment, "a", b"1", steps_recorded=1)):
        answer = await worker.do(again)
        assert (answer.status, answer.request_id) == (DUPLICATE, again.request_id)

    assert len(await calls.steps(assignment.run_id)) == 1


async def test_the_first_value_of_a_step_wins_and_another_one_is_answered_with_it(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    await worker.do(a_step(assignment, "a", b"first", step_seq=1))

    for other in (a_step(assignment, "a", b"second", step_seq=9), a_failed_step(assignment, "a")):
        answer = await worker.do(other)
        assert answer.status == CONFLICT
        [stored] = answer.conflicting_steps
        assert (stored.step_name, stored.output.data, stored.step_seq) == ("a", b"first", 1)

    [step] = await calls.steps(assignment.run_id)
    assert (step.output.data, step.step_seq) == (b"first", 1)


@pytest.mark.parametrize("outcome", ["output", "failure", "canceled"])
async def test_a_result_whose_steps_are_on_record_with_another_value_counts_and_its_answer_names_them(
    calls: Calls, open_worker: OpenWorker, outcome: str
) -> None:
    worker, assignment = await started(calls, open_worker)
    await worker.do(a_step(assignment, "a", b"first", step_seq=1))
    if outcome == "canceled":
        await calls.cancel(assignment.run_id)
    steps = [a_step(assignment, "a", b"second", step_seq=1), a_step(assignment, "b", step_seq=2)]
    outcomes = {"output": a_payload(), "failure": a_failure(), "canceled": pb.RunCanceled()}

    answer = await worker.do(a_result(assignment, final_steps=steps, **{outcome: outcomes[outcome]}))

    assert answer.status == (pb.ITEM_STATUS_CANCELED if outcome == "canceled" else OK)
    [stored] = answer.conflicting_steps
    assert (stored.step_name, stored.step_seq, stored.output_ref.size_bytes) == ("a", 1, len(b"first"))
    assert [step.output.data for step in await calls.steps(assignment.run_id)] == [b"first", b"1"]


async def test_a_failed_step_may_fail_again_and_succeed_later(calls: Calls, open_worker: OpenWorker) -> None:
    worker, assignment = await started(calls, open_worker)

    for report in (a_failed_step(assignment, "a"), a_failed_step(assignment, "a"), a_step(assignment, "a", b"now")):
        assert (await worker.do(report)).status == OK

    [step] = await calls.steps(assignment.run_id)
    assert (step.status, step.output.data) == (run_pb2.STEP_STATUS_SUCCEEDED, b"now")


@pytest.mark.parametrize("kind", ["result", "failure", "retry", "release", "stopped"])
async def test_an_item_that_ends_a_lease_may_be_repeated_ten_times_and_is_answered_the_same(
    calls: Calls, open_worker: OpenWorker, kind: str
) -> None:
    worker, assignment = await started(calls, open_worker, max_attempts=2 if kind == "retry" else 1)
    await worker.say(capacity=pb.Capacity(slot_limit=0))
    item: Item = {
        "result": a_result(assignment),
        "failure": a_raised(assignment),
        "retry": a_raised(assignment, next_retry_delay=Duration(seconds=3600)),
        "release": a_release(assignment),
        "stopped": a_result(assignment, canceled=pb.RunCanceled(reason=pb.CANCELED_REASON_WORKER_STOPPED)),
    }[kind]
    first = await worker.do(item)
    assert first.status in (OK, pb.ITEM_STATUS_CANCELED)
    before = await calls.run(assignment.run_id)

    for _ in range(10):
        answer = await worker.do(item)
        assert answer.status == (DUPLICATE if first.status == OK else first.status)

    assert await calls.run(assignment.run_id) == before


async def test_a_step_that_comes_after_the_result_is_a_duplicate_if_it_is_on_record_and_lost_if_not(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, assignment = await started(calls, open_worker)
    await worker.do(a_step(assignment, "a"))
    await worker.do(a_result(assignment))

    assert (await worker.do(a_step(assignment, "a"))).status == DUPLICATE
    assert (await worker.do(a_step(assignment, "b"))).status == LEASE_LOST


# ---- whose lease it is ----


async def test_items_under_a_lease_that_is_not_held_are_lost_one_by_one_and_the_session_goes_on(
    calls: Calls, open_worker: OpenWorker
) -> None:
    worker, old = await started(calls, open_worker)
    await worker.do(a_step(old, "before"))
    await worker.do(a_release(old))
    current = await worker.take()
    nobodys = f"{current.run_id}.{'x' * 15}"
    nowhere = f"run_none.{'x' * 15}"

    lost: list[Item] = []
    for token in (old.lease_token, nobodys, nowhere):
        lost += [a_step(token, "late"), a_result(token), a_raised(token)]
    lost += [a_release(nobodys), a_release(nowhere)]
    # Its own end is on record under the old token: only what is not on record is lost.
    ended = {item.request_id for item in lost[:3] if isinstance(item, pb.RunResult)}
    good = a_step(current, "good")
    await worker.send(*lost, good)

    for item in lost:
        wanted = (DUPLICATE,) if item.request_id in ended else (LEASE_LOST,)
        assert (await worker.answer_to(item)).status in wanted, item
    assert (await worker.answer_to(good)).status == OK
    assert [step.step_name for step in await calls.steps(current.run_id)] == ["before", "good"]
    assert (await worker.do(a_result(current))).status == OK


async def test_the_zombie_of_an_earlier_attempt_changes_nothing(calls: Calls, open_worker: OpenWorker) -> None:
    zombie, first = await started(calls, open_worker, max_attempts=3)
    await zombie.do(a_raised(first, next_retry_delay=Duration()))
    second = await zombie.take()

    for late in (a_step(first, "late"), a_release(first, delay=Duration(seconds=60))):
        assert (await zombie.do(late)).status in (LEASE_LOST, DUPLICATE)

    run = await calls.run(first.run_id)
    assert (run.status, run.attempt) == (run_pb2.RUN_STATUS_RUNNING, 2)
    assert await calls.steps(first.run_id) == []
    assert (await zombie.do(a_result(second, b'"second"'))).status == OK
    assert (await calls.run(first.run_id)).output.data == b'"second"'


async def test_a_worker_may_report_under_its_token_on_the_stream_of_another_session(
    calls: Calls, open_worker: OpenWorker
) -> None:
    _, assignment = await started(calls, open_worker)
    other = await open_worker("other")

    assert (await other.do(a_step(assignment, "a"))).status == OK
    assert (await other.do(a_result(assignment))).status == OK
    assert await calls.status(assignment.run_id) == "succeeded"


# ---- what the store has lost ----


async def test_steps_that_the_store_has_lost_are_asked_for_again_before_anything_builds_on_them(
    calls: Calls, open_worker: OpenWorker, redis: RedisCommand, keys: Keys
) -> None:
    worker, assignment = await started(calls, open_worker)
    run_id = assignment.run_id
    first, second = a_step(assignment, "a", b"1"), a_step(assignment, "b", b"2", steps_recorded=1)
    await worker.do(first)
    await worker.do(second)
    # As after a crash that cost Redis its last second: the lease is still there, the steps are not.
    await redis("DEL", keys.steps(run_id))
    await redis("HDEL", keys.run(run_id), "stepsDone", "stepsBytes")

    later: list[Item] = [
        a_step(assignment, "c", b"3", steps_recorded=2),
        a_result(assignment, steps_recorded=2),
        a_raised(assignment),
        a_release(assignment, steps_recorded=2),
    ]
    later[2].steps_recorded = 2
    for item in later:
        assert (await worker.do(item)).status == pb.ITEM_STATUS_STEPS_MISSING
    assert await calls.steps(run_id) == []
    assert await calls.status(run_id) == "running"

    for item in (first, second, later[0], a_result(assignment, steps_recorded=3)):
        assert (await worker.do(item)).status == OK
    assert [step.output.data for step in await calls.steps(run_id)] == [b"1", b"2", b"3"]


async def test_items_of_two_runs_do_not_wait_for_each_other(calls: Calls, open_worker: OpenWorker) -> None:
    worker = await open_worker("w", slot_limit=2)
    await calls.start_many(2)
    one, two = await worker.take(), await worker.take()

    answers = await asyncio.gather(
        worker.do(a_step(one, "a", steps_recorded=5)), worker.do(a_step(two, "a")), worker.do(a_result(two))
    )

    assert [answer.status for answer in answers] == [pb.ITEM_STATUS_STEPS_MISSING, OK, OK]
