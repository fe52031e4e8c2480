"""What commands print: aligned tables, cards of one thing, JSON documents, and the one line of an error."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from redflow_server.cli.escaping import printable, printable_json, width
from redflow_server.cli.faults import CommandFailed

GAP: Final = "  "
NOTHING: Final = "-"


def open_standard_descriptors() -> None:
    """Those that the command was started without lead nowhere. Else the next files and sockets would get their numbers:
    children would read or write them, and uvloop, which expects none of its own there, aborts when it closes one.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free is this one


def prepare_streams() -> None:
    """Whatever the locale's encoding is, no text fails to be written."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    """Prints a text and a line break; whoever reads a pipe sees them now. Raises BrokenPipeError, CommandFailed."""
    if sys.stdout is None:  # the command was started with a closed stdout
        return
    with _writing():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def flush() -> None:
    """What was printed without `write`, by the workflows of a user, is out. Raises BrokenPipeError, CommandFailed."""
    if sys.stdout is not None:
        with _writing():
            sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Python keeps what it could not write, and would try again, and complain, at its end.
        _discard_stdout()
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandFailed(f"the output cannot be written: {error.strerror}") from error


def _discard_stdout() -> None:
    """Lets the interpreter flush what nobody will read."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(text: str) -> None:
    """Writes one line to stderr, where news and errors go."""
    show_on_stderr(f"redflow: {printable(text)}\n")


def show_on_stderr(block: str) -> None:
    """Writes lines to stderr as they are."""
    # There is no other place to say that stderr cannot be written.
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(block)
        sys.stderr.flush()


# ---- tables ----


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under a header, in columns."""
    return _aligned([[name.upper() for name in header], *([cell(value) for value in row] for row in rows)])


def card(fields: Mapping[str, object]) -> str:
    """One thing: a line for each of its fields."""
    return _aligned([[name, cell(value)] for name, value in fields.items()])


def cell(value: object) -> str:
    """A value on one line of a table."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return iso_time(value)
    return printable(str(value))


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        GAP.join(text + " " * (size - width(text)) for text, size in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


# ---- JSON ----


def json_document(document: object) -> str:
    """A JSON document for reading. Times are ISO 8601 in UTC; bytes that are no JSON are `{"base64": ...}`, with the
    codec that has encoded them.
    """
    try:
        return printable_json(json.dumps(document, indent=2, ensure_ascii=False, default=_json_form))
    except RecursionError:  # only indenting is done in Python
        return json_line(document)


def json_line(document: object) -> str:
    """A JSON document on one line, for commands that go on."""
    return printable_json(json.dumps(document, ensure_ascii=False, default=_json_form))


def _json_form(value: object) -> object:
    from redflow_sdk import Payload  # it loads gRPC, which is told before what to write

    if isinstance(value, datetime):
        return iso_time(value)
    if isinstance(value, Payload):
        return {"codec": value.codec, "base64": base64.b64encode(value.data).decode()}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def iso_time(at: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
