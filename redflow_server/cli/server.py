"""`redflow server`: a gateway on a Redis."""

from __future__ import annotations

import argparse
from typing import Final

from redflow_server.cli.arguments import add_output, seconds, whole
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.gateway_arguments import DEFAULT_TIMING, add_address, add_lease
from redflow_server.cli.redis_argument import add_redis
from redflow_server.domain.names import Limits

MEBIBYTE: Final = 1024 * 1024
# A payload has to fit into a message of 4 MiB, with its run around it.
MAX_PAYLOAD_BYTES: Final = 3 * MEBIBYTE
DECADE_S: Final = 10 * 366 * 86400

# As `Config` has them, which only a gateway can import; a test compares.
DEFAULT_RETENTION_S: Final = 7 * 86400.0
DEFAULT_DRAIN_GRACE_S: Final = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    add_redis(parser)
    add_address(parser)
    add_lease(parser)
    for name, parse, default_s, what in (
        (
            "--cancel-grace",
            seconds(0, 3600),
            DEFAULT_TIMING.cancel_grace_ms / 1000,
            "what a canceled handler has to end",
        ),
        ("--retention", seconds(1, DECADE_S), DEFAULT_RETENTION_S, "how long runs are kept after their end"),
        ("--drain-grace", seconds(0, 3600), DEFAULT_DRAIN_GRACE_S, "what workers have to move on shutdown"),
    ):
        parser.add_argument(name, type=parse, metavar="SECONDS", default=default_s, help=f"{what} (%(default)g)")
    parser.add_argument(
        "--max-payload-bytes",
        type=whole(1, MAX_PAYLOAD_BYTES, "bytes"),
        metavar="N",
        default=Limits().max_payload_bytes,
        help="the largest input, output or step output (%(default)s)",
    )
    parser.add_argument("--reflection", action="store_true", help="let tools such as grpcurl ask for the services")
    parser.add_argument(
        "--share-port",
        action="store_true",
        help="let other gateways of this machine that say so listen on the port, too",
    )
    parser.add_argument("--accept-eviction", action="store_true", help="start though Redis may evict runs when full")
    add_output(parser)
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> ExitCode:
    from redflow_server.cli.server_process import run  # it needs the extra, and the help does not

    return run(arguments)
