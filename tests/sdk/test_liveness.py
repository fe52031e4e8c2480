"""Heartbeats whatever handlers do, and handlers that stop before their leases can have ended."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from itertools import pairwise

import pytest

from redflow_sdk import BlockingContext, Context, RunCanceledError, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.conftest import StartScripted
from tests.sdk.messages import payload, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import states_of

LEASE_MS = 1000
MARGIN_MS = 400
"""What a handler has to stop in when it is fenced; as much as a busy machine may need."""


@workflow(name="waits")
async def waits(ctx: Context) -> None:
    await asyncio.Event().wait()


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


def unanswered(beat: pb.Heartbeat) -> None:
    """No reply."""


def not_renewed(beat: pb.Heartbeat) -> pb.HeartbeatReply:
    """The reply of a gateway that is there but cannot reach its store."""
    return pb.HeartbeatReply(sequence=0)


def answered(beat: pb.Heartbeat) -> pb.HeartbeatReply:
    return pb.HeartbeatReply(sequence=beat.sequence)


# ---- heartbeats ----


@pytest.mark.parametrize("beat_ms", [80, 320])
async def test_heartbeats_come_at_the_pace_the_gateway_dictates_also_without_a_lease(
    beat_ms: float, start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(beat_ms=beat_ms)
    await connect(scripted, quick)
    await eventually(lambda: len(scripted.log.beats()) >= 5)
    beats = scripted.log.beats()[:5]
    assert [beat.message.sequence for beat in beats] == [1, 2, 3, 4, 5]
    assert all(not beat.message.leases for beat in beats)
    average_ms = (beats[-1].at - beats[0].at) * 1000 / 4
    assert 0.8 * beat_ms <= average_ms <= beat_ms + 60


async def test_every_heartbeat_lists_every_lease(scripted: ScriptedGateway, connect: StartWorker) -> None:
    await connect(scripted, waits, concurrency=500)
    runs = [scripted.assignment("waits") for _ in range(500)]
    scripted.send(assignments=runs)
    await eventually(lambda: len(scripted.log.acks()) == 500)
    await scripted.log.beat()
    expected = {run.lease_token: "RUNNING" for run in runs}
    for _ in range(3):
        assert states_of((await scripted.log.beat()).leases) == expected


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def burns(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


@workflow(name="blocks-its-loop")
async def blocks_its_loop(ctx: Context, seconds: float) -> str:
    sleeps(seconds)
    return "blocked"


@workflow(name="burns-on-its-loop")
async def burns_on_its_loop(ctx: Context, seconds: float) -> str:
    burns(seconds)
    return "burned"


@workflow(name="burns-in-its-thread")
def burns_in_its_thread(ctx: BlockingContext, seconds: float) -> str:
    burns(seconds)
    return "burned"


@pytest.mark.parametrize("handler", [blocks_its_loop, burns_on_its_loop, burns_in_its_thread], ids=lambda it: it.name)
async def test_a_handler_that_blocks_or_computes_for_two_leases_keeps_its_lease(
    handler: object, start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=200)
    await connect(scripted, handler)
    token = scripted.assign(handler.name, payload(2.2 * LEASE_MS / 1000))  # type: ignore[attr-defined]  # a workflow
    result = await scripted.log.result(token)
    assert result.HasField("output")
    [ack] = scripted.log.acks(token)
    [end] = scripted.log.results(token)
    during = [beat for beat in scripted.log.beats() if ack.at + 0.3 < beat.at < end.at - 0.3]
    assert end.at - ack.at > 2 * LEASE_MS / 1000
    assert all(states_of(beat.message.leases).keys() == {token} for beat in during)
    assert max(later.at - earlier.at for earlier, later in pairwise(during)) < 0.8 * LEASE_MS / 1000
    assert len(scripted.sessions) == 1


async def test_a_handler_that_blocks_its_loop_is_named_in_one_warning(
    start_scripted: StartScripted, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=200)
    await connect(scripted, blocks_its_loop)
    token = scripted.assign("blocks-its-loop", payload(1.5))
    await scripted.log.result(token)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warnings if "blocks-its-loop" in text] == warnings
    assert len(warnings) == 1


@workflow(name="blocks-in-a-task")
async def blocks_in_a_task(ctx: Context, seconds: float) -> None:
    async def part() -> None:
        await asyncio.sleep(0)
        sleeps(seconds)

    await asyncio.gather(part(), asyncio.sleep(0))


async def test_a_task_of_a_handler_that_blocks_is_named_by_its_run_and_the_log_says_for_how_long_it_was(
    start_scripted: StartScripted, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "redflow.worker")
    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=200)
    await connect(scripted, blocks_in_a_task)
    await scripted.log.result(scripted.assign("blocks-in-a-task", payload(1.5)))
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("redflow blocks-in-a-task run-1 has blocked the event loop of its worker for 0.5 s")
    assert f"{__file__}:" in warning

    def turns_again() -> list[str]:
        return re.findall(r"turns again after (1\.[0-9]) s", caplog.text)

    assert await eventually(turns_again, within=5)


async def test_twenty_handlers_that_block_their_loop_one_after_the_other_keep_their_leases(
    start_scripted: StartScripted, connect: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them are begun in one turn of the loop, and run before it turns again."""
    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=200)
    await connect(scripted, blocks_its_loop, concurrency=20)
    tokens = [scripted.assign("blocks-its-loop", payload(0.15)) for _ in range(20)]
    for token in tokens:
        assert value_of((await scripted.log.result(token, within=10)).output) == "blocked"
    assert len(scripted.sessions) == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings and all("redflow blocks-its-loop run-" in text for text in warnings)


