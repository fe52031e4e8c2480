"""read_workflows, list_workflows: the registry as it is read."""

from __future__ import annotations

import pytest

from redflow_server.domain.payloads import Payload
from redflow_server.domain.registry import CronSchedule, RetryPolicy
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, a_workflow, everything, register
from tests.redis_command import RedisCommand

ODD_NAMES = ("a:b", "x:runs", "{a}", "%d", "🚀 é", "A", "a", "workflows")


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


async def names_read(store: Store, *names: str) -> list[str | None]:
    return [None if found is None else found.definition.name for found in await store.read_workflows(names)]


async def test_an_empty_registry_lists_nothing(store: Store) -> None:
    assert await store.list_workflows() == ()


async def test_nothing_is_read_when_nothing_is_asked_for(store: Store) -> None:
    assert await store.read_workflows([]) == ()


async def test_answers_stand_in_the_order_asked_and_none_for_what_is_not_registered(store: Store) -> None:
    await register(store, a_workflow(name="a"), a_workflow(name="b"))
    assert await names_read(store, "b", "missing", "a", "b") == ["b", None, "a", "b"]


async def test_workflows_of_all_owners_are_listed_by_name(store: Store) -> None:
    await register(store, a_workflow(name="c"), a_workflow(name="a"), owner="owner-1")
    await register(store, a_workflow(name="b"), owner="owner-2")
    assert await store.list_workflows() == ("a", "b", "c")


async def test_names_are_data(store: Store) -> None:
    await register(store, *(a_workflow(name=name) for name in ODD_NAMES))
    assert await store.list_workflows() == tuple(sorted(ODD_NAMES))
    assert await names_read(store, *ODD_NAMES) == list(ODD_NAMES)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_attempts": 1_000_000},
        {"retry_policy": RetryPolicy(0, 1.0, 0, 0.0)},
        {"retry_policy": RetryPolicy(250, 2.5, 30_000, 0.1)},
        {"run_timeout_ms": 1, "start_timeout_ms": 100 * 366 * 24 * 3600 * 1000},
        {"failure_handler_timeout_ms": 1000, "has_failure_handler": True},
        {"event_names": ("b", "a:b", "🚀")},
        {"cron": (CronSchedule("", "* * * * *", "", None), CronSchedule("id", "0 0 1 1 *", "UTC", Payload(b"null")))},
        {"cron": (CronSchedule("raw", "* * * * *", "", Payload(b"\x00\xff", "a/b", (("k", "é"),))),)},
        {"input_json_schema": Payload(b'{"type": "object",\n"x": 9007199254740993}')},
    ],
)
async def test_a_definition_comes_back_as_it_was_registered(store: Store, changes: dict[str, object]) -> None:
    definition = a_workflow(**changes)
    await register(store, definition)
    [found] = await store.read_workflows(["w"])
    assert found is not None
    assert found.definition == definition
    assert (found.owner, found.build_id, found.updated_at_ms) == ("owner-1", "build-1", START_MS)


@pytest.mark.leaves_faults
async def test_a_name_in_the_index_without_an_entry_is_not_registered(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await register(store, a_workflow(name="a"))
    await redis("SADD", keys.workflows, "ghost")
    assert await names_read(store, "a", "ghost") == ["a", None]


async def test_reading_writes_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await register(store, a_workflow())
    before = await everything(redis, keys)
    await store.read_workflows(["w", "missing"])
    await store.list_workflows()
    assert await everything(redis, keys) == before
