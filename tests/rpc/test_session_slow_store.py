"""What happens while a call is on its way between the gateway and a store that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway
from redflow_server.store.scripts import load_scripts
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.line import Line, to_redis
from tests.rpc.calls import Calls
from tests.rpc.conftest import CallsTo, Dial, OpenWorker
from tests.rpc.items import REQUEST_IDS, a_release, a_result, a_step
from tests.rpc.scripted_worker import ScriptedWorker, an_open

SCRIPTS = load_scripts()


@pytest_asyncio.fixture
async def line(redis_url: str) -> AsyncIterator[Line]:
    async with Line(to_redis(redis_url)) as line:
        yield line


@pytest_asyncio.fixture
async def slow(start_gateway: StartGateway, line: Line, redis_url: str) -> Gateway:
    """A gateway behind the line."""
    return await start_gateway(redis_url=line.through(redis_url), drain_grace_ms=1000)


@pytest.fixture
def calls(gateway: Gateway, calls_to: CallsTo) -> Calls:
    """A client of another gateway, which has its own way to the store."""
    return calls_to(gateway)


async def has_been_read(worker: ScriptedWorker) -> None:
    """Returns when the gateway has read what the worker has said. It asks the store nothing for that."""
    answer = await worker.do(pb.StepCommand(request_id=next(REQUEST_IDS), lease_token="run_of-nobody.x"))
    assert answer.reason == "UNIMPLEMENTED"


def came_after_the_barrier(worker: ScriptedWorker) -> list[str]:
    barrier = worker.order.index("drain_ack")
    return [field for field in worker.order[barrier:] if field == "assignments"]


# ---- drain ----


async def test_a_worker_that_drains_during_a_claim_gets_its_runs_before_the_acknowledgement_or_never(
    slow: Gateway, line: Line, calls: Calls, open_worker: OpenWorker
) -> None:
    worker = await open_worker("w", at=slow, slot_limit=5)
    line.hold_replies_from(SCRIPTS["claim"].sha)
    run_ids = await calls.start_many(5)
    await asyncio.wait_for(line.holding.wait(), 5)

    await worker.say(drain=pb.DrainRequest())
    await has_been_read(worker)
    line.let_go()

    await worker.until(lambda: worker.drain_acks, saying="no acknowledgement")
    await worker.quiet()
    assert came_after_the_barrier(worker) == []
    other = await open_worker("w", slot_limit=5)
    kept = {one.run_id for one in worker.assignments}
    taken = {(await other.assignment(within=1)).run_id for _ in range(5 - len(kept))}
    assert kept | taken == set(run_ids)


async def test_a_run_whose_steps_are_read_while_its_worker_drains_does_not_follow_the_acknowledgement(
    slow: Gateway, line: Line, calls: Calls, open_worker: OpenWorker
) -> None:
    """Steps that are too many for a claim are read after it."""
    before = await open_worker("w", slot_limit=1)
    run_id = await calls.start()
    assignment = await before.take()
    for number in range(70):
        await before.do(a_step(assignment, f"s{number}"))
    await before.say(capacity=pb.Capacity(slot_limit=0))
    line.hold_requests_from(SCRIPTS["read_steps"].sha)
    worker = await open_worker("w", at=slow)
    await before.do(a_release(assignment))
    await asyncio.wait_for(line.holding.wait(), 5)

    await worker.say(drain=pb.DrainRequest())
    await has_been_read(worker)
    line.let_go()

    await worker.until(lambda: worker.drain_acks, saying="no acknowledgement")
    await worker.quiet()
    assert came_after_the_barrier(worker) == []
    if not worker.assignments:
        await before.say(capacity=pb.Capacity(slot_limit=1))
        assert (await before.assignment(within=1)).run_id == run_id, "it went back at once"


async def test_a_session_that_opens_while_the_gateway_begins_to_drain_is_refused_or_told(
    slow: Gateway, line: Line, dial: Dial, open_worker: OpenWorker
) -> None:
    present, worker = await open_worker("present", at=slow, owner="present"), dial(slow)
    line.hold_requests_from(SCRIPTS["register"].sha)
    await worker.say(open=an_open("w"))
    await asyncio.wait_for(line.holding.wait(), 5)
    draining = asyncio.create_task(slow.drain())
    await present.until(lambda: present.draining, saying="the drain has not begun")

    line.let_go()

    await worker.until(lambda: worker.opened or worker.error, saying="no answer")
    if worker.opened is not None:
        await worker.until(lambda: worker.draining, within=0.5, saying="it was not told that the gateway goes away")
    else:
        assert worker.error is not None
        assert worker.error.reason == "GATEWAY_DRAINING"
    await present.cut()
    await draining


# ---- claims ----


async def test_a_cancel_between_a_claim_and_its_answer_comes_with_the_assignment(
    slow: Gateway, line: Line, calls: Calls, open_worker: OpenWorker
) -> None:
    busy, worker = await open_worker("busy", at=slow, owner="busy"), await open_worker("w", at=slow)
    busy_id = await calls.start("busy")
    await busy.take()
    line.hold_replies_from(SCRIPTS["claim"].sha)
    run_id = await calls.start()
    await asyncio.wait_for(line.holding.wait(), 5)

    await calls.cancel(run_id, "too late")
    # Orders reach a gateway one after the other: when this one is passed on, the one before it is there.
    await calls.cancel(busy_id)
    await busy.until(lambda: busy.cancellations, saying="no order")
    line.let_go()

    assignment = await worker.take()
    order = assignment.cancellation
    assert (order.lease_token, order.reason) == (assignment.lease_token, pb.CANCELLATION_REASON_USER)
    assert order.message == "too late"
    assert (await worker.do(a_result(assignment))).status == pb.ITEM_STATUS_CANCELED


async def test_runs_that_were_claimed_for_a_session_that_has_gone_meanwhile_go_to_others_at_once(
    slow: Gateway, line: Line, calls: Calls, open_worker: OpenWorker
) -> None:
    worker, idle = await open_worker("w", at=slow, slot_limit=3), await open_worker("w", slot_limit=0)
    line.hold_replies_from(SCRIPTS["claim"].sha)
    run_ids = await calls.start_many(3)
    await asyncio.wait_for(line.holding.wait(), 5)

    await worker.cut()
    await eventually(lambda: slow.telemetry.counters["sessions.closed"], saying="the gateway has not noticed")
    line.let_go()
    await idle.say(capacity=pb.Capacity(slot_limit=3))

    taken = [await idle.assignment(within=2) for _ in range(3)]
    assert [one.run_id for one in taken] == run_ids
    assert [(await calls.run(run_id)).losses for run_id in run_ids] == [0, 0, 0]


async def test_an_answer_that_comes_after_the_delivery_lease_starts_no_run_that_another_worker_has_by_now(
    start_gateway: StartGateway, line: Line, redis_url: str, calls_to: CallsTo, open_worker: OpenWorker
) -> None:
    timing = Timing(lease_ms=1000, cancel_grace_ms=1000)
    slow, other = (
        await start_gateway(redis_url=line.through(redis_url), timing=timing),
        await start_gateway(timing=timing),
    )
    calls = calls_to(other)
    late = await open_worker("w", at=slow)
    line.hold_replies_from(SCRIPTS["claim"].sha)
    run_id = await calls.start()
    await asyncio.wait_for(line.holding.wait(), 5)
    punctual = await open_worker("w", at=other)

    assignment = await punctual.take()
    line.let_go()

    assert (assignment.run_id, assignment.delivery_count) == (run_id, 2)
    await eventually(lambda: late.replies or late.ended, within=3)
    if not late.ended:
        await late.quiet()
    assert late.assignments == []
    assert (await punctual.do(a_result(assignment))).status == pb.ITEM_STATUS_OK
    assert (await calls.run(run_id)).losses == 0
