"""Handlers that a worker keeps in memory while they wait: they take up no slot, and go on only when they have one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from redflow_server.domain.leases import ClaimedRun, RecordStep, StopReason, WaitOver
from redflow_server.domain.session import Capacity, HeldLease, ItemStatus, LeaseState
from redflow_server.domain.states import RunStatus
from redflow_server.domain.waits import Wait
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import a_step, an_event, enqueue_one, lane_of
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine
from tests.eventually import eventually
from tests.line import Line
from tests.redis_command import RedisCommand
from tests.wait_builders import a_parking, a_suspension, an_event_wait

SCRIPTS = load_scripts()


@pytest_asyncio.fixture
async def listening(engine: Engine, redis_url: str, keys: Keys) -> AsyncIterator[Engine]:
    """The engine, which hears what is published."""
    async with engine.listening(redis_url, keys):
        yield engine


def wait_for(event: str) -> Wait:
    """A step that waits for an event, both of this name."""
    return an_event_wait(event, event=event)


async def emit(store: Store, event: str) -> None:
    """Ends the waits for an event."""
    await store.emit_event(an_event(event))


async def parked_one(store: Store, worker: EngineWorker, event: str = "a") -> ClaimedRun:
    """A run that the worker keeps parked until an event."""
    run_id = await enqueue_one(store)
    run = await worker.assignment()
    assert run.run_id == run_id
    answer = await worker.do(a_parking(run, wait_for(event)))
    assert answer.status is ItemStatus.PARKED
    return run


def over(run: ClaimedRun, step: str) -> str:
    """How `worker.order` has it that a run was told of the end of a wait."""
    return f"over {run.lease_token} {step}"


# ---- slots ----


async def test_a_parked_run_keeps_its_lease_and_frees_its_slot_for_the_next_one(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    parked = await parked_one(store, worker)

    run_id = await enqueue_one(store)

    assert (await worker.assignment()).run_id == run_id
    assert worker.session.slots.held.keys() >= {parked.lease_token}
    assert (worker.session.free_slots, worker.session.slots.parked) == (0, 1)
    assert (await store.read_run(parked.run_id)).status is RunStatus.RUNNING


async def test_what_it_waits_for_is_told_with_its_value_when_its_worker_has_a_slot(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    parked = await parked_one(store, worker)

    await store.emit_event(an_event("a", b'"paid"'))

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    [resolution] = worker.resolutions
    assert (resolution.lease_token, resolution.step_name) == (parked.lease_token, "a")
    assert resolution.step is not None and resolution.step.output is not None
    assert (resolution.step.output.data, resolution.step.resolved_seq) == (b'"paid"', 1)
    assert (worker.session.free_slots, worker.session.slots.parked) == (0, 0)


async def test_it_waits_for_a_slot_and_gets_the_first_one_before_any_queued_run(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    parked = await parked_one(store, worker)
    await enqueue_one(store)
    busy = await worker.assignment()
    queued = await enqueue_one(store)
    await emit(store, "a")
    await eventually(lambda: "resolved" in listening.heard)
    await worker.settled()
    assert worker.resolutions == []

    await worker.complete(busy)
    await worker.until(lambda: worker.resolutions, "it was told nothing")
    await worker.settled()
    assert len(worker.assignments) == 2

    await worker.complete(parked)
    assert (await worker.assignment()).run_id == queued


async def test_of_several_the_one_that_could_go_on_first_goes_on_first(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    first, second, third = [await parked_one(store, worker, event) for event in ("a", "b", "c")]
    worker.say(capacity=Capacity(0, is_paused=False))
    for event in ("b", "a", "c"):
        await emit(store, event)
        await worker.settled()
    await eventually(lambda: listening.heard.count("resolved") == 3)
    await worker.settled()
    assert worker.resolutions == []

    worker.say(capacity=Capacity(2, is_paused=False))

    await worker.until(lambda: len(worker.resolutions) == 2, "they were not told")
    await worker.settled()
    assert [each.lease_token for each in worker.resolutions] == [second.lease_token, first.lease_token]
    await worker.complete(first)
    await worker.until(lambda: len(worker.resolutions) == 3, "the last one was not told")
    assert worker.resolutions[-1].lease_token == third.lease_token


async def test_a_worker_that_wants_no_more_runs_still_goes_on_with_those_it_keeps(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    paused = await open_worker(listening, worker_name="paused")
    runs = [await parked_one(store, paused)]
    paused.say(capacity=Capacity(1, is_paused=True))
    draining = await open_worker(listening, worker_name="draining")
    runs.append(await parked_one(store, draining))
    draining.say(drains=True)

    await emit(store, "a")

    for worker, run in zip((paused, draining), runs, strict=True):
        await worker.until(lambda w=worker: w.resolutions, "it was told nothing")  # type: ignore[misc]  # bound early
        assert (await worker.complete(run)).status is ItemStatus.OK


async def test_a_parked_handler_that_does_something_takes_a_slot_again(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    parked = await parked_one(store, worker)

    await worker.do(RecordStep(parked.run_id, parked.lease_token, 0, a_step("b")))

    assert (worker.session.free_slots, worker.session.slots.parked) == (0, 0)


# ---- without a slot ----


async def test_without_a_slot_for_a_second_it_goes_back_to_its_old_place_at_no_cost_and_its_worker_is_told(
    listening: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    parked = await parked_one(store, worker)
    await enqueue_one(store)
    busy = await worker.assignment()
    later = await enqueue_one(store)
    await emit(store, "a")

    async def is_told() -> bool:
        await listening.sessions.tick()
        return bool(worker.stops)

    await eventually(is_told)

    [stop] = worker.stops
    assert (stop.lease_token, stop.reason) == (parked.lease_token, StopReason.UNPARKED)
    assert await lane_of(redis, keys) == [parked.run_id, later]
    record = await store.read_run(parked.run_id)
    assert (record.status, record.losses, record.attempt) == (RunStatus.QUEUED, 0, 1)
    assert worker.resolutions == []
    assert worker.session.slots.held.keys() == {busy.lease_token}

    await worker.complete(busy)
    again = await worker.assignment()
    assert (again.run_id, again.deliveries) == (parked.run_id, 2)
    assert again.lease_token != parked.lease_token
    assert again.steps is not None
    [step] = again.steps
    assert step.status == "succeeded"


async def test_it_has_a_second_from_when_it_could_go_on_and_not_from_when_it_was_parked(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    parked = await parked_one(store, worker)
    await enqueue_one(store)
    busy = await worker.assignment()

    await emit(store, "a")
    await eventually(lambda: "resolved" in listening.heard)
    await listening.sessions.tick()
    await worker.complete(busy)

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    assert worker.stops == []
    assert worker.session.slots.held.keys() == {parked.lease_token}


async def test_one_that_lives_on_in_another_session_is_not_taken_from_it(
    engine: Engine, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    """The worker has gone over to another gateway before this one has found out."""
    other = Engine(store)
    async with engine.listening(redis_url, keys):
        old = await open_worker(engine, instance_id="instance")
        parked = await parked_one(store, old)
        await enqueue_one(store)
        await old.assignment()
        await engine.sessions.tick()
        await emit(store, "a")
        await eventually(lambda: "resolved" in engine.heard)
        held = HeldLease(parked.lease_token, LeaseState.PARKED, ("a",))
        new = await open_worker(other, instance_id="instance", session_number=2, held_leases=(held,))

        async def is_given_up() -> bool:
            await engine.sessions.tick()
            return parked.lease_token not in old.session.slots.held

        await eventually(is_given_up)
        await old.settled()

    assert old.stops == []
    await new.until(lambda: new.resolutions, "it was told nothing")
    assert (await new.complete(parked)).status is ItemStatus.OK


# ---- what meets ----


async def test_an_outcome_that_overtakes_the_answer_to_park_comes_after_it_and_takes_the_slot(
    far_store: Store,
    line: Line,
    store: Store,
    redis_url: str,
    redis: RedisCommand,
    keys: Keys,
    open_worker: OpenWorker,
) -> None:
    engine = Engine(far_store)
    await enqueue_one(store)
    worker = await open_worker(engine)
    run = await worker.assignment()
    async with engine.listening(redis_url, keys):
        await enqueue_one(store)
        line.hold_replies_from(SCRIPTS["suspend"].sha)
        asked = worker.send(a_parking(run, wait_for("a")))
        await eventually(lambda: redis("HGET", keys.run(run.run_id), "parked"))
        await emit(store, "a")
        await eventually(lambda: "resolved" in engine.heard)

        line.let_go()
        await worker.until(lambda: worker.resolutions, "it was told nothing")
        await worker.settled()

    assert worker.order[-2:] == [f"parked {asked}", over(run, "a")]
    assert (worker.session.free_slots, worker.session.slots.parked) == (0, 0)
    assert len(worker.assignments) == 1, "another one was given its slot"


async def test_when_it_asks_itself_at_the_end_of_its_time_the_answer_waits_for_a_slot_too(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    listening.deaf_to.add("resolved")
    parked = await parked_one(store, worker)
    await enqueue_one(store)
    busy = await worker.assignment()
    await emit(store, "a")

    asked = worker.send(a_suspension(parked, wait_for("a")))
    await worker.settled()
    assert asked not in worker.answers

    await worker.complete(busy)
    answer = await worker.answer_to(asked)
    assert (answer.status, [step.name for step in answer.resolutions]) == (ItemStatus.RESOLVED, ["a"])
    assert worker.session.free_slots == 0
    assert (await worker.complete(parked)).status is ItemStatus.OK


async def test_when_it_asks_itself_and_there_is_no_slot_for_a_second_it_has_lost_its_lease(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    listening.deaf_to.add("resolved")
    parked = await parked_one(store, worker)
    await enqueue_one(store)
    await worker.assignment()
    await emit(store, "a")
    asked = worker.send(a_suspension(parked, wait_for("a")))

    async def is_told() -> bool:
        await listening.sessions.tick()
        return bool(worker.stops)

    await eventually(is_told)

    assert (await worker.answer_to(asked)).status is ItemStatus.LEASE_LOST
    assert [(stop.lease_token, stop.reason) for stop in worker.stops] == [(parked.lease_token, StopReason.UNPARKED)]
    record = await store.read_run(parked.run_id)
    assert (record.status, record.losses) == (RunStatus.QUEUED, 0)


async def test_old_news_of_a_wait_that_it_has_heard_of_does_not_wake_it(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    await enqueue_one(store)
    run = await worker.assignment()
    await emit(store, "a")
    assert (await worker.do(a_parking(run, wait_for("a")))).status is ItemStatus.RESOLVED
    assert (await worker.do(a_parking(run, wait_for("b"), steps_recorded=1))).status is ItemStatus.PARKED

    listening.wait_over(WaitOver(run.lease_token, "a", None))
    await worker.settled()

    assert worker.resolutions == []
    assert (worker.session.free_slots, worker.session.slots.parked) == (1, 1)


async def test_a_heartbeat_that_was_sent_before_it_went_on_does_not_wake_it_when_it_is_parked_again(
    far_store: Store, line: Line, store: Store, open_worker: OpenWorker
) -> None:
    engine = Engine(far_store)
    await enqueue_one(store)
    worker = await open_worker(engine)
    run = await worker.assignment()
    await worker.do(a_parking(run, wait_for("a")))
    await emit(store, "a")
    engine.wait_over(WaitOver(run.lease_token, "a", None))
    await worker.until(lambda: worker.resolutions, "it was told nothing")
    line.hold_replies_from(SCRIPTS["renew"].sha)
    old_list = HeldLease(run.lease_token, LeaseState.PARKED, ("a",))
    beating = asyncio.create_task(worker.beat_with(old_list))
    await line.holding.wait()
    asked = worker.send(a_parking(run, wait_for("b"), steps_recorded=1))

    line.let_go()
    await beating
    answer = await worker.answer_to(asked)
    await worker.settled()

    assert answer.status is ItemStatus.PARKED
    assert len(worker.resolutions) == 1
    assert (worker.session.free_slots, worker.session.slots.parked) == (1, 1)
