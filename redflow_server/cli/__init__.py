"""The command `redflow`."""

from __future__ import annotations


def main() -> int:
    """Runs the command."""
    return 0
