"""Starts that a client makes in the same moment go in one message, and each has an answer of its own."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest

from redflow_sdk import (
    Client,
    IdempotencyKeyReusedError,
    InvalidInputError,
    RefusedError,
    RunHandle,
    UnavailableError,
    UnknownWorkflowError,
)
from redflow_sdk._transport.convert import run_of
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.records import Run
from tests.eventually import eventually
from tests.sdk.messages import payload
from tests.sdk.scripted_runs import Refusal, ScriptedRuns, a_run

AWAY = Refusal(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "redis is away")


@pytest.fixture(autouse=True)
def answers_by_input(runs: ScriptedRuns) -> None:
    """Each run has the id that its input says."""
    runs.script["StartRun"] = lambda request: pb.StartRunResponse(
        run_id=f"run-{request.input.data.decode()}", created=True
    )


async def started(client: Client, *numbers: int) -> list[str | BaseException]:
    """The ids of runs that were started in one moment, or why there is none."""
    starts = (client.start("w", number, queue="q") for number in numbers)
    answers = await asyncio.gather(*starts, return_exceptions=True)
    return [answer.id if isinstance(answer, RunHandle) else answer for answer in answers]


async def test_starts_of_one_moment_go_in_one_message_and_have_their_own_answers(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        assert await started(client, *range(300)) == [f"run-{number}" for number in range(300)]
    assert [len(call.request.starts) for call in runs.named("ExecuteRuns")] == [300]
    ids = [start.run.request_id for start in runs.calls[0].request.starts]
    assert len(set(ids)) == 300


async def test_what_is_answered_is_not_waited_for_any_longer(
    runs: ScriptedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause between tries is for those that need another one."""
    monkeypatch.setattr("redflow_sdk._transport.starts.random.uniform", lambda low, high: 60.0)
    async with Client(runs.target) as client:
        assert await asyncio.wait_for(started(client, 1, 2), 20) == ["run-1", "run-2"]


async def test_what_does_not_fit_into_a_message_goes_in_another(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        assert len(await started(client, *range(2500))) == 2500
        large = ["x" * 400_000] * 5
        await asyncio.gather(*(client.start("w", text, queue="q") for text in large))
    assert sorted(len(call.request.starts) for call in runs.named("ExecuteRuns")) == [1, 2, 2, 500, 1000, 1000]


REASONS = {
    1: ("INVALID_INPUT", InvalidInputError),
    2: ("WORKFLOW_NOT_FOUND", UnknownWorkflowError),
    3: ("IDEMPOTENCY_KEY_REUSED", IdempotencyKeyReusedError),
    4: ("SOMETHING_NEW", RefusedError),
}


async def test_one_that_is_refused_is_refused_alone_with_its_reason(runs: ScriptedRuns) -> None:
    def answer(request: pb.StartRunRequest) -> pb.StartRunResponse:
        number = int(request.input.data)
        if number in REASONS:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, REASONS[number][0], f"no {number}")
        return pb.StartRunResponse(run_id=f"run-{number}", created=True)

    runs.script["StartRun"] = answer
    async with Client(runs.target) as client:
        answers = await started(client, *range(6))
    assert (answers[0], answers[5]) == ("run-0", "run-5")
    for number, (reason, kind) in REASONS.items():
        error = answers[number]
        assert isinstance(error, kind) and (error.reason, str(error)) == (reason, f"no {number}")


async def test_only_those_for_which_the_store_was_away_are_asked_for_again_as_they_were(runs: ScriptedRuns) -> None:
    runs.refuse_once("StartRun", AWAY, AWAY)
    async with Client(runs.target) as client:
        assert await started(client, *range(5)) == [f"run-{number}" for number in range(5)]
    first, second = (call.request.starts for call in runs.named("ExecuteRuns"))
    assert list(second) == list(first[:2])


async def test_those_that_were_started_are_answered_so_although_the_gateway_goes_before_the_others(
    runs: ScriptedRuns,
) -> None:
    runs.refuse_once("StartRun", *[AWAY] * 1000)
    answer = runs.script["StartRun"]
    runs.script["StartRun"] = lambda request: (
        answer(request) if request.input.data == b"2" else pb.StartRunResponse(run_id="run-1", created=True)
    )
    async with Client(runs.target, call_timeout=1.0) as client:
        starting = asyncio.ensure_future(started(client, 1, 2))
        await eventually(lambda: runs.named("ExecuteRuns"))
        runs.stop()
        first, second = await starting
    assert first == "run-1"
    assert isinstance(second, UnavailableError)


async def test_when_there_is_no_gateway_in_time_each_hears_of_it(runs: ScriptedRuns) -> None:
    runs.stop()
    async with Client(runs.target, call_timeout=0.5) as client:
        assert [type(answer) for answer in await started(client, 1, 2, 3)] == [UnavailableError] * 3


async def test_each_waits_for_as_long_as_it_was_asked_to(runs: ScriptedRuns) -> None:
    runs.stop()
    async with Client(runs.target) as client:
        short = asyncio.ensure_future(client.execute("w", 1, timeout=0))
        long = asyncio.ensure_future(client.start("w", 2, queue="q"))
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(short, 5)
        runs.start()
        assert (await asyncio.wait_for(long, 10)).id == "run-2"


