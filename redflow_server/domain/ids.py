"""Identifiers: opaque to everyone else, and nothing sorts by them.

A lease token is the run's id and 88 random bits. It must be random: a counter could repeat after Redis has lost its
last second, and a stale worker would then own the same token.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import Final

RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOKEN: Final = re.compile(r"(?P<run_id>[A-Za-z0-9_-]{1,64})\.(?P<secret>[A-Za-z0-9_-]{15})")


def new_run_id() -> str:
    """A random run id."""
    return _run_id(secrets.token_bytes(14))


def new_event_id() -> str:
    """A random event id."""
    return "evt_" + _characters(secrets.token_bytes(14))


def counted(part: str) -> str:
    """The part with its length in bytes before it, so that no two pairs of parts read the same."""
    return f"{len(part.encode())}:{part}"


def run_id_for(*parts: str) -> str:
    """The run id that belongs to these parts: the same parts give the same id, so a repeat creates nothing."""
    return _run_id(_digest(parts))


def event_id_for(*parts: str) -> str:
    """The event id that belongs to these parts."""
    return "evt_" + _characters(_digest(parts))


def schedule_id_for(*parts: str) -> str:
    """The id of a cron schedule that belongs to these parts."""
    return "cron_" + _characters(_digest(parts))


def _digest(parts: tuple[str, ...]) -> bytes:
    return hashlib.sha256("".join(map(counted, parts)).encode()).digest()


def _run_id(entropy: bytes) -> str:
    return "run_" + _characters(entropy)


def _characters(entropy: bytes) -> str:
    # 110 bits in 22 characters: with the prefix of a run it just fits a small allocation of Redis.
    return base64.b32encode(entropy).decode().lower()[:22]


def new_secret() -> str:
    """The random part of the lease tokens of one claim."""
    return secrets.token_urlsafe(11)


def new_name() -> str:
    """A random name for a process or session."""
    return base64.b32encode(secrets.token_bytes(10)).decode().lower()


def run_id_of(lease_token: str) -> str | None:
    """The run a lease token is for; None when it is no token at all."""
    match = _TOKEN.fullmatch(lease_token)
    return match["run_id"] if match else None
