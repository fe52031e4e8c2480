"""Each rule of the checker tells of what breaks it, by name, and of nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from redflow_server.domain.leases import Lane
from redflow_server.store.invariants import RULES, check
from redflow_server.store.key_kinds import kind_of
from redflow_server.store.keys import Keys
from redflow_server.store.store import STALE_MS, Store
from redflow_server.store.wire import Dial
from tests.builders import (
    LANE,
    START_MS,
    a_completion,
    a_failed_attempt,
    a_failed_step,
    a_record,
    a_step,
    a_workflow,
    claim_one,
    enqueue_one,
    register,
    request_cancel,
    start_one,
)
from tests.conftest import CheckInvariants
from tests.redis_command import RedisCommand

TIMED: Final = Lane(LANE.queue, "timed")
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Fault:
    """Commands that plant it, with `P` for the prefix; the rules that tell of it, by the subject they name."""

    name: str
    plant: tuple[str, ...]
    found: tuple[tuple[str, str], ...]


def a_fault(rule: str, subject: str, name: str, *plant: str, also: tuple[tuple[str, str], ...] = ()) -> Fault:
    return Fault(f"{rule}: {name}", plant, ((rule, subject), *also))


FAULTS: Final = (
    a_fault("one-place", "queued", "a queued run in no lane", "ZREM P:lane:1:q:1:w queued"),
    a_fault("one-place", "scheduled", "a scheduled run that never becomes due", "ZREM P:scheduled scheduled"),
    a_fault(
        "one-place", "running", "a running run whose lease never ends", "ZREM P:leases running",
        also=(("token-iff-leased", "running"),),
    ),
    a_fault(
        "one-place", "queued", "a queued run that is scheduled too", "ZADD P:scheduled 5 queued",
        also=(("placed-runs-match", "queued"),),
    ),
    a_fault(
        "one-place", "queued", "a queued run in two lanes", "ZADD P:lane:1:q:5:timed 5 queued",
        also=(("placed-runs-match", "queued"),),
    ),
    a_fault(
        "one-place", "running", "a waiting run, as nothing can wait yet",
        "HSET P:run:running status waiting", "HDEL P:run:running leaseToken leaseOwner acked", "ZREM P:leases running",
        "ZREM P:runs:status:running running", "ZADD P:runs:status:waiting 1 running",
        "ZREM P:workflow-runs:running:w running", "ZADD P:workflow-runs:waiting:w 1 running",
    ),
    a_fault("placed-runs-match", "ghost", "no record of what is scheduled", "ZADD P:scheduled 5 ghost"),
    a_fault("placed-runs-match", "ghost", "no record of what is leased", "ZADD P:leases 5 ghost"),
    a_fault("placed-runs-match", "ghost", "no record of what is queued", "ZADD P:lane:1:q:1:w 5 ghost"),
    a_fault(
        "placed-runs-match", "succeeded", "a run that has ended in a lane", "ZADD P:lane:1:q:1:w 5 succeeded",
        also=(("terminal-is-final", "succeeded"),),
    ),
    a_fault("token-iff-leased", "running", "a lease without a token", "HDEL P:run:running leaseToken"),
    a_fault("token-iff-leased", "running", "a lease that nobody holds", "HDEL P:run:running leaseOwner"),
    a_fault("token-iff-leased", "running", "another run's token", "HSET P:run:running leaseToken runn.secret"),
    a_fault("token-iff-leased", "queued", "a token without a lease", "HSET P:run:queued leaseToken queued.secret"),
    a_fault("token-iff-leased", "queued", "a receipt without a lease", "HSET P:run:queued acked 1"),
    a_fault("terminal-is-final", "succeeded", "no time of its end", "HDEL P:run:succeeded finishedAt"),
    a_fault(
        "terminal-is-final", "failed", "a lease after the end", "ZADD P:leases 5 failed",
        also=(("placed-runs-match", "failed"), ("token-iff-leased", "failed")),
    ),
    a_fault(
        "terminal-is-final", "failed", "a token after the end", "HSET P:run:failed leaseToken failed.secret",
        also=(("token-iff-leased", "failed"),),
    ),
    a_fault(
        "terminal-is-final", "canceled", "a deadline after the end", "ZADD P:deadlines 5 canceled",
        also=(("deadlines", "canceled"),),
    ),
    a_fault("listing", "queued", "a run not listed by status", "ZREM P:runs:status:queued queued"),
    a_fault("listing", "failed", "a run not listed by workflow", "ZREM P:workflow-runs:failed:w failed"),
    a_fault("listing", "queued", "a run listed under two statuses", "ZADD P:runs:status:running 5 queued"),
    a_fault("listing", "queued", "a run listed under two workflows", "ZADD P:workflow-runs:queued:timed 5 queued"),
    a_fault("listing", "queued", "a run listed by another number", "ZADD P:runs:status:queued 999 queued"),
    a_fault("listing", "queued", "a run without a number", "HDEL P:run:queued seq"),
    a_fault("listing", "ghost", "an entry without a run", "ZADD P:runs:status:succeeded 999 ghost"),
    a_fault("lanes-set", "P:lane:1:q:1:w", "a lane that nobody will look into", "ZREM P:lanes 1:q:1:w"),
    a_fault("lanes-set", "P:lane:1:q:4:gone", "an empty lane", "ZADD P:lanes 99 1:q:4:gone"),
    a_fault("deadlines", "timed-queued", "a deadline that nobody will see pass", "ZREM P:deadlines timed-queued"),
    a_fault("deadlines", "timed-running", "a deadline at another time", "ZADD P:deadlines 5 timed-running"),
    a_fault("deadlines", "timed-queued", "put off without a delivery", "ZINCRBY P:deadlines 1000 timed-queued"),
    a_fault("deadlines", "queued", "a deadline of a run that has none", "ZADD P:deadlines 5 queued"),
    a_fault("deadlines", "ghost", "a deadline of nobody", "ZADD P:deadlines 5 ghost"),
    a_fault("retention", "succeeded", "a run that is never purged", "ZREM P:finished:succeeded succeeded"),
    a_fault("retention", "queued", "an open run to be purged", f"ZADD P:finished:failed {START_MS} queued"),
    a_fault("retention", "failed", "a run purged as another status", f"ZADD P:finished:canceled {START_MS} failed"),
    a_fault("retention", "canceled", "a run purged too soon", f"ZADD P:finished:canceled {START_MS - 1} canceled"),
    a_fault("retention", "ghost", "nobody to be purged", "ZADD P:finished:succeeded 5 ghost"),
    a_fault("steps", "running", "a step without a value", "HDEL P:run:running:steps o:a"),
    a_fault("steps", "running", "a value without a header", "HDEL P:run:running:steps s:a"),
    a_fault("steps", "succeeded", "a value of another size", "HSET P:run:succeeded:steps o:a 123456"),
    a_fault("steps", "succeeded", "a header that says nothing", "HSET P:run:succeeded:steps s:a gibberish"),
    a_fault("steps", "running", "a field that is no step's", "HSET P:run:running:steps x:a 1"),
    a_fault("steps", "succeeded", "steps miscounted", "HSET P:run:succeeded stepsDone 2"),
    a_fault("steps", "succeeded", "all steps lost", "DEL P:run:succeeded:steps"),
    a_fault("steps", "running", "bytes miscounted", "HSET P:run:running stepsBytes 4"),
    a_fault(
        "idempotency", "P:idempotency:1:w:3:key", "a key that leads to a run without it",
        "SET P:idempotency:1:w:3:key queued KEEPTTL",
    ),
    a_fault(
        "idempotency", "P:idempotency:1:w:5:other", "a key that leads to a run with another",
        "SET P:idempotency:1:w:5:other keyed PX 60000",
    ),
    a_fault(
        "idempotency", "P:idempotency:5:timed:3:key", "a key that leads to a run of another workflow",
        "SET P:idempotency:5:timed:3:key keyed PX 60000",
    ),
    a_fault("idempotency", "keyed", "a key that is forgotten in its window", "DEL P:idempotency:1:w:3:key"),
    a_fault(
        "idempotency", "second", "two runs in the window of a key",
        f"HSET P:run:second idempotencyKey key keyExpiresAt {START_MS + HOUR_MS}",
    ),
    a_fault("numbers", "queued", "a time in floating point", "HSET P:run:queued createdAt 2e+12"),
    a_fault("numbers", "queued", "a count with a fraction", "HSET P:run:queued deliveries 1.0"),
    a_fault("numbers", "queued", "more than Lua can count", f"HSET P:run:queued createdAt {2**53 + 1}"),
    a_fault("numbers", "running", "a score with a fraction", "ZINCRBY P:leases 0.5 running"),
    a_fault(
        "numbers", "succeeded", "a step's time in floating point",
        "HSET P:run:succeeded:steps s:a succeeded|function|1|1|0|2e+12|2000000000000|5|",
    ),
    a_fault("numbers", "P:run-seq", "a counter in floating point", "SET P:run-seq 1e+2"),
    a_fault("numbers", "P:lanes", "a change with a fraction", "ZINCRBY P:lanes 0.5 1:q:1:w"),
    a_fault("numbers", "P:workflow:w", "a workflow's time in floating point", "HSET P:workflow:w updatedAt 2e+12"),
    a_fault("numbers", "P:owner:7:owner-1:builds", "no time at all", "HSET P:owner:7:owner-1:builds build-1 once"),
    a_fault("owned-keys", "P:mystery", "a key of no kind", "SET P:mystery 1"),
    a_fault("owned-keys", "P:lane:1:q:9:w", "a name that does not add up", "ZADD P:lane:1:q:9:w 5 x"),
    a_fault("owned-keys", "P:runs:status:paused", "a status that there is not", "ZADD P:runs:status:paused 5 x"),
    a_fault("owned-keys", "P:sessions", "a key of another type", "SET P:sessions 1"),
    a_fault("owned-keys", "P:session:s", "a session for ever", "SET P:session:s {}"),
    a_fault("owned-keys", "P:idempotency:1:w:3:key", "an idempotency key for ever", "PERSIST P:idempotency:1:w:3:key"),
    a_fault("owned-keys", "P:run:queued", "a run that Redis removes", "PEXPIRE P:run:queued 600000"),
    a_fault("owned-keys", "P:run:gone:data", "payloads of nobody", "HSET P:run:gone:data inputJson 1"),
    a_fault("owned-keys", "P:run:gone:steps", "steps of nobody", "HSET P:run:gone:steps o:a 1"),
    a_fault("owned-keys", "P:run:half", "a record that no script reads", "HSET P:run:half queue q workflow w"),
    a_fault("owned-keys", "P:owner:6:nobody:builds", "builds of nobody", "HSET P:owner:6:nobody:builds b 1"),
    a_fault("registry", "w", "a workflow that is not listed", "SREM P:workflows w"),
    a_fault("registry", "w", "a workflow without its owner", "SREM P:owner:7:owner-1:workflows w"),
    a_fault("registry", "w", "a workflow that its event does not start", "SREM P:event:order:workflows w"),
    a_fault("registry", "w", "a workflow that another event starts", "SADD P:event:payment:workflows w"),
    a_fault("registry", "w", "a workflow of two owners", "SADD P:owner:1:x:workflows w"),
    a_fault("registry", "w", "a workflow without a definition", "DEL P:workflow:w"),
    a_fault("registry", "ghost", "an owner of nothing", "SADD P:owner:7:owner-1:workflows ghost"),
    a_fault("attempts", "succeeded", "more attempts than there may be", "HSET P:run:succeeded attempt 4"),
    a_fault("attempts", "failed", "started in no attempt", "HSET P:run:failed attempt 0"),
    a_fault("attempts", "running", "an attempt that does not follow failures", "HSET P:run:running failures 1"),
    a_fault("places", "queued", "another place in the lane", "ZADD P:lane:1:q:1:w 5 queued"),
    a_fault("places", "scheduled", "due at another time", "ZADD P:scheduled 5 scheduled"),
)  # fmt: skip
"""Places, numbers and times of 5 are those of nothing in the scene."""


@pytest_asyncio.fixture
async def scene(store: Store, keys: Keys) -> None:
    """A run in every state, named after it; `w` is started by an event, and `timed` has time-outs."""
    store.now_ms = START_MS
    await register(
        store,
        a_workflow(max_attempts=3, event_names=("order",)),
        a_workflow(name=TIMED.workflow, start_timeout_ms=60_000, run_timeout_ms=600_000),
    )
    running = await start_one(store, run_id="running")
    await store.record_step(a_record(running, a_step("a", b"12345")))
    await store.record_step(a_record(running, a_failed_step("b")))
    succeeded = await start_one(store, run_id="succeeded")
    await store.complete(a_completion(succeeded, final_steps=(a_step("a", b"12345"),)))
    await store.fail(a_failed_attempt(await start_one(store, run_id="failed", max_attempts=1)))
    await request_cancel(store, await enqueue_one(store, run_id="canceled"))
    await enqueue_one(store, run_id="timed-running", workflow=TIMED.workflow)
    await claim_one(store, TIMED)
    await enqueue_one(store, run_id="timed-queued", workflow=TIMED.workflow)
    await enqueue_one(store, run_id="keyed", idempotency_key="key", idempotency_ttl_ms=HOUR_MS)
    await enqueue_one(store, run_id="queued")
    await enqueue_one(store, run_id="second")
    await enqueue_one(store, run_id="scheduled", available_at_ms=START_MS + HOUR_MS)


@pytest_asyncio.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    """A client that answers bytes."""
    dial = Dial(redis_url)
    async with dial.client() as client:
        yield client
    await dial.close()


@asynccontextmanager
async def planted(fault: Fault, redis: RedisCommand, keys: Keys) -> AsyncIterator[None]:
    """Runs the commands of a fault. Afterwards the keys that they name are as before."""
    commands = [[word.replace("P:", f"{keys.prefix}:", 1) for word in line.split()] for line in fault.plant]
    touched = {command[1] for command in commands}
    kept = {key for key in touched if await redis("COPY", key, f"kept:{key}")}
    try:
        for command in commands:
            await redis(*command)
        yield
    finally:
        await redis("DEL", *touched)
        for key in kept:
            await redis("RENAME", f"kept:{key}", key)


async def found_by(client: Redis, keys: Keys) -> set[tuple[str, str]]:
    found = await check(client, keys)
    assert all(violation.detail for violation in found)
    return {(violation.rule, violation.subject) for violation in found}


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_is_reported_until_it_is_mended(
    fault: Fault, client: Redis, redis: RedisCommand, keys: Keys
) -> None:
    assert await found_by(client, keys) == set()

    async with planted(fault, redis, keys):
        found = await found_by(client, keys)

    assert found == {(rule, subject.replace("P:", f"{keys.prefix}:", 1)) for rule, subject in fault.found}
    assert await found_by(client, keys) == set()


def test_every_rule_has_a_fault_of_its_own_and_a_meaning() -> None:
    assert {fault.found[0][0] for fault in FAULTS if len(fault.found) == 1} == set(RULES)
    assert all(RULES.values())


@pytest.mark.leaves_faults
async def test_names_and_scores_of_foreign_hands_are_reported_not_stumbled_over(
    client: Redis, redis: RedisCommand, store: Store, keys: Keys
) -> None:
    await client.zadd(keys.scheduled, {b"\xff\xfe": float("inf")})
    await client.zadd(keys.lanes, {b"\xff": 1})
    await client.hset(keys.run("odd"), mapping={b"status": b"queued", b"workflow": b"\xff", b"queue": b"\xff"})
    await client.hset(keys.run("odd"), mapping={"seq": "nan", "place": "x", "attempt": "9" * 5000})
    await client.set(keys.run("text"), b"\xff")
    await client.hset(keys.workflow("w"), mapping={"eventsJson": "{", "owner": b"\xff"})
    await client.set(keys.idempotency("w", "k"), b"\xff", px=60_000)

    found = await found_by(client, keys)

    assert {
        ("placed-runs-match", "\ufffd\ufffd"),
        ("numbers", "\ufffd\ufffd"),
        ("one-place", "odd"),
        ("numbers", "odd"),
        ("owned-keys", keys.run("text")),
        ("registry", "w"),
    } <= found


@pytest.mark.parametrize("user_name", ["a", "a:b", "1:a", ":workflows", "é🚀", "*[?]\\", "run:x:data"])
def test_the_kind_of_every_key_is_told_by_its_name(user_name: str) -> None:
    keys = Keys("P")
    no_key = {"prefix", "wakeups", "gateway"}
    names = {
        name: value if isinstance(value, str) else ""
        for name in dir(Keys)
        if not name.startswith("_") and name not in no_key
        for value in [getattr(keys, name)]
    }
    of_users = {
        "run": keys.run("run_1"),
        "data": keys.data("run_1"),
        "steps": keys.steps("run_1"),
        "lane": keys.lane(f"{len(user_name.encode())}:{user_name}:1:w"),
        "status": keys.status("queued"),
        "workflow_status": keys.workflow_status("queued", user_name),
        "finished": keys.finished("failed"),
        "idempotency": keys.idempotency(user_name, user_name),
        "workflow": keys.workflow(user_name),
        "event_workflows": keys.event_workflows(user_name),
        "owner_workflows": keys.owner_workflows(user_name),
        "owner_builds": keys.owner_builds(user_name),
        "session": keys.session("session-1"),
    }
    counters = dict.fromkeys(("run_seq", "lane_seq", "reap_last", "reap_not_before"), "counter")
    names |= of_users

    kinds = {name: kind_of(key.removeprefix("P:").encode()) for name, key in names.items()}

    assert {name: kind.name if kind else None for name, kind in kinds.items()} == {
        name: counters.get(name, name) for name in names
    }


async def test_what_is_kept_for_an_owner_goes_with_its_last_workflow(store: Store) -> None:
    store.now_ms = START_MS
    await register(store, a_workflow(), owner="silent")
    store.now_ms += STALE_MS
    await register(store, a_workflow(), owner="owner-1")


# ---- the check at the end of a test ----


@pytest.mark.usefixtures("scene")
async def test_a_broken_invariant_fails_the_test_that_checks(
    redis: RedisCommand, keys: Keys, check_invariants: CheckInvariants
) -> None:
    await check_invariants()
    await redis("ZADD", keys.scheduled, 5, "ghost")

    with pytest.raises(AssertionError) as raised:
        await check_invariants()
    await redis("ZREM", keys.scheduled, "ghost")

    assert str(raised.value).splitlines() == [
        "what is stored breaks invariants:",
        "  placed-runs-match: ghost stands in scheduled, but it has no record",
    ]


TESTS_THAT_LEAVE_A_FAULT: Final = """
import pytest

