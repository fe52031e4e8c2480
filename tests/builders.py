"""What tests of transitions are made of: requests with everything filled in, runs in each state, and ways to look.

A builder `a_thing(**changes)` makes a request; a test names only what it is about. `enqueue_one`, `claim_one`,
`start_one` and `put_in_state` bring a run where a test begins; `everything` and `Messages` show what a script did.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

from redflow_server.domain.events import NewEvent
from redflow_server.domain.failures import Failure, FailureKind
from redflow_server.domain.ids import new_event_id, new_run_id, new_secret
from redflow_server.domain.leases import (
    AbortRun,
    Claim,
    ClaimedRun,
    CompleteRun,
    FailAttempt,
    Lane,
    LeaseStanding,
    LeaseToRenew,
    ListedLease,
    RecordStep,
    Release,
    ReleaseReason,
    Stamp,
    StepRecord,
)
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import CronSchedule, PlannedSchedule, Registration, WorkflowDefinition
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import RunStatus, StepKind, StepStatus
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.replies import Reaped
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.redis_command import RedisCommand
from tests.wait_builders import a_suspension

Changes = Any  # Any: fields of the dataclass that is built

START_MS: Final = 2_000_000_000_000
"""Where tests stand in time. It lies ahead of the real clock, so that an absolute TTL does not end a key at once."""
LEASE_MS: Final = 30_000
DELIVERY_MS: Final = 15_000
GRACE_MS: Final = 30_000
LANE: Final = Lane("q", "w")
STAMP: Final = Stamp("session-1", 1, "gateway-1")
"""The session that claims unless a test says otherwise."""
LATER_STAMP: Final = Stamp("session-2", 2, "gateway-2")
"""The next session of the same worker, at another gateway."""

MISSING: Final = "missing"
HALF_WRITTEN: Final = "half-written"
STATES: Final = (*RunStatus, MISSING, HALF_WRITTEN)
"""Every state that `put_in_state` makes: all statuses, no run at all, and a record without a status."""
PLANTED: Final = (HALF_WRITTEN,)
"""Those that are written by hand, and break an invariant."""


def every_state_but(*excluded: str) -> list[ParameterSet]:
    """Parameters of a test that runs in each other state of `STATES`."""
    marks = {state: (pytest.mark.leaves_faults,) if state in PLANTED else () for state in STATES}
    return [pytest.param(state, marks=marks[state], id=str(state)) for state in STATES if state not in excluded]


# ---- requests ----


def a_run(**changes: Changes) -> NewRun:
    """A run of workflow `w` in queue `q`, with an id of its own."""
    run = NewRun(run_id=new_run_id(), workflow=LANE.workflow, input=Payload(b'{"n":1}'), queue=LANE.queue)
    return replace(run, **changes)


def a_workflow(**changes: Changes) -> WorkflowDefinition:
    """The definition of workflow `w` in queue `q`: one attempt, no policy, no time-outs."""
    return replace(WorkflowDefinition(name=LANE.workflow, digest="digest-1", queue=LANE.queue), **changes)


def a_claim(*lanes: Lane, **changes: Changes) -> Claim:
    """A claim by `STAMP` of up to 10 runs from the lanes (from `LANE` when none is given), with a fresh secret."""
    claim = Claim(stamp=STAMP, lanes=lanes or (LANE,), count=10, secret=new_secret(), lease_ms=DELIVERY_MS)
    return replace(claim, **changes)


def a_step(name: str = "a", output: bytes | None = b"1", **changes: Changes) -> StepRecord:
    """A step function that succeeded with these bytes; None is a step without output."""
    step = StepRecord(
        name=name,
        seq=1,
        kind=StepKind.FUNCTION,
        status=StepStatus.SUCCEEDED,
        output=None if output is None else Payload(output),
        failure=None,
        is_final=False,
        elapsed_ms=5,
    )
    return replace(step, **changes)


def a_failed_step(name: str = "a", message: str = "no luck", **changes: Changes) -> StepRecord:
    """A step function that raised."""
    failed = {"status": StepStatus.FAILED, "failure": a_failure(message=message), **changes}
    return a_step(name, None, **failed)


def a_failure(**changes: Changes) -> Failure:
    """An error of user code that may be retried."""
    return replace(Failure(type="ValueError", message="no luck", kind=FailureKind.ERROR), **changes)


def a_record(lease: ClaimedRun, step: StepRecord | None = None, **changes: Changes) -> RecordStep:
    """The report of a step under a lease."""
    return replace(RecordStep(lease.run_id, lease.lease_token, 0, step or a_step()), **changes)


def a_completion(lease: ClaimedRun, output: bytes | None = b'"done"', **changes: Changes) -> CompleteRun:
    """The result of a handler that returned."""
    payload = None if output is None else Payload(output)
    return replace(CompleteRun(lease.run_id, lease.lease_token, 0, payload), **changes)


def a_failed_attempt(lease: ClaimedRun, failure: Failure | None = None, **changes: Changes) -> FailAttempt:
    """The result of a handler that raised. No jitter, so that delays are exact."""
    return replace(FailAttempt(lease.run_id, lease.lease_token, 0, failure or a_failure(), jitter=0.0), **changes)


def an_abort(lease: ClaimedRun, **changes: Changes) -> AbortRun:
    """The result of a handler that its worker stopped because the worker itself stops."""
    failure = a_failure(type="CanceledError", message="stopped", kind=FailureKind.CANCELED)
    abort = AbortRun(lease.run_id, lease.lease_token, 0, is_worker_stopped=True, reason="stopped", failure=failure)
    return replace(abort, **changes)


def a_release(lease: ClaimedRun, reason: ReleaseReason = ReleaseReason.SHUTDOWN, **changes: Changes) -> Release:
    """A lease handed back by its worker; with `stamp=` by a gateway on its own account."""
    return replace(Release(lease.run_id, lease.lease_token, reason), **changes)


AWKWARD_BYTES: Final = {
    "an empty string": b"",
    "NUL bytes": b"\x00a\x00",
    "invalid UTF-8": b"\xff\xfe\xc3(",
    "a number above 2^53": b"9007199254740993",
    "a long fraction": b"0.1000000000000000055511151231257827",
    "what looks like a pattern": b"a|b %s {} \r\n$-1\r\n",
    "1 MiB": b"\x00\xff" * (512 * 1024),
}
"""Payloads that come back changed when somebody on the way reads them as text, a number or a pattern."""


def a_listing(lease: ClaimedRun, *open_waits: str) -> LeaseToRenew:
    """A lease as its worker lists it, with the waits that it takes to be open."""
    return LeaseToRenew(lease.run_id, ListedLease(lease.lease_token, open_waits))


def a_lease(run_id: str) -> ClaimedRun:
    """A lease that the store never gave, for a run in whatever state."""
    return ClaimedRun(run_id, f"{run_id}.{new_secret()}", LANE, 1, 1, 1, None, ())


# ---- bringing a run somewhere ----


async def register(store: Store, *definitions: WorkflowDefinition, owner: str = "owner-1") -> None:
    """Registers an owner's workflows (the plain `a_workflow()` when none is given)."""
    await store.register(Registration(owner, "build-1", definitions or (a_workflow(),)))