# ---- the fence ----


@pytest.mark.parametrize("reply", [unanswered, not_renewed])
async def test_handlers_stop_before_their_leases_can_have_ended_when_no_heartbeat_renews_them(
    reply: object, start_scripted: StartScripted, connect: StartWorker
) -> None:
    canceled_at: list[float] = []

    @workflow(name="notes-its-end")
    async def notes_its_end(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled_at.append(time.monotonic())
            raise

    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=MARGIN_MS, silence_ms=10_000)
    await connect(scripted, notes_its_end, quick)
    token = scripted.assign("notes-its-end")
    await scripted.log.beat()
    renewed_until = len(scripted.log.beats())
    scripted.script.beat = reply  # type: ignore[assignment]  # one of the two above
    await eventually(lambda: canceled_at, within=3, every=0.005)
    # The first beat after the change may still have been answered as before.
    last_renewal = max(beat.at for beat in scripted.log.beats()[: renewed_until + 1])
    assert canceled_at[0] < last_renewal + LEASE_MS / 1000
    first_doubt = min(beat.at for beat in scripted.log.beats()[renewed_until - 1 :])
    assert canceled_at[0] > first_doubt + (LEASE_MS - MARGIN_MS) / 1000 - 0.25

    assert states_of((await scripted.log.beat()).leases) == {token: "FENCED"}
    assert states_of((await scripted.log.beat()).leases) == {token: "FENCED"}
    scripted.script.beat = answered
    await scripted.log.beat()
    await eventually(lambda: scripted.log.held() == {})
    assert scripted.log.items(token) == []
    assert value_of((await scripted.log.result(scripted.assign("quick"))).output) == "quick"
    assert len(scripted.sessions) == 1


async def test_only_heartbeats_renew_whatever_else_the_gateway_answers(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    ended = asyncio.Event()

    @workflow(name="busy")
    async def busy(ctx: Context) -> None:
        try:
            for n in range(1000):
                await ctx.step.run(f"s{n}", asyncio.sleep, 0.02)
        finally:
            ended.set()

    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=MARGIN_MS)
    await connect(scripted, busy)
    token = scripted.assign("busy")
    await scripted.log.report(token, "s0")
    scripted.script.beat = unanswered
    await asyncio.wait_for(ended.wait(), 3)
    assert states_of((await scripted.log.beat()).leases) == {token: "FENCED"}
    # What was said before that has come by now.
    told = len(scripted.log.items(token))
    assert states_of((await scripted.log.beat()).leases) == {token: "FENCED"}
    assert len(scripted.log.items(token)) == told
    assert scripted.log.results(token) == []


