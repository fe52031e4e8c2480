"""What a handle gives: the output, or why there is none, and for no longer than one wants to wait."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import grpc
import pytest

from redflow_sdk import (
    CanceledError,
    Client,
    Context,
    RunFailedError,
    RunNotFoundError,
    UnavailableError,
    workflow,
)
from redflow_sdk.proto.api.v1 import run_service_pb2 as pb
from redflow_sdk.proto.v1 import failure_pb2, run_pb2
from tests.sdk.messages import payload
from tests.sdk.scripted_runs import Refusal, ScriptedRuns, a_run


@dataclass
class Order:
    id: int


@dataclass
class Receipt:
    total: float


@workflow(name="charge")
async def charge(ctx: Context, order: Order) -> Receipt:
    return Receipt(1.0)


def not_yet(run_id: str) -> None:
    """It has not ended, and does not as long as the test lasts."""


async def test_a_result_is_of_the_type_of_its_workflow(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        assert await client.execute(charge, Order(1)) == Receipt(9.5)
        assert await client.execute("charge", {"id": 1}) == {"total": 9.5}
        assert await client.handle("run-1").result() == {"total": 9.5}


async def test_a_result_is_waited_for_as_long_as_it_takes_and_asked_for_now_and_then(
    runs: ScriptedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redflow_sdk.client.WAIT_SLICE", 0.05)
    answers = [pb.WaitRunResponse(done=False)] * 3 + [pb.WaitRunResponse(done=True, run=a_run(output=payload(1)))]
    left = iter(answers)
    runs.script.update(End=not_yet, WaitRun=lambda request: next(left))
    async with Client(runs.target) as client:
        assert await client.handle("run-1").result() == 1
    assert len(runs.named("WaitRun")) == 4


async def test_a_result_that_does_not_come_in_time_is_a_timeout(runs: ScriptedRuns) -> None:
    runs.script.update(End=not_yet, WaitRun=lambda request: pb.WaitRunResponse(done=False))
    async with Client(runs.target) as client:
        started_at = time.monotonic()
        with pytest.raises(TimeoutError, match="run-1"):
            await client.handle("run-1").result(timeout=0.5)
        assert 0.5 <= time.monotonic() - started_at < 1.5
        with pytest.raises(TimeoutError):
            await client.handle("run-1").result(timeout=0)


async def test_a_result_that_is_there_needs_no_time(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        assert await client.handle("run-1").result(timeout=0) == {"total": 9.5}


async def test_a_result_is_waited_for_no_longer_than_asked_when_there_is_no_gateway(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        handle = await client.start(charge, Order(1))
        runs.stop()
        started_at = time.monotonic()
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(handle.result(timeout=1), 6)
        assert time.monotonic() - started_at < 3


async def test_executing_takes_no_longer_than_asked_when_there_is_no_gateway(runs: ScriptedRuns) -> None:
    runs.stop()
    async with Client(runs.target) as client:
        started_at = time.monotonic()
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(client.execute(charge, Order(1), timeout=1), 6)
        assert time.monotonic() - started_at < 3


async def test_executing_shares_its_time_between_the_start_and_the_result(runs: ScriptedRuns) -> None:
    def slowly(request: pb.StartRunRequest) -> pb.StartRunResponse:
        time.sleep(0.6)
        return pb.StartRunResponse(run_id="run-1", created=True)

    runs.script.update(StartRun=slowly, End=not_yet, WaitRun=lambda request: pb.WaitRunResponse(done=False))
    async with Client(runs.target) as client:
        started_at = time.monotonic()
        with pytest.raises(TimeoutError, match="run-1"):
            await client.execute(charge, Order(1), timeout=1)
        assert 1 <= time.monotonic() - started_at < 1.5


async def test_waiting_for_a_result_outlasts_a_gateway_that_goes_and_comes_back(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        handle = await client.start(charge, Order(1))
        runs.stop()
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0.5)  # the outage
        runs.start()
        assert await asyncio.wait_for(waiting, 10) == Receipt(9.5)


async def test_a_failed_run_raises_its_failure(runs: ScriptedRuns) -> None:
    failure = failure_pb2.Failure(
        type="CardDeclined", message="no money", failure_kind=failure_pb2.FAILURE_KIND_ERROR, traceback="tb",
        cause=failure_pb2.Failure(type="LookupError", message="no card"),
    )  # fmt: skip
    ended = a_run(run_pb2.RUN_STATUS_FAILED, run_id="run-7", workflow="charge", failure=failure)
    runs.script["StartRun"] = lambda request: pb.StartRunResponse(run_id="run-7", created=True)
    runs.script["End"] = lambda run_id: ended
    async with Client(runs.target) as client:
        with pytest.raises(RunFailedError, match="CardDeclined: no money") as failed:
            await client.execute(charge, Order(1))
    assert (failed.value.run_id, failed.value.workflow) == ("run-7", "charge")
    found = failed.value.failure
    assert found is not None and found.cause is not None
    assert (found.type, found.kind, found.traceback, found.cause.type) == ("CardDeclined", "error", "tb", "LookupError")
    assert str(failed.value).splitlines() == [
        "Run failed: CardDeclined: no money (workflow charge, run run-7)",
        "Its traceback is in error.failure.traceback; `redflow run get run-7` shows it",
    ]


async def test_a_failed_run_without_a_traceback_does_not_point_to_one(runs: ScriptedRuns) -> None:
    lost = failure_pb2.Failure(type="WorkerLost", message="four workers", failure_kind=failure_pb2.FAILURE_KIND_ERROR)
    runs.script["End"] = lambda run_id: a_run(run_pb2.RUN_STATUS_FAILED, workflow="charge", failure=lost)
    async with Client(runs.target) as client:
        with pytest.raises(RunFailedError) as failed:
            await client.handle("run-1").result()
    assert str(failed.value) == "Run failed: WorkerLost: four workers (workflow charge, run run-1)"


async def test_a_canceled_run_raises_that_it_was_canceled_and_why(runs: ScriptedRuns) -> None:
    ended = a_run(run_pb2.RUN_STATUS_CANCELED, cancel_reason="customer left")
    runs.script["End"] = lambda run_id: ended
    async with Client(runs.target) as client:
        with pytest.raises(CanceledError, match="customer left"):
            await client.handle("run-1").result()


async def test_the_result_of_no_run_is_refused(runs: ScriptedRuns) -> None:
    runs.refuse_once("End", Refusal(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND", "there is no run run-9"))
    async with Client(runs.target) as client:
        with pytest.raises(RunNotFoundError, match="run-9"):
            await client.handle("run-9").result()
