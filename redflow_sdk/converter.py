"""Python values as JSON and back.

Written: None, bool, int of any size, float (finite), str, list, tuple, dict with str keys, and by rule: dataclasses and
pydantic models (by their aliases) as objects, named tuples as lists, datetime, date, time as ISO 8601, timedelta as
seconds, UUID and Decimal as text, Enum by its value. Anything else is refused with the place where it stands.

Read: JSON as it is, or as the annotation says: the types above, set and frozenset, Sequence, Mapping and the like,
Optional, Union (the first type that writes such a value, else the first that fits), Literal, TypedDict, NewType,
Annotated, and generic classes of these.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from redflow_sdk._annotations import ReaderMaker
from redflow_sdk._hints import Scope, awaited, resolved
from redflow_sdk._readers import Describe, Misfit, Read, with_glimpse
from redflow_sdk._types import Annotation, Function, Json, Value
from redflow_sdk._writing import Unwritable, plain
from redflow_sdk.errors import InputValidationError, SerializationError

SHOWN_FAULTS: Final = 5


def encode(value: object, what: str = "a value") -> bytes:
    """The value as JSON in UTF-8. Raises SerializationError that names the value by `what`, and the place at fault."""
    try:
        return _ENCODER.encode(plain(value)).encode()
    except Unwritable as error:
        raise SerializationError(f"{what} cannot be written as JSON: ${error.place} is {error}") from error
    except RecursionError as error:
        raise SerializationError(f"{what} cannot be written as JSON: $ is nested too deeply") from error
    except ValueError as error:  # an int of more digits than Python converts
        raise SerializationError(f"{what} cannot be written as JSON: {error}") from error


def decode(data: bytes, annotation: Annotation = Any, describe: Describe = with_glimpse) -> Value:
    """The value of JSON bytes, as the annotation says. Raises InputValidationError that lists the fields at fault."""
    try:
        document = _DECODER.decode(data.decode())
    except RecursionError as error:
        raise InputValidationError("is JSON that is nested too deeply") from error
    except ValueError as error:
        raise InputValidationError(f"is no JSON: {error}") from error
    return structure(document, annotation, describe)


def structure(document: Json, annotation: Annotation, describe: Describe = with_glimpse) -> Value:
    """A JSON document as the annotation says. Raises InputValidationError."""
    try:
        return _reader(_Same(annotation))(document)
    except RecursionError as error:
        raise InputValidationError("is JSON that is nested too deeply") from error
    except Misfit as misfit:
        faults = [{"path": f"${fault.place}", "problem": describe(fault)} for fault in misfit.faults]
        shown = "; ".join(f"{fault['path']} {fault['problem']}" for fault in faults[:SHOWN_FAULTS])
        more = f" (and {len(faults) - SHOWN_FAULTS} more)" if len(faults) > SHOWN_FAULTS else ""
        raise InputValidationError(f"{shown}{more}", faults) from None


def comes_back_the_same(value: Value, annotation: Annotation) -> bool:
    """Whether it is plain to see that the JSON of a value is read, by the annotation, as that value."""
    kind = type(value)
    return kind in _PLAIN and (annotation is Any or annotation is kind)


def get_to_know(annotation: Annotation, scope: Scope) -> Sequence[str]:
    """Looks up what the classes in an annotation name, where it stands, and keeps it. Gives what no JSON can be."""
    maker = ReaderMaker(scope)
    maker.reader(annotation)
    return maker.unreadable


_PLAIN: Final = (str, int, bool, type(None))

# By function, and not for longer than that lives: one that is made anew for each run may hold a lot.
_result_types: Final[WeakKeyDictionary[FunctionType, Annotation]] = WeakKeyDictionary()


def result_type(function: Function) -> Annotation:
    """The type of what a function, async or not, gives; Any when no annotation says it, or nobody knows its names."""
    while isinstance(function, functools.partial):
        function = function.func
    inner = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(inner, FunctionType):
        return Any
    if inner not in _result_types:
        _result_types[inner] = _result_type(inner)
    return _result_types[inner]


def _result_type(function: FunctionType) -> Annotation:
    scope = Scope.around(function)
    try:
        annotation = awaited(resolved(function.__annotations__.get("return", Any), function, scope))
    except (NameError, TypeError):
        return Any
    get_to_know(annotation, scope)
    return annotation


class _Same:
    """An annotation that equals itself alone: `str | date` equals `date | str`, but reads other things."""

    __slots__ = ("annotation",)

    def __init__(self, annotation: Annotation) -> None:
        self.annotation = annotation

    def __hash__(self) -> int:
        return id(self.annotation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.annotation is self.annotation


@functools.lru_cache(maxsize=1024)
def _reader(same: _Same) -> Read:
    return ReaderMaker().reader(same.annotation)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is too large for a float")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
