"""What a gateway says of the Redis it is given, and starting over."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis
import pytest
import pytest_asyncio

from redflow_server.domain.errors import StoreUnavailable
from redflow_server.embedded import EmbeddedStore, find_server
from redflow_server.store.admin import Admin, Persistence, Problem, RedisReport
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.eventually import eventually
from tests.redis_command import RedisCommand

MEMORY_LIMIT = 256 * 1024 * 1024


async def inspect(url: str, *, accepts_eviction: bool = False) -> RedisReport:
    dial = Dial(url)
    try:
        return await Admin(dial, Keys("p")).inspect(accepts_eviction)
    finally:
        await dial.close()


def problems_about(report: RedisReport, word: str) -> list[Problem]:
    return [problem for problem in report.problems if word in problem.sentence]


# ---- a server of the test's own, whose settings it may change ----


@pytest.fixture
def own_server() -> Iterator[EmbeddedStore]:
    with EmbeddedStore() as embedded:
        yield embedded


@pytest_asyncio.fixture
async def command(own_server: EmbeddedStore) -> AsyncIterator[RedisCommand]:
    dial = Dial(own_server.url)
    async with dial.client() as client:
        yield RedisCommand(client)
    await dial.close()


@pytest_asyncio.fixture
async def cluster_node_url() -> AsyncIterator[str]:
    """A server of the test's own that believes to be in a cluster."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        settings = ["--cluster-enabled", "yes", "--port", "0", "--unixsocket", f"{folder}/s.sock", "--dir", folder]
        process = await asyncio.create_subprocess_exec(find_server(), *settings, stdout=asyncio.subprocess.DEVNULL)
        try:
            await eventually(Path(folder, "s.sock").exists)
            yield f"unix://{folder}/s.sock"
        finally:
            process.terminate()
            await process.wait()


async def test_a_report_says_what_the_server_is(redis_url: str, redis: RedisCommand) -> None:
    info = await redis("INFO", "server")
    report = await inspect(redis_url)

    assert report.version in str(info)
    assert report.name in ("redis", "valkey")
    assert report.replicas == 0
    assert not [problem for problem in report.problems if problem.is_fatal]


async def test_a_server_in_memory_only_is_fit_but_said_to_lose_everything(own_server: EmbeddedStore) -> None:
    report = await inspect(own_server.url)

    assert report.persistence is Persistence.MEMORY
    [problem] = report.problems
    assert "nothing is persisted" in problem.sentence
    assert not problem.is_fatal


