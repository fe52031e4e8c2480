"""RunService.ExecuteRuns: runs that are started on the stream, each answered by its number, and waited for if asked."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_server.engine import client_runs
from redflow_server.gateway import Gateway
from redflow_server.store.keys import Keys
from tests.eventually import eventually
from tests.redis_command import RedisCommand
from tests.rpc.calls import Calls, refused
from tests.rpc.conftest import OpenWorker
from tests.rpc.items import a_result
from tests.rpc.run_stream import WITHIN_S, RunStream


async def test_a_start_is_answered_by_its_number_and_its_end_is_not_told(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await stream.start(7)
    [answer] = await stream.answers()
    assert (answer.number, answer.started.created) == (7, True)
    assert gateway._waiters.count == 0
    await worker.do(a_result(await worker.take()))

    await stream.want(answer.started.run_id)

    assert await stream.ended(1) == [answer.started.run_id], "only now"


async def test_the_end_of_a_run_that_is_waited_for_comes_with_its_output_and_after_the_answer_to_its_start(
    stream: RunStream, gateway: Gateway, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    for number in range(20):
        await stream.execute(number)
        await worker.do(a_result(await worker.take(), b'"done"'))
        answer, run = await stream.executed()
        assert (answer.number, answer.started.created, answer.started.run_id) == (number, True, run.run_id)
        assert run.output.data == b'"done"'
    assert gateway._waiters.count == 0


async def test_a_start_whose_run_takes_its_time_is_answered_before_that_ends(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    await stream.execute(1)
    [answer] = await stream.answers()
    assert gateway._waiters.count == 1

    await calls.cancel(answer.started.run_id)

    assert await stream.ended(1) == [answer.started.run_id]


async def test_each_of_many_starts_in_a_message_is_started_or_refused_by_itself(
    stream: RunStream, calls: Calls
) -> None:
    bad = pb.StartRunRequest(workflow="w", queue="q", priority=5000)
    unknown = pb.StartRunRequest(workflow="nobody has it")
    good = pb.StartRunRequest(workflow="w", queue="q")
    starts = [pb.NumberedStart(number=10 + at, run=run) for at, run in enumerate((good, bad, unknown, good))]
    await stream.call.write(pb.ExecuteRunsRequest(starts=starts))

    answers = {answer.number: answer for answer in await stream.answers(4)}

    assert {number: answer.refused.reason for number, answer in answers.items()} == {
        10: "",
        11: "INVALID_INPUT",
        12: "WORKFLOW_NOT_FOUND",
        13: "",
    }
    assert "priority must be between" in answers[11].refused.message
    assert [await calls.status(answers[number].started.run_id) for number in (10, 13)] == ["queued", "queued"]


async def test_a_start_whose_key_names_a_run_waits_for_that_one(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    there = await calls.start(idempotency_key="k")
    await stream.execute(1, idempotency_key="k")
    [answer] = await stream.answers()
    assert (answer.started.run_id, answer.started.created) == (there, False)

    await worker.do(a_result(await worker.take(), b'"once"'))

    [run] = (await stream.read()).runs
    assert (run.run_id, run.output.data) == (there, b'"once"')
    assert gateway._waiters.count == 0


async def test_a_repeated_start_makes_no_other_run_and_hears_of_an_end_that_was_before(
    stream: RunStream, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    run_id = await calls.start(request_id="same")
    await worker.do(a_result(await worker.take()))

    await stream.execute(1, request_id="same")
    answer, run = await stream.executed()

    assert (answer.started.run_id, answer.started.created, run.run_id) == (run_id, True, run_id)


async def test_a_start_that_is_sent_twice_is_answered_twice_and_its_end_told_once(
    stream: RunStream, gateway: Gateway, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w")
    await stream.execute(1, request_id="same")
    await stream.execute(2, request_id="same")
    first, second = await stream.answers(2)
    assert {first.number, second.number} == {1, 2}
    assert first.started.run_id == second.started.run_id

    await worker.do(a_result(await worker.take()))

    assert await stream.ended(1) == [first.started.run_id]
    assert gateway._waiters.count == 0


async def test_one_that_is_forgotten_is_not_told(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", slot_limit=2)
    await stream.execute(1)
    await stream.execute(2)
    forgotten, other = [answer.started.run_id for answer in await stream.answers(2)]
    await stream.forget(forgotten)
    await eventually(lambda: gateway._waiters.count == 1)
    taken = {one.run_id: one for one in [await worker.take() for _ in range(2)]}
    for run_id in (forgotten, other):
        await worker.do(a_result(taken[run_id]))

    assert await stream.ended(1) == [other]


@pytest.mark.leaves_faults
async def test_a_fault_is_the_answer_to_its_start_alone(
    stream: RunStream, redis: RedisCommand, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    await redis("SET", keys.workflow("broken"), "not a hash")
    await stream.execute(1, workflow="broken", queue="")
    await stream.execute(2)

    answers = {answer.number: answer for answer in await stream.answers(2)}

    assert answers[1].refused.reason == "INTERNAL"
    assert answers[1].refused.message.removeprefix("fault ") in caplog.text
    assert answers[2].started.created


@pytest.mark.parametrize("bound", ["client_runs.MAX_WANTED", "waiters.MAX_WAITERS"])
async def test_where_there_is_no_room_to_wait_for_more_a_run_is_started_and_its_end_is_not_told(
    stream: RunStream, gateway: Gateway, calls: Calls, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(f"redflow_server.engine.{bound}", 2)
    for number in range(2):
        await stream.execute(number)
    [first, _] = await stream.answers(2)
    await stream.execute(2)
    response = await stream.read()
    [answer] = response.starts
    assert answer.started.created
    assert list(response.untold_run_ids) == [answer.started.run_id]
    assert gateway._waiters.count == 2

    await calls.cancel(first.started.run_id)
    await stream.ended(1)
    await stream.execute(3)
    [answer] = await stream.answers()
    await calls.cancel(answer.started.run_id)

    assert await stream.ended(1) == [answer.started.run_id], "there is room again"


async def test_what_is_forgotten_makes_room_for_what_is_started_in_the_same_message(
    stream: RunStream, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_runs, "MAX_WANTED", 1)
    await stream.execute(1)
    [first] = await stream.answers()
    start = pb.NumberedStart(number=2, run=pb.StartRunRequest(workflow="w", queue="q"), wait=True)
    await stream.call.write(pb.ExecuteRunsRequest(starts=[start], forgotten_run_ids=[first.started.run_id]))

    response = await stream.read()

    assert [answer.number for answer in response.starts] == [2]
    assert not response.untold_run_ids


@pytest.mark.leaves_faults
async def test_the_end_of_a_run_that_cannot_be_read_is_said_not_to_be_told(
    stream: RunStream, calls: Calls, redis: RedisCommand, keys: Keys
) -> None:
    await stream.execute(1)
    [answer] = await stream.answers()
    run_id = answer.started.run_id
    await redis("DEL", keys.waits(run_id))
    await redis("SET", keys.waits(run_id), "not a hash")
    await calls.cancel(run_id)

    response = await stream.read()

    assert (list(response.runs), list(response.untold_run_ids)) == ([], [run_id])


async def test_too_many_starts_in_a_message_end_the_stream_and_none_is_made(stream: RunStream, calls: Calls) -> None:
    start = pb.NumberedStart(run=pb.StartRunRequest(workflow="w", queue="q"))
    await stream.call.write(pb.ExecuteRunsRequest(starts=[start] * 1001))

    answer = await refused(stream.read())

    assert (answer.code, answer.field) == (grpc.StatusCode.INVALID_ARGUMENT, "starts")


async def test_when_the_caller_has_closed_its_side_the_stream_ends_with_the_last_answer(stream: RunStream) -> None:
    for number in range(5):
        await stream.start(number)
    await stream.call.done_writing()

    assert {answer.number for answer in await stream.answers(5)} == set(range(5))
    assert await asyncio.wait_for(stream.call.read(), WITHIN_S) is grpc.aio.EOF
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_what_a_stream_has_started_goes_on_when_it_breaks_off(
    stream: RunStream, gateway: Gateway, calls: Calls, open_worker: OpenWorker
) -> None:
    await stream.execute(1)
    [answer] = await stream.answers()

    stream.call.cancel()

    await eventually(lambda: gateway._waiters.count == 0)
    worker = await open_worker("w")
    await worker.do(a_result(await worker.take()))
    await calls.run_in(answer.started.run_id, "succeeded")
