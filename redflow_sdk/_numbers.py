"""Counts and lengths of time that users give."""

from __future__ import annotations

from typing import Final

from redflow_sdk.errors import MAX_SECONDS, InvalidInputError

MAX_ATTEMPTS: Final = 1_000_000


def check_count(field: str, count: int, lowest: int, highest: int) -> int:
    """Returns the count. Raises InvalidInputError when it is no int, or out of bounds."""
    if not isinstance(count, int) or isinstance(count, bool) or not lowest <= count <= highest:
        raise InvalidInputError(f"{field} must be an int from {lowest} to {highest}; got {_shown(count)}")
    return count


def check_number(field: str, number: float) -> float:
    """Returns the number. Raises InvalidInputError when it is none."""
    if not _is_number(number):
        raise InvalidInputError(f"{field} must be a number; got {_shown(number)}")
    return number


def check_seconds(field: str, seconds: float, lowest: float = 0.001) -> float:
    """Returns the length of time as a float. Raises InvalidInputError when it is none, too short, or over 100 years."""
    if not _is_number(seconds) or not lowest <= seconds <= MAX_SECONDS:
        raise InvalidInputError(f"{field} must be from {lowest} seconds to 100 years; got {_shown(seconds)}")
    return float(seconds)


def check_factor(field: str, factor: float, lowest: float, highest: float) -> float:
    """Returns the factor as a float. Raises InvalidInputError when it is no number, or out of bounds."""
    if not _is_number(factor) or not lowest <= factor <= highest:
        raise InvalidInputError(f"{field} must be from {lowest} to {highest}; got {_shown(factor)}")
    return float(factor)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return ascii(value)[:100]
