"""Which Redis a command uses."""

from __future__ import annotations

import argparse
import os
import re
from typing import Final
from urllib.parse import urlsplit

from redflow_server.cli.arguments import refused, text
from redflow_server.store.keys import DEFAULT_PREFIX

# As `Config` has it, which only a gateway can import; a test compares.
DEFAULT_URL: Final = "redis://127.0.0.1:6379/0"

_SCHEMES: Final = ("redis", "rediss", "unix")
# As the store has them, which only a gateway can import; a test compares.
SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")


def add_redis(parser: argparse.ArgumentParser) -> None:
    """The Redis, and the prefix of the keys in it."""
    parser.add_argument(
        "--redis",
        type=redis_url,
        metavar="URL",
        default=os.environ.get("REDFLOW_REDIS_URL", "").strip() or DEFAULT_URL,
        help=f"the Redis or Valkey (default: REDFLOW_REDIS_URL, or {DEFAULT_URL})",
    )
    add_prefix(parser)


def add_prefix(parser: argparse.ArgumentParser) -> None:
    """The prefix of all keys."""
    parser.add_argument("--prefix", type=text, default=DEFAULT_PREFIX, help="the beginning of all keys (%(default)s)")


def redis_url(came: str) -> str:
    """Where a Redis is, or its sentinels are. Its password is never repeated."""
    if came.partition("://")[0].lower() in SENTINEL_SCHEMES:
        return _understood(came)
    try:
        parts = urlsplit(came)
        is_url = parts.scheme in _SCHEMES and parts.port != 0 and bool(parts.hostname or parts.path)
        # redis-py takes what is no number for database 0.
        is_url = is_url and (parts.scheme == "unix" or re.fullmatch(r"/?|/[0-9]+", parts.path, re.ASCII) is not None)
    except ValueError:
        is_url = False
    if not is_url:
        forms = (
            "redis://HOST:PORT/DB, rediss://HOST:PORT/DB, unix:///PATH or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE"
        )
        raise refused(f"must be {forms}", without_password(came))
    return _understood(came)


def _understood(came: str) -> str:
    from redflow_server.store.wire import Dial  # it needs the extra, and the help does not

    try:
        Dial(came)
    except ValueError as error:
        raise refused(f"cannot be used ({error})", without_password(came)) from error
    return came


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    scheme, separator, rest = url.rpartition("://")
    shown = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}{separator}{shown}"
