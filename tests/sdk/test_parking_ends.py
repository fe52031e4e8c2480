"""The end of parking: the window closes, the worker goes, the run is canceled or lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redflow_sdk import Context, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import answer, cancellation, resolved, suspended, value_of, verdict, wait_over
from tests.sdk.parked_runs import parked_run, parking, parking_and, quick, resolve, takes_the_next_run, waiting
from tests.sdk.scripted_gateway import ScriptedGateway

BOTH = pytest.mark.parametrize("kind", ["async", "def"])
ENDED = {"async": "CancelledError", "def": "RunSuspended"}
CANCELED = {"async": "CancelledError", "def": "RunCanceledError"}


@pytest.fixture
def noted() -> list[str]:
    return []


# ---- the window ----


@BOTH
async def test_when_its_window_is_over_it_asks_to_be_set_aside_and_ends(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), quick, concurrency=1, park_window=0.5)
    scripted.script.item = parking
    before = time.monotonic()
    token = scripted.assign(f"waits-{kind}")
    first, last = await scripted.log.suspension(token), await scripted.log.suspension(token, 2)
    assert time.monotonic() - before >= 0.5
    assert (first.park, last.park) == (True, False)
    assert last.waits == first.waits and last.steps_recorded == 0
    await eventually(lambda: noted == ["begun", ENDED[kind]])
    await scripted.log.beat()
    assert scripted.log.held() == {}
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension", "Suspension"]


@BOTH
async def test_what_is_over_by_then_lets_it_go_on(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), park_window=0.1)
    scripted.script.item = parking_and(lambda item: resolved(item, wait_over("child", "child", 41)))
    token = scripted.assign(f"waits-{kind}")
    assert value_of((await scripted.log.result(token)).output) == 41
    assert noted == ["begun", "went on"]
    assert [it.message.park for it in scripted.log.suspensions(token)] == [True, False]


@BOTH
async def test_canceled_by_then_it_ends_and_reports_nothing(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), quick, concurrency=1, park_window=0.1)
    scripted.script.item = parking_and(lambda item: answer(item, pb.ITEM_STATUS_CANCELED))
    token = scripted.assign(f"waits-{kind}")
    await eventually(lambda: noted == ["begun", ENDED[kind]])
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension", "Suspension"]


async def test_a_window_counts_from_when_the_handler_has_come_to_rest_once_more(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="twice")
    async def twice(ctx: Context) -> None:
        await ctx.step.run_workflow("c0", "other")
        await ctx.step.run_workflow("c1", "other")

    await connect(scripted, twice, park_window=0.6)
    scripted.script.item = parking
    token = await parked_run(scripted, "twice")
    resolve(scripted, token, 0, "c0")
    await scripted.log.suspension(token, 2)
    parked_at = scripted.log.suspensions(token)[1].at
    assert not (await scripted.log.suspension(token, 3)).park
    assert scripted.log.suspensions(token)[2].at - parked_at >= 0.6


async def test_a_wait_that_is_over_while_the_last_question_is_under_way_goes_on_with_the_answer(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), park_window=0.1)
    scripted.script.item = parking_and(lambda item: None)
    token = scripted.assign("waits-async")
    asked = await scripted.log.suspension(token, 2)
    resolve(scripted, token, 41)
    for _ in range(3):
        await scripted.log.beat()
    assert scripted.log.said(token) == ["Suspension", "Suspension"], "no step begins before the answer"
    scripted.answer(resolved(asked, wait_over("child", "child", 41)))
    assert value_of((await scripted.log.result(token)).output) == 41


async def test_waits_that_are_refused_at_the_end_of_the_window_fail_the_run(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), park_window=0.1)
    scripted.script.item = parking_and(lambda item: answer(item, pb.ITEM_STATUS_INVALID, message="why"))
    token = scripted.assign("waits-async", max_attempts=5)
    assert (await scripted.log.result(token)).failure.message == "why"


# ---- the worker goes ----


@BOTH
async def test_a_drain_asks_at_once_whatever_is_left_of_the_window(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, *waiting(noted), park_window=60)
    scripted.script.item = parking
    tokens = [await parked_run(scripted, f"waits-{kind}") for _ in range(3)]
    before = time.monotonic()
    await asyncio.wait_for(worker.drain(grace=30), 10)
    assert time.monotonic() - before < 5
    for token in tokens:
        assert [it.message.park for it in scripted.log.suspensions(token)] == [True, False]
        assert scripted.log.said(token) == ["Suspension", "Suspension"], "nothing is handed back"
    assert noted == ["begun"] * 3 + [ENDED[kind]] * 3


async def test_a_handler_that_comes_to_rest_while_its_worker_drains_is_set_aside(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="late")
    async def late(ctx: Context) -> None:
        await ctx.step.run("slow", go_on.wait)
        await ctx.step.run_workflow("child", "other")

    worker = await connect(scripted, late, park_window=60)
    scripted.script.item = parking
    token = scripted.assign("late")
    await scripted.log.ack(token)
    draining = asyncio.ensure_future(worker.drain(grace=30))
    await eventually(scripted.log.drains)
    await scripted.log.beat()
    go_on.set()
    await asyncio.wait_for(draining, 10)
    assert not scripted.log.suspensions(token)[-1].message.park


async def test_a_handler_that_asks_when_the_drain_begins_is_not_kept_for_its_window(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, *waiting(noted), park_window=60)
    scripted.script.item = parking_and(suspended)
    held_back: list[pb.Suspension] = []

    def answers(item: Any) -> pb.ItemResult | None:
        if isinstance(item, pb.Suspension) and item.park:
            held_back.append(item)
            return None
        return parking(item)

    scripted.script.item = answers
    token = scripted.assign("waits-async")
    await eventually(lambda: held_back)
    draining = asyncio.ensure_future(worker.drain(grace=30))
    await eventually(scripted.log.drains)
    for _ in range(2):
        await scripted.log.beat()
    scripted.answer(answer(held_back[0], pb.ITEM_STATUS_PARKED))
    await asyncio.wait_for(draining, 5)
    assert [it.message.park for it in scripted.log.suspensions(token)] == [True, False]
    assert noted == ["begun", "CancelledError"]


async def test_a_drain_without_an_answer_hands_parked_runs_back(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, *waiting(noted), park_window=60)
    scripted.script.item = parking_and(lambda item: None)
    token = await parked_run(scripted, "waits-async")
    await asyncio.wait_for(worker.drain(grace=0.2), 8)
    assert scripted.log.said(token) == ["Suspension", "Suspension", "LeaseRelease"]
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_SHUTDOWN
    assert noted == ["begun", "CancelledError"]


@BOTH
async def test_a_stop_ends_parked_runs_as_canceled(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, f"waits-{kind}")
    await asyncio.wait_for(worker.stop(), 5)
    assert (await scripted.log.result(token)).canceled.reason == pb.CANCELED_REASON_WORKER_STOPPED
    assert noted == ["begun", CANCELED[kind]]


# ---- the run is canceled, or no longer here ----


@BOTH
async def test_a_cancel_arrives_in_a_parked_handler(
    kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, f"waits-{kind}")
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1)).canceled.reason == pb.CANCELED_REASON_REQUESTED
    assert noted == ["begun", CANCELED[kind]]
    assert scripted.log.said(token) == ["Suspension", "RunResult"]


LOSSES = {
    "unparked": lambda token: {"cancellations": [cancellation(token, pb.CANCELLATION_REASON_UNPARKED)]},
    "moved": lambda token: {"cancellations": [cancellation(token, pb.CANCELLATION_REASON_MOVED)]},
    "in a reply": lambda token: {"heartbeat_reply": pb.HeartbeatReply(sequence=1, lost_lease_tokens=[token])},
}


@BOTH
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_parked_run_that_is_lost_ends_its_handler_without_a_word(
    loss: str, kind: str, noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), quick, concurrency=1)
    scripted.script.item = parking
    token = await parked_run(scripted, f"waits-{kind}")
    scripted.send(**LOSSES[loss](token))
    await eventually(lambda: noted == ["begun", CANCELED[kind]])
    await scripted.log.beat()
    assert scripted.log.held() == {}
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_parked_run_that_went_elsewhere_may_come_back_to_the_same_worker_at_once(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted), concurrency=1)
    scripted.script.item = parking
    token = await parked_run(scripted, "waits-async")
    scripted.send(cancellations=[cancellation(token, pb.CANCELLATION_REASON_UNPARKED)])
    await eventually(lambda: noted == ["begun", "CancelledError"])
    again = scripted.assign("waits-async", run_id="run-1", steps=[wait_over("child", "child", 41)], delivery_count=2)
    assert value_of((await scripted.log.result(again)).output) == 41


async def test_a_parked_run_that_a_new_session_has_lost_ends(
    noted: list[str], scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, "waits-async")
    scripted.script.open = lambda opening: pb.SessionResponse(
        opened=scripted.opened(opening, [verdict(token, pb.LEASE_VERDICT_KIND_LOST)])
    )
    scripted.session.cut()
    await eventually(lambda: noted == ["begun", "CancelledError"])
    assert scripted.log.said(token) == ["Suspension"]


async def test_parked_runs_are_fenced_like_any_other_when_no_gateway_answers(
    noted: list[str], start_scripted: Any, connect: StartWorker
) -> None:
    scripted = start_scripted(lease_ms=900, beat_ms=100, fence_margin_ms=200, silence_ms=60_000)
    await connect(scripted, *waiting(noted))
    scripted.script.item = parking
    token = await parked_run(scripted, "waits-async")
    scripted.script.beat = lambda beat: None
    await eventually(lambda: noted == ["begun", "CancelledError"])
    await eventually(lambda: scripted.log.held() == {token: "FENCED"})
    assert scripted.log.said(token) == ["Suspension"]
