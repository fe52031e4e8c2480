"""Something of everything that is stored: the scene in which faults are planted."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from redflow_server.domain.leases import ClosePolicy, Lane
from redflow_server.domain.registry import Registration
from redflow_server.store.store import Store
from tests.builders import (
    LANE,
    START_MS,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_record,
    a_schedule,
    a_step,
    a_workflow,
    an_event,
    claim_one,
    enqueue_one,
    request_cancel,
    start_one,
)
from tests.wait_builders import (
    a_child,
    a_completed_token,
    a_parking,
    a_sleep,
    a_start,
    a_suspension,
    a_token_wait,
    a_wait,
    an_event_wait,
    token_of,
)

HOUR_MS: Final = 3_600_000
LARGE: Final = b"1" * 3 * 1024 * 1024
TIMED: Final = Lane(LANE.queue, "timed")
HANDLED: Final = Lane(LANE.queue, "handled")


async def set_the_scene(store: Store) -> None:
    """A run in every state, named after it; `w` is started by an event and a schedule, `timed` has time-outs."""
    store.now_ms = START_MS
    workflows = (
        a_workflow(max_attempts=3, event_names=("order",)),
        a_workflow(name=TIMED.workflow, start_timeout_ms=60_000, run_timeout_ms=600_000, event_names=("large",)),
        a_workflow(name=HANDLED.workflow, has_failure_handler=True, event_names=("large",)),
    )
    await store.register(Registration("owner-1", "build-1", workflows, (a_schedule("cron-1"),)))
    await _runs_that_end(store)
    await _runs_that_wait(store)
    await store.emit_event(an_event("paid", event_id="evt-done", idempotency_key="key"))
    await _an_event_that_is_not_delivered_to_all(store)
    await enqueue_one(store, run_id="timed-running", workflow=TIMED.workflow)
    await claim_one(store, TIMED)
    await enqueue_one(store, run_id="timed-queued", workflow=TIMED.workflow)
    await enqueue_one(store, run_id="keyed", idempotency_key="key", idempotency_ttl_ms=HOUR_MS)
    await enqueue_one(store, run_id="queued")
    await enqueue_one(store, run_id="second")
    await enqueue_one(store, run_id="scheduled", available_at_ms=START_MS + HOUR_MS)


async def _runs_that_end(store: Store) -> None:
    running = await start_one(store, run_id="running")
    await store.record_step(a_record(running, a_step("a", b"12345")))
    await store.record_step(a_record(running, a_failed_step("b")))
    succeeded = await start_one(store, run_id="succeeded")
    await store.complete(a_completion(succeeded, final_steps=(a_step("a", b"12345"),)))
    await store.fail(a_failed_attempt(await start_one(store, run_id="failed", max_attempts=1)))
    await request_cancel(store, await enqueue_one(store, run_id="canceled"))
    await store.fail(a_failed_attempt(await start_one(store, run_id="failing", workflow=HANDLED.workflow)))


async def _runs_that_wait(store: Store) -> None:
    """`patient` has a wait of each kind; `parked` and `woken` keep their leases, `guardian` takes `ward` with it."""
    await store.suspend(a_suspension(await start_one(store, run_id="waiting"), a_wait("step", run_id="child")))
    patient = await start_one(store, run_id="patient")
    waits = (
        a_sleep(),
        an_event_wait(event="signed", key="k", timeout_ms=HOUR_MS),
        a_token_wait(patient),
        replace(a_wait("child", run_id="child-of-patient"), timeout_ms=HOUR_MS),
    )
    await store.suspend(a_suspension(patient, *waits))
    await store.suspend(a_parking(await start_one(store, run_id="parked"), a_sleep()))
    woken = await start_one(store, run_id="woken")
    token = a_token_wait(woken)
    await store.suspend(a_parking(woken, an_event_wait(event="paid"), token, a_sleep()))
    await store.complete_token(a_completed_token(token_of(token)))
    guardian = await start_one(store, run_id="guardian")
    await store.step_start(a_start(guardian, start=a_child(run_id="ward"), close_policy=ClosePolicy.CANCEL))


async def _an_event_that_is_not_delivered_to_all(store: Store) -> None:
    """Two of the runs that wait for it are as many as one script may give it to."""
    for number in (1, 2, 3):
        listener = await start_one(store, run_id=f"listener-{number}")
        await store.suspend(a_suspension(listener, an_event_wait(event="large")))
    await store.emit_event(an_event("large", LARGE, event_id="evt-open"))
