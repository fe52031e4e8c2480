"""The life of a gateway in a command: from its start until a signal, through its drain, to its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from redflow_server.cli import heap
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.listening import why_not_listening
from redflow_server.cli.signals import Signals
from redflow_server.config import Config
from redflow_server.domain.errors import Refusal, StoreUnavailable
from redflow_server.gateway import Gateway


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
        raise CommandFailed(why_not_listening(config.host, config.port) or str(error)) from error
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
