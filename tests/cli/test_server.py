"""`redflow server`: a gateway as a process."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from redflow_sdk import Client
from redflow_server.cli import server, server_process
from redflow_server.cli.arguments import Parser
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.config import Config
from redflow_server.domain.names import Limits
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.embedded import EmbeddedStore
from redflow_server.engine.upkeep import UpkeepSettings
from redflow_server.gateway import Gateway
from redflow_server.store.wire import Dial
from tests.cli.command import PROGRAM, Command, redflow
from tests.cli.conftest import Start
from tests.conftest import StartGateway
from tests.eventually import eventually
from tests.redis_command import RedisCommand

NAPPING = """
import time
from redflow_sdk import BlockingContext, workflow

@workflow(name="nap", queue="cli")
def nap(ctx: BlockingContext) -> None:
    time.sleep(600)
"""


@pytest.fixture
def arguments(redis_url: str, prefix: str) -> tuple[str, ...]:
    """A gateway on a free port, under the test's prefix."""
    return ("server", "--redis", redis_url, "--prefix", prefix, "--port", "0", "-o", "json")


async def target_of(command: Command) -> str:
    """Where it listens, when it does."""
    target = json.loads(await command.line())["gateway"]
    assert isinstance(target, str)
    return target


def test_each_setting_reaches_the_gateway_and_those_not_given_are_its_defaults() -> None:
    parser = Parser()
    server.add_arguments(parser)
    assert server_process.config_of(parser.parse_args([])) == Config()

    told = "--redis redis://r:1/2 --host ::1 --port 5 --prefix p --lease 1.5 --cancel-grace 2 --retention 3600"
    told += " --max-payload-bytes 3000000 --drain-grace 0 --reflection --share-port --allow-reset --accept-eviction"
    assert server_process.config_of(parser.parse_args(told.split())) == Config(
        redis_url="redis://r:1/2",
        prefix="p",
        host="::1",
        port=5,
        timing=Timing(lease_ms=1500, cancel_grace_ms=2000),
        # A message has room for the largest payload and what stands around it.
        limits=Limits(max_payload_bytes=3_000_000),
        upkeep=UpkeepSettings(dict.fromkeys((RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED), 3_600_000)),
        drain_grace_ms=0,
        allows_reset=True,
        accepts_eviction=True,
        has_reflection=True,
        shares_port=True,
    )


async def test_it_serves_until_a_signal_and_ends_well(arguments: tuple[str, ...], start: Start) -> None:
    command = await start(*arguments)
    async with Client(await target_of(command)) as client:
        run = await (await client.start("w", queue="q")).get()
        assert run.status == "queued"
        command.send(signal.SIGTERM)
        ended = await command.end()
    assert (ended.code, ended.out) == (ExitCode.OK, "")
    assert "Traceback" not in ended.err


async def test_a_redis_in_the_environment_is_used(redis_url: str, prefix: str, start: Start) -> None:
    command = await start("server", "--prefix", prefix, "--port", "0", env={"REDFLOW_REDIS_URL": redis_url})
    assert (await command.line()).startswith("gateway  127.0.0.1:")
    command.send(signal.SIGINT)
    assert (await command.end()).code == ExitCode.OK


async def test_a_terminal_that_is_closed_ends_it_well(arguments: tuple[str, ...], start: Start) -> None:
    command = await start(*arguments)
    await target_of(command)
    command.send(signal.SIGHUP)
    assert (await command.end()).code == ExitCode.OK


async def test_under_nohup_it_outlives_its_terminal(arguments: tuple[str, ...], start: Start) -> None:
    command = await start(*arguments, program=("nohup", *PROGRAM))
    async with Client(await target_of(command)) as client:
        command.send(signal.SIGHUP)
        assert (await (await client.start("w", queue="q")).get()).status == "queued"
    assert command.is_running
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK


