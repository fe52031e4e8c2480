"""The process of `redflow server`: its settings, and its life."""

from __future__ import annotations

import argparse
import logging
from dataclasses import replace

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.gateway_arguments import milliseconds
from redflow_server.cli.listening import address
from redflow_server.cli.logs import log_to_stderr
from redflow_server.cli.output import card, json_line, write
from redflow_server.cli.redis_argument import without_password
from redflow_server.cli.redis_faults import redis_fault
from redflow_server.cli.serving import run_until_stopped, serve
from redflow_server.cli.signals import Signals
from redflow_server.config import Config
from redflow_server.domain.errors import StoreUnavailable
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway


def config_of(arguments: argparse.Namespace) -> Config:
    """The settings of the gateway."""
    default = Config()
    return Config(
        redis_url=arguments.redis,
        prefix=arguments.prefix,
        host=arguments.host,
        port=arguments.port,
        timing=Timing(milliseconds(arguments.lease), milliseconds(arguments.cancel_grace)),
        limits=replace(default.limits, max_payload_bytes=arguments.max_payload_bytes),
        upkeep=replace(
            default.upkeep,
            retention_ms=dict.fromkeys(default.upkeep.retention_ms, milliseconds(arguments.retention)),
        ),
        drain_grace_ms=milliseconds(arguments.drain_grace),
        allows_reset=arguments.allow_reset,
        accepts_eviction=arguments.accept_eviction,
        has_reflection=arguments.reflection,
        shares_port=arguments.share_port,
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Serves until a signal. Raises CommandFailed."""
    log_to_stderr(logging.WARNING)

    def ready(gateway: Gateway) -> None:
        # Not before: a start that fails says so in one line.
        log_to_stderr(logging.INFO)
        addresses = {
            "gateway": address(arguments.host, gateway.port),
            "redis": without_password(arguments.redis),
            "prefix": arguments.prefix,
        }
        write(json_line(addresses) if arguments.output == "json" else card(addresses))

    async def live() -> None:
        with Signals() as signals:
            await serve(config_of(arguments), signals, ready)

    try:
        return run_until_stopped(live())
    except StoreUnavailable as error:
        fault = redis_fault(error, "a gateway")
        if fault.code is ExitCode.UNAVAILABLE:
            raise CommandFailed(f"{fault}; where there is none, `redflow dev` brings its own", fault.code) from error
        raise fault from error
