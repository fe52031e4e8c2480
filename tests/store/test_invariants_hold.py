"""The checker finds nothing where nothing is wrong: after every transition, and while runs move under its eyes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from redflow_sdk import Client, Context, RetryPolicy, workflow
from redflow_server.domain.leases import Claimed, ClaimedRun, EmitStep, Lane, ReleaseReason
from redflow_server.domain.registry import Assertion, Registration
from redflow_server.domain.schedules import Occurrence
from redflow_server.domain.session import SdkInfo
from redflow_server.domain.states import TERMINAL, RunStatus
from redflow_server.domain.workers import Worker
from redflow_server.store.calls.registry import STALE_MS
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.scripts import load_scripts
from redflow_server.store.snapshot import read_snapshot
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
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
from tests.conftest import CheckInvariants, StartWorker
from tests.wait_builders import CHILD_LANE, a_suspension, a_wait, a_wait_for, an_end_of_failing, some_waits

HOUR_MS: Final = 3_600_000
START_TIMEOUT_MS: Final = 60_000
RUN_TIMEOUT_MS: Final = 600_000
TIMED: Final = Lane(LANE.queue, "timed")
HANDLED: Final = Lane(LANE.queue, "handled")
KEEP_MS: Final = dict.fromkeys(sorted(TERMINAL), HOUR_MS)


@pytest_asyncio.fixture
async def raw(redis_url: str) -> AsyncIterator[Redis]:
    """A client that answers bytes."""
    dial = Dial(redis_url)
    async with dial.client() as client:
        yield client
    await dial.close()


async def test_an_empty_prefix_breaks_nothing(raw: Redis, keys: Keys) -> None:
    assert await check(raw, keys) == []


# ---- after every transition ----


def checked(store: Store, check_invariants: CheckInvariants) -> set[str]:
    """Has a check follow each call of the store. Returns the names of the scripts called, as they come."""
    called: set[str] = set()

    def followed(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            answer = await method(*arguments, **named)
            called.add(name)
            await check_invariants()
            return answer

        return call

    for name in load_scripts():
        setattr(store, name, followed(name, getattr(store, name)))
    return called


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
    assert await store.claim(a_claim(CHILD_LANE)) == Claimed((), (CHILD_LANE,))

    many = [a_wait(f"step {number}") for number in range(60)]
    parent = await start_one(store)
    await store.suspend(a_suspension(parent, *many))
    await request_cancel(store, parent.run_id)
    while (await store.apply_outbox(100)).next_at_ms is not None:
        pass


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


async def test_no_transition_leaves_anything_to_report(store: Store, check_invariants: CheckInvariants) -> None:
    store.now_ms = START_MS
    called = checked(store, check_invariants)
    await store.claim_prefix()
    await register(
        store,
        a_workflow(max_attempts=3, event_names=("order", "payment")),
        a_workflow(name=TIMED.workflow, start_timeout_ms=START_TIMEOUT_MS, run_timeout_ms=RUN_TIMEOUT_MS),
        a_workflow(name=HANDLED.workflow, has_failure_handler=True, event_names=("order",)),
    )

    for story in (runs_that_end, leases_that_end, time_outs, runs_that_wait, failure_handlers):
        await story(store)
    for story in (keys_and_retention, events_and_schedules, registries_and_sessions):
        await story(store)

    only_read = {name for name in load_scripts() if name.startswith(("read_", "list_"))} | {"due"}
    assert called == set(load_scripts()) - only_read


# ---- while runs move ----


class Interrupted:
    """A client for which, once it has looked into a key, something happens before it looks any further."""

    def __init__(self, client: Redis, key: str, event: Callable[[], Awaitable[object]]) -> None:
        self._client = client
        self._key = key.encode()
        self._event = event
        self.has_happened = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def zscan_iter(self, key: bytes, **settings: Any) -> AsyncIterator[tuple[bytes, float]]:
        async for entry in self._client.zscan_iter(key, **settings):
            yield entry
        if key == self._key and not self.has_happened:
            self.has_happened = True
            await self._event()


async def claim(store: Store, lease: ClaimedRun) -> None:
    await claim_one(store)


async def complete(store: Store, lease: ClaimedRun) -> None:
    await store.complete(a_completion(lease))


async def fail(store: Store, lease: ClaimedRun) -> None:
    await store.fail(a_failed_attempt(lease))


async def release(store: Store, lease: ClaimedRun) -> None:
    await store.release(a_release(lease))


async def enqueue(store: Store, lease: ClaimedRun) -> None:
    await enqueue_one(store, workflow="new", idempotency_key="another key")


async def promote(store: Store, lease: ClaimedRun) -> None:
    later(store, HOUR_MS)
    await store.promote(100)


async def purge(store: Store, lease: ClaimedRun) -> None:
    later(store, 2 * HOUR_MS)
    await store.purge(KEEP_MS, 100)


LOOKED_INTO: Final[dict[str, Callable[[Keys], str]]] = {
    "a lane": lambda keys: keys.lane(lane_name(LANE.queue, LANE.workflow)),
    "the lanes": lambda keys: keys.lanes,
    "the scheduled": lambda keys: keys.scheduled,
    "the leases": lambda keys: keys.leases,
    "the deadlines": lambda keys: keys.deadlines,
    "the queued": lambda keys: keys.status("queued"),
    "the running": lambda keys: keys.status("running"),
    "the ended": lambda keys: keys.finished("succeeded"),
}


@pytest.mark.parametrize("event", [claim, complete, fail, release, enqueue, promote, purge])
@pytest.mark.parametrize("key_of", LOOKED_INTO.values(), ids=LOOKED_INTO)
async def test_what_happens_during_a_check_is_not_reported(
    key_of: Callable[[Keys], str],
    event: Callable[[Store, ClaimedRun], Awaitable[None]],
    store: Store,
    raw: Redis,
    keys: Keys,
) -> None:
    store.now_ms = START_MS
    await register(store, a_workflow(max_attempts=2, start_timeout_ms=RUN_TIMEOUT_MS, run_timeout_ms=RUN_TIMEOUT_MS))
    await store.complete(a_completion(await start_one(store, idempotency_key="key", idempotency_ttl_ms=HOUR_MS)))
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    await enqueue_one(store)
    await enqueue_one(store, available_at_ms=START_MS + HOUR_MS)
    client = Interrupted(raw, key_of(keys), lambda: event(store, lease))

    found = await check(client, keys)  # type: ignore[arg-type]  # all that is asked of a client

    assert client.has_happened
    assert found == []


async def test_a_pause_of_the_reaper_that_ends_during_a_check_is_not_reported(
    store: Store, raw: Redis, keys: Keys
) -> None:
    await start_one(store)
    await raw.set(keys.reap_not_before, START_MS)
    # The leases are looked into before the pause, which was found with them.
    client = Interrupted(raw, keys.leases, lambda: raw.delete(keys.reap_not_before))

    found = await check(client, keys)  # type: ignore[arg-type]  # all that is asked of a client

    assert client.has_happened
    assert found == []


async def test_runs_that_pass_through_a_gateway_are_never_caught_between_places(
    client: Client, start_worker: StartWorker, raw: Redis, keys: Keys
) -> None:
    @workflow(name="nothing", queue="q")
    async def nothing(ctx: Context) -> None:
        """Ends at once."""

    @workflow(name="slow", queue="q")
    async def slow(ctx: Context) -> None:
        await ctx.step.run("sleep", asyncio.sleep, 0.02)

    @workflow(name="retried", queue="q", retry=RetryPolicy(max_attempts=2, initial=0.01))
    async def retried(ctx: Context) -> None:
        if ctx.run.attempt == 1:
            raise ValueError("the first attempt fails")

    async def start_and_wait(number: int) -> None:
        handle = await client.start((nothing, slow, retried)[number % 3], idempotency_key=f"key-{number % 250}")
        await handle.result(timeout=30)

    async def start_waves() -> None:
        first = 0
        while first < 300 or not was_seen.is_set():
            await asyncio.gather(*(start_and_wait(first + i) for i in range(100)))
            first += 100

    await start_worker(nothing, slow, retried, concurrency=5)
    was_seen = asyncio.Event()
    seen: set[str] = set()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waves = group.create_task(start_waves())
        while not waves.done():
            assert await check(raw, keys) == []
            seen |= {run.record["status"] for run in (await read_snapshot(raw, keys)).runs if run.record}
            if {"queued", "running", "scheduled", "succeeded"} <= seen:
                was_seen.set()
    assert await check(raw, keys) == []
