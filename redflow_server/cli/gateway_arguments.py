"""What `redflow server` and `redflow dev` are told alike. Needs nothing but the base install."""

from __future__ import annotations

import argparse
from typing import Final

from redflow_server.cli.arguments import seconds, text, whole
from redflow_server.domain.timing import Timing

# As `Config` has them, which only a gateway can import; a test compares.
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7379
DEFAULT_TIMING: Final = Timing()


def add_address(parser: argparse.ArgumentParser) -> None:
    """Where a gateway listens, and what clients may do there."""
    parser.add_argument("--host", type=text, default=DEFAULT_HOST, help="the address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=whole(0, 65_535), default=DEFAULT_PORT, metavar="N", help="0 takes a free one (%(default)s)"
    )
    parser.add_argument("--allow-reset", action="store_true", help="let clients delete everything under the prefix")


def add_lease(parser: argparse.ArgumentParser) -> None:
    """How long a run stays with a worker that is not heard."""
    parser.add_argument(
        "--lease",
        type=seconds(1, 3600),
        metavar="SECONDS",
        default=DEFAULT_TIMING.lease_ms / 1000,
        help="a worker that is silent for so long loses its runs (%(default)g)",
    )


def milliseconds(length_s: float) -> int:
    """A length of time as settings have it."""
    return round(length_s * 1000)
