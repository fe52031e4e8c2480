"""A canceled run: its handler learns it within a second, records nothing new, and its slot is kept until it ends."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter

import pytest

from redflow_sdk import BlockingContext, Context, RunCanceledError, workflow
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.conftest import StartScripted
from tests.sdk.messages import answer, cancellation, forbids_retry, kind_of, value_of
from tests.sdk.scripted_gateway import ScriptedGateway

REQUESTED = pb.CANCELED_REASON_REQUESTED


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


# ---- async handlers ----


@pytest.mark.parametrize(
    "reason",
    [pb.CANCELLATION_REASON_USER, pb.CANCELLATION_REASON_PARENT, pb.CANCELLATION_REASON_TIMEOUT],
    ids=lambda it: pb.CancellationReason.Name(it),
)
async def test_an_async_handler_is_canceled_within_a_second_and_its_finally_runs(
    reason: pb.CancellationReason.ValueType, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted = Counter[str]()

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            noted["canceled" if ctx.canceled else "?"] += 1
            raise
        finally:
            await asyncio.sleep(0.02)
            noted["finally"] += 1

    await connect(scripted, waits, quick)
    token = scripted.assign("waits")
    await scripted.log.ack(token)
    scripted.send(cancellations=[cancellation(token, reason)])
    result = await scripted.log.result(token, within=1)
    assert result.canceled.reason == REQUESTED
    assert noted == {"canceled": 1, "finally": 1}
    await scripted.log.beat()
    assert scripted.log.held() == {}
    assert await takes_the_next_run(scripted)


async def test_a_run_that_its_time_out_stops_is_named_in_the_log_once(
    scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "redflow.worker")

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        await asyncio.Event().wait()

    await connect(scripted, waits)
    token = scripted.assign("waits")
    await scripted.log.ack(token)
    order = cancellation(token, pb.CANCELLATION_REASON_TIMEOUT)
    scripted.send(cancellations=[order, order])
    await scripted.log.result(token, within=1)
    told = [record.getMessage() for record in caplog.records if "time-out" in record.getMessage()]
    assert len(told) == 1
    assert re.fullmatch(r"waits \S+ is stopped: its run time-out has passed", told[0])


@pytest.mark.parametrize("way", ["heartbeat reply", "answer to an item"])
async def test_a_cancel_whose_push_was_lost_arrives_with(
    way: str, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    go_on = asyncio.Event()

    @workflow(name="waits")
    async def waits(ctx: Context) -> None:
        await go_on.wait()
        await ctx.step.run("a", lambda: None)
        await asyncio.Event().wait()

    await connect(scripted, waits)
    token = scripted.assign("waits")
    await scripted.log.ack(token)
    if way == "heartbeat reply":
        scripted.script.beat = lambda beat: pb.HeartbeatReply(
            sequence=beat.sequence, cancellations=[cancellation(token)]
        )
    else:
        scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_OK, cancel_requested=True)
        go_on.set()
    assert (await scripted.log.result(token, within=1)).canceled.reason == REQUESTED


async def test_a_cancel_that_is_said_again_and_again_is_one_cancel(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    canceled: list[bool] = []

    @workflow(name="cleans-up")
    async def cleans_up(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            canceled.append(True)
            for _ in range(10):
                await asyncio.sleep(0.05)
            canceled.append(True)

    await connect(scripted, cleans_up)
    token = scripted.assign("cleans-up")
    await scripted.log.ack(token)
    scripted.script.beat = lambda beat: pb.HeartbeatReply(sequence=beat.sequence, cancellations=[cancellation(token)])
    for _ in range(3):
        scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token)).canceled.reason == REQUESTED
    assert canceled == [True, True], "the clean-up is interrupted"
    assert len(scripted.log.results(token)) == 1


async def test_a_step_in_flight_is_recorded_as_canceled_before_the_result(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    started = Counter[str]()

    async def endless(name: str) -> None:
        started[name] += 1
        await asyncio.Event().wait()

    @workflow(name="in-steps")
    async def in_steps(ctx: Context) -> None:
        await asyncio.gather(*(ctx.step.run(name, endless, name) for name in ("x", "y")))

    await connect(scripted, in_steps)
    token = scripted.assign("in-steps")
    await eventually(lambda: len(started) == 2)
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1)).canceled.reason == REQUESTED
    said = [item.message for item in scripted.log.items(token)]
    assert [type(item).__name__ for item in said] == ["StepReport", "StepReport", "RunResult"]
    reports = [report.message for report in scripted.log.reports(token)]
    assert all(report.status == run_pb2.STEP_STATUS_FAILED for report in reports)
    assert {report.step_name: kind_of(report.failure) for report in reports} == {"x": "canceled", "y": "canceled"}


async def test_a_handler_that_swallows_its_cancellation_can_record_nothing_more(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    executed: list[str] = []

    @workflow(name="stubborn")
    async def stubborn(ctx: Context) -> None:
        for n in range(4):
            try:
                await ctx.step.run(f"s{n}", asyncio.sleep, 5 if n == 0 else 0)
                executed.append(f"s{n}")
            except asyncio.CancelledError:
                await asyncio.sleep(0.02)

    await connect(scripted, stubborn)
    token = scripted.assign("stubborn")
    await scripted.log.ack(token)
    scripted.send(cancellations=[cancellation(token)])
    await scripted.log.result(token, within=2)
    assert executed == []
    assert {report.message.step_name for report in scripted.log.reports(token)} <= {"s0"}


async def test_a_cancel_that_meets_the_result_ends_the_run_once(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, quick)
    scripted.script.item = lambda item: None
    token = scripted.assign("quick")
    result = await scripted.log.result(token)
    scripted.send(cancellations=[cancellation(token)])
    await scripted.log.beat()
    scripted.answer(answer(result, pb.ITEM_STATUS_CANCELED))
    scripted.behave()
    await scripted.log.beat()
    await eventually(lambda: scripted.log.held() == {})
    assert len(scripted.log.items(token)) == 1


@pytest.mark.parametrize("attempt", range(2))
async def test_a_canceled_error_of_the_users_own_code_is_a_failure_that_is_not_retried(
    attempt: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @workflow(name="gives-up")
    async def gives_up_itself(ctx: Context) -> None:
        if attempt:
            await ctx.step.run("gives-up", gives_up)
        else:
            await gives_up()

    await connect(scripted, gives_up_itself, quick)
    token = scripted.assign("gives-up", max_attempts=5)
    result = await scripted.log.result(token)
    assert result.WhichOneof("outcome") == "failure"
    assert kind_of(result.failure) == "canceled" and forbids_retry(result.failure)
    assert await takes_the_next_run(scripted)


# ---- handlers in threads ----


async def test_a_handler_in_a_thread_sees_that_it_is_canceled_and_its_next_step_raises(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    seen: list[str] = []

    @workflow(name="looks")
    def looks(ctx: BlockingContext) -> None:
        while not ctx.canceled:
            time.sleep(0.01)
        for what in (ctx.raise_if_canceled, lambda: ctx.step.run("next", lambda: seen.append("executed"))):
            try:
                what()
            except RunCanceledError:
                seen.append("canceled")
        raise RunCanceledError

    await connect(scripted, looks, quick)
    token = scripted.assign("looks")
    await scripted.log.ack(token)
    assert seen == []
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1)).canceled.reason == REQUESTED
    assert seen == ["canceled", "canceled"]
    assert scripted.log.reports(token) == []
    assert await takes_the_next_run(scripted)


async def test_an_async_step_of_a_handler_in_a_thread_is_canceled(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    raised: list[BaseException] = []

    @workflow(name="awaits")
    def awaits(ctx: BlockingContext) -> None:
        try:
            ctx.step.run("endless", asyncio.sleep, 8)
        except BaseException as error:
            raised.append(error)
            raise

    await connect(scripted, awaits)
    token = scripted.assign("awaits")
    await scripted.log.ack(token)
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.result(token, within=1.5)).canceled.reason == REQUESTED
    assert [type(error) for error in raised] == [RunCanceledError]
    [report] = scripted.log.reports(token)
    assert kind_of(report.message.failure) == "canceled"


# ---- handlers that do not end ----


async def test_a_deaf_handler_is_released_after_the_grace_and_its_slot_is_gone_until_it_ends(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    let_go = asyncio.Event()

    @workflow(name="deaf")
    async def deaf(ctx: Context) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    scripted = start_scripted(cancel_grace_ms=400)
    await connect(scripted, deaf, quick, concurrency=3)
    token = scripted.assign("deaf")
    await scripted.log.ack(token)
    canceled_at = time.monotonic()
    scripted.send(cancellations=[cancellation(token)])
    release = await scripted.log.release(token, within=2)
    assert release.reason == pb.RELEASE_REASON_CANCEL_IGNORED
    assert 0.3 < scripted.log.releases(token)[0].at - canceled_at < 1.5
    await eventually(lambda: scripted.log.slot_limits() == [2])
    await scripted.log.beat()
    await eventually(lambda: scripted.log.held() == {})
    assert await takes_the_next_run(scripted)

    let_go.set()
    await eventually(lambda: scripted.log.slot_limits() == [2, 3])
    await scripted.log.beat()
    assert scripted.log.results(token) == [] and len(scripted.log.releases(token)) == 1


async def test_a_handler_that_has_lost_its_lease_takes_up_its_slot_until_it_ends(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    let_go = asyncio.Event()

    @workflow(name="slow-to-end")
    async def slow_to_end(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await let_go.wait()

    await connect(scripted, slow_to_end, quick, concurrency=1)
    token = scripted.assign("slow-to-end")
    await scripted.log.ack(token)
    scripted.send(heartbeat_reply=pb.HeartbeatReply(sequence=0, lost_lease_tokens=[token]))
    await eventually(lambda: scripted.log.slot_limits() == [0])
    too_early = scripted.assign("quick")
    assert (await scripted.log.ack(too_early)).reject_reason == pb.REJECT_REASON_OVERLOADED

    let_go.set()
    await eventually(lambda: scripted.log.slot_limits() == [0, 1])
    assert await takes_the_next_run(scripted)
    assert scripted.log.items(token) == []


async def test_a_deaf_thread_is_released_after_the_grace_and_its_slot_is_gone_until_it_ends(
    start_scripted: StartScripted, connect: StartWorker, released: threading.Event
) -> None:
    @workflow(name="deaf")
    def deaf(ctx: BlockingContext) -> None:
        released.wait(20)

    scripted = start_scripted(cancel_grace_ms=300)
    await connect(scripted, deaf, quick, concurrency=2)
    token = scripted.assign("deaf")
    await scripted.log.ack(token)
    scripted.send(cancellations=[cancellation(token)])
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_CANCEL_IGNORED
    await eventually(lambda: scripted.log.slot_limits() == [1])
    scripted.session.cut()
    assert (await scripted.log.open(2)).message.slot_limit == 1
    assert await takes_the_next_run(scripted)
    released.set()
    await eventually(lambda: scripted.log.slot_limits()[-1] == 2)


async def test_a_deaf_handler_whose_lease_is_lost_takes_up_its_slot_until_it_ends(
    start_scripted: StartScripted, connect: StartWorker, released: threading.Event
) -> None:
    @workflow(name="deaf")
    def deaf(ctx: BlockingContext) -> None:
        released.wait(20)

    scripted = start_scripted(cancel_grace_ms=300)
    await connect(scripted, deaf, concurrency=2)
    token = scripted.assign("deaf")
    await scripted.log.ack(token)
    scripted.send(cancellations=[cancellation(token, pb.CANCELLATION_REASON_LEASE_LOST)])
    await eventually(lambda: scripted.log.slot_limits() == [1])
    released.set()
    await eventually(lambda: scripted.log.slot_limits() == [1, 2])
    assert scripted.log.items(token) == []
