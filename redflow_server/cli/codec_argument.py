"""`--codec`: by which a command encodes the values that it sends, and decodes those that it gets."""

from __future__ import annotations

import argparse
import os
from typing import Final

from redflow_sdk import Client, InvalidInputError, PayloadCodec
from redflow_server.cli.arguments import text
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.module_import import described, load_object

EXAMPLE: Final = "shop.secrets:codec"


def add_codec(parser: argparse.ArgumentParser) -> None:
    """The flag, for commands whose values pass through it."""
    parser.add_argument(
        "--codec",
        type=text,
        metavar="MODULE:ATTR",
        default=os.environ.get("REDFLOW_CODEC", "").strip() or None,
        help="the codec of the values (default: REDFLOW_CODEC, or none)",
    )


def load_codec(place: str | None) -> PayloadCodec | None:
    """The codec at `MODULE:ATTR`; None without a place. Raises CommandFailed."""
    if place is None:
        return None
    codec = load_object(place, "--codec", EXAMPLE)
    if not isinstance(codec, PayloadCodec):
        raise CommandFailed(f"--codec {place}: must have a name, encode and decode; is {described(codec)}")
    try:
        Client(codec=codec)  # it connects to nothing, and says which names are none
    except InvalidInputError as error:
        raise CommandFailed(f"--codec {place}: {error}") from error
    return codec
