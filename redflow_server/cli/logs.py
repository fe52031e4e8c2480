"""The log of commands that go on: on stderr, a line for each record."""

from __future__ import annotations

import logging
import sys

from redflow_server.cli.escaping import printable_block


class _SafeFormatter(logging.Formatter):
    """Names of users stand in messages, and a terminal must not act on them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_block(super().format(record))


def log_to_stderr(level: int) -> None:
    """Shows what this engine logs from `level` on, and what others log from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("redflow").setLevel(level)
