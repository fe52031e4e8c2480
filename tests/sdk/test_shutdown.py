"""A worker in a program that goes on: draining, stopping, and being left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from redflow_sdk import BlockingContext, Context, Worker, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import payload, value_of
from tests.sdk.scripted_gateway import ScriptedGateway

STOPS_WITHIN_S = 2.5


@workflow(name="naps")
async def naps(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


# ---- drain ----


async def test_the_end_of_the_block_waits_for_the_runs_at_work(scripted: ScriptedGateway) -> None:
    async with Worker(scripted.target, workflows=[naps]):
        token = scripted.assign("naps", payload(0.5))
        await scripted.log.ack(token)
    assert value_of(scripted.log.results(token)[0].message.output) == "rested"
    assert scripted.log.releases(token) == []
    await eventually(lambda: scripted.log.closes() and scripted.session.has_ended.is_set())


async def test_an_exception_in_the_block_drains_too_and_passes(scripted: ScriptedGateway) -> None:
    async def fails() -> None:
        async with Worker(scripted.target, workflows=[naps]):
            await scripted.log.ack(scripted.assign("naps", payload(0.3)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    [result] = scripted.log.results()
    assert value_of(result.message.output) == "rested"


async def test_what_does_not_finish_is_handed_back_and_its_clean_up_runs(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    cleaned_up: list[str] = []

    @workflow(name="cleans-up")
    async def cleans_up(ctx: Context) -> None:
        try:
            await ctx.step.run("a", lambda: 1)
            await ctx.step.run("endless", asyncio.Event().wait)
        finally:
            cleaned_up.append("begun")
            try:
                await ctx.step.run("too-late", lambda: cleaned_up.append("executed"))
            finally:
                cleaned_up.append("ended")

    worker = await connect(scripted, cleans_up)
    token = scripted.assign("cleans-up")
    await scripted.log.report(token, "a")
    await worker.drain(grace=0.2)
    release = await scripted.log.release(token)
    assert (release.reason, release.steps_recorded) == (pb.RELEASE_REASON_SHUTDOWN, 1)
    assert cleaned_up == ["begun", "ended"]
    assert [report.message.step_name for report in scripted.log.reports(token)] == ["a"]
    assert scripted.log.results(token) == []


async def test_a_run_that_finishes_while_it_is_drained_is_reported_and_not_handed_back(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, naps)
    tokens = [scripted.assign("naps", payload(0.02 * n)) for n in range(20)]
    await eventually(lambda: len(scripted.log.acks()) == 20)
    await worker.drain(grace=0.2)
    for token in tokens:
        ends = len(scripted.log.results(token)), len(scripted.log.releases(token))
        assert sorted(ends) == [0, 1], token


async def test_a_worker_drains_in_the_session_that_follows_a_cut(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = await connect(scripted, naps)
    token = scripted.assign("naps", payload(1.5))
    await scripted.log.ack(token)
    draining = asyncio.ensure_future(worker.drain(grace=10))
    await eventually(scripted.log.drains)
    scripted.session.cut()
    opening = (await scripted.log.open(2)).message
    assert opening.slot_limit == 0
    await asyncio.wait_for(draining, 5)
    assert value_of((await scripted.log.result(token)).output) == "rested"
    assert {drain.session for drain in scripted.log.drains()} == {1, 2}


async def test_draining_and_stopping_a_worker_that_was_never_started_does_nothing(scripted: ScriptedGateway) -> None:
    worker = Worker(scripted.target, workflows=[naps])
    await worker.drain()
    await worker.stop()
    assert scripted.sessions == []


async def test_draining_twice_is_draining_once(scripted: ScriptedGateway, connect: StartWorker) -> None:
    worker = await connect(scripted, naps)
    await asyncio.gather(worker.drain(), worker.drain(), worker.stop())
    assert len(scripted.log.closes()) == 1


async def test_a_worker_is_started_once(scripted: ScriptedGateway, connect: StartWorker) -> None:
    worker = await connect(scripted, naps)
    for again in (worker.start, worker.run, worker.__aenter__):
        with pytest.raises(RuntimeError, match="started before"):
            await again()
    await worker.drain()
    with pytest.raises(RuntimeError, match="started before"):
        await worker.start()


# ---- stop ----


@pytest.mark.parametrize("handler", ["waits", "deaf", "thread", "thread of a step"])
async def test_stop_ends_the_runs_as_canceled_and_returns_soon_whatever_the_handler_does(
    handler: str, scripted: ScriptedGateway, connect: StartWorker, released: threading.Event
) -> None:
    @workflow(name="endless")
    async def endless(ctx: Context) -> None:
        while not released.is_set():
            try:
                if handler == "thread of a step":
                    await ctx.step.run("blocks", released.wait, 20)
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                if handler != "deaf":
                    raise

    @workflow(name="endless")
    def endless_in_a_thread(ctx: BlockingContext) -> None:
        released.wait(20)

    worker = await connect(scripted, endless_in_a_thread if handler == "thread" else endless)
    token = scripted.assign("endless")
    await scripted.log.ack(token)
    stopping_at = time.monotonic()
    await worker.stop()
    assert time.monotonic() - stopping_at < STOPS_WITHIN_S
    [result] = scripted.log.results(token)
    assert result.message.canceled.reason == pb.CANCELED_REASON_WORKER_STOPPED
    assert scripted.log.releases(token) == []


async def test_stop_does_not_wait_for_a_gateway_that_is_away(
    scripted: ScriptedGateway, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await connect(scripted, naps)
    await scripted.log.ack(scripted.assign("naps", payload(60)))
    scripted.stop()
    await eventually(lambda: any("no session with" in record.getMessage() for record in caplog.records))
    stopping_at = time.monotonic()
    await worker.stop()
    assert time.monotonic() - stopping_at < STOPS_WITHIN_S


async def test_stop_does_not_wait_for_a_gateway_that_is_silent(scripted: ScriptedGateway, connect: StartWorker) -> None:
    worker = await connect(scripted, naps)
    await scripted.log.ack(scripted.assign("naps", payload(60)))
    scripted.script.open = lambda opening: None
    scripted.session.mute()
    stopping_at = time.monotonic()
    await worker.stop()
    assert time.monotonic() - stopping_at < STOPS_WITHIN_S + 1.5


# ---- run ----


async def test_run_that_is_canceled_hands_back_what_is_at_work(scripted: ScriptedGateway) -> None:
    running = asyncio.ensure_future(Worker(scripted.target, workflows=[naps]).run())
    await scripted.log.open(1)
    token = scripted.assign("naps", payload(60))
    await scripted.log.ack(token)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_SHUTDOWN
    await eventually(scripted.log.closes)


async def test_run_works_in_a_thread_that_gets_no_signals(scripted: ScriptedGateway) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        tasks.append(asyncio.create_task(Worker(scripted.target, workflows=[naps]).run()))
        await asyncio.wait(tasks)

    thread = threading.Thread(target=asyncio.run, args=(work(),), daemon=True)
    thread.start()
    await scripted.log.open(1)
    assert value_of((await scripted.log.result(scripted.assign("naps", payload(0)))).output) == "rested"
    loops[0].call_soon_threadsafe(tasks[0].cancel)
    await eventually(lambda: not thread.is_alive())
    assert len(scripted.log.closes()) == 1


async def test_a_start_that_is_given_up_leaves_no_worker(scripted: ScriptedGateway) -> None:
    scripted.script.open = lambda opening: None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await Worker(scripted.target, workflows=[naps]).start()
    scripted.behave()
    await eventually(scripted.session.has_ended.is_set)
    assert len(scripted.sessions) == 1


async def test_stop_ends_a_drain_that_is_under_way(scripted: ScriptedGateway, connect: StartWorker) -> None:
    worker = await connect(scripted, naps)
    token = scripted.assign("naps", payload(60))
    await scripted.log.ack(token)
    draining = asyncio.ensure_future(worker.drain(grace=60))
    await eventually(scripted.log.drains)
    await asyncio.wait_for(worker.stop(), STOPS_WITHIN_S)
    await asyncio.wait_for(draining, STOPS_WITHIN_S)
    assert len(scripted.log.results(token)) + len(scripted.log.releases(token)) == 1


# ---- left behind ----


async def test_a_program_that_ends_its_loop_without_draining_hands_its_runs_back(scripted: ScriptedGateway) -> None:
    """`asyncio.run` cancels what is left, which is no wish of the user's to end the runs."""

    async def forgets_to_drain() -> None:
        await Worker(scripted.target, workflows=[naps]).start()
        await scripted.log.ack(scripted.assign("naps", payload(60), token="left.behind"))
        await eventually(lambda: scripted.log.held() == {"left.behind": "RUNNING"})

    program = threading.Thread(target=asyncio.run, args=(forgets_to_drain(),), daemon=True)
    program.start()
    await eventually(lambda: not program.is_alive(), saying="the program has ended")
    await eventually(lambda: scripted.log.closes() or scripted.log.releases("left.behind"))
    assert scripted.log.results("left.behind") == []


