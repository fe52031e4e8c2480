"""What may happen to runs, in stories that between them call every script."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from redflow_server.domain.leases import EmitStep, Lane, ReleaseReason
from redflow_server.domain.registry import Assertion, Registration
from redflow_server.domain.schedules import Occurrence
from redflow_server.domain.session import SdkInfo
from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.domain.workers import Worker
from redflow_server.store.calls.registry import STALE_MS
from redflow_server.store.store import Store
from tests.builders import (
    LANE,
    LATER_STAMP,
    STAMP,
    START_MS,
    a_claim,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_failure,
    a_record,
    a_release,
    a_schedule,
    a_step,
    a_workflow,
    an_abort,
    an_event,
    claim_one,
    enqueue_one,
    let_leases_expire,
    register,
    renew_one,
    request_cancel,
    start_one,
)
from tests.store.scene import HANDLED, HOUR_MS, TIMED
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, a_wait_for, an_end_of_failing, some_waits

START_TIMEOUT_MS: Final = 60_000
RUN_TIMEOUT_MS: Final = 600_000
KEEP_MS: Final = dict.fromkeys(sorted(TERMINAL), HOUR_MS)


def later(store: Store, by_ms: int) -> None:
    assert store.now_ms is not None
    store.now_ms += by_ms


async def runs_that_end(store: Store) -> None:
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    await store.record_step(a_record(lease, a_failed_step("b")))
    await store.record_step(a_record(lease, a_step("b", None)))
    await store.complete(a_completion(lease, final_steps=(a_step("c"), a_failed_step("d"))))

    await store.fail(a_failed_attempt(await start_one(store), final_steps=(a_step("a"),)))
    later(store, HOUR_MS)
    await store.promote(100)
    await store.fail(a_failed_attempt(await claim_one(store), a_failure(next_retry_delay_ms=0)))
    await store.fail(a_failed_attempt(await claim_one(store)))

    await store.abort(an_abort(await start_one(store)))
    await request_cancel(store, await enqueue_one(store, priority=1000))
    await request_cancel(store, await enqueue_one(store, available_at_ms=START_MS + 9 * HOUR_MS))
    lease = await start_one(store, priority=-1000)
    await request_cancel(store, lease.run_id)
    await store.release(a_release(lease))
    await enqueue_one(store, workflow="nobody's")
    await store.fail_unknown(Lane(LANE.queue, "nobody's"), 0, 0, 100)


async def leases_that_end(store: Store) -> None:
    await store.release(a_release(await start_one(store)))
    await store.release(a_release(await claim_one(store), ReleaseReason.UNDELIVERED, stamp=STAMP))
    lease = await claim_one(store)
    await renew_one(store, lease, LATER_STAMP)
    await store.release(a_release(lease, ReleaseReason.VANISHED, stamp=LATER_STAMP))
    await store.release(a_release(await claim_one(store), ReleaseReason.OVERLOADED, delay_ms=1000))
    later(store, HOUR_MS)
    await store.promote(100)
    while await store.watch_run(lease.run_id, "gateway-1") is RunStatus.QUEUED:
        await renew_one(store, await claim_one(store))
        await let_leases_expire(store)


async def time_outs(store: Store) -> None:
    on_its_way = await enqueue_one(store, workflow=TIMED.workflow)
    await claim_one(store, TIMED)
    later(store, START_TIMEOUT_MS)
    await store.expire(100)  # a worker is about to have it: looked at again a second later
    await let_leases_expire(store)
    await store.expire(100)
    assert await store.watch_run(on_its_way, "gateway-1") is RunStatus.FAILED

    lease = await start_one(store, workflow=TIMED.workflow)
    later(store, RUN_TIMEOUT_MS)
    await store.expire(100)  # its worker is told to stop
    await store.release(a_release(lease))

    for end in (store.expire, lambda _: store.claim(a_claim(TIMED))):
        await store.release(a_release(await start_one(store, workflow=TIMED.workflow)))
        later(store, RUN_TIMEOUT_MS)
        await end(100)


async def runs_that_wait(store: Store) -> None:
    parent = await start_one(store)
    await store.step_wait(some_waits(parent, a_wait("first"), a_wait("second")))
    await store.suspend(a_suspension(parent, a_wait("first"), a_wait_for("nobody", "third")))
    await store.suspend(a_suspension(parent, a_wait("first"), a_wait("second"), steps_recorded=1))
    await store.complete(a_completion(await claim_one(store, CHILD_LANE)))
    await store.complete(a_completion(await claim_one(store)))  # it waits for the other one no longer
    assert (await store.claim(a_claim(CHILD_LANE))).emptied == (CHILD_LANE,)


async def failure_handlers(store: Store) -> None:
    for end in (an_end_of_failing, lambda lease: an_end_of_failing(lease, a_failure())):
        lease = await start_one(store, workflow=HANDLED.workflow)
        await store.fail(a_failed_attempt(lease))
        await store.end_failing(end(lease))
    lease = await start_one(store, workflow=HANDLED.workflow)
    await store.fail(a_failed_attempt(lease))
    await store.release(a_release(lease))
    await claim_one(store, HANDLED)
    later(store, RUN_TIMEOUT_MS)
    await store.expire(100)


async def events_and_schedules(store: Store) -> None:
    await store.emit_event(an_event("order", idempotency_key="key"))
    await store.emit_event(an_event("order", b"1" * 3 * 1024 * 1024))
    while (await store.fan_out()).has_more:
        pass
    event = an_event("order", available_at_ms=START_MS + 99 * HOUR_MS)
    lease = await start_one(store, workflow="emitter")
    await store.step_emit(EmitStep(lease.run_id, lease.lease_token, 0, "emit", 1, event))
    await store.complete(a_completion(lease))
    workflows = (a_workflow(digest="digest-2", name="timely"),)
    schedule = replace(a_schedule(next_at_ms=store.now_ms or 0), workflow="timely")
    await store.register(Registration("owner-3", "build-1", workflows, (schedule,)))
    [due] = (await store.due_schedules(10)).schedules
    await store.fire_schedule(Occurrence(due, "timely", schedule.cron, "run-of-cron", due.occurrence_ms, 2))
    await store.stall_schedule(due, "no such zone")


async def keys_and_retention(store: Store) -> None:
    named = {"idempotency_key": "key", "idempotency_ttl_ms": HOUR_MS}
    first = await enqueue_one(store, **named)
    later(store, HOUR_MS - 1)
    assert await enqueue_one(store, **named) == first
    await store.complete(a_completion(await claim_one(store)))
    later(store, HOUR_MS - 1)
    await store.purge(KEEP_MS, 100)  # its key is still in its window: it stays
    assert await enqueue_one(store, **named) == first
    later(store, HOUR_MS)
    second = await enqueue_one(store, **named)
    assert second != first
    await request_cancel(store, second)
    later(store, 2 * HOUR_MS)
    while (await store.purge(KEEP_MS, 5)).seen:
        pass


async def registries_and_sessions(store: Store) -> None:
    await register(store, a_workflow(name="other"), a_workflow(name="another", event_names=("order",)), owner="owner-2")
    later(store, STALE_MS)
    await store.assert_registry([Assertion("owner-2", "build-1", "other", "digest-1")])
    await register(store, a_workflow(name="other", queue="elsewhere", digest="digest-2"), owner="owner-2")
    await register(store, a_workflow(name=LANE.workflow, event_names=()), owner="owner-2")
    worker = Worker("s", "g", "w", "o", "i", "b", SdkInfo("n", "1", "python"), ("q",), ("w",), 1, 0, False, START_MS)
    await store.announce_sessions([worker], 60_000)
    await store.forget_session("s")
    for status in RunStatus:
        await store.sweep(status, None, 100)


OF_RUNS: Final = (runs_that_end, leases_that_end, time_outs, runs_that_wait, failure_handlers, keys_and_retention)
OF_THE_REST: Final = (events_and_schedules, registries_and_sessions)
