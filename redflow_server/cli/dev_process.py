"""The process of `redflow dev`: a store and a gateway on it, which start and end together."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Final

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.gateway_arguments import milliseconds
from redflow_server.cli.listening import address
from redflow_server.cli.logs import log_to_stderr
from redflow_server.cli.output import card, json_line, write
from redflow_server.cli.serving import run_until_stopped, serve
from redflow_server.cli.signals import Signals
from redflow_server.config import Config
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.timing import Timing
from redflow_server.embedded import EmbeddedStore, EmbeddedStoreError
from redflow_server.gateway import Gateway

DRAIN_GRACE_MS: Final = 1000


def run(arguments: argparse.Namespace) -> ExitCode:
    """Serves until a signal. Raises CommandFailed."""
    log_to_stderr(logging.WARNING)
    return run_until_stopped(_live(arguments))


async def _live(arguments: argparse.Namespace) -> None:
    store = EmbeddedStore(arguments.data_dir)

    def ready(gateway: Gateway) -> None:
        addresses = {
            "gateway": address(arguments.host, gateway.port),
            "store": store.url,
            "data": str(arguments.data_dir.absolute()),
        }
        write(json_line(addresses) if arguments.output == "json" else card(addresses))

    # The store starts and stops while signals only ask: it is never left behind. It blocks the loop, on which nothing
    # else lives then, because it has to be started by the main thread: with its starter a child ends, too.
    with Signals() as signals:
        try:
            store.start()
        except EmbeddedStoreError as error:
            raise CommandFailed(str(error)) from error
        except OSError as error:
            raise CommandFailed(f"--data-dir {arguments.data_dir} will not do: {error.strerror}") from error
        try:
            config = Config(
                redis_url=store.url,
                prefix=arguments.prefix,
                host=arguments.host,
                port=arguments.port,
                timing=Timing(lease_ms=milliseconds(arguments.lease)),
                drain_grace_ms=DRAIN_GRACE_MS,
                allows_reset=arguments.allow_reset,
                has_reflection=True,
            )
            watch = asyncio.create_task(_watch(store, signals))
            try:
                await serve(config, signals, ready)
            except StoreUnavailable as error:
                raise CommandFailed(f"the store has not started; its log is in {arguments.data_dir}") from error
            watch.cancel()
            if not store.is_running:
                raise CommandFailed(f"the store has ended; its log is in {arguments.data_dir}")
        finally:
            store.stop()


async def _watch(store: EmbeddedStore, signals: Signals) -> None:
    """Without its store the gateway is of no use: both end together."""
    await asyncio.to_thread(store.wait)
    signals.first.set()