async def enqueue_one(store: Store, **changes: Changes) -> str:
    """Enqueues `a_run(**changes)`; its id."""
    started = await store.enqueue(a_run(**changes))
    return started.run_id


async def claim_one(store: Store, lane: Lane = LANE, **changes: Changes) -> ClaimedRun:
    """Claims the first run of a lane, or one of it that is delivered alone. Nobody has acknowledged it yet."""
    claimed = await store.claim(a_claim(lane, count=1, **changes))
    if not claimed.runs:
        claimed = await store.claim(a_claim(replace(lane, is_solo=True), count=1, **changes))
    [run] = claimed.runs
    return run


async def renew_one(
    store: Store, lease: ClaimedRun, stamp: Stamp = STAMP, open_waits: Iterable[str] = ()
) -> LeaseStanding:
    """Renews one lease for a session: the receipt of its worker, or its heartbeat."""
    [standing] = await store.renew(stamp, [a_listing(lease, *open_waits)], LEASE_MS, GRACE_MS)
    return standing


async def start_one(store: Store, **changes: Changes) -> ClaimedRun:
    """Enqueues `a_run(**changes)` and claims it; its worker has acknowledged the assignment."""
    run = a_run(**changes)
    await store.enqueue(run)
    lease = await claim_one(store, Lane(run.queue or LANE.queue, run.workflow))
    assert lease.run_id == run.run_id, "another run stood before it in the lane"
    await renew_one(store, lease)
    return lease


