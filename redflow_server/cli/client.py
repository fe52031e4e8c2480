"""Commands that call a gateway through the SDK, and what its refusals mean for them."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redflow_sdk import (
    CanceledError,
    Client,
    CodecError,
    NotWaitingError,
    PayloadCodec,
    RedflowError,
    RunFailedError,
    RunNotFoundError,
    TokenNotFoundError,
    UnavailableError,
    UnknownWorkflowError,
)
from redflow_server.cli.arguments import add_output, seconds, text
from redflow_server.cli.codec_argument import load_codec
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed

T = TypeVar("T")

DEFAULT_TARGET: Final = "localhost:7379"
CALL_TIMEOUT_S: Final = 5.0
ANY_RUN: Final = "run_any"

_CODES: Final[tuple[tuple[type[RedflowError], ExitCode], ...]] = (
    (RunNotFoundError, ExitCode.NOT_FOUND),
    (UnknownWorkflowError, ExitCode.NOT_FOUND),
    (TokenNotFoundError, ExitCode.NOT_FOUND),
    (RunFailedError, ExitCode.RUN_FAILED),
    (CanceledError, ExitCode.RUN_CANCELED),
    (UnavailableError, ExitCode.UNAVAILABLE),
    (RedflowError, ExitCode.REFUSED),
)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Where the gateway is."""
    parser.add_argument(
        "--target",
        type=text,
        metavar="HOST:PORT",
        default=os.environ.get("REDFLOW_TARGET", "").strip() or DEFAULT_TARGET,
        help="the gateway (default: REDFLOW_TARGET, or localhost:7379)",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Where the gateway is, and how long it may take to answer."""
    add_target(parser)
    parser.add_argument(
        "--call-timeout",
        type=seconds(0.1, 15),
        metavar="SECONDS",
        default=CALL_TIMEOUT_S,
        help="how long to try while the gateway or its Redis is away (%(default)g)",
    )


class Connection:
    """A client, and the patience of the command line."""

    def __init__(self, client: Client, target: str, call_timeout_s: float) -> None:
        self.client = client
        self._target = target
        self.call_timeout_s = call_timeout_s

    async def answer(self, call: Awaitable[T]) -> T:
        """The answer to a call. Raises CommandFailed when there is none in time."""
        try:
            async with asyncio.timeout(self.call_timeout_s):
                return await call
        except TimeoutError:
            what = f"no answer from the gateway at {self._target} within {self.call_timeout_s:g} s"
            raise CommandFailed(f"{what}: {await self._why_away()}", ExitCode.UNAVAILABLE) from None

    async def _why_away(self) -> str:
        """The SDK tells it only when its own time is over; of its calls this one has the shortest, a second."""
        try:
            await self.client.wait_run(ANY_RUN, 0.0)
        except UnavailableError as error:
            return str(error).removeprefix("the gateway does not answer: ").removesuffix(".")
        except RedflowError:
            pass
        return "it or its Redis was away"


ClientCommand = Callable[[Connection, argparse.Namespace], Awaitable[ExitCode]]


def with_client(command: ClientCommand) -> Callable[[argparse.Namespace], ExitCode]:
    """The command with a client of the gateway, and by the codec, that its arguments name; the SDK's exceptions become
    CommandFailed.
    """

    async def call(arguments: argparse.Namespace, codec: PayloadCodec | None) -> ExitCode:
        async with Client(arguments.target, codec=codec) as client:
            return await command(Connection(client, arguments.target, arguments.call_timeout), arguments)

    def run(arguments: argparse.Namespace) -> ExitCode:
        codec = load_codec(getattr(arguments, "codec", None))  # commands without values take none
        try:
            return asyncio.run(call(arguments, codec))
        except RedflowError as error:
            code = next(code for kind, code in _CODES if isinstance(error, kind))
            raise CommandFailed(_line(error), code) from error

    return run


def add_call(parser: argparse.ArgumentParser, command: ClientCommand) -> None:
    """What all commands that call a gateway take, and the one that this is."""
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(command=with_client(command))


def _line(error: RedflowError) -> str:
    # Where the traceback is in Python is nothing for a shell.
    message = (error.message if isinstance(error, RunFailedError) else str(error)) or type(error).__name__
    # These are sentences; ours stand behind the program's name.
    if isinstance(error, (TokenNotFoundError, NotWaitingError)):
        message = message.removesuffix(".")
    elif isinstance(error, CodecError):
        return message.replace("Client(codec=...)", "--codec MODULE:ATTR")
    elif not isinstance(error, (RunFailedError, CanceledError)):
        return message
    return message[0].lower() + message[1:]
