"""register: an owner's set of workflows is replaced as a whole, without taking anything from whoever is alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from redflow_server.domain.errors import StoreFull
from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import (
    CronSchedule,
    Registration,
    RegistrationResult,
    RegistrationStatus,
    RetryPolicy,
    Workflow,
    WorkflowDefinition,
)
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import LANE, START_MS, a_workflow, claim_one, enqueue_one, everything, memory_is_full
from tests.redis_command import RedisCommand

STALE_MS: Final = 30_000
DAY_MS: Final = 24 * 3600 * 1000
ODD_NAMES: Final = ("a:b", "x:runs", "{a}", "}{", "%d", "🚀 é", "x" * 256)


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def register(
    store: Store, *definitions: WorkflowDefinition, owner: str = "owner-1", build: str = "build-1"
) -> tuple[RegistrationResult, ...]:
    return (await store.register(Registration(owner, build, definitions))).results


async def register_at(store: Store, at_ms: int, *definitions: WorkflowDefinition, build: str = "build-1") -> None:
    """Registers with everything in force."""
    store.now_ms = at_ms
    results = await register(store, *definitions, build=build)
    assert {result.status for result in results} <= {RegistrationStatus.REGISTERED}


async def entry(store: Store, name: str = "w") -> Workflow | None:
    [found] = await store.read_workflows([name])
    return found


async def former_queues(store: Store, *definitions: WorkflowDefinition) -> tuple[str, ...]:
    """What a registration that changes nothing answers."""
    [result] = await register(store, *definitions)
    return result.former_queues


async def subscribers(redis: RedisCommand, keys: Keys, event: str) -> set[str]:
    return set(await redis("SORT", keys.event_workflows(event), "ALPHA"))


# ---- one owner's set ----


async def test_what_is_registered_is_in_force_with_all_it_says(store: Store) -> None:
    definition = WorkflowDefinition(
        name="full",
        digest="digest-1",
        queue="q",
        max_attempts=7,
        retry_policy=RetryPolicy(100, 1.5, 9_000, 0.25),
        run_timeout_ms=60_000,
        start_timeout_ms=5_000,
        failure_handler_timeout_ms=1_000,
        cron=(CronSchedule("nightly", "0 0 * * *", "Europe/Zurich", Payload(b"\x00\xff", "x/y", (("k", "v"),))),),
        event_names=("paid", "a:b"),
        input_json_schema=Payload(b'{"type":"object"}'),
        has_failure_handler=True,
    )
    [result] = await register(store, definition)

    assert result == RegistrationResult("full", RegistrationStatus.REGISTERED)
    assert await entry(store, "full") == Workflow(definition, "owner-1", "build-1", START_MS)


async def test_answers_come_in_the_order_of_the_definitions(store: Store) -> None:
    names = ("c", "a", "b")
    results = await register(store, *(a_workflow(name=name) for name in names))
    assert tuple(result.name for result in results) == names


async def test_registering_the_same_again_only_refreshes(store: Store, redis: RedisCommand, keys: Keys) -> None:
    definition = a_workflow(event_names=("paid",))
    await register(store, definition)
    before = await everything(redis, keys)

    store.now_ms = START_MS + 1000
    await register(store, definition)

    assert (await entry(store)) == Workflow(definition, "owner-1", "build-1", START_MS + 1000)
    after = await everything(redis, keys)
    for found in (before, after):
        del found[keys.workflow("w")]
    assert after == before


async def test_a_changed_definition_of_the_same_build_replaces_the_old_one(store: Store) -> None:
    await register(store, a_workflow(max_attempts=2, run_timeout_ms=1000))
    changed = a_workflow(digest="digest-2", max_attempts=5, has_failure_handler=True)
    await register(store, changed)

    found = await entry(store)
    assert found is not None
    assert found.definition == changed


async def test_runs_take_queue_and_attempts_of_the_changed_definition(store: Store) -> None:
    await register(store, a_workflow(queue="q1", max_attempts=2))
    await register(store, a_workflow(queue="q2", max_attempts=5))

    run = await store.read_run(await enqueue_one(store, queue=None))

    assert (run.queue, run.max_attempts) == ("q2", 5)


@pytest.mark.parametrize("left_for_ms", [0, STALE_MS - 1])
async def test_a_workflow_that_is_left_out_stays_while_it_is_fresh(store: Store, left_for_ms: int) -> None:
    await register(store, a_workflow(name="kept"), a_workflow(name="left"))
    store.now_ms = START_MS + left_for_ms
    await register(store, a_workflow(name="kept"))
    assert await store.list_workflows() == ("kept", "left")


async def test_a_workflow_that_is_left_out_goes_when_it_is_stale_with_every_trace(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    kept = a_workflow(name="kept")
    await register(store, kept)
    before = set(await everything(redis, keys))
    await register(store, kept, a_workflow(name="left", event_names=("paid", "seen")))
    assert set(await everything(redis, keys)) != before

    store.now_ms = START_MS + STALE_MS + 1
    await register(store, kept)

    assert await store.list_workflows() == ("kept",)
    assert await entry(store, "left") is None
    assert set(await everything(redis, keys)) == before


async def test_an_empty_set_retires_all_that_is_stale(store: Store) -> None:
    await register(store, a_workflow(name="a"), a_workflow(name="b"))
    store.now_ms = START_MS + STALE_MS + 1
    registered = await store.register(Registration("owner-1", "build-1", ()))
    assert registered.results == () and set(registered.retired) == {"a", "b"}
    assert await store.list_workflows() == ()


async def test_a_stale_workflow_that_is_in_the_set_is_not_retired(store: Store) -> None:
    await register(store, a_workflow())
    await register_at(store, START_MS + 10 * STALE_MS, a_workflow())
    assert await store.list_workflows() == ("w",)


async def test_a_retired_workflow_can_be_registered_again(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(name="kept"), a_workflow(name="left", event_names=("paid",)))
    await register_at(store, START_MS + STALE_MS + 1, a_workflow(name="kept"))
    await register(store, a_workflow(name="kept"), a_workflow(name="left", event_names=("paid",)))

    assert await store.list_workflows() == ("kept", "left")
    assert await subscribers(redis, keys, "paid") == {"left"}


async def test_runs_of_a_retired_workflow_stay_where_they_are(store: Store) -> None:
    await register(store, a_workflow())
    run_id = await enqueue_one(store)
    await register_at(store, START_MS + STALE_MS + 1, a_workflow(name="other"))
    assert await entry(store) is None
    assert (await claim_one(store)).run_id == run_id


# ---- queues ----


async def test_a_queue_that_was_left_is_remembered_because_runs_may_wait_there(store: Store) -> None:
    await register(store, a_workflow(queue="q1"))
    run_id = await enqueue_one(store, queue=None)

    [result] = await register(store, a_workflow(queue="q2"))

    assert result.former_queues == ("q1",)
    assert (await store.read_run(run_id)).queue == "q1", "what waits there stays there"


async def test_a_queue_that_is_taken_again_is_no_former_one(store: Store) -> None:
    await register(store, a_workflow(queue="q1"))
    await register(store, a_workflow(queue="q2"))
    [result] = await register(store, a_workflow(queue="q1"))
    assert result.former_queues == ("q2",)


async def test_the_last_eight_queues_are_remembered(store: Store) -> None:
    for number in range(12):
        await register_at(store, START_MS + number, a_workflow(queue=f"q{number}"))
    found = await former_queues(store, a_workflow(queue="q11"))
    assert set(found) == {f"q{number}" for number in range(3, 11)}
    assert len(found) == 8


async def test_an_empty_former_queue_is_remembered_for_a_day(store: Store) -> None:
    await register(store, a_workflow(queue="q1"))
    await register(store, a_workflow(queue="q2"))
    store.now_ms = START_MS + DAY_MS - 1
    assert await former_queues(store, a_workflow(queue="q2")) == ("q1",)
    store.now_ms = START_MS + DAY_MS + 1
    assert await former_queues(store, a_workflow(queue="q2")) == ()


async def test_a_former_queue_is_remembered_for_as_long_as_runs_wait_in_it(store: Store) -> None:
    await register(store, a_workflow(queue=LANE.queue))
    await enqueue_one(store)
    await register(store, a_workflow(queue="q2"))

    store.now_ms = START_MS + 30 * DAY_MS
    assert await former_queues(store, a_workflow(queue="q2")) == (LANE.queue,)

    await claim_one(store)
    assert await former_queues(store, a_workflow(queue="q2")) == ()


@pytest.mark.parametrize("queue", ODD_NAMES)
async def test_a_former_queue_may_have_any_name(store: Store, queue: str) -> None:
    await register(store, a_workflow(queue=queue))
    await register(store, a_workflow(queue="q 2:3"))
    [result] = await register(store, a_workflow(queue="q3"))
    assert set(result.former_queues) == {queue, "q 2:3"}


# ---- events ----


async def test_event_subscriptions_follow_the_definition(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(event_names=("paid", "seen")), a_workflow(name="other", event_names=("paid",)))
    assert await subscribers(redis, keys, "paid") == {"w", "other"}

    await register(store, a_workflow(event_names=("seen", "new")), a_workflow(name="other", event_names=("paid",)))

    found = {event: await subscribers(redis, keys, event) for event in ("paid", "seen", "new")}
    assert found == {"paid": {"other"}, "seen": {"w"}, "new": {"w"}}


async def test_an_event_named_twice_is_one_subscription(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(event_names=("paid", "paid")))
    await register(store, a_workflow(event_names=()))
    assert await subscribers(redis, keys, "paid") == set()


# ---- names ----


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_goes_through_register_change_and_retirement(
    store: Store, redis: RedisCommand, keys: Keys, name: str
) -> None:
    definition = a_workflow(name=name, queue=name, event_names=(name,))
    [result] = await register(store, definition, owner=name, build=name)
    assert result == RegistrationResult(name, RegistrationStatus.REGISTERED)
    assert await entry(store, name) == Workflow(definition, name, name, START_MS)
    assert await subscribers(redis, keys, name) == {name}

    store.now_ms = START_MS + 1
    changed = replace(definition, digest="digest-2", queue="q2", event_names=())
    await register(store, changed, owner=name, build=f"{name}2"[-256:])
    assert await subscribers(redis, keys, name) == set()

    store.now_ms = START_MS + STALE_MS + 2
    await register(store, a_workflow(name="other"), owner=name, build=f"{name}2"[-256:])
    assert await store.list_workflows() == ("other",)


async def test_a_workflow_named_like_an_index_of_another_does_not_meet_it(store: Store) -> None:
    await register(store, a_workflow(name="x", queue="q"), a_workflow(name="x:runs", queue="q", max_attempts=3))
    run_id = await enqueue_one(store, workflow="x", queue=None)

    found = await entry(store, "x:runs")
    assert found is not None
    assert found.definition.max_attempts == 3
    assert (await store.read_run(run_id)).workflow == "x"


# ---- when memory is full ----


async def test_what_is_in_force_already_is_registered_while_memory_is_full_by_any_build_and_what_is_new_is_not(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    same, foreign = a_workflow(), a_workflow(name="theirs")
    await register_at(store, START_MS, same)
    await register(store, foreign, owner="owner-2")
    store.now_ms = START_MS + 10_000
    async with memory_is_full(redis):
        for build in ("build-1", "build-2"):
            results = await register(store, same, foreign, build=build)
            statuses = [result.status for result in results]
            assert statuses == [RegistrationStatus.REGISTERED, RegistrationStatus.FOREIGN_OWNER]
        before = await everything(redis, keys)
        for new in (a_workflow(digest="digest-2"), a_workflow(name="new")):
            with pytest.raises(StoreFull):
                await register(store, same, new, build="build-2")
        assert await everything(redis, keys) == before
    found = await entry(store)
    assert found is not None
    assert (found.build_id, found.updated_at_ms) == ("build-2", START_MS + 10_000)
    await register_at(store, START_MS + 20_000, same, a_workflow(name="new"))


async def test_an_earlier_build_is_let_in_beside_the_later_one_while_memory_is_full(
    store: Store, redis: RedisCommand
) -> None:
    await register_at(store, START_MS, a_workflow(), build="build-1")
    await register_at(store, START_MS + 1000, a_workflow(digest="digest-2"), build="build-2")
    async with memory_is_full(redis):
        [result] = await register(store, a_workflow(), build="build-1")
    assert result.status is RegistrationStatus.SUPERSEDED
