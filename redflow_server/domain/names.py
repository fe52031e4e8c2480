"""What users may call things, and how large their data may be.

Names are 1 to 256 bytes of UTF-8 without control characters. Colons, braces, spaces and emoji in them are data.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from redflow_server.domain.errors import InvalidInput, PayloadTooLarge
from redflow_server.domain.payloads import Payload

MAX_NAME_BYTES: Final = 256
MAX_METADATA_BYTES: Final = 8 * 1024
MAX_PRIORITY: Final = 1000
MAX_ATTEMPTS: Final = 1_000_000
MAX_STEPS: Final = 10_000
MAX_WAITS: Final = 100


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes a gateway accepts and advertises."""

    max_payload_bytes: int = 1024 * 1024
    max_message_bytes: int = 4 * 1024 * 1024
    max_items_per_message: int = 256
    max_name_bytes: int = MAX_NAME_BYTES
    max_metadata_bytes: int = MAX_METADATA_BYTES
    max_steps: int = MAX_STEPS
    max_waits: int = MAX_WAITS


def check_name(field: str, value: str) -> str:
    """Returns the name. Raises InvalidInput when it is empty, too long or has control characters."""
    if not value:
        raise InvalidInput(field, "must not be empty", value)
    if value.isascii() and value.isprintable() and len(value) <= MAX_NAME_BYTES:
        return value
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        raise InvalidInput(field, f"must be at most {MAX_NAME_BYTES} bytes of UTF-8 (has {size})", value)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise InvalidInput(field, "must not contain control characters", value)
    return value


def check_label(field: str, value: str) -> None:
    """Raises InvalidInput when it is too long for a name or has control characters. It may be empty."""
    if value:
        check_name(field, value)


def check_payload(field: str, payload: Payload, limit_bytes: int) -> Payload:
    """Returns the payload. Raises PayloadTooLarge, or InvalidInput when its metadata is too large."""
    if len(payload.data) > limit_bytes:
        raise PayloadTooLarge(field, limit_bytes, len(payload.data))
    if payload.content_type or payload.metadata:
        pairs = (("", payload.content_type), *payload.metadata)
        size = sum(len(name.encode()) + len(value.encode()) for name, value in pairs)
        if size > MAX_METADATA_BYTES:
            raise InvalidInput(f"{field}.metadata", f"must be at most {MAX_METADATA_BYTES} bytes", f"{size} bytes")
    return payload
