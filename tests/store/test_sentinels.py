"""URLs that name sentinels."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from redis.exceptions import RedisError

from redflow_server.cli.redis_argument import SENTINEL_SCHEMES, without_password
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.store.sentinels import SCHEMES, read_url
from redflow_server.store.wire import Dial, pack
from tests.chaos.processes import quiet_port
from tests.chaos.redis_server import RedisServer
from tests.chaos.sentinels import PASSWORD, SENTINEL_PASSWORD, SERVICE, SentinelServer
from tests.eventually import eventually


def test_the_command_line_knows_the_schemes() -> None:
    assert SENTINEL_SCHEMES == SCHEMES


def test_a_url_names_sentinels_service_database_and_who_asks() -> None:
    watched = read_url("redis+sentinel://ann:p%40ss@a,b:1,[::1]:2/main/3?sentinel_username=s&sentinel_password=t%2F")
    assert watched.service == "main"
    assert watched.sentinels == (("a", 26379), ("b", 1), ("::1", 2))
    assert watched.redis_settings == {"username": "ann", "password": "p@ss", "db": 3}
    assert watched.sentinel_settings == {"username": "s", "password": "t/"}


def test_without_a_database_it_is_the_first_and_nobody_logs_in() -> None:
    watched = read_url("redis+sentinel://a/ma%20in")
    assert (watched.service, watched.redis_settings, watched.sentinel_settings) == ("ma in", {"db": 0}, {})


def test_options_of_redis_py_go_to_redis_and_those_of_tls_to_both() -> None:
    watched = read_url("rediss+sentinel://a/main?health_check_interval=5&ssl_cert_reqs=none")
    assert watched.redis_settings == {"db": 0, "ssl": True, "health_check_interval": 5, "ssl_cert_reqs": "none"}
    assert watched.sentinel_settings == {"ssl": True, "ssl_cert_reqs": "none"}


def test_options_of_a_url_win_over_those_of_the_gateway() -> None:
    Dial("redis+sentinel://a/main?socket_timeout=1")


@pytest.mark.parametrize(
    "url",
    [
        *("redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel:///main", "redis+sentinel://a/main/one"),
        *("redis+sentinel://a:x/main", "redis+sentinel://a:70000/main", "redis+sentinel://a,,b/main"),
        *(
            "redis+sentinel://a/main?colour=red",
            "redis+sentinel://a/main?sentinel_colour=red",
            "redis+sentinel://@b@a/m",
        ),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not|is no option|[Pp]ort"):
        Dial(url)


def test_no_password_is_shown() -> None:
    shown = without_password("redis+sentinel://ann:secret@a:1,b:2/main/3?sentinel_password=other")
    assert shown == "redis+sentinel://a:1,b:2/main/3"


async def test_sentinels_that_are_away_are_named() -> None:
    ports = quiet_port(), quiet_port()
    dial = Dial(f"redis+sentinel://:secret@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/main")
    with pytest.raises(StoreUnavailable, match="no sentinel leads to a primary of 'main'") as caught:
        await dial.wire()
    assert all(f"127.0.0.1:{port} does not name one (" in str(caught.value) for port in ports)
    assert "secret" not in str(caught.value)
    await dial.close()


async def test_why_sentinels_do_not_answer_is_said(tmp_path: Path) -> None:
    server = SentinelServer(tmp_path / "sentinel", quiet_port(), log=tmp_path / "log")
    await server.start()
    try:
        await eventually(lambda: _listens(server.port))
        dial = Dial(f"redis+sentinel://127.0.0.1:{server.port}/{SERVICE}?sentinel_password=wrong")
        with pytest.raises(StoreUnavailable, match=r"does not name one .invalid username-password pair"):
            await dial.wire()
        await dial.close()
    finally:
        await server.kill()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_one_that_is_no_sentinel_is_told_apart_and_keeps_nobody_from_asking_the_others(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis", PASSWORD, log=tmp_path / "log")
    sentinel = SentinelServer(tmp_path / "sentinel", redis.port, log=tmp_path / "log")
    await redis.start()
    await sentinel.start()
    try:
        await eventually(lambda: _names(sentinel, redis))
        alone = Dial(url_of(redis.port, password=PASSWORD))
        with pytest.raises(StoreUnavailable, match=rf"127.0.0.1:{redis.port} does not name one .unknown command"):
            await alone.wire()
        await alone.close()
        await leads_to_a_primary(redis.port, sentinel.port)
    finally:
        await sentinel.kill()
        await redis.kill()


async def test_a_sentinel_that_names_a_replica_is_passed_over(tmp_path: Path) -> None:
    """It was cut off, and does not know of a fail-over."""
    primary, replica = (RedisServer(tmp_path / name, PASSWORD, log=tmp_path / "log") for name in ("primary", "replica"))
    stale = SentinelServer(tmp_path / "stale", replica.port, log=tmp_path / "log")
    fresh = SentinelServer(tmp_path / "fresh", primary.port, log=tmp_path / "log")
    servers = primary, replica, stale, fresh
    for server in servers:
        await server.start()
    try:
        await eventually(lambda: _names(stale, replica))
        await eventually(lambda: _names(fresh, primary))
        await ask(stale.port, SENTINEL_PASSWORD, "SENTINEL", "SET", SERVICE, "down-after-milliseconds", 3_600_000)
        await ask(replica.port, PASSWORD, "REPLICAOF", "127.0.0.1", quiet_port())
        alone = Dial(url_of(stale.port))
        with pytest.raises(StoreUnavailable, match=rf"names 127.0.0.1:{replica.port}, which is a slave"):
            await alone.wire()
        await alone.close()
        await leads_to_a_primary(stale.port, fresh.port)
    finally:
        for server in servers:
            await server.kill()


async def ask(port: int, password: str, *command: str | int) -> object:
    dial = Dial(f"redis://:{quote(password, safe='')}@127.0.0.1:{port}")
    async with dial.client() as client:
        answer: object = await client.execute_command(*command)
    await dial.close()
    return answer


async def _names(sentinel: SentinelServer, redis: RedisServer) -> bool:
    try:
        named = await ask(sentinel.port, SENTINEL_PASSWORD, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
    except RedisError:
        return False
    return named == [b"127.0.0.1", b"%d" % redis.port]


def url_of(*ports: int, password: str = SENTINEL_PASSWORD) -> str:
    sentinels = ",".join(f"127.0.0.1:{port}" for port in ports)
    query = urlencode({"sentinel_password": password})
    return f"redis+sentinel://:{quote(PASSWORD, safe='')}@{sentinels}/{SERVICE}?{query}"


async def leads_to_a_primary(*sentinels: int) -> None:
    dial = Dial(url_of(*sentinels))
    wire = await dial.wire()
    [role] = await wire.ask([pack("ROLE")], 1)
    assert role[0] == b"master"
    wire.close()
    await dial.close()


@pytest.mark.parametrize("url", ["redis://a", "redis+sentinel://a/main", "unix:///tmp/a"])
@pytest.mark.parametrize(
    "option",
    [
        *("protocol=3", "decode_responses=true", "encoding=utf-16", "retry=3", "retry_on_error=1", "timeout=1"),
        *("credential_provider=x", "redis_connect_func=x", "event_dispatcher=x", "host=b", "path=b", "colour=red"),
    ],
)
def test_options_that_are_the_gateway_s_own_choice_or_none_are_refused(url: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option.partition('=')[0]} is no option of a Redis URL"):
        Dial(f"{url}?{option}")


@pytest.mark.parametrize("url", ["redis+sentinel://a/m?sentinel_password=x#y", "redis://a?password=x#y", "unix:///a#b"])
def test_what_stands_behind_a_number_sign_is_not_left_out_in_silence(url: str) -> None:
    with pytest.raises(ValueError, match="%23"):
        Dial(url)


def test_a_scheme_may_be_written_in_capitals() -> None:
    assert read_url("REDISS+Sentinel://a/main").redis_settings["ssl"] is True
