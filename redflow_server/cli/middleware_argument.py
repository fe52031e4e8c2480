"""`--middleware`: what is around the work of a worker that the command line runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from redflow_sdk import Middleware
from redflow_server.cli.arguments import text
from redflow_server.cli.faults import CommandFailed
from redflow_server.cli.module_import import described, load_object

EXAMPLE: Final = "shop.tracing:trace"


def add_middleware(parser: argparse.ArgumentParser) -> None:
    """The flag."""
    parser.add_argument(
        "--middleware",
        type=text,
        action="append",
        metavar="MODULE:ATTR",
        help="what is around handlers and steps, repeatable; the first one is the outermost (default: nothing)",
    )


def load_middleware(places: Iterable[str] | None) -> list[Middleware]:
    """The middleware at each `MODULE:ATTR`, in this order. Raises CommandFailed."""
    return [_loaded(place) for place in places or ()]


def _loaded(place: str) -> Middleware:
    found = load_object(place, "--middleware", EXAMPLE)
    if not isinstance(found, Middleware):
        raise CommandFailed(f"--middleware {place}: must be a Middleware; is {described(found)}")
    return found
