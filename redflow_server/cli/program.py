"""The nouns of `redflow`, and how a command begins and ends."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from redflow_server.cli.arguments import Parser, ending_with
from redflow_server.cli.exit_codes import MEANING, ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.output import flush, open_standard_descriptors, prepare_streams, say, show_on_stderr
from redflow_server.version import VERSION

Command = Callable[[argparse.Namespace], ExitCode]


@dataclass(frozen=True, slots=True)
class Noun:
    """A first word of the command line. `extra` is what has to be installed beside the base to run it, or one of its
    verbs; its module imports without, so that its help can be read, and imports what runs it when it is called.
    `example` ends the help of one that has no verbs.
    """

    summary: str
    extra: str = ""
    example: str = ""


NOUNS: Final[Mapping[str, Noun]] = {
    "dev": Noun(
        "run a gateway with a store of its own, for development",
        extra="dev",
        example="redflow dev --data-dir /tmp/trial --port 7380",
    ),
    "server": Noun(
        "run a gateway on a Redis",
        extra="server",
        example="redflow server --redis redis://localhost:6379/0 --prefix shop",
    ),
    "worker": Noun("run workers, and show those that are connected"),
    "run": Noun("start, watch and cancel runs"),
    "event": Noun("emit events, which start runs and end waits"),
    "token": Noun("complete or fail steps that wait for a completion token"),
    "workflow": Noun("show the registered workflows"),
    "schedule": Noun("show cron schedules, and when an expression comes", extra="server"),
    "queue": Noun("show what waits in queues, and who serves them"),
    "doctor": Noun(
        "judge the settings of a Redis and the state kept in it",
        extra="server",
        example="redflow doctor --redis redis://localhost:6379/0 --prefix shop",
    ),
    "health": Noun(
        "ask a gateway whether it takes workers, as a probe does",
        extra="server",
        example="redflow health --target localhost:7379",
    ),
    "version": Noun("show the version", example="redflow version -o json"),
}


class NounModule(Protocol):
    """What the module of a noun has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds arguments, and the function to call as the default of `command`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    open_standard_descriptors()
    prepare_streams()
    # gRPC writes of its own about what our one line says already; it reads this when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        flush()
    except CommandFailed as failed:
        say(str(failed))
        return failed.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.BROKEN_PIPE
    return code


def _run(argv: Sequence[str]) -> ExitCode:
    called = next((argument for argument in argv if not argument.startswith("-")), "")
    parser = command_parser(called)
    if not argv:
        show_on_stderr(parser.format_help())
        return ExitCode.USAGE
    try:
        arguments, unknown = parser.parse_known_args(argv, argparse.Namespace(command_line=argv))
        if unknown:
            rest = " ".join(unknown)
            raise CommandFailed(f"unrecognized arguments: {rest} (see {arguments.called} --help)", ExitCode.USAGE)
        command: Command = arguments.command
        return command(arguments)
    except SystemExit:  # --help and --version
        return ExitCode.OK
    except ModuleNotFoundError as error:
        extra = NOUNS[called].extra if called in NOUNS else ""
        if not extra or (error.name or "").startswith(("redflow_server", "redflow_sdk")):
            raise
        raise CommandFailed(
            f"`redflow {called}` needs more than is installed (no {error.name}): "
            f"pip install '.[{extra}]' in a checkout of redflow gateway"
        ) from None


def command_parser(called: str) -> argparse.ArgumentParser:
    """A parser that knows the arguments of the noun that is called, and of the others the name."""
    parser = Parser(
        prog="redflow",
        description="Durable workflows on the Redis you already run.",
        epilog="exit codes:\n" + "\n".join(f"  {code:<5}{meaning}" for code, meaning in MEANING.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"redflow {VERSION}")
    nouns = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, noun in NOUNS.items():
        of_noun = nouns.add_parser(
            name,
            help=noun.summary,
            description=f"{noun.summary[0].upper()}{noun.summary[1:]}.",
            epilog=ending_with(noun.example) if noun.example else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        of_noun.set_defaults(called=of_noun.prog)
        if name == called:
            module = importlib.import_module(f"redflow_server.cli.{name}")
            cast("NounModule", module).add_arguments(of_noun)  # cast: all modules named in NOUNS have it
    return parser
