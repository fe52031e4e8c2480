"""What happens to the leases of a session: orders to stop, receipts, silence, and what was never received."""

from __future__ import annotations

import asyncio

import pytest

from redflow_server.domain.ids import new_secret
from redflow_server.domain.leases import ClaimedRun, Lane, RecordStep, Release, ReleaseReason, StopReason
from redflow_server.domain.session import Capacity, HeldLease, LeaseState
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.engine.send_queue import MESSAGE_ITEMS
from redflow_server.store.calls.leases import INLINE_STEPS
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import a_claim, a_step, enqueue_one, renew_one, request_cancel
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.line import Line
from tests.redis_command import RedisCommand

SCRIPTS = load_scripts()
BRIEF = Timing(lease_ms=400)


# ---- orders to stop ----


async def test_an_order_to_stop_that_comes_before_its_assignment_goes_out_with_it(
    far_store: Store, line: Line, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    worker = await open_worker(engine, slot_limit=0)
    run_id = await enqueue_one(store)
    async with engine.listening(redis_url, keys):
        line.hold_replies_from(SCRIPTS["claim"].sha)
        worker.say(capacity=Capacity(1, is_paused=False))
        await line.holding.wait()
        await request_cancel(store, run_id, "changed my mind")
        await eventually(lambda: "stop" in engine.heard)

        line.let_go()
        run = await worker.assignment()

    assert run.stop is not None
    assert (run.stop.reason, run.stop.message) == (StopReason.USER, "changed my mind")
    assert run.stop.lease_token == run.lease_token
    assert worker.stops == [], "once is enough"


async def test_an_order_to_stop_a_run_whose_steps_are_still_read_reaches_the_worker_with_the_assignment(
    far_store: Store, line: Line, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    run_id = await enqueue_with_steps(store, INLINE_STEPS + 1)
    worker = await open_worker(engine, slot_limit=0)
    async with engine.listening(redis_url, keys):
        line.hold_requests_from(SCRIPTS["read_steps"].sha)
        worker.say(capacity=Capacity(1, is_paused=False))
        await line.holding.wait()
        await request_cancel(store, run_id)
        await eventually(lambda: "stop" in engine.heard)

        line.let_go()
        run = await worker.assignment()

    assert knew_before_it_began(worker, run)


@pytest.mark.parametrize("count", [1, MESSAGE_ITEMS + 20])
async def test_an_order_to_stop_does_not_overtake_an_assignment_that_waits_for_the_stream(
    engine: Engine, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker, count: int
) -> None:
    await asyncio.gather(*(enqueue_one(store) for _ in range(count)))
    worker = await open_worker(engine, slot_limit=0)
    async with engine.listening(redis_url, keys):
        await worker.stop_reading()
        worker.say(capacity=Capacity(count, is_paused=False))
        await eventually(lambda: len(worker.session.slots.held) == count)
        last = list(worker.session.slots.held.values())[-1]
        await request_cancel(store, last.run_id)
        await eventually(lambda: "stop" in engine.heard)

        worker.read_on()
        await worker.until(lambda: len(worker.assignments) == count, "not all came")

    [run] = [run for run in worker.assignments if run.run_id == last.run_id]
    assert knew_before_it_began(worker, run)


def knew_before_it_began(worker: EngineWorker, run: ClaimedRun) -> bool:
    """Whether it was told to stop with the assignment or behind it: what comes before it means nothing to a worker."""
    behind = worker.order[worker.order.index(run.lease_token) :]
    return run.stop is not None or f"stop {run.lease_token}" in behind


async def test_an_order_to_stop_goes_to_the_session_that_has_the_run_and_to_no_other(
    engine: Engine, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    other = Lane("other", "other")
    one, two = await open_worker(engine), await open_worker(engine, other)
    async with engine.listening(redis_url, keys):
        await enqueue_one(store)
        run_id = await enqueue_one(store, queue=other.queue, workflow=other.workflow)
        await one.assignment()
        run = await two.assignment()

        await request_cancel(store, run_id)

        await two.until(lambda: two.stops, "not told")
    assert [stop.lease_token for stop in two.stops] == [run.lease_token]
    await one.settled()
    assert one.stops == []


async def test_an_order_to_stop_whose_message_may_have_been_missed_reaches_the_worker_with_the_next_look(
    engine: Engine, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    engine.deaf_to.add("stop")
    canceled, goes_on = await enqueue_one(store), await enqueue_one(store)
    worker = await open_worker(engine, slot_limit=2)
    runs = {run.run_id: run for run in [await worker.assignment(), await worker.assignment()]}
    async with engine.listening(redis_url, keys):
        await engine.sessions.tick()
        await request_cancel(store, canceled)
        await eventually(lambda: "stop" in engine.heard)
        await engine.sessions.tick()
        assert worker.stops == [], "its message is lost"

        engine.may_have_missed()
        await engine.sessions.tick()

    await worker.until(lambda: worker.stops, "not told")
    assert [(stop.lease_token, stop.reason) for stop in worker.stops] == [(runs[canceled].lease_token, StopReason.USER)]
    assert (await store.read_run(goes_on)).status is RunStatus.RUNNING


async def test_looking_for_missed_orders_keeps_no_lease_longer_than_its_worker_was_heard(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    await enqueue_one(store)
    worker = await open_worker(engine)
    run = await worker.assignment()
    await engine.sessions.tick()
    worker.session.last_heard -= 20  # seconds in which it said nothing

    engine.may_have_missed()
    await engine.sessions.tick()

    left_ms = float(await redis("ZSCORE", keys.leases, run.run_id)) - (await store.due(0)).now_ms
    assert left_ms <= engine.timing.lease_ms - 20_000


# ---- assignments with many steps ----


async def enqueue_with_steps(store: Store, count: int, output: bytes = b"1") -> str:
    """A queued run that has recorded so many steps in an earlier lease; its id."""
    run_id = await enqueue_one(store)
    claimed = await store.claim(a_claim(secret=new_secret()))
    [lease] = claimed.runs
    await renew_one(store, lease)
    records = [
        RecordStep(run_id, lease.lease_token, 0, a_step(f"s{number}", output, seq=number)) for number in range(count)
    ]
    await asyncio.gather(*map(store.record_step, records))
    await store.release(Release(run_id, lease.lease_token, ReleaseReason.SHUTDOWN))
    return run_id


@pytest.mark.parametrize("count", [INLINE_STEPS, INLINE_STEPS + 1, 500])
async def test_an_assignment_brings_every_step_on_record(
    engine: Engine, store: Store, open_worker: OpenWorker, count: int
) -> None:
    run_id = await enqueue_with_steps(store, count)
    worker = await open_worker(engine)

    run = await worker.assignment()

    assert run.run_id == run_id
    assert run.steps is not None
    assert [step.name for step in run.steps] == [f"s{number}" for number in range(count)]
    await worker.complete(run)
    assert worker.session.free_slots == 1


async def test_a_run_whose_lease_is_lost_while_its_steps_are_read_keeps_no_slot(
    far_store: Store, line: Line, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store, BRIEF)
    run_id = await enqueue_with_steps(store, INLINE_STEPS + 1)
    worker = await open_worker(engine, slot_limit=0)
    line.hold_requests_from(SCRIPTS["read_steps"].sha)
    worker.say(capacity=Capacity(1, is_paused=False))
    await line.holding.wait()
    assert worker.session.free_slots == 0, "the slot is taken meanwhile"
    token = await redis("HGET", keys.run(run_id), "leaseToken")
    await store.release(Release(run_id, token, ReleaseReason.SHUTDOWN))

    line.let_go()

    async def has_room_again() -> bool:
        await engine.sessions.tick()
        await worker.beat()
        return worker.session.free_slots == 1 or len(worker.assignments) == 1

    await eventually(has_room_again)
    await engine.upkeep.look_ahead()
    assert (await worker.assignment()).run_id == run_id
    assert worker.order == [worker.assignments[0].lease_token], "the lost one never came"


async def test_a_run_whose_steps_were_read_longer_than_its_lease_lasts_is_not_handed_over(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store, BRIEF)
    await enqueue_with_steps(store, INLINE_STEPS + 1)
    worker = await open_worker(engine, slot_limit=0)
    line.hold_replies_from(SCRIPTS["read_steps"].sha)
    worker.say(capacity=Capacity(1, is_paused=False))
    await line.holding.wait()
    await asyncio.sleep(BRIEF.delivery_ms / 1000)  # the slowness of the line

    line.let_go()
    await worker.settled()

    assert worker.assignments == []
    assert worker.session.free_slots == 1


# ---- receipts ----


async def test_a_lease_is_whole_from_its_claim_on_and_a_receipt_makes_its_loss_count(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    """Its worker stops the handler by its last answered heartbeat: a shorter lease could end before."""
    await enqueue_one(store)
    worker = await open_worker(engine)
    run = await worker.assignment()
    left_ms = float(await redis("ZSCORE", keys.leases, run.run_id)) - (await store.due(0)).now_ms
    assert left_ms > engine.timing.lease_ms - 5000
    assert await redis("HGET", keys.run(run.run_id), "acked") is None

    await engine.sessions.tick()

    assert await redis("HGET", keys.run(run.run_id), "acked") == "1"


async def test_a_worker_that_does_not_acknowledge_in_time_gets_nothing_new_and_keeps_the_run_while_the_lease_lasts(
    store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    engine = Engine(store, BRIEF)
    run_id = await enqueue_one(store)
    worker = await open_worker(engine, slot_limit=0)
    worker.acknowledges = False
    worker.say(capacity=Capacity(2, is_paused=False))
    first = await worker.assignment()
    lease_until_ms = float(await redis("ZSCORE", keys.leases, run_id))

    async def takes_no_more() -> bool:
        await engine.sessions.tick()
        return not worker.session.takes_runs

    await eventually(takes_no_more)
    other_id = await enqueue_one(store)
    await engine.upkeep.look_ahead()
    await worker.settled()
    assert [run.run_id for run in worker.assignments] == [first.run_id]

    async def is_over() -> bool:
        await engine.sessions.tick()
        held = await redis("HGET", keys.run(run_id), "leaseToken") == first.lease_token
        assert held or (await store.due(0)).now_ms >= lease_until_ms
        return not worker.session.slots.held

    await eventually(is_over)
    await engine.upkeep.reap()
    assert ((await store.read_run(run_id)).status, (await store.read_run(run_id)).losses) == (RunStatus.QUEUED, 0)

    await worker.beat()
    assert {(await worker.assignment()).run_id, (await worker.assignment()).run_id} == {run_id, other_id}


async def test_an_assignment_that_was_taken_back_before_the_stream_took_it_is_not_sent_any_more(
    store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(store, BRIEF)
    run_id = await enqueue_one(store)
    worker = await open_worker(engine, slot_limit=0)
    await worker.stop_reading()
    worker.say(capacity=Capacity(1, is_paused=False))
    await eventually(lambda: worker.session.slots.held)

    async def is_back() -> bool:
        await engine.sessions.tick()
        return (await store.read_run(run_id)).status is RunStatus.QUEUED

    await eventually(is_back)
    worker.read_on()
    await worker.beat()
    await engine.upkeep.look_ahead()
    again = await worker.assignment()
    assert (again.run_id, again.deliveries, len(worker.assignments)) == (run_id, 2, 1)


# ---- ends of sessions ----


async def test_a_session_whose_description_cannot_be_stored_is_open_all_the_same(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    await redis("SET", keys.sessions, "no sorted set")
    run_id = await enqueue_one(store)

    worker = await open_worker(engine)

    assert (await worker.assignment()).run_id == run_id
    assert len(engine.sessions) == 1
    await worker.close()
    assert len(engine.sessions) == 0
    await redis("DEL", keys.sessions)


async def test_a_session_that_was_not_heard_is_ended_and_its_leases_are_left_to_it_until_they_end(
    store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(store, BRIEF)
    run_id = await enqueue_one(store)
    worker = await open_worker(engine)
    await worker.assignment()

    async def is_ended() -> bool:
        await engine.sessions.tick()
        return worker.end is not None

    await eventually(is_ended, within=3)
    assert worker.end is not None
    assert worker.end.reason == "SESSION_SILENT"
    assert len(engine.sessions) == 0
    assert (await store.read_run(run_id)).status is RunStatus.RUNNING


async def test_a_later_session_of_the_worker_takes_its_leases_over_and_ends_the_earlier_one(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    await enqueue_one(store)
    first = await open_worker(engine, instance_id="instance")
    run = await first.assignment()

    held = (HeldLease(run.lease_token, LeaseState.RUNNING),)
    second = await open_worker(engine, instance_id="instance", session_number=2, held_leases=held)

    await first.until(lambda: first.end, "it goes on")
    assert first.end is not None
    assert first.end.reason == "SESSION_SUPERSEDED"
    assert second.session.free_slots == 0
    await second.complete(run)
    record = await store.read_run(run.run_id)
    assert (record.status, record.deliveries, record.losses) == (RunStatus.SUCCEEDED, 1, 0)


async def test_a_gateway_that_drains_claims_nothing_more_and_takes_what_is_reported(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    await enqueue_one(store)
    worker = await open_worker(engine, slot_limit=2)
    run = await worker.assignment()

    engine.sessions.drain(1000)
    await enqueue_one(store)
    await engine.upkeep.look_ahead()
    answer = await worker.complete(run)
    await worker.settled()

    assert answer.status == "ok"
    assert len(worker.assignments) == 1
    emptied = asyncio.create_task(engine.sessions.wait_until_empty())
    await asyncio.sleep(0)
    assert not emptied.done()
    await worker.close()
    await asyncio.wait_for(emptied, 1)
