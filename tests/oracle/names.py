"""What users may call things and send: odd names, odd bytes, and times. Small pools, so that things meet."""

from __future__ import annotations

from typing import Final

from redflow_server.domain.names import MAX_NAME_BYTES
from redflow_server.domain.runs import DEFAULT_IDEMPOTENCY_TTL_MS

ODD: Final = (
    "a",
    "a:b",
    "1:a",
    "3:a:b",
    "1:a:1:b",
    "x y",
    " ",
    "nul\0nul",
    "line\nend",
    "ünïcodé ☃ 💥",
    'quote"back\\slash/',
    "a|b|c",
    "{tag}",
    "%d*[^]",
    "x" * MAX_NAME_BYTES,
    "é" * (MAX_NAME_BYTES // 2),
)

WORKFLOWS: Final = ("w", "1:w", "w:1:w", "two words", "nul\0", "ünï☃", "w" * MAX_NAME_BYTES)
QUEUES: Final = ("q", "q:1:w", "q" * MAX_NAME_BYTES)
EVENTS: Final = ("paid", "4:paid", "paid:2:k1 ☃")
EVENT_KEYS: Final = (None, None, "k1", "1:k", "\0")
OWNERS: Final = ("owner", "5:owner")
BUILDS: Final = ("build-1", "build:2", "")
GROUPS: Final = ("", "", "", "g", "3:g|2")
KEYS: Final = ("key", "1:k", "k" * MAX_NAME_BYTES)
GATEWAYS: Final = ("gateway-1", "gateway-2")
SESSIONS: Final = ("session-1", "session-2")

ENDS: Final = ("", "", "", "2", ":1", " \0", "|☃", "y" * (MAX_NAME_BYTES - 10))
"""What comes behind the kind of a step in its name."""

SMALL_BYTES: Final = (
    b"",
    b"{}",
    b"null",
    b"\x00a\x00",
    b"\xff\xfe\xc3(",
    b"9007199254740993",
    b"a|b %s {} \r\n$-1\r\n",
    b"~5000:digest",
    b"x" * 65,
    b"\xff" * 5_000,
)
BIG_BYTES: Final = (b"y" * 70_000, b"\x00\xff" * (512 * 1024))
CONTENT_TYPES: Final = ("", "", "application/x-odd|☃")
METADATA: Final = ((), (), (("codec", "zstd"), ("a|b", "\0")))

REASONS: Final = ("", "changed my mind", "why\nnot ☃")
WINDOWS_MS: Final = (1, 60_000, 600_000, DEFAULT_IDEMPOTENCY_TTL_MS)
PRIORITIES: Final = (0, 0, 0, 1, -1, 1000, -1000)
DELAYS_MS: Final = (0, 1, 1_000, 60_000)
DAY_MS: Final = 24 * 3_600_000
JUMPS_MS: Final = (1, 999, 1_000, 15_001, 30_001, 61_000, 600_000, DAY_MS, 8 * DAY_MS, -1, -1_000, -3_600_000)
LIMITS: Final = (1, 2, 100)
LEASE_TIMES_MS: Final = (15_000, 30_000)
