"""announce_sessions, forget_session, read_sessions: the connected workers of all gateways, for listings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from redflow_server.domain.session import SdkInfo
from redflow_server.domain.workers import Worker
from redflow_server.store.keys import Keys
from redflow_server.store.store import Store
from tests.builders import START_MS, everything, memory_is_full
from tests.redis_command import RedisCommand

KEEP_MS: Final = 30_000


@pytest.fixture(autouse=True)
def _stand_still(store: Store) -> None:
    store.now_ms = START_MS


def a_worker(session_id: str = "session-1", **changes: Any) -> Worker:  # Any: fields of Worker
    worker = Worker(
        session_id=session_id,
        gateway_id="gateway-1",
        worker_name="worker-1",
        owner="owner-1",
        instance_id="instance-1",
        build_id="build-1",
        sdk=SdkInfo("redflow-python", "0.1.0", "python"),
        queues=("q1", "q2"),
        workflows=("a", "b"),
        slot_limit=10,
        leases=3,
        is_draining=False,
        connected_at_ms=START_MS,
    )
    return replace(worker, **changes)


async def listed(store: Store) -> dict[str, Worker]:
    return {worker.session_id: worker for worker in await store.read_sessions()}


async def test_nobody_is_connected_at_first(store: Store) -> None:
    assert await store.read_sessions() == ()


async def test_announced_sessions_are_listed_as_they_were_described(store: Store) -> None:
    workers = [a_worker("s1"), a_worker("s2", queues=(), workflows=("🚀 a:b",), worker_name="é", is_draining=True)]
    assert await store.announce_sessions(workers, KEEP_MS) == 2
    assert await listed(store) == {worker.session_id: worker for worker in workers}


async def test_sessions_of_other_gateways_are_listed_and_counted(store: Store) -> None:
    await store.announce_sessions([a_worker("s1", gateway_id="g1")], KEEP_MS)
    assert await store.announce_sessions([a_worker("s2", gateway_id="g2")], KEEP_MS) == 2
    assert {worker.gateway_id for worker in (await listed(store)).values()} == {"g1", "g2"}


async def test_a_gateway_without_sessions_hears_how_many_others_have(store: Store) -> None:
    assert await store.announce_sessions([], KEEP_MS) == 0
    await store.announce_sessions([a_worker("s1"), a_worker("s2")], KEEP_MS)
    assert await store.announce_sessions([], KEEP_MS) == 2


async def test_a_later_description_replaces_the_earlier_one(store: Store) -> None:
    await store.announce_sessions([a_worker("s1", leases=1)], KEEP_MS)
    assert await store.announce_sessions([a_worker("s1", leases=7)], KEEP_MS) == 1
    assert (await listed(store))["s1"].leases == 7


async def test_a_session_ends_when_nobody_announces_it(store: Store) -> None:
    await store.announce_sessions([a_worker("silent"), a_worker("alive")], KEEP_MS)
    store.now_ms = START_MS + KEEP_MS - 1
    assert set(await listed(store)) == {"silent", "alive"}

    await store.announce_sessions([a_worker("alive")], KEEP_MS)
    store.now_ms = START_MS + KEEP_MS + 1
    assert set(await listed(store)) == {"alive"}
    assert await store.announce_sessions([], KEEP_MS) == 1, "it is not counted either"


async def test_an_ended_session_leaves_nothing(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await store.announce_sessions([a_worker("s1"), a_worker("s2")], KEEP_MS)
    for session_id in ("s1", "s2"):
        assert 0 < await redis("PTTL", keys.session(session_id)) <= KEEP_MS, "its description ends by itself"

    store.now_ms = START_MS + KEEP_MS + 1
    await store.announce_sessions([], KEEP_MS)
    await redis("DEL", keys.session("s1"), keys.session("s2"))
    assert await everything(redis, keys) == {}


async def test_a_forgotten_session_is_gone_at_once_and_alone(store: Store, redis: RedisCommand, keys: Keys) -> None:
    await store.announce_sessions([a_worker("stays")], KEEP_MS)
    before = await everything(redis, keys)
    await store.announce_sessions([a_worker("goes")], KEEP_MS)

    await store.forget_session("goes")

    assert set(await listed(store)) == {"stays"}
    assert await everything(redis, keys) == before
    assert await store.announce_sessions([], KEEP_MS) == 1


@pytest.mark.parametrize("session_id", ["", "never-seen"])
async def test_forgetting_a_session_that_is_not_there_changes_nothing(
    store: Store, redis: RedisCommand, keys: Keys, session_id: str
) -> None:
    await store.announce_sessions([a_worker("stays")], KEEP_MS)
    before = await everything(redis, keys)
    await store.forget_session(session_id)
    assert await everything(redis, keys) == before


async def test_a_forgotten_session_may_be_announced_again(store: Store) -> None:
    await store.announce_sessions([a_worker()], KEEP_MS)
    await store.forget_session("session-1")
    await store.announce_sessions([a_worker()], KEEP_MS)
    assert set(await listed(store)) == {"session-1"}


async def test_a_session_whose_description_redis_has_dropped_is_left_out(
    store: Store, redis: RedisCommand, keys: Keys
) -> None:
    await store.announce_sessions([a_worker("dropped"), a_worker("stays")], KEEP_MS)
    await redis("DEL", keys.session("dropped"))
    assert set(await listed(store)) == {"stays"}


async def test_hundreds_of_sessions_are_listed(store: Store) -> None:
    workers = [a_worker(f"s{number}") for number in range(300)]
    assert await store.announce_sessions(workers, KEEP_MS) == 300
    assert set(await listed(store)) == {worker.session_id for worker in workers}


async def test_sessions_are_announced_and_forgotten_while_memory_is_full(store: Store, redis: RedisCommand) -> None:
    async with memory_is_full(redis):
        assert await store.announce_sessions([a_worker("s1"), a_worker("s2")], KEEP_MS) == 2
        await store.forget_session("s1")
    assert set(await listed(store)) == {"s2"}
