"""User data as the gateway carries it: bytes it never looks into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Payload:
    """Encoded user data with what its reader needs to decode it.

    `content_type` "" means JSON in UTF-8; `metadata` holds the marks of an end-to-end codec.
    """

    data: bytes
    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


EMPTY_OBJECT = Payload(b"{}")
"""The input of a run that was started without one."""
