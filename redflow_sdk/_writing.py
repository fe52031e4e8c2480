"""Python values as what JSON has: None, bool, int, finite float, str, list, and dict with str keys."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Final

from redflow_sdk._hints import is_pydantic_model
from redflow_sdk._types import Json, Value

NO_MICROSECONDS_FROM: Final = 2.0**33
"""Seconds; a float of more does not tell each microsecond from the next."""
_JSON_TYPES: Final = frozenset((str, int, float, bool, NoneType, dict, list, tuple))


class Unwritable(Exception):
    """A value that JSON cannot have. `place` says where, below the value that was to be written."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.place = ""


def plain(value: Value) -> Json:
    """The value in JSON's own types. Raises Unwritable."""
    try:
        return _plain(value)
    except RecursionError:
        raise _too_deep(value) from None


def _plain(value: Value) -> Json:
    while type(value) not in _JSON_TYPES:
        value = _simpler(value)
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is dict:
        return _plain_dict(value)
    if kind is list or kind is tuple:
        return _plain_list(value)
    if kind is float and not math.isfinite(value):
        raise Unwritable(repr(value))
    return value


def _plain_list(items: list[Value] | tuple[Value, ...]) -> list[Json]:
    found: list[Json] = []
    try:
        for item in items:
            found.append(_plain(item))  # noqa: PERF401  # how many there are says where it failed
    except Unwritable as error:
        error.place = f"[{len(found)}]{error.place}"
        raise
    return found


def _plain_dict(items: dict[Value, Value]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, item in items.items():
        name = _name(key)
        try:
            found[name] = _plain(item)
        except Unwritable as error:
            error.place = f".{name}{error.place}"
            raise
    return found


def _name(key: object) -> str:
    if not isinstance(key, str):  # JSON would silently have another key in its place
        raise Unwritable(f"a dict with the key {key!r}, which is no str")
    try:
        return _text(key)
    except Unwritable:
        raise Unwritable(f"a dict with the key {key!a}, which has a lone surrogate") from None


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unwritable("text with a lone surrogate") from None
    return str.__str__(value)


def _too_deep(value: Value) -> Unwritable:
    try:
        place = _place_in_itself(value, {})
    except (RecursionError, Unwritable):
        place = None
    problem = Unwritable("nested too deeply" if place is None else "nested in itself")
    problem.place = place or ""
    return problem


def _place_in_itself(value: Value, above: dict[int, Value]) -> str | None:
    """Where a value comes again inside itself. Raises RecursionError when it is too deep to tell."""
    if id(value) in above:
        return ""
    above[id(value)] = value
    simpler = value
    while type(simpler) not in _JSON_TYPES:
        simpler = _simpler(simpler)
    steps: Iterable[tuple[str, Value]] = ()
    if isinstance(simpler, dict):
        steps = ((f".{name}", item) for name, item in simpler.items())
    elif isinstance(simpler, (list, tuple)):
        steps = ((f"[{index}]", item) for index, item in enumerate(simpler))
    for step, item in steps:
        place = _place_in_itself(item, above)
        if place is not None:
            return step + place
    del above[id(value)]
    return None


def _simpler(value: Value) -> Value:
    """A value of a type that JSON does not have, as one of a simpler type."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields_of(value)
    if is_pydantic_model(type(value)):
        return _dumped(value)
    for kind, simplify in _SIMPLER:
        if isinstance(value, kind):
            return simplify(value)
    hint = "; encode it as text, such as base64" if isinstance(value, (bytes, bytearray, memoryview)) else ""
    raise Unwritable(f"of type {type(value).__name__}{hint}")


def _fields_of(value: Value) -> dict[str, Value]:
    try:
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    except AttributeError as error:
        raise Unwritable(f"a {type(value).__name__} without its field {error.name!r}") from error


def _seconds(length: dt.timedelta) -> float:
    seconds = length.total_seconds()
    if length.microseconds and abs(seconds) >= NO_MICROSECONDS_FROM:
        raise Unwritable("a timedelta with microseconds that is too long to keep them (272 years)")
    return seconds


def _dumped(model: Value) -> Value:
    try:
        return model.model_dump(mode="json", by_alias=True)
    except (TypeError, ValueError) as error:  # a serializer does not take what a field holds
        raise Unwritable(f"a {type(model).__name__} that does not serialize: {error}") from error


_SIMPLER: Final[tuple[tuple[type, Callable[[Value], Value]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (list, list),
    (tuple, list),
    (Mapping, dict),
    (dt.date, lambda value: value.isoformat()),  # datetimes too
    (dt.time, dt.time.isoformat),
    (dt.timedelta, _seconds),
    (uuid.UUID, str),
    (decimal.Decimal, str),
)
