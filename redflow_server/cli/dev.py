"""`redflow dev`: a gateway and its own store in one command, with the data in a directory."""

from __future__ import annotations

import argparse
from pathlib import Path

from redflow_server.cli.arguments import add_output
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.gateway_arguments import add_address, add_lease
from redflow_server.cli.redis_argument import add_prefix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    parser.add_argument(
        "--data-dir", type=Path, default=Path(".redflow"), metavar="DIR", help="where the data is kept (%(default)s)"
    )
    add_address(parser)
    add_lease(parser)
    add_prefix(parser)
    add_output(parser)
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> ExitCode:
    from redflow_server.cli.dev_process import run  # it needs the extra, and the help does not

    return run(arguments)
