"""assert_registry: what a live session has registered does not go stale, and comes back when it is gone."""

from __future__ import annotations

from typing import Final

import pytest

from redflow_server.domain.registry import Assertion, Registration, WorkflowDefinition
from redflow_server.store.admin import Admin
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.builders import START_MS, a_workflow, everything, memory_is_full
from tests.redis_command import RedisCommand

STALE_MS: Final = 30_000


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


def an_assertion(
    name: str = "w", digest: str = "digest-1", owner: str = "owner-1", build: str = "build-1"
) -> Assertion:
    return Assertion(owner, build, name, digest)


async def register(store: Store, *definitions: WorkflowDefinition, build: str = "build-1") -> None:
    await store.register(Registration("owner-1", build, definitions))


async def updated_at_ms(store: Store, name: str = "w") -> int | None:
    [found] = await store.read_workflows([name])
    return None if found is None else found.updated_at_ms


async def test_what_is_in_force_is_refreshed_and_not_asked_for(store: Store) -> None:
    await register(store, a_workflow())
    store.now_ms = START_MS + 10_000
    assert await store.assert_registry([an_assertion()]) == (False,)
    assert await updated_at_ms(store) == START_MS + 10_000


async def test_nothing_but_its_age_changes(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow(event_names=("paid",)))
    before = await everything(redis, keys)
    store.now_ms = START_MS + 10_000
    await store.assert_registry([an_assertion()])

    after = await everything(redis, keys)
    before[keys.workflow("w")]["updatedAt"] = str(START_MS + 10_000)
    assert after == before


async def test_what_is_asserted_every_ten_seconds_is_never_retired_by_a_set_without_it(store: Store) -> None:
    await register(store, a_workflow(name="asserted"), a_workflow(name="silent"))
    for tick in range(1, 8):
        store.now_ms = START_MS + tick * 10_000
        await store.assert_registry([an_assertion("asserted")])
        await register(store, a_workflow(name="other"), build="build-2")
    assert await store.list_workflows() == ("asserted", "other")


async def test_what_is_missing_is_asked_for(store: Store, redis: RedisCommand, keys: Keys) -> None:
    before = await everything(redis, keys)
    assert await store.assert_registry([an_assertion()]) == (True,)
    assert await everything(redis, keys) == before, "an assertion alone makes no entry"


async def test_all_that_redis_has_lost_is_asked_for(store: Store, redis_url: str, keys: Keys) -> None:
    await register(store, a_workflow(name="a"), a_workflow(name="b"))
    dial = Dial(redis_url)
    await Admin(dial, keys).reset()
    await dial.close()
    assert await store.assert_registry([an_assertion("a"), an_assertion("b")]) == (True, True)


async def test_two_definitions_of_one_build_do_not_take_turns(store: Store) -> None:
    await register(store, a_workflow())
    assert await store.assert_registry([an_assertion(digest="digest-2")]) == (False,)


async def test_a_definition_that_a_later_build_has_not_yet_registered_is_asked_for(store: Store) -> None:
    await register(store, a_workflow(), build="old")
    store.now_ms = START_MS + 1000
    await register(store, a_workflow(name="other"), build="new")
    asserted = an_assertion(digest="digest-2", build="new")
    assert await store.assert_registry([asserted]) == (True,)


async def test_answers_stand_in_the_order_of_the_assertions(store: Store) -> None:
    await register(store, a_workflow(name="a"), a_workflow(name="c"))
    asserted = [an_assertion("a"), an_assertion("b"), an_assertion("c"), an_assertion("d")]
    assert await store.assert_registry(asserted) == (False, True, False, True)


async def test_nothing_asserted_is_nothing_answered(store: Store) -> None:
    assert await store.assert_registry([]) == ()


async def test_an_older_build_does_not_keep_a_later_one_fresh(store: Store) -> None:
    old, newer = a_workflow(), a_workflow(digest="digest-2")
    await register(store, old, build="old")
    store.now_ms = START_MS + 1000
    await register(store, newer, build="new")

    store.now_ms = START_MS + 11_000
    await store.assert_registry([an_assertion(build="old")])

    assert await updated_at_ms(store) == START_MS + 1000


async def test_an_older_build_is_asked_for_when_the_later_one_is_silent(store: Store) -> None:
    await register(store, a_workflow(), build="old")
    store.now_ms = START_MS + 1000
    await register(store, a_workflow(digest="digest-2"), build="new")

    store.now_ms = START_MS + 1000 + STALE_MS + 1
    assert await store.assert_registry([an_assertion(build="old")]) == (True,)


async def test_another_owner_does_not_keep_a_name_fresh(store: Store) -> None:
    await register(store, a_workflow())
    store.now_ms = START_MS + 10_000
    await store.assert_registry([an_assertion(owner="owner-2")])
    assert await updated_at_ms(store) == START_MS


async def test_another_owner_is_asked_for_a_name_that_nobody_keeps(store: Store) -> None:
    await register(store, a_workflow())
    store.now_ms = START_MS + STALE_MS + 1
    assert await store.assert_registry([an_assertion(owner="owner-2")]) == (True,)


async def test_what_only_an_older_live_build_has_stays_beside_the_later_build(store: Store) -> None:
    await register(store, a_workflow(name="a"), a_workflow(name="old-only"), build="old")
    for tick in range(1, 8):
        store.now_ms = START_MS + tick * 10_000
        await register(store, a_workflow(name="a", digest="digest-2"), build="new")
        assert await store.assert_registry([an_assertion("old-only", build="old")]) == (False,)
    assert await store.list_workflows() == ("a", "old-only")


async def test_an_assertion_after_a_long_silence_makes_it_fresh_again(store: Store) -> None:
    """However the store puts it, as a refresh or by asking for the definition in full."""
    await register(store, a_workflow())
    store.now_ms = START_MS + 10 * STALE_MS
    [is_needed] = await store.assert_registry([an_assertion()])
    if is_needed:
        await register(store, a_workflow())
    assert await updated_at_ms(store) == store.now_ms


@pytest.mark.parametrize("name", ["a:b", "x:runs", "{a}", "%d", "🚀 é"])
async def test_any_name_can_be_asserted(store: Store, name: str) -> None:
    await store.register(Registration(name, name, (a_workflow(name=name),)))
    store.now_ms = START_MS + 1000
    asserted = an_assertion(name, owner=name, build=name)
    assert await store.assert_registry([asserted]) == (False,)
    assert await updated_at_ms(store, name) == START_MS + 1000


async def test_what_is_in_force_is_kept_fresh_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    await register(store, a_workflow())
    store.now_ms = START_MS + 10_000
    async with memory_is_full(redis):
        assert await store.assert_registry([an_assertion()]) == (False,)
    assert await updated_at_ms(store) == START_MS + 10_000
