"""Outcomes of waits for handlers that are at work, and what tells them when a message about one was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from redflow_server.domain.leases import ClaimedRun, Lane, Release, ReleaseReason, WaitOver
from redflow_server.domain.session import Capacity, HeldLease, ItemStatus, LeaseState
from redflow_server.domain.states import RunStatus, StepStatus
from redflow_server.engine.resolutions import VALUE_BYTES
from redflow_server.store.keys import Keys
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from tests.builders import an_event, claim_one, enqueue_one
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import EngineWorker
from tests.engine.parts import Engine, Stores
from tests.engine.watched_store import ForgetfulStore
from tests.eventually import eventually
from tests.line import Line
from tests.redis_command import RedisCommand
from tests.wait_builders import (
    CHILD_LANE,
    a_completed_token,
    a_parking,
    a_sleep,
    a_token_wait,
    a_wait,
    an_event_wait,
    child_id,
    in_race,
    some_waits,
    token_of,
)

SCRIPTS = load_scripts()


@pytest_asyncio.fixture
async def listening(engine: Engine, redis_url: str, keys: Keys) -> AsyncIterator[Engine]:
    """The engine, which hears what is published."""
    async with engine.listening(redis_url, keys):
        yield engine


@pytest.fixture
def deaf(listening: Engine) -> Engine:
    """The engine, which hears of everything but waits: a heartbeat is all that tells."""
    listening.deaf_to.add("resolved")
    return listening


async def assigned(store: Store, worker: EngineWorker) -> ClaimedRun:
    """A run that the worker has just got."""
    await enqueue_one(store)
    return await worker.assignment()


def told(worker: EngineWorker) -> list[tuple[str, StepStatus | None]]:
    """What the worker was told of waits, in order: the step, and what became of it."""
    return [(each.step_name, each.step.status if each.step else None) for each in worker.resolutions]


# ---- told at once ----


async def test_a_handler_at_work_is_told_of_whatever_it_waits_for(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    run = await assigned(store, worker)
    child, token = a_wait(), a_token_wait(run)
    waits = (a_sleep(ms=1), an_event_wait(event="paid"), child, token)
    assert (await worker.do(some_waits(run, *waits))).status is ItemStatus.RESOLVED, "the token is for its worker"

    await store.emit_event(an_event("paid", b'"yes"'))
    await store.complete_token(a_completed_token(token_of(token)))
    await store.cancel(child_id(child), "not needed", "")

    async def sleep_is_over() -> bool:
        await listening.upkeep.fire_timers()
        return len(worker.resolutions) == 4

    await eventually(sleep_is_over)
    assert sorted(told(worker)) == [
        ("child", StepStatus.FAILED),
        ("event", StepStatus.SUCCEEDED),
        ("sleep", StepStatus.SUCCEEDED),
        ("token", StepStatus.SUCCEEDED),
    ]
    numbers = {each.step.resolved_seq for each in worker.resolutions if each.step}
    assert numbers == {1, 2, 3, 4}
    assert worker.session.free_slots == 0


async def test_what_ends_together_is_told_together_in_the_order_in_which_it_ended(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    run = await assigned(store, worker)
    names = [f"step {number}" for number in range(20)]
    child = await enqueue_one(store, queue=CHILD_LANE.queue, workflow=CHILD_LANE.workflow)
    waits = [a_wait(name, run_id=child) for name in reversed(names)]
    await worker.do(some_waits(run, *waits))

    await store.cancel(child, "", "")

    await worker.until(lambda: len(worker.resolutions) == 20, "not all were told")
    numbers = [each.step.resolved_seq for each in worker.resolutions if each.step]
    assert numbers == list(range(1, 21))


async def test_of_a_race_only_the_winner_is_told(listening: Engine, store: Store, open_worker: OpenWorker) -> None:
    worker = await open_worker(listening)
    run = await assigned(store, worker)
    await worker.do(some_waits(run, *in_race(an_event_wait("a", event="a"), an_event_wait("b", event="b"))))

    await store.emit_event(an_event("b"))
    await store.emit_event(an_event("a"))

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    await worker.settled()
    assert told(worker) == [("b", StepStatus.SUCCEEDED)]


@pytest.mark.parametrize(("size", "is_left_out"), [(VALUE_BYTES, False), (VALUE_BYTES + 1, True)])
async def test_a_large_value_is_left_for_the_worker_to_fetch(
    listening: Engine, store: Store, open_worker: OpenWorker, size: int, is_left_out: bool
) -> None:
    worker = await open_worker(listening)
    run = await assigned(store, worker)
    await worker.do(some_waits(run, an_event_wait(event="paid")))

    await store.emit_event(an_event("paid", b"x" * size))

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    step = worker.resolutions[0].step
    assert step is not None
    assert (step.is_left_out, step.size_bytes) == (is_left_out, size)


async def test_only_the_session_that_has_the_run_is_told(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    bystander = await open_worker(listening, Lane("other", "other"))
    worker = await open_worker(listening)
    run = await assigned(store, worker)
    await worker.do(some_waits(run, an_event_wait(event="paid")))

    await store.emit_event(an_event("paid"))

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    await bystander.settled()
    assert bystander.resolutions == []


async def test_what_was_told_of_a_lease_that_is_over_by_then_is_kept_for_nobody(
    listening: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(listening)
    run = await assigned(store, worker)
    await worker.do(a_parking(run, an_event_wait("a", event="a")))
    worker.say(capacity=Capacity(0, is_paused=False))
    await store.emit_event(an_event("a"))
    await eventually(lambda: len(worker.session._resolutions) == 1)

    await worker.do(Release(run.run_id, run.lease_token, ReleaseReason.SHUTDOWN))
    listening.wait_over(WaitOver(run.lease_token, "a", None))
    await worker.settled()

    assert len(worker.session._resolutions) == 0
    assert (worker.resolutions, worker.session.slots.parked) == ([], 0)


# ---- told although a message was lost ----


async def test_a_lost_message_is_made_up_for_by_the_next_heartbeat_that_lists_the_wait(
    deaf: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(deaf, slot_limit=2)
    running, parked = await assigned(store, worker), await assigned(store, worker)
    await worker.do(some_waits(running, an_event_wait("a", event="a"), an_event_wait("b", event="b")))
    await worker.do(a_parking(parked, an_event_wait("a", event="a")))
    await store.emit_event(an_event("a"))

    await worker.beat_with(
        HeldLease(running.lease_token, LeaseState.RUNNING, ("a", "b")),
        HeldLease(parked.lease_token, LeaseState.PARKED, ("a",)),
    )

    await worker.until(lambda: len(worker.resolutions) == 2, "it was told nothing")
    assert {each.lease_token for each in worker.resolutions} == {running.lease_token, parked.lease_token}
    assert told(worker) == [("a", StepStatus.SUCCEEDED)] * 2
    assert worker.session.slots.parked == 0


async def test_a_heartbeat_tells_again_what_it_lists_again_and_nothing_that_is_still_open(
    deaf: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(deaf)
    run = await assigned(store, worker)
    await worker.do(some_waits(run, an_event_wait("a", event="a"), an_event_wait("b", event="b")))
    listed = HeldLease(run.lease_token, LeaseState.RUNNING, ("a", "b"))
    await worker.beat_with(listed)
    await worker.settled()
    assert worker.resolutions == []

    await store.emit_event(an_event("a"))
    for count in (1, 2):
        await worker.beat_with(listed)
        await worker.until(lambda count=count: len(worker.resolutions) == count, "not told")  # type: ignore[misc]  # bound early

    assert told(worker) == [("a", StepStatus.SUCCEEDED)] * 2


async def test_when_messages_may_have_been_missed_every_wait_is_asked_about_without_a_heartbeat(
    deaf: Engine, store: Store, open_worker: OpenWorker
) -> None:
    worker = await open_worker(deaf)
    run = await assigned(store, worker)
    await deaf.sessions.tick()
    await worker.do(a_parking(run, an_event_wait("a", event="a")))
    await store.emit_event(an_event("a"))

    deaf.may_have_missed()
    await deaf.sessions.tick()

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    assert told(worker) == [("a", StepStatus.SUCCEEDED)]


@pytest.mark.leaves_faults
@pytest.mark.parametrize("state", [LeaseState.RUNNING, LeaseState.PARKED])
async def test_a_wait_that_the_store_has_lost_is_answered_without_an_outcome(
    deaf: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker, state: LeaseState
) -> None:
    worker = await open_worker(deaf)
    run = await assigned(store, worker)
    waits = (an_event_wait("lost"), an_event_wait("kept", event="kept"))
    wait = a_parking if state is LeaseState.PARKED else some_waits
    await worker.do(wait(run, *waits))
    await redis("HDEL", keys.steps(run.run_id), "s:lost", "o:lost")
    await redis("HDEL", keys.waits(run.run_id), "lost")

    await worker.beat_with(HeldLease(run.lease_token, state, ("lost", "kept")))
    await worker.until(lambda: worker.resolutions, "it was told nothing")

    assert told(worker) == [("lost", None)]
    assert worker.session.free_slots == 0, "the handler goes on, and asks for it again"
    await worker.do(wait(run, *waits))
    assert [step.name for step in await store.read_steps(run.run_id, 0)] == ["kept", "lost"]


async def test_an_outcome_that_could_not_be_read_takes_no_slot_and_comes_with_the_next_heartbeat(
    stores: Stores, store: Store, redis_url: str, keys: Keys, open_worker: OpenWorker
) -> None:
    forgetful = await stores.open(ForgetfulStore)
    assert isinstance(forgetful, ForgetfulStore)
    engine = Engine(forgetful)
    engine.deaf_to.add("resolved")
    async with engine.listening(redis_url, keys):
        worker = await open_worker(engine)
        parked = await assigned(store, worker)
        await worker.do(a_parking(parked, an_event_wait("a", event="a")))
        await store.emit_event(an_event("a"))
        forgetful.fails = True

        engine.sessions.push_resolution(WaitOver(parked.lease_token, "a", None))
        await eventually(lambda: not forgetful.fails)
        await worker.settled()
        assert (worker.resolutions, worker.session.slots.parked) == ([], 1)
        await worker.complete(await assigned(store, worker))

        await worker.beat_with(HeldLease(parked.lease_token, LeaseState.PARKED, ("a",)))
        await worker.until(lambda: worker.resolutions, "it was told nothing")
    assert told(worker) == [("a", StepStatus.SUCCEEDED)]


# ---- other sessions, other ends ----


@pytest.mark.parametrize("state", [LeaseState.RUNNING, LeaseState.PARKED])
async def test_a_worker_that_comes_back_hears_of_what_has_ended_meanwhile_before_it_gets_another_run(
    deaf: Engine, store: Store, open_worker: OpenWorker, state: LeaseState
) -> None:
    first = await open_worker(deaf, instance_id="instance")
    run = await assigned(store, first)
    await first.do((a_parking if state is LeaseState.PARKED else some_waits)(run, an_event_wait("a", event="a")))
    await first.close()
    await store.emit_event(an_event("a"))
    await enqueue_one(store)

    held = HeldLease(run.lease_token, state, ("a",))
    worker = await open_worker(deaf, instance_id="instance", session_number=2, held_leases=(held,))

    await worker.until(lambda: worker.resolutions, "it was told nothing")
    await worker.settled()
    assert told(worker) == [("a", StepStatus.SUCCEEDED)]
    assert worker.assignments == []
    await worker.complete(run)
    assert (await worker.assignment()).deliveries == 1


async def test_what_ends_while_a_session_opens_is_told_with_its_first_tick(
    far_store: Store,
    line: Line,
    store: Store,
    redis_url: str,
    redis: RedisCommand,
    keys: Keys,
    open_worker: OpenWorker,
) -> None:
    """The message comes before the session is there to hear it, and after the store was asked about its leases."""
    engine = Engine(far_store)
    async with engine.listening(redis_url, keys):
        first = await open_worker(engine, instance_id="instance")
        run = await assigned(store, first)
        await first.do(a_parking(run, an_event_wait("a", event="a")))
        owner = await redis("HGET", keys.run(run.run_id), "leaseOwner")
        held = HeldLease(run.lease_token, LeaseState.PARKED, ("a",))
        line.hold_replies_from(SCRIPTS["renew"].sha)
        opening = asyncio.create_task(
            open_worker(engine, instance_id="instance", session_number=2, held_leases=(held,))
        )

        async def has_moved() -> bool:
            return bool(await redis("HGET", keys.run(run.run_id), "leaseOwner") != owner)

        await eventually(has_moved)
        await store.emit_event(an_event("a"))
        await eventually(lambda: "resolved" in engine.heard)
        line.let_go()
        worker = await opening
        await engine.sessions.tick()

        await worker.until(lambda: worker.resolutions, "it was told nothing")
    assert told(worker) == [("a", StepStatus.SUCCEEDED)]


async def test_a_parked_run_that_a_worker_brings_along_takes_no_slot_of_its_new_session(
    deaf: Engine, store: Store, open_worker: OpenWorker
) -> None:
    first = await open_worker(deaf, instance_id="instance")
    run = await assigned(store, first)
    await first.do(a_parking(run, an_event_wait("a")))
    await first.close()

    held = HeldLease(run.lease_token, LeaseState.PARKED, ("a",))
    worker = await open_worker(deaf, instance_id="instance", session_number=2, held_leases=(held,))

    assert (worker.session.free_slots, worker.session.slots.parked) == (1, 1)
    assert (await assigned(store, worker)).run_id != run.run_id


@pytest.mark.parametrize("is_over", [False, True], ids=["open", "over"])
async def test_a_worker_that_says_goodbye_leaves_its_parked_runs_to_their_waits_or_in_their_lane_at_no_cost(
    deaf: Engine, store: Store, open_worker: OpenWorker, is_over: bool
) -> None:
    worker = await open_worker(deaf)
    run = await assigned(store, worker)
    await worker.do(a_parking(run, an_event_wait("a", event="a")))
    if is_over:
        await store.emit_event(an_event("a"))

    worker.say(closes=True)
    await worker.until(lambda: worker.end, "it goes on")

    async def is_handed_back() -> bool:
        return (await store.read_run(run.run_id)).status is not RunStatus.RUNNING

    await eventually(is_handed_back)
    record = await store.read_run(run.run_id)
    assert (record.status, record.losses) == (RunStatus.QUEUED if is_over else RunStatus.WAITING, 0)
    if not is_over:
        await store.emit_event(an_event("a"))
    assert (await claim_one(store)).run_id == run.run_id