async def request_cancel(store: Store, run_id: str, reason: str = "changed my mind") -> None:
    """Asks for a run to be canceled: a leased one carries the request until its lease ends."""
    await store.cancel(run_id, reason, "cancel-1")


async def let_leases_expire(store: Store) -> Reaped:
    """Goes forward in time until every lease that is not renewed is overdue and reaped; where those runs went."""
    assert store.now_ms is not None
    for _ in range(4):
        store.now_ms += LEASE_MS + 1
        reaped = await store.reap(LEASE_MS, 10 * LEASE_MS, 100)
        if reaped.total:
            return reaped
    raise AssertionError("no lease was reaped")


async def put_in_state(store: Store, redis: RedisCommand, keys: Keys, state: str) -> str:
    """A run of `LANE` in a state of `STATES`; its id. The lane must be empty."""
    if state == MISSING:
        return new_run_id()
    if state == HALF_WRITTEN:
        run_id = new_run_id()
        await redis("HSET", keys.run(run_id), "workflow", LANE.workflow, "queue", LANE.queue, "attempt", "0")
        return run_id
    if state == RunStatus.SCHEDULED:
        return await enqueue_one(store, available_at_ms=(store.now_ms or START_MS) + 3_600_000)
    if state == RunStatus.QUEUED:
        return await enqueue_one(store)
    lease = await start_one(store)
    match state:
        case RunStatus.WAITING:
            await store.suspend(a_suspension(lease))
        case RunStatus.SUCCEEDED:
            await store.complete(a_completion(lease))
        case RunStatus.FAILED:
            await store.fail(a_failed_attempt(lease))
        case RunStatus.CANCELED:
            await store.abort(an_abort(lease))
    return lease.run_id


