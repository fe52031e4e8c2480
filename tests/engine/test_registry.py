"""The registry: what live workers registered stays in force, comes back when it is lost, and is rolled back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redflow_server.domain.errors import InvalidInput, StoreFull, WorkflowNotFound
from redflow_server.domain.leases import Lane
from redflow_server.domain.registry import Registration, RegistrationStatus
from redflow_server.domain.session import OpenSession
from redflow_server.store.calls.registry import STALE_MS
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import LANE, START_MS, Changes, a_workflow, enqueue_one, memory_is_full
from tests.engine.conftest import OpenWorker
from tests.engine.engine_worker import definitions_of
from tests.engine.parts import Engine, Stores
from tests.redis_command import RedisCommand

ASSERTED_EVERY_MS = 10_000


async def forget_registry(redis: RedisCommand, keys: Keys) -> None:
    """The registry is lost: somebody flushed its keys."""
    names = await redis("SMEMBERS", keys.workflows)
    assert names
    owners = [keys.owner_workflows("owner-1"), keys.owner_builds("owner-1")]
    await redis("DEL", keys.workflows, *owners, *(keys.workflow(name) for name in names))


# ---- lost and found ----


async def test_what_live_workers_registered_comes_back_with_the_next_pass_when_it_is_lost(
    engine: Engine, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    lanes = [Lane("q", f"w{number}") for number in range(5)]
    await open_worker(engine, *lanes[:3])
    await open_worker(engine, *lanes[3:], owner="owner-2")
    before = [await engine.registry.get(lane.workflow) for lane in lanes]

    await forget_registry(redis, keys)
    with pytest.raises(WorkflowNotFound):
        await engine.registry.get("w0")
    await engine.sessions.assert_registry()

    after = [await engine.registry.get(lane.workflow) for lane in lanes]
    assert [replace(one, updated_at_ms=0) for one in after] == [replace(one, updated_at_ms=0) for one in before]


async def test_a_run_can_be_started_by_its_workflow_again_after_that_pass(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    worker = await open_worker(engine)
    await forget_registry(redis, keys)
    await engine.sessions.assert_registry()

    run_id = await enqueue_one(store, queue=None)
    await engine.upkeep.look_ahead()

    assert (await worker.assignment()).run_id == run_id


async def test_a_worker_that_has_gone_brings_nothing_back(
    engine: Engine, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    worker = await open_worker(engine)
    await worker.close()
    await forget_registry(redis, keys)
    await engine.sessions.assert_registry()
    assert await redis("EXISTS", keys.workflows) == 0


async def test_more_definitions_than_one_script_looks_at_are_all_kept(
    engine: Engine, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    lanes = [Lane("q", f"w{number:03}") for number in range(450)]
    await open_worker(engine, *lanes)
    await redis("DEL", keys.workflow("w449"))
    await redis("SREM", keys.workflows, "w449")

    await engine.sessions.assert_registry()

    assert (await engine.registry.get("w449")).definition.queue == "q"


# ---- roll-out and roll-back ----


def a_build(build: str, **changes: Changes) -> dict[str, Changes]:
    """The fields of an opening of this build, whose definition of `LANE` differs from those of others."""
    [definition] = definitions_of([LANE])
    return {"build_id": build, "workflows": (replace(definition, digest=f"digest of {build}", **changes),)}


async def build_in_force(engine: Engine) -> str:
    return (await engine.registry.get(LANE.workflow)).build_id


async def test_the_build_that_was_seen_last_is_in_force_while_it_lives_and_the_one_before_it_after_thirty_seconds(
    stores: Stores, open_worker: OpenWorker
) -> None:
    here, there = await stores.open(), await stores.open()
    old, new = Engine(here), Engine(there)

    async def pass_time(ms: int) -> None:
        """Every gateway asserts what its workers brought, ten seconds apart."""
        until_ms = (here.now_ms or 0) + ms
        while (here.now_ms or 0) < until_ms:
            here.now_ms = there.now_ms = min(until_ms, (here.now_ms or 0) + ASSERTED_EVERY_MS)
            await old.sessions.assert_registry()
            await new.sessions.assert_registry()

    here.now_ms = there.now_ms = START_MS
    await open_worker(old, **a_build("build-1", max_attempts=1))
    await pass_time(1000)
    later = await open_worker(new, **a_build("build-2", max_attempts=2))
    assert await build_in_force(old) == "build-2"
    await pass_time(10 * STALE_MS)
    assert await build_in_force(old) == "build-2", "the earlier one does not come back while the later one lives"

    await later.close()
    await pass_time(STALE_MS - ASSERTED_EVERY_MS)
    assert await build_in_force(old) == "build-2", "its workers may only be between two connections"
    await pass_time(2 * ASSERTED_EVERY_MS)

    assert await build_in_force(old) == "build-1"
    assert (await old.registry.get(LANE.workflow)).definition.max_attempts == 1


async def test_a_worker_of_an_earlier_build_is_told_so_and_serves_the_workflow_all_the_same(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    store.now_ms = START_MS
    await open_worker(engine, slot_limit=0, **a_build("build-1"))
    store.now_ms += 1000
    await open_worker(engine, slot_limit=0, **a_build("build-2"))
    store.now_ms += 1000
    run_id = await enqueue_one(store)

    earlier = await open_worker(engine, **a_build("build-1"))

    assert (await earlier.assignment()).run_id == run_id
    assert earlier.opened is not None
    [result] = earlier.opened.registrations
    assert result.status is RegistrationStatus.SUPERSEDED
    assert "still serves" in result.message


async def test_a_session_serves_the_queue_that_its_workflow_has_left_while_runs_may_be_there(
    engine: Engine, store: Store, open_worker: OpenWorker
) -> None:
    before = await open_worker(engine, slot_limit=0)
    await before.close()
    run_id = await enqueue_one(store)

    moved = a_workflow(queue="another", digest="moved")
    worker = await open_worker(engine, workflows=(moved,), build_id="build-2")

    assert (await worker.assignment()).run_id == run_id


# ---- one registration ----


async def test_of_a_registration_what_is_invalid_is_reported_and_the_rest_is_in_force(engine: Engine) -> None:
    definitions = (a_workflow(name="good"), a_workflow(name="bad", max_attempts=0), a_workflow(name="also good"))
    results = await engine.registry.register(Registration("owner-1", "build-1", definitions))

    assert [(result.name, result.status) for result in results] == [
        ("good", RegistrationStatus.REGISTERED),
        ("bad", RegistrationStatus.INVALID),
        ("also good", RegistrationStatus.REGISTERED),
    ]
    assert "max_attempts" in results[1].message
    found, last = await engine.registry.list(10, "")
    assert ([one.definition.name for one in found], last) == (["also good", "good"], "")


async def test_a_name_that_comes_twice_is_registered_as_it_came_first_and_said_so_one_by_one(engine: Engine) -> None:
    definitions = (a_workflow(max_attempts=3, digest="a"), a_workflow(max_attempts=5, digest="b"))

    results = await engine.registry.register(Registration("owner-1", "build-1", definitions))

    assert (await engine.registry.get("w")).definition.max_attempts == 3
    assert [result.status for result in results] == [RegistrationStatus.REGISTERED, RegistrationStatus.INVALID]


@pytest.mark.parametrize(("owner", "build"), [("", "b"), ("o\n", "b"), ("o", ""), ("o", "x" * 257)])
async def test_an_owner_or_build_without_a_proper_name_registers_nothing(
    engine: Engine, owner: str, build: str
) -> None:
    with pytest.raises(InvalidInput):
        await engine.registry.register(Registration(owner, build, (a_workflow(),)))
    assert await engine.registry.list(10, "") == ((), "")


async def test_the_list_of_workflows_comes_in_pages_by_name(engine: Engine) -> None:
    names = sorted(["b", "a", "c:d", "\N{EURO SIGN}", "Z"])
    definitions = tuple(a_workflow(name=name) for name in names)
    await engine.registry.register(Registration("owner-1", "build-1", definitions))

    found, last = [], ""
    for _ in range(len(names)):
        page, last = await engine.registry.list(2, last)
        found += [one.definition.name for one in page]
        if not last:
            break

    assert found == names
    assert last == ""


async def test_a_worker_without_workflows_registers_nothing(engine: Engine, open_worker: OpenWorker) -> None:
    worker = await open_worker(engine, workflows=())
    opening: OpenSession = worker.opening
    assert opening.workflows == ()
    await engine.sessions.assert_registry()
    assert await engine.registry.list(10, "") == ((), "")


# ---- when memory is full ----


async def test_a_set_that_is_lost_and_has_no_room_keeps_no_other_from_being_refreshed(
    engine: Engine, store: Store, redis: RedisCommand, keys: Keys, open_worker: OpenWorker
) -> None:
    store.now_ms = START_MS
    await open_worker(engine, Lane("q", "lost"))
    await open_worker(engine, Lane("q", "stale"), owner="owner-2")
    await redis("DEL", keys.workflow("lost"))
    await redis("SREM", keys.workflows, "lost")
    store.now_ms += 2 * STALE_MS
    async with memory_is_full(redis):
        with pytest.raises(StoreFull):
            await engine.sessions.assert_registry()
    assert (await engine.registry.get("stale")).updated_at_ms == store.now_ms

    await engine.sessions.assert_registry()

    assert (await engine.registry.get("lost")).updated_at_ms == store.now_ms


async def test_the_log_names_what_a_registration_retires(
    engine: Engine, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Two programs with different workflows under one owner retire each other's, which nobody would guess."""
    store.now_ms = START_MS
    await engine.registry.register(Registration("owner-1", "b", (a_workflow(name="mine"), a_workflow(name="yours"))))
    store.now_ms = START_MS + STALE_MS + 1
    await engine.registry.register(Registration("owner-1", "b", (a_workflow(name="mine"),)))
    told = [record.getMessage() for record in caplog.records if "retired" in record.getMessage()]
    assert told == ["workflow 'yours' is retired: owner 'owner-1' no longer has it, and no worker has used it lately"]