async def test_with_a_store(store, redis, keys):
    await redis("ZADD", keys.scheduled, 5, "ghost")

async def test_with_a_gateway(gateway, redis, keys):
    await redis("HSET", keys.run("ghost"), "status", "queued")

async def test_with_neither(redis, keys):
    await redis("ZADD", keys.scheduled, 5, "ghost")

@pytest.mark.leaves_faults
async def test_that_says_so(store, redis, keys):
    await redis("ZADD", keys.scheduled, 5, "ghost")
"""


def test_a_test_that_leaves_a_fault_behind_fails_at_its_end(tmp_path: Path, redis_url: str) -> None:
    path = tmp_path / "test_faults.py"
    path.write_text(TESTS_THAT_LEAVE_A_FAULT)
    root = Path(__file__).parents[2]
    command = (*(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"), str(path))
    settings = ("-c", str(root / "pyproject.toml"), "--rootdir", str(root))
    ended = subprocess.run(
        (*command, *settings),
        cwd=root,
        env={**os.environ, "REDFLOW_TEST_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    errors = [line.split("::")[1] for line in ended.stdout.splitlines() if line.startswith("ERROR")]
    assert [error.split(" ")[0] for error in errors] == ["test_with_a_store", "test_with_a_gateway"], ended.stdout
    assert "4 passed, 2 errors" in ended.stdout