async def test_a_second_signal_ends_the_drain_at_once(arguments: tuple[str, ...], start: Start, tmp_path: Path) -> None:
    (tmp_path / "napping.py").write_text(NAPPING)
    gateway = await start(*arguments, "--drain-grace", "600")
    target = await target_of(gateway)
    worker = await start("worker", "run", "napping", "--target", target, cwd=tmp_path)
    async with Client(target) as client:
        handle = await client.start("nap", queue="cli")

        async def is_running() -> bool:
            return (await handle.get()).status == "running"

        await eventually(is_running, within=10)

    gateway.send(signal.SIGTERM)
    assert "GATEWAY_DRAINING" in await worker.error_line("GATEWAY_DRAINING")
    assert gateway.is_running
    gateway.send(signal.SIGTERM)
    ended = await gateway.end()
    assert ended.code == ExitCode.OK
    assert "Traceback" not in ended.err


# ---- starts that fail ----


async def test_it_does_not_start_without_redis(free_port: int) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_port}/0"
    ended = await redflow("server", "--redis", url, "--port", "0")
    assert ended.code == ExitCode.UNAVAILABLE
    assert "Redis does not" in ended.error
    assert ended.error.endswith(" refused; where there is none, `redflow dev` brings its own")
    assert "secret" not in ended.error


async def test_it_starts_on_the_port_of_another_when_both_say_so(
    arguments: tuple[str, ...], start_gateway: StartGateway, start: Start
) -> None:
    other: Gateway = await start_gateway(shares_port=True)
    command = await start(*arguments, "--share-port", "--port", str(other.port))
    assert await target_of(command) == f"127.0.0.1:{other.port}"


async def test_it_does_not_start_on_a_port_in_use(arguments: tuple[str, ...], start_gateway: StartGateway) -> None:
    other: Gateway = await start_gateway()
    ended = await redflow(*arguments, "--port", str(other.port))
    assert ended.code == ExitCode.REFUSED
    assert ended.last_error == f"cannot listen on 127.0.0.1:{other.port}: another program listens there"


@pytest.mark.parametrize(
    ("host", "why"), [("192.0.2.1", "this machine does not have the address"), ("nowhere.invalid", "has no address")]
)
async def test_it_does_not_start_on_an_address_that_is_not_ours(
    host: str, why: str, arguments: tuple[str, ...]
) -> None:
    ended = await redflow(*arguments, "--host", host)
    assert ended.code == ExitCode.REFUSED
    assert ended.last_error.startswith(f"cannot listen on {host}:0: ")
    assert why in ended.last_error


async def test_it_does_not_start_on_keys_of_another_engine(
    arguments: tuple[str, ...], redis: RedisCommand, prefix: str
) -> None:
    await redis("SADD", f"{prefix}:workflows", "theirs")
    ended = await redflow(*arguments)
    assert ended.code == ExitCode.REFUSED
    assert "another engine keeps its workflows under this prefix" in ended.last_error


@pytest.fixture
def own_store() -> Iterator[str]:
    """A store whose settings the test may change."""
    with EmbeddedStore() as store:
        yield store.url


async def test_it_starts_on_a_redis_that_evicts_only_when_told_to(own_store: str, start: Start) -> None:
    dial = Dial(own_store)
    async with dial.client() as client:
        await client.config_set("maxmemory", "100mb")
        await client.config_set("maxmemory-policy", "allkeys-lru")
    await dial.close()
    arguments = ("server", "--redis", own_store, "--port", "0", "-o", "json")
    ended = await redflow(*arguments)
    assert ended.code == ExitCode.REFUSED
    assert "allkeys-lru" in ended.last_error

    command = await start(*arguments, "--accept-eviction")
    assert await target_of(command)
    command.send(signal.SIGTERM)
    assert (await command.end()).code == ExitCode.OK


@pytest.mark.parametrize(
    ("rights", "says"),
    [
        ("~* &* +@all -info", "no permissions to run the 'info' command"),
        ("~* &* +@all -script", "no permissions to run the 'script|load' command"),
        ("~shop:* &* +@all", "no permissions to access"),
    ],
)
async def test_it_says_what_its_user_of_redis_may_not_do(rights: str, says: str, own_store: str) -> None:
    dial = Dial(own_store)
    async with dial.client() as client:
        await client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", *rights.split())
    await dial.close()
    url = own_store.replace("unix://", "unix://limited:secret@")
    ended = await redflow("server", "--redis", url, "--prefix", "shop", "--port", "0")
    assert ended.code == ExitCode.REFUSED
    assert "does not answer" not in ended.last_error
    assert says in ended.last_error.lower().replace("(noperm) ", "")
    assert "secret" not in ended.err
