"""Python values as JSON and back.

Written: None, bool, int of any size, float (finite), str, list, tuple, dict with str keys, and by rule: dataclasses and
pydantic models as objects, datetime, date, time as ISO 8601, timedelta as seconds, UUID and Decimal as text, Enum by
its value. Anything else is refused with the place where it stands.

Read: JSON as it is, or as the annotation says: the types above, Optional, Union, list, tuple, dict, Literal, TypedDict.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import sys
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from redflow_sdk._types import Annotation, Json
from redflow_sdk.errors import InputValidationError, SerializationError

T = TypeVar("T")
_PLAIN: Final = (str, int, float, bool, type(None))


def encode(value: object) -> bytes:
    """The value as JSON in UTF-8. Raises SerializationError."""
    try:
        _check_keys(value)
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        path, culprit = _culprit(value, "$", set())
        what = f"{path} is {culprit}" if path else str(error)
        raise SerializationError(f"cannot be written as JSON: {what}") from error


def _check_keys(value: object) -> None:
    """Raises TypeError for a key that is no str: JSON would silently have another one in its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(key) is not str and not isinstance(key, str):
                raise TypeError(f"a dict has the key {key!r}")
            if isinstance(inner, (dict, list, tuple)):
                _check_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            if isinstance(inner, (dict, list, tuple)):
                _check_keys(inner)


def _simpler(value: object) -> Json:
    """A value that JSON does not know, as one that it does."""
    simpler = _simplified(value)
    _check_keys(simpler)
    return simpler


def _simplified(value: object) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")  # type: ignore[attr-defined]  # pydantic is not imported here
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_simpler)


