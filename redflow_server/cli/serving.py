"""The life of a gateway in a command: from its start until a signal, through its drain, to its stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final

import uvloop

from redflow_server.cli import heap
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.config import Config
from redflow_server.domain.errors import Refusal, StoreUnavailable
from redflow_server.gateway import Gateway

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
HANG_UP: Final = signal.SIGHUP


def address(host: str, port: int) -> str:
    """What clients give as their target."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Signals:
    """SIGTERM, SIGINT, and SIGHUP of a closed terminal: the first asks for a drain, the second for the end at once.

    While it is open they interrupt nothing, so whatever was started is also stopped. `nohup` keeps SIGHUP ignored.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        is_ignored = signal.getsignal(HANG_UP) is signal.SIG_IGN
        self._numbers = SIGNALS if is_ignored else (*SIGNALS, HANG_UP)

    def _arrived(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def __enter__(self) -> Signals:
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().remove_signal_handler(number)


async def serve(config: Config, signals: Signals, ready: Callable[[Gateway], None]) -> None:
    """Runs a gateway until a signal, and stops it. Raises CommandFailed and StoreUnavailable when it cannot start."""
    gateway = Gateway(config)
    try:
        if not await _unless(signals.first, gateway.start()):
            return
    except StoreUnavailable:
        raise
    except Refusal as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(_why_not_listening(config.host, config.port) or str(error)) from error
    try:
        ready(gateway)
        await signals.first.wait()
        await _unless(signals.second, gateway.drain())
    finally:
        await gateway.stop()


def _why_not_listening(host: str, port: int) -> str | None:
    """What the system says of an address on which gRPC, which does not say why, cannot listen."""
    where = f"cannot listen on {address(host, port)}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in found:
            with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except socket.gaierror as error:
        return f"{where}: {host} has no address ({error.strerror})"
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "another program listens there",
            errno.EADDRNOTAVAIL: "this machine does not have the address",
            errno.EACCES: "this user may not use the port",
        }
        return f"{where}: {reasons.get(error.errno or 0) or os.strerror(error.errno or 0)}"
    return None


async def _unless(given_up: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:  # Any: asyncio's business
    """Does the work, or drops it when the event comes first; whether it was done. Raises what the work raises."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(given_up.wait())
    awaited: list[asyncio.Future[Any]] = [working, waiting]  # Any: either
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        waiting.cancel()
        working.result()
        return True
    working.cancel()
    await asyncio.wait([working])
    # Work at whose very end the cancellation comes, or in which redis-py loses it, is done all the same.
    return not working.cancelled() and working.exception() is None


def run_until_stopped(life: Coroutine[Any, Any, None]) -> ExitCode:  # Any: as above
    """Runs the life of a gateway's process."""
    heap.settle()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(life)
    return ExitCode.OK
