"""claim_prefix: one engine and one format of keys under a prefix."""

from __future__ import annotations

import pytest

from redflow_server.domain.errors import PrefixTaken
from redflow_server.store.calls.registry import FORMAT
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import a_workflow, enqueue_one, everything, register
from tests.redis_command import RedisCommand


async def config_of(redis: RedisCommand, keys: Keys) -> dict[str, str]:
    found: dict[str, str] = (await everything(redis, keys)).get(keys.config, {})
    return found


async def test_a_fresh_prefix_is_taken_for_this_engine_and_format(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await store.claim_prefix()

    config = await config_of(redis, keys)
    assert config["engine"] == "redflow-gateway"
    assert config["format"] == str(FORMAT)
    assert config["shards"] == "1"
    assert set(await everything(redis, keys)) == {keys.config}


async def test_a_prefix_that_is_taken_is_ours_again(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await store.claim_prefix()
    await register(store, a_workflow())
    await enqueue_one(store)
    before = await everything(redis, keys)

    await store.claim_prefix()

    assert await everything(redis, keys) == before


async def test_two_gateways_may_start_at_once(store: Store, redis: RedisCommand, keys: Keys) -> None:
    first, second = store.claim_prefix(), store.claim_prefix()
    await first
    await second
    assert set(await everything(redis, keys)) == {keys.config}


async def test_a_prefix_with_workflows_of_another_engine_is_refused(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await redis("SADD", keys.workflows, "theirs")
    await redis("HSET", keys.workflow("theirs"), "name", "theirs")
    before = await everything(redis, keys)

    with pytest.raises(PrefixTaken, match="another engine"):
        await store.claim_prefix()

    assert await everything(redis, keys) == before, "nothing of theirs is touched, and nothing is left there"


@pytest.mark.leaves_faults
@pytest.mark.parametrize("other", [FORMAT + 1, FORMAT - 1, "x"])
async def test_keys_of_another_format_are_refused(
    store: Store, redis: RedisCommand, keys: Keys, other: int | str
) -> None:
    await store.claim_prefix()
    await redis("HSET", keys.config, "format", other)
    before = await everything(redis, keys)

    with pytest.raises(PrefixTaken, match=f"format {other}"):
        await store.claim_prefix()

    assert await everything(redis, keys) == before


async def test_a_prefix_that_another_engine_has_named_is_refused(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await store.claim_prefix()
    await redis("HSET", keys.config, "engine", "another-engine")
    with pytest.raises(PrefixTaken):
        await store.claim_prefix()
