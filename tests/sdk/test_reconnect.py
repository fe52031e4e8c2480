"""Sessions come and go, runs stay: what a worker does when its stream ends, and when its gateway goes away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import grpc
import pytest

from redflow_sdk import Context, SessionRefusedError, Worker, workflow
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.conftest import StartScripted
from tests.sdk.messages import answer, cancellation, payload, session_error, value_of, verdict
from tests.sdk.scripted_gateway import ScriptedGateway, ScriptedSession
from tests.sdk.wire_log import states_of


@workflow(name="quick")
async def quick(ctx: Context) -> str:
    return "quick"


async def takes_the_next_run(gateway: ScriptedGateway) -> bool:
    return bool(value_of((await gateway.log.result(gateway.assign("quick"))).output) == "quick")


class Held:
    """A workflow whose handler holds on until it is released, and notes what becomes of it."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.started = Counter[str]()
        self.canceled: list[str] = []

        @workflow(name="held")
        async def held(ctx: Context, name: str) -> str:
            self.started[name] += 1
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.canceled.append(name)
                raise
            return await ctx.step.run("last", lambda: name)

        self.workflow = held


@pytest.fixture
def held() -> Held:
    return Held()


# ---- the stream ends ----


@pytest.mark.parametrize(
    "ends",
    [
        ScriptedSession.cut,
        ScriptedSession.end,
        lambda session: session.cut(grpc.StatusCode.CANCELLED, "a proxy goes away"),
        lambda session: session.send(session_error("SESSION_SILENT", permanent=False)) or session.cut(),
    ],
    ids=["with a status", "well", "as canceled", "with a temporary error"],
)
async def test_whatever_ends_a_stream_the_worker_comes_back_with_its_leases_and_the_run_goes_on(
    ends: Callable[[ScriptedSession], None], held: Held, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, held.workflow)
    token = scripted.assign("held", payload("one"))
    await eventually(lambda: held.started)
    ends(scripted.session)

    first, second = (await scripted.log.open(1)).message, (await scripted.log.open(2)).message
    assert second.instance_id == first.instance_id
    assert (first.session_number, second.session_number) == (1, 2)
    assert states_of(second.held_leases) == {token: "RUNNING"}
    assert second.workflows == first.workflows and second.slot_limit == first.slot_limit
    held.released.set()
    assert value_of((await scripted.log.result(token)).output) == "one"
    assert held.started == {"one": 1} and held.canceled == []


async def test_a_run_survives_cut_after_cut(scripted: ScriptedGateway, connect: StartWorker) -> None:
    executed = Counter[str]()

    @workflow(name="many-steps")
    async def many_steps(ctx: Context) -> int:
        return sum([await ctx.step.run(f"s{n}", lambda n=n: executed.update([n]) or n) for n in range(6)])

    await connect(scripted, many_steps)
    scripted.script.item = lambda item: None
    token = scripted.assign("many-steps")
    for n in range(6):
        await scripted.log.report(token, f"s{n}")
        scripted.session.cut()
        await scripted.log.open(n + 2)
        await eventually(lambda n=n: len(scripted.log.reports(token, f"s{n}")) == 2)
        scripted.answer(answer(scripted.log.reports(token, f"s{n}")[0].message, pb.ITEM_STATUS_DUPLICATE))
    result = await scripted.log.result(token)
    assert value_of(result.output) == 15
    assert executed == dict.fromkeys(range(6), 1)
    assert [opening.message.session_number for opening in scripted.log.opens()] == [1, 2, 3, 4, 5, 6, 7]


