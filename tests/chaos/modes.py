"""The ways in which workers have their handlers wait, as options of the commands here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

MODES: Final[Mapping[str, str]] = {"parking": "park", "no-parking": "suspend", "always-suspend": "replay"}
"""What REDFLOW_WAITING says in each."""


def add_mode(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--mode", choices=list(MODES), default="parking", help="how handlers of the workers wait (%(default)s)"
    )


def environment_of(mode: str) -> dict[str, str]:
    """Of a worker."""
    return {"REDFLOW_WAITING": MODES[mode]}