async def test_one_that_is_given_up_in_the_same_moment_is_not_sent(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        given_up = asyncio.ensure_future(client.start("w", 1, queue="q"))
        others = asyncio.ensure_future(started(client, 2, 3))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await others == ["run-2", "run-3"]
    assert [call.request.input.data for call in runs.named("StartRun")] == [b"2", b"3"]


async def test_a_start_whose_stream_breaks_before_its_answer_is_sent_again_as_it_was(runs: ScriptedRuns) -> None:
    runs.refuse_once("StartRun", *[Refusal(grpc.StatusCode.INTERNAL)] * 2)
    async with Client(runs.target) as client:
        assert await asyncio.wait_for(started(client, 1, 2), 10) == ["run-1", "run-2"]
    sent = [call.request.starts for call in runs.named("ExecuteRuns")]
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]


async def test_one_that_is_given_up_while_the_gateway_is_away_is_not_started_when_it_is_back(
    runs: ScriptedRuns,
) -> None:
    runs.stop()
    async with Client(runs.target) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.start("w", 1, queue="q"), 0.3)
        other = asyncio.ensure_future(client.start("w", 2, queue="q"))
        runs.start()
        assert (await asyncio.wait_for(other, 10)).id == "run-2"
    assert [call.request.input.data for call in runs.named("StartRun")] == [b"2"]


async def test_waits_for_which_the_stream_has_no_room_are_calls_of_their_own(
    runs: ScriptedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_sdk._transport.run_stream.MAX_WAITS", 2)
    runs.script["End"] = lambda run_id: a_run(run_id=run_id, output=payload({"total": 9.5}))
    async with Client(runs.target) as client:
        outputs = await asyncio.gather(*(client.execute("w", number, timeout=10) for number in range(5)))
    assert outputs == [{"total": 9.5}] * 5
    starts = [start for call in runs.named("ExecuteRuns") for start in call.request.starts]
    assert [start.wait for start in starts] == [True, True, False, False, False]
    assert runs.named("WaitRun")


async def test_a_start_that_fits_into_no_message_is_refused_at_once_and_alone(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        starts = [client.start("w", text, queue="q") for text in ("x" * 4_200_000, "y")]
        runs.script["StartRun"] = lambda request: pb.StartRunResponse(run_id="run-1", created=True)
        large, small = await asyncio.wait_for(asyncio.gather(*starts, return_exceptions=True), 10)
    assert isinstance(large, InvalidInputError) and large.reason == "PAYLOAD_TOO_LARGE"
    assert isinstance(small, RunHandle)


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED])
async def test_one_for_which_the_gateway_ends_the_stream_is_found_and_refused_alone(
    runs: ScriptedRuns, code: grpc.StatusCode
) -> None:
    def answer(request: pb.StartRunRequest) -> pb.StartRunResponse:
        if request.input.data == b"3":
            raise Refusal(code, message="no message of mine")
        return pb.StartRunResponse(run_id=f"run-{request.input.data.decode()}", created=True)

    runs.script["StartRun"] = answer
    async with Client(runs.target) as client:
        waiting = asyncio.ensure_future(client.handle("run-0").result())
        answers = await asyncio.wait_for(started(client, *range(6)), 20)
        assert await waiting == {"total": 9.5}
        assert await started(client, 7, 8) == ["run-7", "run-8"]
    assert [answer for answer in answers if isinstance(answer, str)] == ["run-0", "run-1", "run-2", "run-4", "run-5"]
    assert "no message of mine" in str(answers[3])


async def test_a_run_whose_start_is_answered_when_nobody_waits_any_more_is_forgotten_at_the_gateway(
    runs: ScriptedRuns,
) -> None:
    is_let_go = threading.Event()

    def late(request: pb.StartRunRequest) -> pb.StartRunResponse:
        is_let_go.wait(10)
        return pb.StartRunResponse(run_id="run-1", created=True)

    runs.script.update(StartRun=late, End=lambda run_id: None)
    async with Client(runs.target, call_timeout=0.2) as client:
        with pytest.raises(UnavailableError):
            await client.execute("w", 1)
        is_let_go.set()
        await eventually(
            lambda: any("run-1" in call.request.forgotten_run_ids for call in runs.named("ExecuteRuns")), within=5
        )


async def test_a_fault_of_the_stream_is_logged_and_the_client_goes_on(
    runs: ScriptedRuns, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("redflow_sdk._transport.run_stream.MAX_PAUSE_S", 0.05)
    runs.script["End"] = lambda run_id: a_run(run_id=run_id, output=payload(1))
    faults = iter([RuntimeError("a fault of ours")])

    def faulty(run: run_pb2.Run) -> Run:
        for fault in faults:
            raise fault
        return run_of(run)

    monkeypatch.setattr("redflow_sdk._transport.run_stream.convert.run_of", faulty)
    async with Client(runs.target) as client:
        assert await asyncio.wait_for(client.handle("run-1").result(), 10) == 1
    assert "a fault of ours" in caplog.text
