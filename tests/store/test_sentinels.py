"""URLs that name sentinels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redflow_server.cli.redis_argument import SENTINEL_SCHEMES, without_password
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.store.sentinels import SCHEMES, read_url
from redflow_server.store.wire import Dial
from tests.chaos.processes import quiet_port
from tests.chaos.redis_server import RedisServer
from tests.chaos.sentinels import SERVICE, SentinelServer
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
    says = f"none of the sentinels 127.0.0.1:{ports[0]}, 127.0.0.1:{ports[1]} answers that 'main' has a primary"
    with pytest.raises(StoreUnavailable, match=rf"{says} \(ConnectionError\)"):
        await dial.wire()
    await dial.close()


async def test_why_sentinels_do_not_answer_is_said(tmp_path: Path) -> None:
    server = SentinelServer(tmp_path / "sentinel", quiet_port(), log=tmp_path / "log")
    await server.start()
    try:
        await eventually(lambda: _listens(server.port))
        dial = Dial(f"redis+sentinel://127.0.0.1:{server.port}/{SERVICE}?sentinel_password=wrong")
        with pytest.raises(StoreUnavailable, match=r"has a primary \(AuthenticationError\)"):
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


async def test_a_redis_that_is_no_sentinel_is_told_apart(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", "secret", log=tmp_path / "log")
    await server.start()
    try:
        dial = Dial(f"redis+sentinel://127.0.0.1:{server.port}/main?sentinel_password=secret")
        with pytest.raises(StoreUnavailable, match="are sentinels"):
            await dial.wire()
        await dial.close()
    finally:
        await server.kill()
