"""Fixtures of the command line's tests: processes that end with their test, and a target for client commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio

from redflow_server.cli import main
from tests.cli.command import Command, Ended, redflow, spawn

OF_THE_MACHINE = ("REDFLOW_TARGET", "REDFLOW_CODEC", "REDFLOW_OWNER", "REDFLOW_REDIS_URL", "COLUMNS", "GRPC_VERBOSITY")

Start = Callable[..., Awaitable[Command]]
Run = Callable[..., Awaitable[Ended]]


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line reads of its environment is not set, for the commands that run in this process."""
    for name in OF_THE_MACHINE:
        monkeypatch.delenv(name, raising=False)


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts the program; what still runs at the end of the test is killed."""
    commands: list[Command] = []

    async def start_one(*arguments: object, **settings: object) -> Command:
        commands.append(await spawn(*arguments, **settings))  # type: ignore[arg-type]  # as spawn takes them
        return commands[-1]

    yield start_one
    for command in commands:
        if command.is_running:
            command.process.kill()
        await command.end()


@pytest.fixture
def at_gateway(target: str) -> Run:
    """Runs client commands against the gateway of the test."""

    async def run(*arguments: str | bytes, stdin: bytes = b"") -> Ended:
        return await redflow(*arguments, stdin=stdin, env={"REDFLOW_TARGET": target})

    return run


@pytest.fixture
def here(target: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """As `at_gateway`, in this process: for what a command shows, without the half second that a process takes."""

    async def run(*arguments: str) -> Ended:
        code = await asyncio.to_thread(main, [*arguments, "--target", target])
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port on which nothing listens and nothing begins to during the test."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