async def test_what_an_acknowledgement_survives_follows_the_append_only_file(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as embedded:
        report = await inspect(embedded.url)
        assert report.persistence is Persistence.AOF_EVERYSEC
        assert report.problems == ()

        dial = Dial(embedded.url)
        async with dial.client() as client:
            await client.config_set("appendfsync", "always")
        await dial.close()
        assert (await inspect(embedded.url)).persistence is Persistence.AOF_ALWAYS


async def test_snapshots_lose_what_came_after_the_last_one(own_server: EmbeddedStore, command: RedisCommand) -> None:
    await command("CONFIG", "SET", "save", "3600 1")
    await command("SET", "a", "b")
    await command("SAVE")

    report = await inspect(own_server.url)

    assert report.persistence is Persistence.SNAPSHOT
    assert [problem.is_fatal for problem in problems_about(report, "snapshots")] == [False]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl"])
async def test_eviction_of_runs_is_fatal_unless_accepted(
    own_server: EmbeddedStore, command: RedisCommand, policy: str
) -> None:
    await command("CONFIG", "SET", "maxmemory", MEMORY_LIMIT, "maxmemory-policy", policy)

    report = await inspect(own_server.url)
    assert (report.max_memory_bytes, report.eviction_policy) == (MEMORY_LIMIT, policy)
    [problem] = problems_about(report, "maxmemory-policy")
    assert problem.is_fatal
    assert policy in problem.sentence
    assert "noeviction" in problem.sentence, "it says what to set"

    [accepted] = problems_about(await inspect(own_server.url, accepts_eviction=True), "maxmemory-policy")
    assert not accepted.is_fatal


@pytest.mark.parametrize(("limit", "policy"), [(MEMORY_LIMIT, "noeviction"), (0, "allkeys-lru")])
async def test_no_eviction_is_no_problem(
    own_server: EmbeddedStore, command: RedisCommand, limit: int, policy: str
) -> None:
    await command("CONFIG", "SET", "maxmemory", limit, "maxmemory-policy", policy)
    assert problems_about(await inspect(own_server.url), "maxmemory-policy") == []


async def test_a_replica_is_refused(own_server: EmbeddedStore, command: RedisCommand) -> None:
    await command("REPLICAOF", "127.0.0.1", 1)
    [problem] = problems_about(await inspect(own_server.url), "replica")
    assert problem.is_fatal


async def test_a_server_of_our_own_as_a_node_of_a_cluster_is_refused(cluster_node_url: str) -> None:
    [problem] = problems_about(await inspect(cluster_node_url), "Cluster")
    assert problem.is_fatal


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        url = f"unix://{folder}/nobody.sock"
        with pytest.raises(StoreUnavailable):
            await inspect(url)
        with pytest.raises(StoreUnavailable):
            await Admin(Dial(url), Keys("p")).reset()


# ---- servers that cannot be had here, by what they would say ----


Session = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def a_server_that_says(**info: str) -> AsyncIterator[str]:
    """Speaks Redis' protocol on a socket and answers INFO with these fields; CONFIG is denied. Its URL."""
    said = "# Server\r\n" + "".join(f"{name}:{value}\r\n" for name, value in info.items())

    def answer(command: list[bytes]) -> bytes:
        match command[0].upper():
            case b"INFO":
                return b"$%d\r\n%b\r\n" % (len(said), said.encode())
            case b"CONFIG":
                return b"-NOPERM this user has no permissions to run the 'config|get' command\r\n"
            case _:
                return b"+OK\r\n"

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = await asyncio.start_unix_server(_session(answer), f"{folder}/s.sock")
        async with server:
            yield f"unix://{folder}/s.sock"


def _session(answer: Callable[[list[bytes]], bytes]) -> Session:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                writer.write(answer(command))
        writer.close()

    return talk


@pytest.mark.parametrize(
    ("info", "is_too_old"),
    [
        ({"redis_version": "6.0.20"}, True),
        ({"redis_version": "5.0.14"}, True),
        ({"redis_version": "6.2.0"}, False),
        ({"redis_version": "7.0.15"}, False),
        ({"redis_version": "10.0.1"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.0.1"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "10.0.0"}, False),
    ],
)
async def test_a_version_that_is_too_old_is_refused_and_said(info: dict[str, str], is_too_old: bool) -> None:
    async with a_server_that_says(**info, redis_mode="standalone", role="master") as url:
        report = await inspect(url)

    found = problems_about(report, "too old")
    assert [problem.is_fatal for problem in found] == ([True] if is_too_old else [])
    assert report.version == info.get("valkey_version", info["redis_version"])
    assert all(report.version in problem.sentence for problem in found)


async def test_a_node_of_a_cluster_is_refused() -> None:
    async with a_server_that_says(redis_version="7.0.15", redis_mode="cluster", role="master") as url:
        [problem] = problems_about(await inspect(url), "Cluster")
    assert problem.is_fatal


async def test_a_node_of_a_cluster_of_valkey_is_refused() -> None:
    said = {"redis_version": "7.2.4", "valkey_version": "9.1.2", "server_mode": "cluster", "role": "master"}
    async with a_server_that_says(**said) as url:
        [problem] = problems_about(await inspect(url), "Cluster")
    assert problem.is_fatal


async def test_a_service_that_denies_config_is_judged_by_the_rest() -> None:
    said = {"redis_version": "7.0.15", "role": "master", "aof_enabled": "1", "connected_slaves": "2"}
    async with a_server_that_says(**said, maxmemory="1000", maxmemory_policy="volatile-lru") as url:
        report = await inspect(url)

    assert report.persistence is Persistence.AOF_EVERYSEC, "the weaker promise when it cannot be known"
    assert report.replicas == 2
    assert [problem.is_fatal for problem in report.problems] == [True, False]


async def test_a_primary_that_would_go_on_without_its_replicas_is_used_with_a_warning() -> None:
    said = {"redis_version": "7.0.15", "role": "master", "aof_enabled": "1", "maxmemory_policy": "noeviction"}
    async with a_server_that_says(**said, connected_slaves="2") as url:
        [problem] = (await inspect(url)).problems
    assert not problem.is_fatal
    assert "min-replicas-to-write is 0" in problem.sentence
    async with a_server_that_says(**said, connected_slaves="2", min_slaves_good_slaves="2") as url:
        assert (await inspect(url)).problems == ()


async def test_a_service_that_hides_its_policy_is_used_with_a_warning() -> None:
    async with a_server_that_says(redis_version="7.0.15", role="master", aof_enabled="1") as url:
        report = await inspect(url)

    [problem] = report.problems
    assert problem == Problem("cannot read maxmemory-policy: see to it that it is noeviction", is_fatal=False)
    assert report.eviction_policy == "unknown"


async def test_all_problems_are_told_at_once() -> None:
    said = {"redis_version": "6.0.1", "redis_mode": "cluster", "role": "slave"}
    async with a_server_that_says(**said, maxmemory="1000", maxmemory_policy="allkeys-lru") as url:
        report = await inspect(url)

    assert len([problem for problem in report.problems if problem.is_fatal]) == 4
    assert all("\n" not in problem.sentence for problem in report.problems)


# ---- starting over ----


@pytest.mark.parametrize("end", ["plain", "a*c", "a?c", "[abc]", "[^a]", "a\\b", "\\", "a-c", "{tag}", "é 🚀"])
async def test_reset_deletes_exactly_the_keys_under_its_prefix(
    redis: RedisCommand, redis_url: str, prefix: str, end: str
) -> None:
    mine = f"{prefix}:{end}"
    # What a prefix read as a pattern would match, what only begins like it, and what is above it.
    like_it = [f"{prefix}:{other}:run" for other in ("abc", "axyzc", "a", "b", "ab", "-", "plai", "A")]
    like_it += [f"{mine}2:run", mine, f"{prefix}:run", f"x:{mine}:run"]
    for key in like_it:
        await redis("SET", key, "kept")
    for number in range(3):
        await redis("SET", f"{mine}:run:{number}", "gone")

    dial = Dial(redis_url)
    deleted = await Admin(dial, Keys(mine)).reset()
    await dial.close()

    assert deleted == 3
    assert await redis("EXISTS", *like_it) == len(set(like_it))
    assert await redis("EXISTS", *(f"{mine}:run:{number}" for number in range(3))) == 0
    await redis("DEL", *like_it)


async def test_reset_deletes_more_keys_than_fit_one_batch_and_of_every_type(
    redis: RedisCommand, redis_url: str, prefix: str
) -> None:
    mine = f"{prefix}:many"
    await redis("MSET", *(word for number in range(1203) for word in (f"{mine}:run:{number}", "gone")))
    await redis("HSET", f"{mine}:hash", "a", "1")
    await redis("ZADD", f"{mine}:zset", 1, "a")
    await redis("SADD", f"{mine}:set", "a")

    dial = Dial(redis_url)
    admin = Admin(dial, Keys(mine))
    assert await admin.reset() == 1206
    assert await admin.reset() == 0
    await dial.close()
