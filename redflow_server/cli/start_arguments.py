"""What starting a run and emitting an event have in common on the command line: JSON, a key, a time, and waiting."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from redflow_server.cli.arguments import json_value, moment, seconds, text
from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed

CENTURY_S: Final = 100 * 365.25 * 86400


def add_json(parser: argparse.ArgumentParser, option: str) -> None:
    """`--input JSON`, `--input-file FILE` or `-` for an option `input`; null without any of them."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument(f"--{option}", dest="json", type=json_value, metavar="JSON", help=f"the {option}")
    file = f"a file with the {option} as JSON"
    given.add_argument(f"--{option}-file", dest="json_file", type=Path, metavar="FILE", help=file)
    given.add_argument("-", dest="reads_stdin", action="store_true", help=f"read the {option} from stdin")
    parser.set_defaults(json_option=f"--{option}-file")


def read_json(arguments: argparse.Namespace) -> Any:  # Any: JSON
    """What was given by an option of `add_json`. Raises CommandFailed."""
    if arguments.json_file is None and not arguments.reads_stdin:
        return arguments.json
    place = "stdin" if arguments.reads_stdin else f"{arguments.json_option} {arguments.json_file}"
    try:
        document = sys.stdin.buffer.read() if arguments.reads_stdin else arguments.json_file.read_bytes()
        return json_value(document.decode())
    except OSError as error:
        raise CommandFailed(f"{place} cannot be read: {error.strerror}", ExitCode.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{place} must be UTF-8: {error}", ExitCode.USAGE) from error
    except argparse.ArgumentTypeError as error:
        raise CommandFailed(f"{place} {error}", ExitCode.USAGE) from error


def add_idempotency(parser: argparse.ArgumentParser, meaning: str) -> None:
    """`--idempotency-key` and `--idempotency-ttl`."""
    parser.add_argument("--idempotency-key", type=text, metavar="KEY", help=meaning)
    parser.add_argument(
        "--idempotency-ttl",
        type=seconds(0.001, CENTURY_S),
        metavar="SECONDS",
        help="how long that key holds (default: 7 days)",
    )


def add_begin(parser: argparse.ArgumentParser) -> None:
    """`--at` or `--delay`."""
    begins = parser.add_mutually_exclusive_group()
    begins.add_argument("--at", type=moment, metavar="TIME", help="not before this ISO 8601 time with an offset")
    begins.add_argument("--delay", type=seconds(0, CENTURY_S), metavar="SECONDS", help="not before so long from now")


def begin_of(arguments: argparse.Namespace) -> datetime | None:
    """The time that was given by an option of `add_begin`."""
    if arguments.delay is not None:
        return datetime.now(UTC) + timedelta(seconds=arguments.delay)
    at: datetime | None = arguments.at
    return at


def add_wait(parser: argparse.ArgumentParser, meaning: str) -> None:
    """`--wait` and `--timeout`."""
    parser.add_argument("--wait", action="store_true", help=meaning)
    add_timeout(parser)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """`--timeout` of a wait."""
    parser.add_argument(
        "--timeout",
        type=seconds(0, CENTURY_S),
        metavar="SECONDS",
        help=f"how long to wait at most; then the exit code is {ExitCode.TIMED_OUT} (default: for ever)",
    )


def check_together(arguments: argparse.Namespace) -> None:
    """Raises CommandFailed for an option that says nothing without another one."""
    for given, needed in (("idempotency_ttl", "idempotency_key"), ("timeout", "wait")):
        if getattr(arguments, given) is not None and not getattr(arguments, needed):
            raise CommandFailed(f"{_flag(given)} goes with {_flag(needed)} only", ExitCode.USAGE)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
