"""`redflow server`: a gateway on a Redis."""

from __future__ import annotations

import argparse
import logging
from dataclasses import replace
from typing import Final

from redflow_server.cli.arguments import add_output, seconds, whole
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.logs import log_to_stderr
from redflow_server.cli.output import card, json_line, write
from redflow_server.cli.redis_argument import DEFAULT, add_redis, without_password
from redflow_server.cli.serving import (
    Signals,
    add_address,
    add_lease,
    address,
    milliseconds,
    run_until_stopped,
    serve,
)
from redflow_server.config import Config
from redflow_server.domain.timing import Timing
from redflow_server.gateway import Gateway

MEBIBYTE: Final = 1024 * 1024
# A payload has to fit into a message of 4 MiB, with its run around it.
MAX_PAYLOAD_BYTES: Final = 3 * MEBIBYTE
DECADE_S: Final = 10 * 366 * 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    add_redis(parser)
    add_address(parser)
    add_lease(parser)
    retention_s = max(DEFAULT.upkeep.retention_ms.values()) / 1000
    for name, parse, default_s, what in (
        (
            "--cancel-grace",
            seconds(0, 3600),
            DEFAULT.timing.cancel_grace_ms / 1000,
            "what a canceled handler has to end",
        ),
        ("--retention", seconds(1, DECADE_S), retention_s, "how long runs are kept after their end"),
        ("--drain-grace", seconds(0, 3600), DEFAULT.drain_grace_ms / 1000, "what workers have to move on shutdown"),
    ):
        parser.add_argument(name, type=parse, metavar="SECONDS", default=default_s, help=f"{what} (%(default)g)")
    parser.add_argument(
        "--max-payload-bytes",
        type=whole(1, MAX_PAYLOAD_BYTES, "bytes"),
        metavar="N",
        default=DEFAULT.limits.max_payload_bytes,
        help="the largest input, output or step output (%(default)s)",
    )
    parser.add_argument("--reflection", action="store_true", help="let tools such as grpcurl ask for the services")
    parser.add_argument("--accept-eviction", action="store_true", help="start though Redis may evict runs when full")
    add_output(parser)
    parser.set_defaults(command=_run)


def config_of(arguments: argparse.Namespace) -> Config:
    """The settings of the gateway."""
    payload_bytes: int = arguments.max_payload_bytes
    return Config(
        redis_url=arguments.redis,
        prefix=arguments.prefix,
        host=arguments.host,
        port=arguments.port,
        timing=Timing(milliseconds(arguments.lease), milliseconds(arguments.cancel_grace)),
        limits=replace(
            DEFAULT.limits,
            max_payload_bytes=payload_bytes,
        ),
        upkeep=replace(
            DEFAULT.upkeep,
            retention_ms=dict.fromkeys(DEFAULT.upkeep.retention_ms, milliseconds(arguments.retention)),
        ),
        drain_grace_ms=milliseconds(arguments.drain_grace),
        allows_reset=arguments.allow_reset,
        accepts_eviction=arguments.accept_eviction,
        has_reflection=arguments.reflection,
    )


def _run(arguments: argparse.Namespace) -> ExitCode:
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

    return run_until_stopped(live())
