"""What may happen to runs that wait: for a time, an event, a run or a token."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from redflow_server.domain.leases import ClaimedRun, ClosePolicy, ReleaseReason
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.domain.waits import Wait
from redflow_server.store.store import Store
from tests.builders import (
    LATER_STAMP,
    a_completion,
    a_failed_attempt,
    a_failure,
    a_record,
    a_release,
    a_step,
    an_event,
    claim_one,
    let_leases_expire,
    renew_one,
    request_cancel,
    start_one,
)
from tests.store.scene import HANDLED, HOUR_MS, LARGE
from tests.store.stories import KEEP_MS, later
from tests.wait_builders import (
    CHILD_LANE,
    SLEEP_MS,
    a_child,
    a_completed_token,
    a_parking,
    a_sleep,
    a_start,
    a_suspension,
    a_token_wait,
    a_wait,
    an_end_of_failing,
    an_event_wait,
    child_id,
    in_race,
    some_waits,
    token_of,
)


def one_of_each_kind(lease: ClaimedRun, timeout_ms: int | None = 9 * SLEEP_MS) -> tuple[Wait, Wait, Wait, Wait]:
    of_others = (an_event_wait(key="k"), a_token_wait(lease), a_wait("child"))
    event, token, child = (replace(wait, timeout_ms=timeout_ms) for wait in of_others)
    return a_sleep(), event, token, child


async def status_of(store: Store, lease: ClaimedRun) -> RunStatus:
    return (await store.read_run(lease.run_id)).status


async def work_off(store: Store) -> None:
    while (await store.apply_outbox(100)).next_at_ms is not None or await store.deliver_events():
        pass


async def waits_that_get_what_they_wait_for(store: Store) -> None:
    lease = await start_one(store)
    sleep, event, token, child = waits = one_of_each_kind(lease)
    await store.suspend(a_suspension(lease, *waits))
    await store.emit_event(an_event("paid", key="k"))
    lease = await claim_one(store)
    await store.suspend(a_suspension(lease, sleep, token, child, steps_recorded=1))
    await store.complete_token(a_completed_token(token_of(token)))
    lease = await claim_one(store)
    await store.suspend(a_suspension(lease, sleep, child, steps_recorded=2))
    later(store, SLEEP_MS)
    await store.fire_timers(100)
    lease = await claim_one(store)
    await store.step_wait(some_waits(lease, child, steps_recorded=3))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))  # its parent is at work
    await store.suspend(a_suspension(lease, child, steps_recorded=4))
    steps = await store.read_steps(lease.run_id, 1000)
    assert sorted((step.resolved_seq, step.name) for step in steps) == [
        (1, event.name), (2, token.name), (3, sleep.name), (4, child.name),
    ]  # fmt: skip
    await store.complete(a_completion(lease))


async def waits_that_time_out(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *one_of_each_kind(lease, timeout_ms=SLEEP_MS)))
    later(store, SLEEP_MS)
    while (await store.fire_timers(1)).count:
        pass
    lease = await claim_one(store)
    assert {step.status for step in await store.read_steps(lease.run_id, 1000)} == {
        StepStatus.SUCCEEDED,
        StepStatus.FAILED,
    }
    await store.complete(a_completion(lease))


async def races(store: Store) -> None:
    """Each kind wins one, then a step function does, then the first wait of all, whose event is there."""
    for won_by in StepKind.TIMER, StepKind.EVENT, StepKind.TOKEN, StepKind.CHILD:
        lease = await start_one(store)
        waits = one_of_each_kind(lease)
        await store.suspend(a_suspension(lease, *in_race(*waits)))
        match won_by:
            case StepKind.TIMER:
                await end_sleep(store)
            case StepKind.EVENT:
                await store.emit_event(an_event("paid", key="k"))
            case StepKind.TOKEN:
                await store.complete_token(a_completed_token(token_of(waits[2])))
            case StepKind.CHILD:
                await end_child(store)
        await store.complete(a_completion(await claim_one(store)))
    lease = await start_one(store)
    waits = one_of_each_kind(lease)
    await store.step_wait(some_waits(lease, *in_race(*waits)))
    await store.record_step(a_record(lease, a_step("function"), rivals=tuple(wait.name for wait in waits)))
    await store.emit_event(an_event("paid", key="k"))
    sleep, event, token, child = (replace(wait, name=f"{wait.name} again") for wait in waits)
    await store.step_wait(some_waits(lease, *in_race(event, sleep, token, child, group="again"), steps_recorded=1))
    await store.complete(a_completion(lease))


async def end_sleep(store: Store) -> None:
    later(store, SLEEP_MS)
    await store.fire_timers(100)


async def end_child(store: Store) -> None:
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))


async def parking(store: Store) -> None:
    lease = await start_one(store)
    await store.suspend(a_parking(lease, a_sleep("first"), a_sleep("second")))
    await renew_one(store, lease, LATER_STAMP, ("first", "second"))
    await end_sleep(store)  # it is woken by both
    await renew_one(store, lease, LATER_STAMP, ("first", "second"))
    await store.record_step(a_record(lease, steps_recorded=2))  # and goes on
    await store.suspend(a_parking(lease, a_sleep("third"), steps_recorded=3))
    await store.release(a_release(lease, ReleaseReason.UNPARKED, steps_recorded=3))
    assert await status_of(store, lease) is RunStatus.WAITING
    await end_sleep(store)
    lease = await claim_one(store)
    await store.suspend(a_parking(lease, a_sleep("fourth"), steps_recorded=4))
    await end_sleep(store)
    await store.release(a_release(lease, ReleaseReason.UNPARKED, stamp=None, steps_recorded=5))
    assert await status_of(store, lease) is RunStatus.QUEUED
    await store.complete(a_completion(await claim_one(store)))


async def parked_runs_that_lose_their_worker(store: Store) -> None:
    parked = await start_one(store)
    await store.suspend(a_parking(parked, a_sleep("long", 99 * SLEEP_MS)))
    woken = await start_one(store)
    await store.suspend(a_parking(woken, an_event_wait()))
    await store.emit_event(an_event("paid"))
    await let_leases_expire(store)
    assert await status_of(store, parked) is RunStatus.WAITING
    assert await status_of(store, woken) is RunStatus.QUEUED
    await request_cancel(store, parked.run_id)
    await store.complete(a_completion(await claim_one(store)))


async def parked_runs_that_fail(store: Store) -> None:
    """One that gave up waiting by itself fails parked, and its failure handler runs under the same lease."""
    lease = await start_one(store, workflow=HANDLED.workflow)
    await store.suspend(a_parking(lease, a_sleep("long", 99 * SLEEP_MS)))
    await store.fail(a_failed_attempt(lease, a_failure()))
    await store.end_failing(an_end_of_failing(lease))
    lease = await start_one(store, workflow=HANDLED.workflow)
    await store.suspend(a_parking(lease, a_sleep("long", 99 * SLEEP_MS)))
    await store.fail(a_failed_attempt(lease, a_failure()))
    await let_leases_expire(store)  # its worker is lost, too
    await store.end_failing(an_end_of_failing(await claim_one(store, HANDLED)))


async def children_that_end_with_their_parent(store: Store) -> None:
    lease = await start_one(store)
    await store.step_start(a_start(lease, "left alone"))
    wards = [a_child() for _ in range(3)]
    for ward in wards:
        start = a_start(lease, ward.run_id, ward, close_policy=ClosePolicy.CANCEL, steps_recorded=1)
        await store.step_start(start)
    await store.complete(a_completion(lease, steps_recorded=4))
    for ward in wards:
        assert (await store.read_run(ward.run_id)).status is RunStatus.CANCELED
    await end_child(store)


async def ends_that_leave_much_to_be_done(store: Store) -> None:
    """More waits than one script withdraws, of every kind; the children come after them."""
    lease = await start_one(store)
    await store.step_start(a_start(lease, "ward", close_policy=ClosePolicy.CANCEL))
    sleeps = [a_sleep(f"sleep {number}") for number in range(60)]
    events = [an_event_wait(f"event {number}", timeout_ms=SLEEP_MS) for number in range(60)]
    await store.step_wait(some_waits(lease, *sleeps, *events, *one_of_each_kind(lease)[1:], steps_recorded=1))
    await store.complete(a_completion(lease, steps_recorded=1))
    await store.emit_event(an_event("paid"))
    later(store, SLEEP_MS)
    await store.fire_timers(10)
    await work_off(store)
    # Each takes its child with it, which takes one effect more.
    many = [a_wait(f"step {number}") for number in range(60)]
    lease = await start_one(store)
    await store.suspend(a_suspension(lease, *many))
    await request_cancel(store, lease.run_id)
    await work_off(store)
    for child in many:
        assert (await store.read_run(child_id(child))).status is RunStatus.CANCELED


async def events_that_are_remembered(store: Store) -> None:
    """A wait begins after its events; of runs that wait for a large one some hear of it later; one comes after many
    waits of another on its channel; all is forgotten.
    """
    lease = await start_one(store)
    for number in range(3):
        await store.emit_event(an_event("signed", b"%d" % number))
    for name in ("one", "two"):
        await store.step_wait(some_waits(lease, an_event_wait(name, "signed")))
    await store.suspend(a_suspension(lease, an_event_wait("three", "signed"), steps_recorded=2))
    await store.complete(a_completion(lease, steps_recorded=3))

    listeners = [await start_one(store) for _ in range(4)]
    for listener in listeners:
        await store.suspend(a_suspension(listener, an_event_wait(event="large")))
    await store.emit_event(an_event("large", LARGE))
    await request_cancel(store, listeners[-1].run_id)
    await work_off(store)
    for _ in listeners[:-1]:
        await store.complete(a_completion(await claim_one(store)))

    crowd = await start_one(store)
    await store.step_wait(some_waits(crowd, *(an_event_wait(f"wait {number}", "loud") for number in range(50))))
    lone = await start_one(store)
    await store.suspend(a_suspension(lone, an_event_wait(event="loud")))
    for _ in range(2):
        await store.emit_event(an_event("loud"))
    await store.complete(a_completion(await claim_one(store)))
    await store.complete(a_completion(crowd))
    later(store, 99 * SLEEP_MS)
    while await store.forget_events():
        pass


async def retention(store: Store) -> None:
    later(store, 2 * HOUR_MS)
    while (await store.purge(KEEP_MS, 100)).seen:
        pass


STORIES: Final = (
    waits_that_get_what_they_wait_for,
    waits_that_time_out,
    races,
    parking,
    parked_runs_that_lose_their_worker,
    parked_runs_that_fail,
    children_that_end_with_their_parent,
    ends_that_leave_much_to_be_done,
    events_that_are_remembered,
    retention,
)
