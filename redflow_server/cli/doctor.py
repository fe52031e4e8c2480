"""`redflow doctor`: what the Redis promises, and whether all that is kept in it agrees with itself."""

from __future__ import annotations

import argparse

from redflow_server.cli.arguments import add_output
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.redis_argument import add_redis


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    add_redis(parser)
    add_output(parser)
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> ExitCode:
    from redflow_server.cli.doctor_report import examine  # it needs the extra, and the help does not

    return examine(arguments)
