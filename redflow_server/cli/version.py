"""`redflow version`: what runs here."""

from __future__ import annotations

import argparse
import platform

from redflow_server.cli.arguments import add_output
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.output import card, json_document, write
from redflow_server.version import VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The noun's arguments."""
    add_output(parser)
    parser.set_defaults(command=_show)


def _show(arguments: argparse.Namespace) -> ExitCode:
    versions = {"redflow": VERSION, "python": platform.python_version()}
    write(json_document(versions) if arguments.output == "json" else card(versions))
    return ExitCode.OK
