"""Each rule of the checker tells of what breaks it, by name, and of nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from redflow_server.domain.waits import event_channel
from redflow_server.store import snapshot
from redflow_server.store.calls.registry import STALE_MS
from redflow_server.store.invariants import RULES, check
from redflow_server.store.key_kinds import kind_of
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.builders import START_MS, a_workflow, an_event, register
from tests.conftest import CheckInvariants
from tests.redis_command import RedisCommand
from tests.store.faults import FAULTS_BETWEEN, FAULTS_OF_RUNS
from tests.store.faults_of_waits import FAULTS_OF_EVENTS, FAULTS_OF_WAITS, LEFT_TO_THE_OUTBOX
from tests.store.scene import set_the_scene

FAULTS: Final = FAULTS_OF_RUNS + FAULTS_BETWEEN + FAULTS_OF_WAITS + FAULTS_OF_EVENTS
BY_RULE: Final = {rule: [fault for fault in FAULTS if fault.found[0][0] == rule] for rule in RULES}


@pytest_asyncio.fixture
async def scene(store: Store) -> None:
    await set_the_scene(store)


@pytest_asyncio.fixture
async def client(redis_dial: Dial) -> AsyncIterator[Redis]:
    """A client that answers bytes."""
    async with redis_dial.client() as client:
        yield client


@asynccontextmanager
async def planted(plant: Iterable[str], redis: RedisCommand, keys: Keys) -> AsyncIterator[None]:
    """Runs commands. Afterwards the keys that they name are as before."""
    commands = [
        [word.replace("P:", f"{keys.prefix}:", 1).replace("~", " ") for word in line.split(" ")] for line in plant
    ]
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
@pytest.mark.parametrize("rule", RULES)
async def test_every_fault_is_reported_until_it_is_mended(
    rule: str, client: Redis, redis: RedisCommand, keys: Keys
) -> None:
    assert await found_by(client, keys) == set()
    # One scene for all of a rule: each fault is mended before the next is planted.
    for fault in BY_RULE[rule]:
        async with planted(fault.plant, redis, keys):
            found = await found_by(client, keys)
        expected = {(name, subject.replace("P:", f"{keys.prefix}:", 1)) for name, subject in fault.found}
        assert found == expected, fault.name
    assert await found_by(client, keys) == set()


def test_every_rule_has_a_fault_of_its_own_and_a_meaning() -> None:
    assert {fault.found[0][0] for fault in FAULTS if len(fault.found) == 1} == set(RULES)
    assert all(RULES.values())


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("plant", LEFT_TO_THE_OUTBOX.values(), ids=LEFT_TO_THE_OUTBOX)
async def test_what_an_end_has_left_to_the_outbox_is_no_fault(
    plant: tuple[str, ...], client: Redis, redis: RedisCommand, keys: Keys
) -> None:
    async with planted(plant, redis, keys):
        assert await found_by(client, keys) == set()
    async with planted([line for line in plant if "P:outbox" not in line], redis, keys):
        assert await found_by(client, keys) != set()


@pytest.mark.usefixtures("scene")
async def test_a_channel_has_too_many_events_only_while_waits_are_left_to_hear_of_its_oldest(
    client: Redis, redis: RedisCommand, store: Store, keys: Keys
) -> None:
    log = keys.event_log(event_channel("large", None))
    for _ in range(110):
        await store.emit_event(an_event("large"))
    assert await redis("XLEN", log) == 111
    assert await found_by(client, keys) == set()

    async with planted(["DEL P:deliveries"], redis, keys):
        assert await found_by(client, keys) == {("event-memory", log)}

    assert not await store.deliver_events()
    assert await redis("XLEN", log) == 100
    assert await found_by(client, keys) == set()


@pytest.mark.usefixtures("scene")
async def test_the_bytes_of_a_large_memory_are_added_up_in_parts(
    client: Redis, redis: RedisCommand, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SUMMED", 1)
    assert await found_by(client, keys) == set()
    async with planted(["INCRBY P:event-bytes 1"], redis, keys):
        assert await found_by(client, keys) == {("event-memory", keys.event_bytes)}


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
        "waits": keys.waits("run_1"),
        "awaiters": keys.awaiters("run_1"),
        "cursors": keys.cursors("run_1"),
        "children": keys.children("run_1"),
        "emitted": keys.emitted("evt_1"),
        "event_key": keys.event_key(user_name, user_name),
        "event_log": keys.event_log(event_channel(user_name, None)),
        "event_waits": keys.event_waits(event_channel(user_name, user_name)),
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
    counters = ("run_seq", "lane_seq", "reap_last", "reap_not_before", "event_seq", "event_bytes", "events_dropped")
    shared = dict.fromkeys(counters, "counter")
    shared |= dict.fromkeys(("cron_next", "cron_last"), "cron_times")
    names |= of_users

    kinds = {name: kind_of(key.removeprefix("P:").encode()) for name, key in names.items()}

    assert {name: kind.name if kind else None for name, kind in kinds.items()} == {
        name: shared.get(name, name) for name in names
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