async def test_what_a_run_says_again_keeps_its_order_and_a_step_that_came_after_a_wait_is_in_a_later_message(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    """Within one message a gateway deals with the steps first."""
    has_begun = asyncio.Event()

    @workflow(name="beside")
    async def beside(ctx: Context) -> None:
        await asyncio.gather(ctx.step.wait_for_event("got", "news"), ctx.step.run("step", has_begun.wait))

    await connect(scripted, beside)
    scripted.script.item = lambda item: None
    token = scripted.assign("beside")
    await scripted.log.command(token)
    has_begun.set()
    await scripted.log.report(token, "step")

    scripted.session.cut()
    await eventually(lambda: len(scripted.log.items(token)) == 4)

    assert scripted.log.said(token) == ["StepCommand", "StepReport", "StepCommand", "StepReport"]
    messages = [heard.message for heard in scripted.log.requests if heard.session == 2]
    [wait_at] = [number for number, message in enumerate(messages) if message.step_commands]
    [step_at] = [number for number, message in enumerate(messages) if message.step_reports]
    assert wait_at < step_at


async def test_a_worker_comes_back_when_its_gateway_does(
    held: Held, start_scripted: StartScripted, connect: StartWorker
) -> None:
    scripted = start_scripted(lease_ms=60_000, fence_margin_ms=5000)
    await connect(scripted, held.workflow, quick)
    token = scripted.assign("held", payload("one"))
    await eventually(lambda: held.started)
    scripted.stop()
    held.released.set()
    await asyncio.sleep(1.5)  # the outage
    scripted.start()
    assert value_of((await scripted.log.result(token, within=10)).output) == "one"
    assert await takes_the_next_run(scripted)


# ---- what the gateway says of the leases ----


async def test_each_lease_has_its_own_verdict(held: Held, scripted: ScriptedGateway, connect: StartWorker) -> None:
    verdicts = {
        "kept": pb.LEASE_VERDICT_KIND_HELD,
        "lost": pb.LEASE_VERDICT_KIND_LOST,
        "canceled": pb.LEASE_VERDICT_KIND_CANCEL_REQUESTED,
        "finished": pb.LEASE_VERDICT_KIND_FINISHED,
    }

    def judge(opening: pb.OpenSession) -> pb.SessionResponse:
        names = [lease.lease_token.partition(".")[0] for lease in opening.held_leases]
        judged = [
            verdict(f"{name}.t", verdicts[name], cancellation(f"{name}.t") if name == "canceled" else None)
            for name in names
        ]
        return pb.SessionResponse(opened=scripted.opened(opening, judged))

    await connect(scripted, held.workflow)
    for name in verdicts:
        scripted.assign("held", payload(name), token=f"{name}.t")
    await eventually(lambda: len(held.started) == 4)
    scripted.script.open = judge
    scripted.session.cut()

    assert (await scripted.log.result("canceled.t")).canceled.reason == pb.CANCELED_REASON_REQUESTED
    await eventually(lambda: sorted(held.canceled) == ["canceled", "finished", "lost"])
    held.released.set()
    assert value_of((await scripted.log.result("kept.t")).output) == "kept"
    await scripted.log.beat()
    await eventually(lambda: scripted.log.held() == {})
    assert scripted.log.items("lost.t") == [] and scripted.log.items("finished.t") == []
    assert set(held.started.values()) == {1}


async def test_a_result_that_had_arrived_before_the_cut_is_done(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, quick)
    scripted.script.item = lambda item: None
    token = scripted.assign("quick")
    await scripted.log.result(token)
    finished = [verdict(token, pb.LEASE_VERDICT_KIND_FINISHED)]
    scripted.script.open = lambda opening: pb.SessionResponse(opened=scripted.opened(opening, finished))
    scripted.script.item = lambda item: answer(item, pb.ITEM_STATUS_DUPLICATE)
    scripted.session.cut()
    await scripted.log.open(2)
    assert await takes_the_next_run(scripted)
    await scripted.log.beat()
    await eventually(lambda: scripted.log.held() == {})


# ---- how often ----


async def test_a_gateway_that_refuses_for_now_is_dialed_less_and_less_often_at_random_times(
    scripted: ScriptedGateway,
) -> None:
    scripted.script.open = lambda opening: session_error("STORE_UNAVAILABLE", permanent=False)
    workers = [Worker(scripted.target, workflows=[quick], name=f"w{n}") for n in range(6)]
    starting = [asyncio.ensure_future(worker.start()) for worker in workers]
    await asyncio.sleep(3)  # the outage
    dialed = {f"w{n}": [it.at for it in scripted.log.opens() if it.message.worker_name == f"w{n}"] for n in range(6)}
    gaps = {name: [later - earlier for earlier, later in pairwise(times)] for name, times in dialed.items()}
    assert all(2 <= len(times) <= 20 for times in dialed.values()), gaps
    firsts = [gap for of_worker in gaps.values() for gap in of_worker[:2]]
    lasts = [max(of_worker) for of_worker in gaps.values()]
    assert sum(lasts) / len(lasts) > sum(firsts) / len(firsts)
    assert max(firsts) < 1
    assert len({round(gap, 2) for gap in firsts}) > 3
    for start in starting:
        start.cancel()
    await asyncio.gather(*(worker.stop() for worker in workers))


async def test_a_gateway_that_opens_and_ends_at_once_is_not_dialed_in_a_tight_loop(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    await connect(scripted, quick)

    def open_and_end(opening: pb.OpenSession) -> pb.SessionResponse:
        scripted.session.send(pb.SessionResponse(opened=scripted.opened(opening)))
        scripted.session.end()
        return pb.SessionResponse()

    scripted.script.open = open_and_end
    scripted.session.cut()
    await asyncio.sleep(1.5)  # as long as it goes on
    assert 2 <= len(scripted.log.opens()) <= 15


async def test_a_temporary_error_says_when_to_come_back(scripted: ScriptedGateway, connect: StartWorker) -> None:
    await connect(scripted, quick)
    scripted.session.send(session_error("STORE_UNAVAILABLE", permanent=False, retry_delay_ms=800))
    scripted.session.end()
    ended = len(scripted.log.requests)
    last_heard = scripted.log.requests[ended - 1].at
    second = await scripted.log.open(2)
    assert second.at - last_heard >= 0.8
    assert await takes_the_next_run(scripted)


# ---- for good ----


@pytest.mark.parametrize("reset", [False, True], ids=["said", "said and then reset"])
async def test_a_permanent_error_ends_the_worker_with_its_reason(
    reset: bool, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    worker = Worker(scripted.target, workflows=[quick])
    running = asyncio.ensure_future(worker.run())
    await scripted.log.open(1)
    assert await takes_the_next_run(scripted)
    scripted.session.send(session_error("SESSION_SUPERSEDED", permanent=True))
    if reset:
        scripted.session.cut(grpc.StatusCode.INTERNAL, "stream reset")
    with pytest.raises(SessionRefusedError, match="this is SESSION_SUPERSEDED") as refused:
        await asyncio.wait_for(running, 3)
    assert refused.value.reason == "SESSION_SUPERSEDED"
    assert len(scripted.log.opens()) == 1


async def test_a_worker_that_is_refused_at_the_start_does_not_try_again(scripted: ScriptedGateway) -> None:
    scripted.script.open = lambda opening: session_error("REVISION_UNSUPPORTED", permanent=True)
    for begin in (Worker.start, Worker.run):
        with pytest.raises(SessionRefusedError) as refused:
            await asyncio.wait_for(begin(Worker(scripted.target, workflows=[quick])), 3)
        assert refused.value.reason == "REVISION_UNSUPPORTED"
    assert len(scripted.log.opens()) == 2


async def test_the_handlers_of_a_refused_worker_stop_before_their_leases_end(
    held: Held, start_scripted: StartScripted
) -> None:
    scripted = start_scripted(lease_ms=1500, fence_margin_ms=500)
    worker = Worker(scripted.target, workflows=[held.workflow])
    await worker.start()
    scripted.assign("held", payload("one"))
    await eventually(lambda: held.started)
    scripted.session.send(session_error("SESSION_SUPERSEDED", permanent=True))
    try:
        await eventually(lambda: held.canceled == ["one"], within=2)
    finally:
        held.released.set()
        await worker.stop()


async def test_a_refused_opening_of_a_later_session_ends_the_worker(
    scripted: ScriptedGateway,
) -> None:
    running = asyncio.ensure_future(Worker(scripted.target, workflows=[quick]).run())
    await scripted.log.open(1)
    scripted.script.open = lambda opening: session_error("UNAUTHENTICATED", permanent=True)
    await eventually(lambda: scripted.sessions)
    scripted.session.cut()
    with pytest.raises(SessionRefusedError):
        await asyncio.wait_for(running, 3)
