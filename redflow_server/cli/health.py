"""`redflow health`: whether a gateway takes workers, for the probes of containers and load balancers."""

from __future__ import annotations

import argparse
import asyncio

from redflow_server.cli.arguments import seconds
from redflow_server.cli.client import add_target
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    add_target(parser)
    parser.add_argument(
        "--timeout", type=seconds(0.1, 60), metavar="SECONDS", default=3.0, help="how long to wait (%(default)g)"
    )
    parser.set_defaults(command=_ask)


def _ask(arguments: argparse.Namespace) -> ExitCode:

    from redflow_server.rpc.probe import is_serving  # it needs the extra, and the help does not

    try:
        serving = asyncio.run(is_serving(arguments.target, arguments.timeout))
    except ConnectionError as error:
        raise CommandFailed(str(error), ExitCode.UNAVAILABLE) from error
    if not serving:
        raise CommandFailed(
            f"the gateway at {arguments.target} takes no workers: "
            "it drains, its Redis is away or refuses calls, or something in it does not get on; its log says which",
            ExitCode.UNAVAILABLE,
        )
    write("serving")
    return ExitCode.OK
