"""The life of a gateway in a command: from its start until a signal, through its drain, to its stop."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final

import uvloop

from redflow_server.cli import heap
from redflow_server.cli.arguments import seconds, text, whole
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.redis_argument import DEFAULT
from redflow_server.config import Config
from redflow_server.domain.errors import Refusal
from redflow_server.gateway import Gateway

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Where a gateway listens, and what clients may do there."""
    parser.add_argument("--host", type=text, default=DEFAULT.host, help="the address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=whole(0, 65_535), default=DEFAULT.port, metavar="N", help="0 takes a free one (%(default)s)"
    )
    parser.add_argument("--allow-reset", action="store_true", help="let clients delete everything under the prefix")


def add_lease(parser: argparse.ArgumentParser) -> None:
    """How long a run stays with a worker that is not heard."""
    parser.add_argument(
        "--lease",
        type=seconds(1, 3600),
        metavar="SECONDS",
        default=DEFAULT.timing.lease_ms / 1000,
        help="a worker that is silent for so long loses its runs (%(default)g)",
    )


def milliseconds(length_s: float) -> int:
    """A length of time as settings have it."""
    return round(length_s * 1000)


def address(host: str, port: int) -> str:
    """What clients give as their target."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Signals:
    """SIGTERM and SIGINT: the first asks for a drain, the second for the end at once.

    While it is open they interrupt nothing, so whatever was started is also stopped.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def _arrived(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def __enter__(self) -> Signals:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


async def serve(config: Config, signals: Signals, ready: Callable[[Gateway], None]) -> None:
    """Runs a gateway until a signal, and stops it. Raises CommandFailed when it cannot start."""
    gateway = Gateway(config)
    try:
        if not await _unless(signals.first, gateway.start()):
            return
    except (Refusal, OSError) as error:
        raise CommandFailed(str(error)) from error
    try:
        ready(gateway)
        await signals.first.wait()
        await _unless(signals.second, gateway.drain())
    finally:
        await gateway.stop()


async def _unless(given_up: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:  # Any: asyncio's business
    """Does the work, or drops it when the event comes first; whether it was done. Raises what the work raises."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(given_up.wait())
    awaited: list[asyncio.Future[Any]] = [working, waiting]  # Any: either
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    is_done = working.done()
    waiting.cancel()
    working.cancel()
    await asyncio.wait(awaited)
    if is_done:
        working.result()
    return is_done


def run_until_stopped(life: Coroutine[Any, Any, None]) -> ExitCode:  # Any: as above
    """Runs the life of a gateway's process."""
    heap.settle()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(life)
    return ExitCode.OK