@asynccontextmanager
async def memory_is_full(redis: RedisCommand) -> AsyncIterator[None]:
    """Redis refuses what takes memory; its limit is as before afterwards."""
    _, before = await redis("CONFIG", "GET", "maxmemory")
    used = await redis("INFO", "memory")
    await redis("CONFIG", "SET", "maxmemory", int(used["used_memory"]) // 2)
    try:
        yield
    finally:
        await redis("CONFIG", "SET", "maxmemory", before)


# ---- looking ----


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run stands, of the places of which it may have exactly one while it is open."""

    lanes: tuple[str, ...]
    scheduled_at_ms: int | None
    lease_until_ms: int | None
    statuses: tuple[str, ...]


async def places(redis: RedisCommand, keys: Keys, run_id: str) -> Places:
    """Every lane, set and status index that has the run."""
    lanes = [
        name for name in await redis("ZRANGE", keys.lanes, 0, -1) if await redis("ZSCORE", keys.lane(name), run_id)
    ]
    scheduled = await redis("ZSCORE", keys.scheduled, run_id)
    lease = await redis("ZSCORE", keys.leases, run_id)
    statuses = [status.value for status in RunStatus if await redis("ZSCORE", keys.status(status), run_id) is not None]
    return Places(
        lanes=tuple(lanes),
        scheduled_at_ms=None if scheduled is None else int(float(scheduled)),
        lease_until_ms=None if lease is None else int(float(lease)),
        statuses=tuple(statuses),
    )


async def lane_of(redis: RedisCommand, keys: Keys, lane: Lane = LANE) -> list[str]:
    """The runs of a lane in the order in which they are claimed."""
    found: list[str] = await redis("ZRANGE", keys.lane(lane_name(lane.queue, lane.workflow)), 0, -1)
    return found


async def record_of(redis: RedisCommand, keys: Keys, run_id: str) -> dict[str, str]:
    """The fields of a run's record; empty when there is none."""
    flat = await redis("HGETALL", keys.run(run_id))
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


async def everything(redis: RedisCommand, keys: Keys) -> dict[str, Any]:
    """All that is stored under the test's prefix, by key: equal before and after means that nothing was written.

    Values are compared as text, with bytes that are no UTF-8 replaced.
    """
    found: dict[str, Any] = {}
    cursor = "0"
    while True:
        cursor, names = await redis("SCAN", cursor, "MATCH", f"{keys.prefix}:*", "COUNT", 1000)
        for name in names:
            found[name] = await _content(redis, name)
        if str(cursor) == "0":
            return found


async def _content(redis: RedisCommand, key: str) -> Any:  # Any: what the type of the key holds
    match await redis("TYPE", key):
        case "hash":
            flat = await redis("HGETALL", key)
            return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        case "zset":
            return [str(item) for item in await redis("ZRANGE", key, 0, -1, "WITHSCORES")]
        case "set":
            return sorted(await redis("SMEMBERS", key))
        case "stream":
            return await redis("XRANGE", key, "-", "+")
        case "string":
            return await redis("GET", key)
        case other:
            return other


def over(message: str) -> str:
    """The lease and the step that the message of a wait that is over names, without the outcome."""
    kind, token, rest = message.split(" ", 2)
    assert kind == "resolved"
    size, _, rest = rest.partition(":")
    return f"{token} {rest[: int(size)]}"


class Messages:
    """What is published on some channels, such as `keys.wakeups` and `keys.gateway("gateway-1")`.

    `async with Messages.on(redis_url, keys.wakeups) as messages: ...; assert await messages.so_far() == [...]`
    """

    def __init__(self, subscription: Any, publish: Any, channel: str) -> None:  # Any: redis-py's pub/sub is untyped
        self._subscription = subscription
        self._publish = publish
        self._channel = channel
        self._ends = 0

    @classmethod
    @asynccontextmanager
    async def on(cls, redis_url: str, *channels: str) -> AsyncIterator[Messages]:
        """Subscribes; what is published from here on is heard."""
        dial = Dial(redis_url)
        async with dial.client() as client, client.pubsub() as subscription:
            await subscription.subscribe(*channels)
            for _ in channels:
                await subscription.get_message(timeout=5.0)
            try:
                yield cls(subscription, client.publish, channels[0])
            finally:
                await dial.close()

    async def so_far(self) -> list[str]:
        """What has been published since the last look, in order. It publishes a mark and reads up to it."""
        self._ends += 1
        end = f"end-of-look-{self._ends}"
        await self._publish(self._channel, end)
        heard: list[str] = []
        async with asyncio.timeout(5.0):
            while True:
                message = await self._subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
                if message is None:
                    continue
                text = message["data"].decode()
                if text == end:
                    return heard
                heard.append(text)


# ---- events and schedules ----


def an_event(name: str = "paid", data: bytes = b'{"n":1}', **changes: Changes) -> NewEvent:
    """An event with an id of its own."""
    return replace(NewEvent(new_event_id(), name, Payload(data)), **changes)


def a_schedule(schedule_id: str = "cron-1", next_at_ms: int = START_MS + 1000, **changes: Changes) -> PlannedSchedule:
    """A schedule of workflow `w` each second, with its next occurrence; the changes are of its definition."""
    cron = replace(CronSchedule("", "* * * * * *", "", None), **changes)
    return PlannedSchedule(schedule_id, LANE.workflow, cron, next_at_ms)