async def test_no_handler_starts_while_leases_may_have_ended(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    started: list[str] = []

    @workflow(name="starts")
    async def starts(ctx: Context) -> None:
        started.append(ctx.run.id)

    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=MARGIN_MS, silence_ms=10_000)
    await connect(scripted, waits, starts)
    first = scripted.assign("waits")
    await scripted.log.ack(first)
    scripted.script.beat = not_renewed
    await eventually(lambda: "FENCED" in scripted.log.held().values())
    scripted.assign("starts")
    await scripted.log.beat()
    await scripted.log.beat()
    assert started == []
    told = len(scripted.log.slot_limits())

    scripted.script.beat = answered
    # It has rejected a run, so the gateway would offer none for a while.
    await eventually(lambda: len(scripted.log.slot_limits()) > told)
    await scripted.log.beat()
    later = scripted.assign("starts")
    await scripted.log.result(later)


async def test_a_handler_in_a_thread_sees_the_fence_and_can_record_nothing_more(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    raised: list[BaseException] = []
    ended = threading.Event()

    @workflow(name="in-a-thread")
    def in_a_thread(ctx: BlockingContext) -> None:
        while not ctx.canceled:
            time.sleep(0.01)
        try:
            ctx.step.run("after", lambda: None)
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()

    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=MARGIN_MS)
    await connect(scripted, in_a_thread)
    token = scripted.assign("in-a-thread")
    await scripted.log.ack(token)
    scripted.script.beat = unanswered
    await eventually(ended.is_set, within=3)
    await scripted.log.beat()
    assert [type(error) for error in raised] == [RunCanceledError]
    assert scripted.log.items(token) == []


async def test_an_unanswered_item_of_a_fenced_lease_is_not_sent_again(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(lease_ms=LEASE_MS, fence_margin_ms=MARGIN_MS)
    await connect(scripted, quick)
    scripted.script.item = lambda item: None
    token = scripted.assign("quick")
    await scripted.log.result(token)
    scripted.script.beat = unanswered
    await eventually(lambda: scripted.log.held() == {token: "FENCED"})
    scripted.behave()
    scripted.session.cut()
    opening = (await scripted.log.open(2)).message
    assert states_of(opening.held_leases) == {token: "FENCED"}
    assert value_of((await scripted.log.result(scripted.assign("quick"))).output) == "quick"
    assert len(scripted.log.results(token)) == 1


# ---- silence ----


async def test_a_gateway_that_falls_silent_is_left_for_a_new_session_and_the_run_goes_on(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    released = asyncio.Event()
    executions: list[str] = []

    @workflow(name="goes-on")
    async def goes_on(ctx: Context) -> str:
        executions.append(ctx.run.id)
        await released.wait()
        return "done"

    scripted = start_scripted(lease_ms=10_000, beat_ms=200, silence_ms=500, fence_margin_ms=1000)
    await connect(scripted, goes_on)
    token = scripted.assign("goes-on")
    await scripted.log.ack(token)
    silent = scripted.session
    silent.mute()
    silent_since = time.monotonic()

    opening = await scripted.log.open(2, within=3)
    assert 0.3 < opening.at - silent_since < 1.5
    assert states_of(opening.message.held_leases) == {token: "RUNNING"}
    await eventually(silent.has_ended.is_set, saying="the worker has left the silent stream")
    released.set()
    assert value_of((await scripted.log.result(token)).output) == "done"
    assert len(executions) == 1


async def test_a_gateway_that_only_answers_heartbeats_is_not_silent(
    start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(beat_ms=100, silence_ms=400)
    await connect(scripted, quick)
    await eventually(lambda: len(scripted.log.beats()) >= 12)
    assert len(scripted.sessions) == 1