def _culprit(value: object, path: str, above: set[int]) -> tuple[str, str]:
    """The first place in a value that JSON cannot have, and what is there; "" when there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return path, repr(value)
    if isinstance(value, str) and not _is_text(value):
        return path, "text with a lone surrogate"
    if isinstance(value, _PLAIN):
        return "", ""
    if id(value) in above or len(above) > 900:
        return path, "nested in itself or too deeply"
    above = above | {id(value)}
    if isinstance(value, (list, tuple)):
        return next(
            filter(lambda found: found[0], (_culprit(v, f"{path}[{i}]", above) for i, v in enumerate(value))), ("", "")
        )
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                return path, f"a dict with the key {key!r}, which is no str"
            if not _is_text(key):
                return path, f"a dict with the key {key!a}, which has a lone surrogate"
            found = _culprit(inner, f"{path}.{key}", above)
            if found[0]:
                return found
        return "", ""
    try:
        return _culprit(_simpler(value), path, above)
    except TypeError:
        hint = "; encode it as text, such as base64" if isinstance(value, (bytes, bytearray)) else ""
        return path, f"of type {type(value).__name__}{hint}"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def decode(data: bytes, annotation: object = Any) -> Json:
    """The value of JSON bytes, as the annotation says. Raises InputValidationError that lists the fields at fault."""
    try:
        document = json.loads(data.decode())
    except ValueError as error:
        raise InputValidationError(f"is no JSON: {error}") from error
    return structure(document, annotation)


def structure(document: Json, annotation: object) -> Json:
    """A JSON document as the annotation says. Raises InputValidationError."""
    if annotation is Any or annotation is object or type(document) is annotation:
        return document
    faults: list[dict[str, str]] = []
    value = _structure(document, annotation, "$", faults)
    if faults:
        shown = "; ".join(f"{fault['path']} {fault['problem']}" for fault in faults[:5])
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise InputValidationError(f"{shown}{more}", faults)
    return value


def _structure(document: Json, annotation: Annotation, path: str, faults: list[dict[str, str]]) -> Json:
    if annotation in (Any, object) or isinstance(annotation, TypeVar):
        return document
    origin: Annotation = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _structure(document, typing.get_args(annotation)[0], path, faults)
    if origin in (typing.Union, types.UnionType):
        return _structure_union(document, annotation, path, faults)
    if origin is typing.Literal:
        if document in typing.get_args(annotation):
            return document
        return _fault(faults, path, f"must be one of {list(typing.get_args(annotation))}", document)
    if isinstance(annotation, type) and _is_pydantic(annotation):
        return _structure_pydantic(document, annotation, path, faults)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _structure_object(document, annotation, _dataclass_fields(annotation), path, faults)
    if typing.is_typeddict(annotation):
        required = annotation.__required_keys__
        hints = {name: (hint, name in required) for name, hint in typing.get_type_hints(annotation).items()}
        return _structure_object(document, dict, hints, path, faults)
    container = origin or annotation
    if container in (list, set, frozenset, tuple):
        return _structure_items(document, container, typing.get_args(annotation), path, faults)
    if container in (dict, Mapping):
        return _structure_mapping(document, typing.get_args(annotation), path, faults)
    return _structure_scalar(document, annotation, path, faults)


def _fault(faults: list[dict[str, str]], path: str, problem: str, document: Json) -> Json:
    shown = repr(document)
    faults.append({"path": path, "problem": f"{problem}; got {shown if len(shown) <= 60 else shown[:57] + '...'}"})
    return None


def _structure_union(document: Json, annotation: Annotation, path: str, faults: list[dict[str, str]]) -> Json:
    options = typing.get_args(annotation)
    if document is None and type(None) in options:
        return None
    found: list[dict[str, str]] = []
    for option in options:
        if option is type(None):
            continue
        found = []
        value = _structure(document, option, path, found)
        if not found:
            return value
    faults.extend(found if len(options) <= 2 else [{"path": path, "problem": f"fits none of {annotation}"}])
    return None


def _structure_pydantic(document: Json, model: Annotation, path: str, faults: list[dict[str, str]]) -> Json:
    try:
        return model.model_validate(document)
    except ValueError as error:
        for fault in getattr(error, "errors", list)():
            place = path + "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in fault["loc"])
            faults.append({"path": place, "problem": str(fault["msg"])})
        if not faults:
            faults.append({"path": path, "problem": str(error)})
        return None


def _dataclass_fields(annotation: Annotation) -> dict[str, tuple[Annotation, bool]]:
    hints = typing.get_type_hints(annotation)
    return {
        field.name: (
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(annotation)
        if field.init
    }


def _structure_object(
    document: Json,
    make: Annotation,
    fields: dict[str, tuple[Annotation, bool]],
    path: str,
    faults: list[dict[str, str]],
) -> Json:
    if not isinstance(document, dict):
        return _fault(faults, path, "must be an object", document)
    values = {}
    before = len(faults)
    for name, (hint, is_required) in fields.items():
        if name in document:
            values[name] = _structure(document[name], hint, f"{path}.{name}", faults)
        elif is_required:
            faults.append({"path": f"{path}.{name}", "problem": "is missing"})
    faults.extend({"path": f"{path}.{name}", "problem": "is unknown"} for name in document.keys() - fields.keys())
    if len(faults) > before:
        return None
    try:
        return make(**values)
    except (TypeError, ValueError) as error:
        return _fault(faults, path, str(error), document)


def _structure_items(
    document: Json,
    container: Annotation,
    arguments: tuple[Annotation, ...],
    path: str,
    faults: list[dict[str, str]],
) -> Json:
    if not isinstance(document, list):
        return _fault(faults, path, "must be a list", document)
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(document) != len(arguments):
            return _fault(faults, path, f"must have {len(arguments)} items", document)
        pairs = zip(document, arguments, strict=True)
        return tuple(_structure(item, hint, f"{path}[{i}]", faults) for i, (item, hint) in enumerate(pairs))
    hint = arguments[0] if arguments else Any
    return container(_structure(item, hint, f"{path}[{i}]", faults) for i, item in enumerate(document))


def _structure_mapping(
    document: Json,
    arguments: tuple[Annotation, ...],
    path: str,
    faults: list[dict[str, str]],
) -> Json:
    if not isinstance(document, dict):
        return _fault(faults, path, "must be an object", document)
    if len(arguments) != 2:
        return document
    key, value = arguments
    return {
        _structure(name, key, path, faults): _structure(item, value, f"{path}.{name}", faults)
        for name, item in document.items()
    }


def _structure_scalar(document: Json, annotation: Annotation, path: str, faults: list[dict[str, str]]) -> Json:
    if annotation is None or annotation is type(None):
        return None if document is None else _fault(faults, path, "must be null", document)
    if annotation in (str, bool):
        return (
            document
            if isinstance(document, annotation)
            else _fault(faults, path, f"must be a {annotation.__name__}", document)
        )
    if annotation in (int, float):
        fits = isinstance(document, (int, annotation)) and not isinstance(document, bool)
        return annotation(document) if fits else _fault(faults, path, f"must be a {annotation.__name__}", document)
    try:
        if annotation in (dt.datetime, dt.date, dt.time):
            return annotation.fromisoformat(document)
        if annotation is dt.timedelta:
            return dt.timedelta(seconds=document)
        if annotation in (uuid.UUID, decimal.Decimal) or issubclass(annotation, enum.Enum):
            return annotation(document)
    except (TypeError, ValueError, ArithmeticError):
        return _fault(faults, path, f"must be a {getattr(annotation, '__name__', annotation)}", document)
    return document


def _is_pydantic(kind: type) -> bool:
    """Whether it is a pydantic model, without importing pydantic: if it is one, it is there already."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)
