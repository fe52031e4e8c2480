"""The checker finds nothing where nothing is wrong: after every transition, and while runs move under its eyes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from redflow_sdk import Client, Context, RetryPolicy, workflow
from redflow_server.domain.leases import ClaimedRun, ClosePolicy
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.scripts import load_scripts
from redflow_server.store.snapshot import read_snapshot
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.builders import (
    LANE,
    START_MS,
    a_completion,
    a_failed_attempt,
    a_record,
    a_release,
    a_workflow,
    an_event,
    claim_one,
    enqueue_one,
    register,
    start_one,
)
from tests.conftest import CheckInvariants, StartWorker
from tests.store import stories, stories_of_waits
from tests.store.scene import HANDLED, HOUR_MS, TIMED, set_the_scene
from tests.store.stories import KEEP_MS, RUN_TIMEOUT_MS, START_TIMEOUT_MS, later
from tests.wait_builders import a_sleep, a_start, a_token_wait, a_wait_for, an_event_wait, some_waits

WRITING: Final = {name for name in load_scripts() if not name.startswith(("read_", "list_"))} - {"due", "try_write"}


@pytest_asyncio.fixture
async def raw(redis_dial: Dial) -> AsyncIterator[Redis]:
    """A client that answers bytes."""
    async with redis_dial.client() as client:
        yield client


async def test_an_empty_prefix_breaks_nothing(raw: Redis, keys: Keys) -> None:
    assert await check(raw, keys) == []


# ---- after every transition ----


def checked(store: Store, check_invariants: CheckInvariants) -> set[str]:
    """Has a check follow each call of the store that may write. Returns the scripts called, as they come."""
    called: set[str] = set()

    def followed(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            answer = await method(*arguments, **named)
            called.add(name)
            await check_invariants()
            return answer

        return call

    for name in WRITING:
        setattr(store, name, followed(name, getattr(store, name)))
    return called


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

    for story in (*stories.OF_RUNS, *stories_of_waits.STORIES, *stories.OF_THE_REST):
        await story(store)

    assert called == WRITING


# ---- while runs move ----


Command = tuple[Any, ...]


class Interrupted:
    """A client for which, once it has looked into a key, something happens before it looks any further."""

    def __init__(self, client: Redis, key: str, event: Callable[[], Awaitable[object]]) -> None:
        self._client = client
        self._key = key.encode()
        self._event = event
        self.has_happened = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def pipeline(self, *, transaction: bool) -> InterruptedPipeline:
        assert not transaction
        return InterruptedPipeline(self)

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute()

    def looks_into_it(self, command: Command) -> bool:
        return command[:2] == ("ZSCAN", self._key)

    async def interrupt(self) -> None:
        if not self.has_happened:
            self.has_happened = True
            await self._event()


class InterruptedPipeline:
    """Sent in two halves, as far as Redis can tell, when it looks into the key."""

    def __init__(self, client: Interrupted) -> None:
        self._client = client
        self._commands: list[Command] = []

    def execute_command(self, *command: Any) -> None:
        self._commands.append(command)

    async def execute(self) -> list[Any]:
        for place, command in enumerate(self._commands, start=1):
            if self._client.looks_into_it(command):
                before = await self._client.ask(self._commands[:place])
                await self._client.interrupt()
                return before + await self._client.ask(self._commands[place:])
        return await self._client.ask(self._commands)


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
    await register(
        store,
        a_workflow(max_attempts=2, start_timeout_ms=RUN_TIMEOUT_MS, run_timeout_ms=RUN_TIMEOUT_MS),
    )
    await store.complete(a_completion(await start_one(store, idempotency_key="key", idempotency_ttl_ms=HOUR_MS)))
    lease = await start_one(store)
    await store.record_step(a_record(lease))
    await enqueue_one(store)
    await enqueue_one(store, available_at_ms=START_MS + HOUR_MS)
    client = Interrupted(raw, key_of(keys), lambda: event(store, lease))

    found = await check(client, keys)  # type: ignore[arg-type]  # all that is asked of a client

    assert client.has_happened
    assert found == []


async def emit(store: Store, lease: ClaimedRun) -> None:
    await store.emit_event(an_event("paid"))
    await store.emit_event(an_event("large"))


async def fire(store: Store, lease: ClaimedRun) -> None:
    later(store, HOUR_MS)
    await store.fire_timers(100)


async def begin(store: Store, lease: ClaimedRun) -> None:
    await store.step_wait(some_waits(lease, a_sleep(), an_event_wait(), a_wait_for("patient"), a_token_wait(lease)))


async def cancel(store: Store, lease: ClaimedRun) -> None:
    await store.cancel("patient", "changed my mind", "")


async def deliver(store: Store, lease: ClaimedRun) -> None:
    await store.deliver_events()


async def forget(store: Store, lease: ClaimedRun) -> None:
    await store.deliver_events()
    later(store, HOUR_MS)
    await store.forget_events()


async def start(store: Store, lease: ClaimedRun) -> None:
    await store.step_start(a_start(lease, close_policy=ClosePolicy.CANCEL))


LOOKED_INTO_FOR_WAITS: Final[dict[str, Callable[[Keys], str]]] = {
    "the timers": lambda keys: keys.timers,
    "the event memory": lambda keys: keys.event_memory,
    "the deliveries": lambda keys: keys.deliveries,
}


@pytest.mark.parametrize("event", [emit, fire, begin, cancel, deliver, forget, start, complete])
@pytest.mark.parametrize("key_of", LOOKED_INTO_FOR_WAITS.values(), ids=LOOKED_INTO_FOR_WAITS)
async def test_what_happens_to_waits_during_a_check_is_not_reported(
    key_of: Callable[[Keys], str],
    event: Callable[[Store, ClaimedRun], Awaitable[None]],
    store: Store,
    raw: Redis,
    keys: Keys,
) -> None:
    await set_the_scene(store)
    lease = await start_one(store, workflow="other")
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


@pytest.mark.parametrize("park_window", [10.0, 0.0])
async def test_runs_that_wait_are_never_caught_between_a_wait_and_where_it_stands(
    client: Client, start_worker: StartWorker, raw: Redis, keys: Keys, park_window: float
) -> None:
    @workflow(name="short", queue="q")
    async def short(ctx: Context) -> None:
        await ctx.step.sleep("sleep", 0.02)

    @workflow(name="waits", queue="q")
    async def waits(ctx: Context, number: int) -> None:
        await ctx.step.start_workflow("ward", "nobody's", queue="nowhere", parent_close="cancel")
        token = await ctx.step.token("token", timeout=3600)
        await ctx.step.run("complete", client.complete_token, token, number)
        await asyncio.gather(token.result(), ctx.step.run_workflow("child", short))
        event = ctx.step.wait_for_event("event", "paid", key=str(number % 10))
        await ctx.step.race("race", event=event, sleep=ctx.step.sleep("late", 0.05))

    async def start_and_wait(number: int) -> None:
        handle = await client.start(waits, number)
        await client.emit_event("paid", number, key=str(number % 10))
        await handle.result(timeout=60)

    async def start_waves() -> None:
        first = 0
        while first < 100 or not was_seen.is_set():
            await asyncio.gather(*(start_and_wait(first + i) for i in range(20)))
            first += 20

    await start_worker(short, waits, concurrency=5, park_window=park_window)
    was_seen = asyncio.Event()
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        waves = group.create_task(start_waves())
        while not waves.done():
            assert await check(raw, keys) == []
            runs = (await read_snapshot(raw, keys)).runs
            if any(run.waits and ("parked" in run.record or park_window == 0) for run in runs):
                was_seen.set()
    assert await check(raw, keys) == []
