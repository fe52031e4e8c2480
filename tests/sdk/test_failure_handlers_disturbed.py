"""Failure handlers that are canceled, lost, or at work when their worker ends or its stream is cut."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redflow_sdk import FailureContext
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.failing_runs import (
    HANDLER,
    RECORDED,
    failing,
    failing_for_good,
    handled,
    quick,
    takes_the_next_run,
)
from tests.sdk.messages import answer, cancellation, ok, payload
from tests.sdk.scripted_gateway import ScriptedGateway


async def test_a_slow_one_is_canceled_with_its_run(scripted: ScriptedGateway, connect: StartWorker) -> None:
    noted: list[str] = []

    async def slow(context: FailureContext) -> None:
        noted.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            noted.append("ended")

    await connect(scripted, failing(slow), quick, concurrency=1)
    scripted.script.item = failing_for_good
    token = scripted.assign("fails", payload({"id": 7}))
    await eventually(lambda: noted)
    scripted.send(cancellations=[cancellation(token)])
    await eventually(lambda: len(scripted.log.results(token)) == 2, within=1)
    last = scripted.log.results(token)[-1].message
    assert last.canceled.reason == pb.CANCELED_REASON_REQUESTED and not last.failure_handler_done
    assert noted == ["begun", "ended"]
    scripted.behave()
    assert await takes_the_next_run(scripted)


async def test_a_cancel_that_comes_before_it_begins_keeps_it_from_beginning(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    await connect(scripted, failing(told.append))
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_RUN_FAILURE_HANDLER, cancel_requested=True)
        if isinstance(item, pb.RunResult) and item.HasField("failure")
        else ok(item)
    )
    token = scripted.assign("fails", payload({"id": 7}))
    another = scripted.assign(
        "fails", payload({"id": 7}), token="run-9.t", assignment_kind=HANDLER, failure=RECORDED,
        cancellation=cancellation("run-9.t"),
    )  # fmt: skip

    def canceled(token: str) -> bool:
        return any(it.message.HasField("canceled") for it in scripted.log.results(token))

    await eventually(lambda: canceled(token) and canceled(another))
    assert told == []


async def test_one_in_a_thread_that_does_not_end_leaves_its_run_and_keeps_its_slot(
    scripted: ScriptedGateway, connect: StartWorker, released: threading.Event
) -> None:
    begun = threading.Event()

    def deaf(context: FailureContext) -> None:
        begun.set()
        released.wait(20)

    await connect(scripted, failing(deaf), concurrency=2)
    scripted.script.item = failing_for_good
    token = scripted.assign("fails", payload({"id": 7}))
    await eventually(begun.is_set)
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_CANCEL_IGNORED
    await eventually(lambda: scripted.log.slot_limits()[-1:] == [1])
    released.set()
    await eventually(lambda: scripted.log.slot_limits()[-1:] == [2])
    assert scripted.log.said(token) == ["RunResult", "LeaseRelease"]


async def test_one_whose_run_was_lost_ends_without_a_word(scripted: ScriptedGateway, connect: StartWorker) -> None:
    noted: list[str] = []

    async def slow(context: FailureContext) -> None:
        noted.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            noted.append("ended")

    await connect(scripted, failing(slow))
    scripted.script.item = failing_for_good
    token = scripted.assign("fails", payload({"id": 7}))
    await eventually(lambda: noted)
    scripted.send(cancellations=[cancellation(token, pb.CANCELLATION_REASON_LEASE_LOST)])
    await eventually(lambda: noted == ["begun", "ended"])
    await scripted.log.beat()
    assert scripted.log.said(token) == ["RunResult"]


@pytest.mark.parametrize("way", ["finishes", "is handed back", "is stopped"])
async def test_at_the_end_of_its_worker_it(way: str, scripted: ScriptedGateway, connect: StartWorker) -> None:
    begun = asyncio.Event()

    async def slow(context: FailureContext) -> None:
        begun.set()
        await asyncio.sleep(0.3 if way == "finishes" else 30)

    worker = await connect(scripted, failing(slow))
    scripted.script.item = failing_for_good
    token = scripted.assign("fails", payload({"id": 7}))
    await begun.wait()
    await asyncio.wait_for(worker.stop() if way == "is stopped" else worker.drain(5 if way == "finishes" else 0.1), 5)
    last = scripted.log.items(token)[-1].message
    if way == "finishes":
        assert isinstance(last, pb.RunResult) and last.failure_handler_done and not last.HasField("failure")
    elif way == "is handed back":
        assert isinstance(last, pb.LeaseRelease) and last.reason == pb.RELEASE_REASON_SHUTDOWN
    else:
        assert isinstance(last, pb.RunResult) and last.canceled.reason == pb.CANCELED_REASON_WORKER_STOPPED
    assert len(scripted.log.said(token)) == 2


async def test_an_answer_that_was_lost_with_the_stream_calls_it_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    told: list[FailureContext] = []
    await connect(scripted, failing(told.append))
    scripted.script.item = lambda item: None if isinstance(item, pb.RunResult) else ok(item)
    token = scripted.assign("fails", payload({"id": 7}))
    await scripted.log.result(token)
    scripted.script.item = failing_for_good
    scripted.session.cut()
    result = await handled(scripted, token)
    assert not result.HasField("failure") and len(told) == 1
