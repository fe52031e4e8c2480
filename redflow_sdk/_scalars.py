"""Readers of values that hold no others of ours: JSON's own, those with a textual form, enums, and pydantic models."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from redflow_sdk._readers import REFUSALS, Fault, Misfit, Read, made, refused
from redflow_sdk._types import Annotation, Json, Value
from redflow_sdk._writing import Unwritable, plain

_PLAIN: Final = (str, int, float, bool, types.NoneType)


def _exactly(kind: type, wanted: str) -> Read:
    """Reads what is of this JSON type already."""

    def read(document: Json) -> Value:
        if type(document) is kind:  # True is no int
            return document
        raise refused(f"must be {wanted}", document)

    return read


def _parsed(parse: Callable[[Json], Value], accepted: Sequence[type], wanted: str) -> Read:
    """Reads JSON of the accepted types as what `parse` makes of it."""

    def read(document: Json) -> Value:
        if type(document) not in accepted:
            raise refused(f"must be {wanted}", document)
        try:
            return parse(document)
        except REFUSALS:
            raise refused(f"must be {wanted}", document) from None

    return read


def _date_and_time(text: str) -> dt.datetime:
    if len(text) <= len("2026-03-01"):
        raise ValueError("a date without a time")
    return dt.datetime.fromisoformat(text)


def _seconds(seconds: float) -> dt.timedelta:
    return dt.timedelta(seconds=seconds)


SCALARS: Final[Mapping[type, Read]] = {
    types.NoneType: _exactly(types.NoneType, "null"),
    bool: _exactly(bool, "a bool"),
    int: _exactly(int, "an int"),
    str: _exactly(str, "a str"),
    float: _parsed(float, (float, int), "a float"),
    dt.datetime: _parsed(dt.datetime.fromisoformat, (str,), "a datetime in ISO 8601"),
    dt.date: _parsed(dt.date.fromisoformat, (str,), "a date in ISO 8601"),
    dt.time: _parsed(dt.time.fromisoformat, (str,), "a time in ISO 8601"),
    dt.timedelta: _parsed(_seconds, (float, int), "a timedelta in seconds"),
    uuid.UUID: _parsed(uuid.UUID, (str,), "a UUID"),
    decimal.Decimal: _parsed(lambda number: decimal.Decimal(str(number)), (str, int, float), "a Decimal as text"),
}

AS_WRITTEN: Final[Mapping[type, Read]] = {
    float: _exactly(float, "a float"),
    dt.datetime: _parsed(_date_and_time, (str,), "a datetime in ISO 8601"),
    dt.timedelta: _parsed(_seconds, (float,), "a timedelta in seconds"),
    decimal.Decimal: _parsed(decimal.Decimal, (str,), "a Decimal as text"),
}
"""Of the types that are read from more than what they are written as: readers of that alone."""


def literal(options: Sequence[Value]) -> Read:
    """Reads one of the options."""
    pairs = [(option.value if isinstance(option, enum.Enum) else option, option) for option in options]

    def read(document: Json) -> Value:
        for value, option in pairs:
            if type(value) is type(document) and value == document:
                return option
        raise refused(f"must be one of {[value for value, _ in pairs]}", document)

    return read


def enumeration(kind: type[enum.Enum]) -> Read:
    """Reads the value of a member as the member."""
    wanted = f"a value of {kind.__name__}"
    parse = _parsed(kind, _PLAIN, wanted)
    written = [(_written(member.value), member) for member in kind if type(member.value) not in _PLAIN]

    def read(document: Json) -> Value:
        for value, member in written:
            if value == document:
                return member
        found = parse(document)
        if isinstance(document, bool) is not isinstance(found.value, bool):  # to Python, True is 1
            raise refused(f"must be {wanted}", document)
        return found

    return read


def _written(value: Value) -> Json:
    try:
        return plain(value)
    except Unwritable:
        return object()  # like no JSON


def subclass(kind: Callable[[Value], Value], read_value: Read) -> Read:
    """Reads what a subclass of str, int or float makes of one."""
    return lambda document: made(kind, document, read_value(document))


def pydantic_model(model: Annotation) -> Read:
    """Reads what a pydantic model takes."""

    def read(document: Json) -> Value:
        try:
            # As JSON: a strict model takes a datetime from text there, and only there.
            return model.model_validate_json(json.dumps(document))
        except REFUSALS as error:
            raise Misfit(*_pydantic_faults(error)) from error

    return read


def _pydantic_faults(error: Value) -> Iterator[Fault]:
    if not hasattr(error, "errors"):
        yield Fault("", str(error))
        return
    for fault in error.errors():
        place = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in fault["loc"])
        yield Fault(place, fault["msg"])