async def test_a_loop_that_is_closed_under_its_worker_gives_the_session_back(
    scripted: ScriptedGateway, caplog: pytest.LogCaptureFixture
) -> None:
    async def begin() -> None:
        await Worker(scripted.target, workflows=[naps]).start()
        await scripted.log.ack(scripted.assign("naps", payload(60), token="left.behind"))

    def run_and_close() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        loop.close()

    await asyncio.to_thread(run_and_close)
    await eventually(scripted.log.closes)
    assert scripted.log.results("left.behind") == []
    assert any("without draining" in record.getMessage() for record in caplog.records)
    await eventually(scripted.session.has_ended.is_set)
    gc.collect()  # the tasks of the closed loop complain when they go, which should be here


async def test_a_stop_lets_handlers_clean_up_and_does_not_wait_long_for_it(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    noted: list[str] = []

    @workflow(name="cleans-up")
    async def cleans_up(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            noted.append("begun")
            await asyncio.sleep(0.2)
            noted.append("ended")

    worker = await connect(scripted, cleans_up)
    token = scripted.assign("cleans-up")
    await scripted.log.ack(token)
    draining = asyncio.ensure_future(worker.drain(grace=30))
    await eventually(scripted.log.drains)
    await asyncio.wait_for(worker.stop(), STOPS_WITHIN_S)
    await asyncio.wait_for(draining, STOPS_WITHIN_S)
    assert noted == ["begun", "ended"]
    [result] = scripted.log.results(token)
    assert result.message.canceled.reason == pb.CANCELED_REASON_WORKER_STOPPED
    assert scripted.log.releases(token) == []
