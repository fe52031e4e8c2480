"""Fixtures: a real Redis or Valkey, the store on it, gateways and workers. Every test has a prefix of its own.

The server is REDFLOW_TEST_REDIS_URL if set, else one by testcontainers if a Docker engine answers, else one of our own
on a unix socket. Never one that happens to listen somewhere. Each process of a parallel run has its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from redflow_sdk import Client, Worker
from redflow_server.config import Config
from redflow_server.domain.timing import Timing
from redflow_server.embedded import EmbeddedStore, process_name
from redflow_server.gateway import Gateway
from redflow_server.store.admin import Admin
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.redis_command import RedisCommand

DOCKER_IMAGE = "redis:7-alpine"
DOCKER_START_S = 30


@dataclass(frozen=True)
class Server:
    """The Redis that the tests use."""

    url: str
    name: str


def pytest_configure() -> None:
    """Signals act as in a terminal: programs that a shell puts into the background, or nohup runs, have children that
    ignore them.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _docker_answers() -> bool:
    if os.environ.get("REDFLOW_TEST_DOCKER") == "0":
        return False
    try:
        return subprocess.run(["docker", "version"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _kind_of_server() -> str:
    if url := os.environ.get("REDFLOW_TEST_REDIS_URL"):
        return f"by REDFLOW_TEST_REDIS_URL at {url}"
    if _docker_answers():
        return f"{DOCKER_IMAGE} by testcontainers"
    return f"embedded, {process_name()}"


def pytest_report_header() -> str:
    return f"redis: {_kind_of_server()}"


def _wait_until_it_answers(host: str, port: int) -> None:
    deadline = time.monotonic() + DOCKER_START_S
    while True:
        try:
            with socket.create_connection((host, port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            pytest.exit(f"the container of {DOCKER_IMAGE} does not answer within {DOCKER_START_S} s", returncode=1)
        time.sleep(0.05)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """The server of this process' tests."""
    if url := os.environ.get("REDFLOW_TEST_REDIS_URL"):
        yield Server(url, "by url")
    elif _docker_answers():
        from testcontainers.core.container import DockerContainer

        with DockerContainer(DOCKER_IMAGE).with_exposed_ports(6379) as container:
            host, port = container.get_container_host_ip(), int(container.get_exposed_port(6379))
            _wait_until_it_answers(host, port)
            yield Server(f"redis://{host}:{port}/0", "testcontainers")
    else:
        with EmbeddedStore() as embedded:
            yield Server(embedded.url, "embedded")


@pytest.fixture
def redis_url(redis_server: Server) -> str:
    return redis_server.url


@pytest_asyncio.fixture
async def redis_dial(redis_url: str) -> AsyncIterator[Dial]:
    """How the test itself reaches its Redis: one for all that it does there, for each connection costs milliseconds."""
    dial = Dial(redis_url)
    yield dial
    await dial.close()


@pytest_asyncio.fixture
async def prefix(redis_dial: Dial) -> AsyncIterator[str]:
    """A prefix that nothing else uses; its keys go with the test."""
    name = f"t:{secrets.token_hex(6)}"
    yield name
    await Admin(redis_dial, Keys(name)).reset()


@pytest.fixture
def keys(prefix: str) -> Keys:
    return Keys(prefix)


@pytest_asyncio.fixture
async def redis(redis_dial: Dial) -> AsyncIterator[RedisCommand]:
    """Plain Redis commands, for looking at what is stored and for planting faults."""
    async with redis_dial.client() as client:
        yield RedisCommand(client)


@pytest_asyncio.fixture
async def store(redis_dial: Dial, prefix: str) -> AsyncIterator[Store]:
    """A store without a gateway. Set `store.now_ms` to stand still in time."""
    pipeline = Pipeline(redis_dial, load_scripts(), prefix)
    await pipeline.start()
    yield Store(pipeline)
    await pipeline.stop()


LEASE_MS = 6000
"""Long enough for workers to be heard in time beside other tests, on a machine that is slow."""


@pytest.fixture
def config(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> Config:
    """Settings of a gateway under test: a free port, and a lease as the mark `lease_ms` has it, else LEASE_MS."""
    mark = request.node.get_closest_marker("lease_ms")
    lease_ms = mark.args[0] if mark else LEASE_MS
    return Config(redis_url=redis_url, prefix=prefix, port=0, timing=Timing(lease_ms=lease_ms, cancel_grace_ms=1000))


StartGateway = Callable[..., Awaitable[Gateway]]


@pytest_asyncio.fixture
async def start_gateway(config: Config) -> AsyncIterator[StartGateway]:
    """Starts gateways on the test's prefix; settings by keyword stand instead of those of `config`."""
    async with AsyncExitStack() as stack:

        async def start(**settings: object) -> Gateway:
            gateway = Gateway(replace(config, **settings))  # type: ignore[arg-type]  # any field of Config
            await gateway.start()
            stack.push_async_callback(gateway.stop)
            return gateway

        yield start


@pytest_asyncio.fixture
async def gateway(start_gateway: StartGateway) -> Gateway:
    return await start_gateway()


@pytest.fixture
def target(gateway: Gateway) -> str:
    """Where the gateway listens."""
    return f"127.0.0.1:{gateway.port}"


@pytest_asyncio.fixture
async def client(target: str) -> AsyncIterator[Client]:
    async with Client(target) as client:
        yield client


StartWorker = Callable[..., Awaitable[Worker]]


@pytest_asyncio.fixture
async def start_worker(target: str) -> AsyncIterator[StartWorker]:
    """Starts workers on the gateway; what is still running at the end of the test is stopped."""
    workers: list[Worker] = []

    async def start(*workflows: object, **settings: object) -> Worker:
        worker = Worker(target, workflows=workflows, **settings)  # type: ignore[arg-type]  # any argument of Worker
        await worker.start()
        workers.append(worker)
        return worker

    yield start
    await asyncio.gather(*(worker.stop() for worker in workers))


CheckInvariants = Callable[[], Awaitable[None]]


@pytest_asyncio.fixture
async def check_invariants(redis_dial: Dial, keys: Keys) -> CheckInvariants:
    """Asserts that what is stored under the test's prefix is as it must be; at any time, whoever writes meanwhile."""

    async def assert_none_is_broken() -> None:
        async with redis_dial.client() as client:
            found = await check(client, keys)
        if found:
            lines = (f"  {violation.rule}: {violation.subject} {violation.detail}" for violation in found)
            raise AssertionError("\n".join(("what is stored breaks invariants:", *lines)))

    return assert_none_is_broken


@pytest_asyncio.fixture
async def _invariants_hold_at_the_end(
    request: pytest.FixtureRequest, check_invariants: CheckInvariants
) -> AsyncIterator[None]:
    yield
    if request.node.get_closest_marker("leaves_faults") is None:
        await check_invariants()


@pytest.fixture(autouse=True)
def _ends_with_a_check(request: pytest.FixtureRequest) -> None:
    """A test that used a store or a gateway ends with a check: when they have stopped, and before its keys go.

    It is set up before them, so its end comes after theirs. Not async itself, else it could not ask for one that is.
    """
    if {"store", "start_gateway"} & set(request.fixturenames):
        request.getfixturevalue("_invariants_hold_at_the_end")
