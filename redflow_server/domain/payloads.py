"""User data as the gateway carries it: bytes it never looks into."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Payload:
    """Encoded user data with what its reader needs to decode it.

    `content_type` "" means JSON in UTF-8; `metadata` holds the marks of an end-to-end codec.
    """

    data: bytes
    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """By which the inputs of one idempotency key are compared."""
        return hashlib.sha256(self.data).hexdigest()[:22]


EMPTY_OBJECT = Payload(b"{}")
"""The input of a run that was started without one."""
