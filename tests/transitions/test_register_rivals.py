"""register, when others hold the name: another owner, or another build of the same one."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.registry import (
    Registration,
    RegistrationResult,
    RegistrationStatus,
    Workflow,
    WorkflowDefinition,
)
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, a_workflow, everything
from tests.redis_command import RedisCommand

STALE_MS: Final = 30_000
DAY_MS: Final = 24 * 3600 * 1000


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


async def subscribers(redis: RedisCommand, keys: Keys, event: str) -> set[str]:
    return set(await members(redis, keys.event_workflows(event)))


async def members(redis: RedisCommand, key: str) -> list[str]:
    """The members of a set, in order."""
    found: list[str] = await redis("SORT", key, "ALPHA")
    return found


# ---- other owners ----


async def test_other_owners_keep_what_is_theirs(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(name="theirs", event_names=("paid",)), owner="owner-2")
    theirs = (keys.workflow("theirs"), keys.owner_workflows("owner-2"), keys.owner_builds("owner-2"))
    before = await everything(redis, keys)

    store.now_ms = START_MS + 10 * STALE_MS
    await register(store, a_workflow(name="mine"), owner="owner-1")

    after = await everything(redis, keys)
    assert {key: after[key] for key in theirs} == {key: before[key] for key in theirs}
    assert await store.list_workflows() == ("mine", "theirs")
    assert await subscribers(redis, keys, "paid") == {"theirs"}


@pytest.mark.parametrize("silent_for_ms", [0, STALE_MS - 1])
async def test_a_name_of_another_owner_is_refused_while_it_is_fresh(
    store: Store, redis: RedisCommand, keys: Keys, silent_for_ms: int
) -> None:
    first = a_workflow(event_names=("paid",))
    await register(store, first, owner="owner-1")

    store.now_ms = START_MS + silent_for_ms
    foreign = a_workflow(queue="q2", digest="digest-2", event_names=("stolen",))
    refused, mine = await register(store, foreign, a_workflow(name="mine"), owner="owner-2")

    assert refused.status is RegistrationStatus.FOREIGN_OWNER
    assert mine.status is RegistrationStatus.REGISTERED, "one refusal does not touch the rest of the set"
    assert await entry(store) == Workflow(first, "owner-1", "build-1", START_MS), "nothing of it has changed"
    assert await members(redis, keys.owner_workflows("owner-2")) == ["mine"]
    assert await subscribers(redis, keys, "stolen") == set()


async def test_a_name_is_taken_over_when_its_owner_is_silent(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(event_names=("paid", "seen")), owner="owner-1")

    store.now_ms = START_MS + STALE_MS + 1
    taken = a_workflow(digest="digest-2", event_names=("seen", "new"))
    [result] = await register(store, taken, owner="owner-2", build="build-9")

    assert result.status is RegistrationStatus.REGISTERED
    assert await entry(store) == Workflow(taken, "owner-2", "build-9", store.now_ms)
    assert await members(redis, keys.owner_workflows("owner-2")) == ["w"]
    assert await members(redis, keys.owner_workflows("owner-1")) == []
    subscribed = {event: await subscribers(redis, keys, event) for event in ("paid", "seen", "new")}
    assert subscribed == {"paid": set(), "seen": {"w"}, "new": {"w"}}


async def test_an_owner_that_lost_a_name_does_not_retire_it_from_the_new_one(store: Store) -> None:
    await register(store, a_workflow(), a_workflow(name="mine"), owner="owner-1")
    store.now_ms = START_MS + STALE_MS + 1
    await register(store, a_workflow(), owner="owner-2")

    store.now_ms = START_MS + 2 * STALE_MS + 2
    await register(store, a_workflow(name="mine"), owner="owner-1")

    found = await entry(store)
    assert found is not None
    assert found.owner == "owner-2"


# ---- builds ----


async def test_a_later_build_replaces_the_definition(store: Store) -> None:
    await register(store, a_workflow(), build="old")
    newer = a_workflow(digest="digest-2", max_attempts=4)
    await register_at(store, START_MS + 1000, newer, build="new")
    assert await entry(store) == Workflow(newer, "owner-1", "new", START_MS + 1000)


@pytest.mark.parametrize("silent_for_ms", [0, STALE_MS - 1])
async def test_an_older_build_is_superseded_while_the_later_one_is_fresh(store: Store, silent_for_ms: int) -> None:
    old, newer = a_workflow(event_names=("paid",)), a_workflow(digest="digest-2", event_names=("seen",))
    await register(store, old, build="old")
    await register_at(store, START_MS + 1000, newer, build="new")

    store.now_ms = START_MS + 1000 + silent_for_ms
    [result] = await register(store, old, build="old")

    assert result.status is RegistrationStatus.SUPERSEDED
    assert await entry(store) == Workflow(newer, "owner-1", "new", START_MS + 1000), (
        "an older build keeps nothing fresh"
    )


async def test_an_older_build_is_in_force_again_when_the_later_one_is_gone(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    old, newer = a_workflow(event_names=("paid",)), a_workflow(digest="digest-2", event_names=("seen",))
    await register(store, old, build="old")
    await register_at(store, START_MS + 1000, newer, build="new")

    later_ms = START_MS + 1000 + STALE_MS + 1
    await register_at(store, later_ms, old, build="old")

    assert await entry(store) == Workflow(old, "owner-1", "old", later_ms)
    assert (await subscribers(redis, keys, "paid"), await subscribers(redis, keys, "seen")) == ({"w"}, set())


async def test_the_later_build_comes_back_after_a_roll_back_was_rolled_back(store: Store) -> None:
    old, newer = a_workflow(), a_workflow(digest="digest-2")
    await register(store, old, build="old")
    await register_at(store, START_MS + 1000, newer, build="new")
    await register_at(store, START_MS + 1000 + STALE_MS + 1, old, build="old")
    await register_at(store, START_MS + 2 * STALE_MS, newer, build="new")
    found = await entry(store)
    assert found is not None
    assert found.build_id == "new"


async def test_a_superseded_set_does_not_retire_what_only_the_later_build_has(store: Store) -> None:
    await register(store, a_workflow(name="a"), build="old")
    both = (a_workflow(name="a"), a_workflow(name="b"))
    await register_at(store, START_MS + 1000, *both, build="new")
    await register(store, a_workflow(name="a"), build="old")
    assert await store.list_workflows() == ("a", "b")


async def test_builds_of_one_owner_say_nothing_about_those_of_another(store: Store) -> None:
    await register(store, a_workflow(name="a"), owner="owner-1", build="shared")
    store.now_ms = START_MS + 1000
    await register(store, a_workflow(name="b"), owner="owner-2", build="later")
    store.now_ms = START_MS + 2000
    [result] = await register(store, a_workflow(name="b", digest="digest-2"), owner="owner-2", build="shared")
    assert result.status is RegistrationStatus.REGISTERED, "this owner has seen the build only now"


async def test_builds_that_were_seen_do_not_pile_up(store: Store, redis: RedisCommand, keys: Keys) -> None:
    for number in range(150):
        await register_at(store, START_MS + number * DAY_MS, a_workflow(), build=f"build-{number}")
    assert await redis("HLEN", keys.owner_builds("owner-1")) <= 100
