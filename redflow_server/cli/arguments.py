"""The parser of the command line, and the kinds of its arguments: each refusal names argument, rule and what came."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NoReturn

from redflow_server.cli.exit_codes import ExitCode
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.listening import ListenAddress
from redflow_server.cli.output import write

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_LISTEN: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)):([0-9]{1,5})")


class Parser(argparse.ArgumentParser):
    """argparse that ends with one line and no usage text, and whose help is output like any other."""

    def __init__(self, **settings: Any) -> None:  # Any: argparse's own keywords
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Raises CommandFailed."""
        raise CommandFailed(f"{message.removeprefix('argument ')} (see {self.prog} --help)", ExitCode.USAGE)

    def _print_message(self, message: str, file: object = None) -> None:
        """Of help and version. argparse itself takes no notice of an error in writing. Raises as `write` does."""
        write(message.removesuffix("\n"))


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, example: str, about: str = ""
) -> argparse.ArgumentParser:
    """A verb of a noun. Its help says `about`, else the summary, and ends with an example of it."""
    verb = verbs.add_parser(
        name,
        help=summary,
        description=about or f"{summary[0].upper()}{summary[1:]}.",
        epilog=ending_with(example),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.set_defaults(called=verb.prog)
    return verb


def ending_with(example: str) -> str:
    """The end of a help."""
    return f"example:\n  {example}"


def add_output(parser: argparse.ArgumentParser, *flags: str) -> None:
    """The choice of table or JSON."""
    parser.add_argument(
        *(flags or ("-o", "--output")),
        dest="output",
        choices=("table", "json"),
        default="table",
        help="what to print (%(default)s)",
    )


def refused(rule: str, came: str) -> argparse.ArgumentTypeError:
    """The refusal of an argument."""
    shown = ascii(came)
    return argparse.ArgumentTypeError(f"{rule}; got {shown if len(shown) <= 100 else shown[:97] + '...'}")


def text(came: str) -> str:
    """Text that can go over the wire."""
    try:
        came.encode()
    except UnicodeEncodeError:
        raise refused("must be UTF-8", came) from None
    if not came:
        raise refused("must not be empty", came)
    return came


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A length of time in seconds."""

    def parse(came: str) -> float:
        try:
            value = float(came)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise refused(f"must be a number of seconds from {least:g} to {most:.12g}", came)
        return value

    return parse


def whole(least: int, most: int, unit: str = "") -> Callable[[str], int]:
    """A whole number."""

    def parse(came: str) -> int:
        if not _WHOLE.fullmatch(came) or not least <= int(came) <= most:
            of = f" of {unit}" if unit else ""
            raise refused(f"must be a whole number{of} from {least} to {most}", came)
        return int(came)

    return parse


def listen_address(came: str) -> ListenAddress:
    """An address to listen on."""
    found = _LISTEN.fullmatch(came)
    if found is None or int(found[3]) > 65_535:
        raise refused("must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080", came)
    return ListenAddress(found[1] or found[2], int(found[3]))


def moment(came: str) -> datetime:
    """A time that is the same for everybody."""
    try:
        value = datetime.fromisoformat(came)
    except ValueError:
        value = None
    if value is None or value.tzinfo is None:
        raise refused("must be an ISO 8601 time with an offset, such as 2030-01-31T09:00:00+01:00", came)
    return value


def json_value(came: str) -> Any:  # Any: JSON
    """A JSON document."""
    try:
        return json.loads(came, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise refused(f"must be JSON ({error})", came) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is none")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is too large for a float")
    return value
