"""A run that asks to be set aside while its gateway, its worker, or its handler does something else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from redflow_sdk import Context, Worker, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import answer, child_succeeded, ok, resolved, suspended, value_of, verdict
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

ended: dict[str, list[str]] = {}


@pytest.fixture
def connect(connect_without_parking: StartWorker) -> StartWorker:
    return connect_without_parking


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


@workflow(name="parent")
async def parent(ctx: Context) -> int:
    """Notes how it ends, and does nothing else than wait."""
    try:
        value: int = await ctx.step.run_workflow("child", "child", 7)
    except BaseException as error:
        ended.setdefault(ctx.run.id, []).append(type(error).__name__)
        raise
    ended.setdefault(ctx.run.id, []).append("returned")
    return value


@pytest.fixture(autouse=True)
def forget() -> None:
    ended.clear()


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


def withholding_suspensions(item: Item) -> pb.ItemResult | None:
    return None if isinstance(item, pb.Suspension) else ok(item)


# ---- the stream ----


@pytest.mark.parametrize("status", [pb.ITEM_STATUS_SUSPENDED, pb.ITEM_STATUS_DUPLICATE], ids=["SUSPENDED", "DUPLICATE"])
@pytest.mark.parametrize("kind", [pb.LEASE_VERDICT_KIND_HELD, pb.LEASE_VERDICT_KIND_FINISHED], ids=["HELD", "FINISHED"])
async def test_an_answer_that_was_lost_with_the_stream_comes_to_the_same_question(
    kind: pb.LeaseVerdictKind.ValueType,
    status: pb.ItemStatus.ValueType,
    scripted: ScriptedGateway,
    connect: StartWorker,
) -> None:
    await connect(scripted, parent, quick, concurrency=1)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    first = await scripted.log.suspension(token)
    scripted.script.item = lambda item: answer(item, status) if isinstance(item, pb.Suspension) else ok(item)
    scripted.script.open = lambda opening: pb.SessionResponse(
        opened=scripted.opened(opening, [verdict(lease.lease_token, kind) for lease in opening.held_leases])
    )
    scripted.session.cut()
    again = await scripted.log.suspension(token, 2)
    assert again == first, "the same question, to the byte"
    await eventually(lambda: ended)
    assert list(ended.values()) == [["CancelledError"]]
    scripted.behave()
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension", "Suspension"]


async def test_resolved_in_the_session_that_follows_a_cut_the_handler_goes_on(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, parent)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    await scripted.log.suspension(token)
    scripted.script.item = lambda item: (
        resolved(item, child_succeeded("child", 9)) if isinstance(item, pb.Suspension) else ok(item)
    )
    scripted.session.cut()
    assert value_of((await scripted.log.result(token)).output) == 9
    assert list(ended.values()) == [["returned"]]


async def test_a_lease_that_is_lost_while_it_is_asked_ends_the_handler(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, parent, quick, concurrency=1)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    await scripted.log.suspension(token)
    scripted.script.open = lambda opening: pb.SessionResponse(
        opened=scripted.opened(opening, [verdict(token, pb.LEASE_VERDICT_KIND_LOST)])
    )
    scripted.session.cut()
    await eventually(lambda: ended)
    scripted.behave()
    assert await takes_the_next_run(scripted)
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_gateway_that_cannot_answer_now_is_asked_again_later(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    asked: list[Item] = []

    def unavailable_twice(item: Item) -> pb.ItemResult:
        if not isinstance(item, pb.Suspension):
            return ok(item)
        asked.append(item)
        return answer(item, pb.ITEM_STATUS_UNAVAILABLE) if len(asked) < 3 else suspended(item)

    await connect(scripted, parent)
    scripted.script.item = unavailable_twice
    scripted.assign("parent")
    await eventually(lambda: ended)
    assert len(asked) == 3 and asked[0] == asked[1] == asked[2]


# ---- the worker ----


@asynccontextmanager
async def ending(worker: Worker, way: str, grace: float) -> AsyncIterator[None]:
    ends = asyncio.ensure_future(worker.drain(grace) if way == "drain" else worker.stop())
    try:
        yield
    finally:
        await asyncio.wait_for(ends, 8)


async def test_a_worker_that_drains_while_a_run_asks_waits_for_the_answer(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, parent)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    asked = await scripted.log.suspension(token)
    async with ending(worker, "drain", 10):
        await eventually(scripted.log.drains)
        assert ended == {}
        scripted.answer(suspended(asked))
    assert list(ended.values()) == [["CancelledError"]]
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_drain_that_gets_no_answer_hands_the_run_back(scripted: ScriptedGateway, connect: StartWorker) -> None:
    worker = await connect(scripted, parent)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    await scripted.log.suspension(token)
    await asyncio.wait_for(worker.drain(0.2), 5)
    assert scripted.log.said(token) == ["Suspension", "LeaseRelease"]
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_SHUTDOWN
    assert list(ended.values()) == [["CancelledError"]]


async def test_a_stop_while_a_run_asks_ends_it_as_canceled(scripted: ScriptedGateway, connect: StartWorker) -> None:
    worker = await connect(scripted, parent)
    scripted.script.item = withholding_suspensions
    token = scripted.assign("parent")
    await scripted.log.suspension(token)
    await asyncio.wait_for(worker.stop(), 5)
    assert scripted.log.said(token) == ["Suspension", "RunResult"]
    assert (await scripted.log.result(token)).canceled.reason == pb.CANCELED_REASON_WORKER_STOPPED


@pytest.mark.parametrize("way", ["drain", "stop"])
async def test_the_clean_up_of_a_run_that_was_set_aside_is_not_cut_short_by(
    way: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="cleans-up")
    async def cleans_up(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", "child")
        finally:
            noted.append("begun")
            for _ in range(10):
                await asyncio.sleep(0.03)
            noted.append("ended")

    worker = await connect(scripted, cleans_up)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("cleans-up")
    await eventually(lambda: noted, every=0.005)
    async with ending(worker, way, 5):
        pass
    assert noted == ["begun", "ended"]
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_handler_that_does_not_end_when_its_run_is_set_aside_takes_up_its_slot_and_says_nothing(
    scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    @workflow(name="stubborn")
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.step.run_workflow("child", "child")
        except asyncio.CancelledError:
            await go_on.wait()
        return "its own end"

    await connect(scripted, stubborn, concurrency=2)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("stubborn")
    await eventually(lambda: scripted.log.slot_limits()[-1:] == [1], saying="its slot is taken")
    assert "stubborn does not end" in caplog.text
    go_on.set()
    await eventually(lambda: scripted.log.slot_limits()[-1:] == [2], saying="its slot is free again")
    assert scripted.log.said(token) == ["Suspension"]


async def test_a_worker_does_not_wait_for_it_when_it_drains(scripted: ScriptedGateway, connect: StartWorker) -> None:
    go_on = asyncio.Event()

    @workflow(name="stubborn")
    async def stubborn(ctx: Context) -> None:
        try:
            await ctx.step.run_workflow("child", "child")
        except asyncio.CancelledError:
            await go_on.wait()

    worker = await connect(scripted, stubborn, concurrency=2)
    scripted.script.item = lambda item: suspended(item) if isinstance(item, pb.Suspension) else ok(item)
    token = scripted.assign("stubborn")
    await eventually(lambda: scripted.log.slot_limits()[-1:] == [1])
    before = time.monotonic()
    await worker.drain(grace=30)
    assert time.monotonic() - before < 5
    go_on.set()
    assert scripted.log.said(token) == ["Suspension"]
