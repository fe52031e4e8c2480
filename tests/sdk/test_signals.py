"""A worker process that is told to end: it finishes or hands back what it has, and ends well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from signal import SIGCONT, SIGINT, SIGSTOP, SIGTERM, Signals

import pytest
import pytest_asyncio

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import StartScripted
from tests.sdk.messages import answer, ok, payload, session_error, value_of
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.worker_program import WorkerProcess

StartProcess = Callable[..., Awaitable[WorkerProcess]]

STARTS_WITHIN_S = 20.0


@pytest_asyncio.fixture
async def start_process() -> AsyncIterator[StartProcess]:
    """Starts worker processes; none outlives the test."""
    started: list[WorkerProcess] = []

    async def start(target: str, **settings: float) -> WorkerProcess:
        process = await WorkerProcess.start(target, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        await process.kill()


async def connected(start: StartProcess, gateway: ScriptedGateway, **settings: float) -> WorkerProcess:
    process = await start(gateway.target, **settings)
    await gateway.log.open(1, within=STARTS_WITHIN_S)
    await gateway.log.beat()
    return process


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
async def test_a_signal_lets_what_runs_finish_and_takes_nothing_new(
    number: Signals, scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    process = await connected(start_process, scripted)
    token = scripted.assign("naps", payload(1.2))
    await scripted.log.ack(token)
    late: list[str] = []

    def assign_once_more() -> pb.SessionResponse:
        late.append(scripted.assign("naps", payload(0)))
        return pb.SessionResponse(drain_ack=pb.DrainAck())

    scripted.script.drain = assign_once_more
    process.signal(number)
    assert await process.exit_code(within=6) == 0
    assert value_of(scripted.log.results(token)[0].message.output) == "rested"
    assert scripted.log.drains()[0].at < scripted.log.results(token)[0].at < scripted.log.closes()[0].at
    assert scripted.log.results(late[0]) == [], "a run that came after the signal was started"
    refused = [ack for ack in scripted.log.acks(late[0]) if ack.message.reject_reason == pb.REJECT_REASON_DRAINING]
    released = [it for it in scripted.log.releases(late[0]) if it.message.reason == pb.RELEASE_REASON_NOT_STARTED]
    assert refused or released
    assert "Traceback" not in await process.errors()


async def test_leases_are_renewed_to_the_last_while_the_worker_drains(
    scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    process = await connected(start_process, scripted)
    token = scripted.assign("naps", payload(1.5))
    await scripted.log.ack(token)
    process.signal(SIGTERM)
    assert await process.exit_code(within=6) == 0
    drained_at, ended_at = scripted.log.drains()[0].at, scripted.log.results(token)[0].at
    during = [beat for beat in scripted.log.beats() if drained_at < beat.at < ended_at]
    assert len(during) >= 4
    assert all([lease.lease_token for lease in beat.message.leases] == [token] for beat in during)
    assert max(later.at - earlier.at for earlier, later in pairwise(during)) < 0.8


async def test_what_does_not_finish_in_the_grace_is_handed_back_and_its_steps_stay(
    scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    process = await connected(start_process, scripted, drain_grace=0.4)
    token = scripted.assign("two-steps-and-a-nap", payload(30))
    await scripted.log.report(token, "b")
    process.signal(SIGTERM)
    assert await process.exit_code(within=5) == 0
    said = [item.message for item in scripted.log.items(token)]
    assert [type(item).__name__ for item in said] == ["StepReport", "StepReport", "LeaseRelease"]
    assert isinstance(said[-1], pb.LeaseRelease)
    assert (said[-1].reason, said[-1].steps_recorded) == (pb.RELEASE_REASON_SHUTDOWN, 2)
    assert scripted.log.releases(token)[0].at - scripted.log.drains()[0].at >= 0.3


async def test_a_second_signal_hands_back_at_once(scripted: ScriptedGateway, start_process: StartProcess) -> None:
    process = await connected(start_process, scripted, drain_grace=60)
    token = scripted.assign("two-steps-and-a-nap", payload(60))
    await scripted.log.report(token, "b")
    process.signal(SIGTERM)
    await eventually(scripted.log.drains)
    await scripted.log.beat()
    assert scripted.log.releases(token) == []
    signaled_at = time.monotonic()
    process.signal(SIGTERM)
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_SHUTDOWN
    assert await process.exit_code(within=5) == 0
    assert time.monotonic() - signaled_at < 3


async def test_a_thread_that_does_not_end_does_not_keep_the_process(
    scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    process = await connected(start_process, scripted, drain_grace=0.3)
    token = scripted.assign("holds-a-thread", payload(60))
    await scripted.log.ack(token)
    process.signal(SIGTERM)
    assert (await scripted.log.release(token)).reason == pb.RELEASE_REASON_SHUTDOWN
    assert await process.exit_code(within=6) == 0


@pytest.mark.parametrize("was_connected", [True, False])
async def test_a_signal_ends_a_worker_whose_gateway_is_away(
    was_connected: bool, scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    if was_connected:
        process = await connected(start_process, scripted)
        scripted.stop()
    else:
        scripted.script.open = lambda opening: session_error("STORE_UNAVAILABLE", permanent=False)
        process = await start_process(scripted.target)
        await scripted.log.open(1, within=STARTS_WITHIN_S)
        scripted.stop()
    process.signal(SIGTERM)
    assert await process.exit_code(within=8) == 0


async def test_a_refused_worker_ends_with_a_code_of_its_own(
    scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    scripted.script.open = lambda opening: session_error("REVISION_UNSUPPORTED", permanent=True)
    process = await start_process(scripted.target)
    assert await process.exit_code(within=STARTS_WITHIN_S) != 0
    assert "SessionRefusedError" in await process.errors()
    assert len(scripted.log.opens()) == 1


async def test_a_worker_that_is_refused_while_it_works_ends_too(
    scripted: ScriptedGateway, start_process: StartProcess
) -> None:
    process = await connected(start_process, scripted)
    await scripted.log.ack(scripted.assign("naps", payload(60)))
    scripted.session.send(session_error("SESSION_SUPERSEDED", permanent=True))
    assert await process.exit_code(within=6) != 0
    assert "SessionRefusedError" in await process.errors()


async def test_a_process_that_was_frozen_beyond_its_lease_says_nothing_more_for_it_and_goes_on(
    start_scripted: StartScripted, start_process: StartProcess
) -> None:
    scripted = start_scripted(lease_ms=1000, fence_margin_ms=200)
    process = await connected(start_process, scripted)
    token = scripted.assign("two-steps-and-a-nap", payload(1.2))
    await scripted.log.report(token, "b")
    process.signal(SIGSTOP)
    await asyncio.sleep(1.5)  # frozen for longer than the lease of a second: that is the scenario
    said = len(scripted.log.items(token))
    scripted.script.item = lambda item: (
        answer(item, pb.ITEM_STATUS_LEASE_LOST) if item.lease_token == token else ok(item)
    )
    process.signal(SIGCONT)
    await scripted.log.beat()
    after = scripted.assign("naps", payload(0))
    assert value_of((await scripted.log.result(after)).output) == "rested"
    await scripted.log.beat()
    assert token not in scripted.log.held() or scripted.log.held()[token] == "FENCED"
    assert len(scripted.log.items(token)) <= said + 1, "one late item may be said, and is refused"
