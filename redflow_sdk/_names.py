"""What workflows, queues, steps and keys may be called: 1 to 256 bytes of UTF-8 without control characters."""

from __future__ import annotations

import unicodedata
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Set
from typing import Final, TypeVar

from redflow_sdk.errors import InvalidInputError

T = TypeVar("T")

MAX_BYTES: Final = 256


def check_name(field: str, name: str) -> str:
    """Returns the name. Raises InvalidInputError that says which rule it breaks."""
    if not isinstance(name, str):
        raise InvalidInputError(f"{field} must be a str; got {ascii(name)[:100]}")
    if not name:
        raise InvalidInputError(f"{field} must not be empty; got ''")
    if name.isascii() and name.isprintable() and len(name) <= MAX_BYTES:
        return name
    shown = ascii(name) if len(name) <= 100 else ascii(name[:97]) + "..."
    if any(unicodedata.category(letter) == "Cs" for letter in name):
        raise InvalidInputError(f"{field} must not contain lone surrogates; got {shown}")
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        raise InvalidInputError(f"{field} must not contain control characters; got {shown}")
    size = len(name.encode())
    if size > MAX_BYTES:
        raise InvalidInputError(f"{field} must be at most {MAX_BYTES} bytes of UTF-8 (has {size}); got {shown}")
    return name


def numbered(name: str, items: Iterable[T]) -> Iterator[tuple[str, T]]:
    """The items, each with a step name by its place. Raises InvalidInputError for items that have no order."""
    check_name("step name", name)
    if isinstance(items, Set) and not isinstance(items, (KeysView, ItemsView)):
        kind = type(items).__name__
        raise InvalidInputError(f"items of {name!r} must have an order that stays, which a {kind} has not; sort them")
    return ((f"{name}#{place}", item) for place, item in enumerate(items))
