"""Which reader an annotation stands for."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from redflow_sdk import _readers, _scalars
from redflow_sdk._hints import (
    NOWHERE,
    Hints,
    Scope,
    field_hints,
    is_pydantic_model,
    is_required,
    parts,
    substituted,
    unwrapped,
)
from redflow_sdk._readers import Fields, Read, as_it_is
from redflow_sdk._scalars import AS_WRITTEN, SCALARS
from redflow_sdk._types import Annotation, Value

_LISTS: Final[Mapping[type, Callable[[list[Value]], Value]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.MutableSequence: list,
    collections.abc.MutableSet: set,
    collections.abc.Sequence: list,
    collections.abc.Set: frozenset,
}
_MAPPINGS: Final[Mapping[type, Callable[[dict[Value, Value]], Value]]] = {
    dict: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}
# What a function that never returns gives is never read.
_ANYTHING: Final = (Any, object, typing.Never, typing.NoReturn)


class ReaderMaker:
    """Makes the reader of an annotation and of all it consists of. `unreadable` says what no reader can be made of."""

    def __init__(self, scope: Scope = NOWHERE) -> None:
        self.unreadable: list[str] = []
        self._scope = scope
        # Readers of what may stand in itself.
        self._begun: dict[Annotation, Read] = {}

    def reader(self, annotation: Annotation) -> Read:
        """The reader of an annotation; one that takes nothing if it, or a part of it, is unreadable."""
        annotation = unwrapped(annotation)
        kind, arguments = parts(annotation)
        if kind in _ANYTHING or isinstance(kind, TypeVar):
            return as_it_is
        if kind in (typing.Union, types.UnionType):
            return self._union(annotation, arguments)
        if kind is typing.Literal:
            return _scalars.literal(arguments)
        if hasattr(kind, "__value__"):
            return self._alias(annotation, kind, arguments)
        if not isinstance(kind, type):
            return self._nothing(f"{annotation!r} has no JSON form")
        if kind in SCALARS:
            return SCALARS[kind]
        if kind is tuple or kind in _LISTS:
            return self._items(kind, arguments, is_bare=annotation is kind)
        if kind in _MAPPINGS:
            return self._mapping(kind, *(arguments or (str, Any)))
        return self._class(annotation, kind)

    def _nothing(self, problem: str) -> Read:
        self.unreadable.append(problem)
        return _readers.nothing(problem)

    def _union(self, annotation: Annotation, options: Sequence[Annotation]) -> Read:
        wanted = [unwrapped(option) for option in options if option is not types.NoneType]
        readers = [self.reader(option) for option in wanted]
        if len(readers) == 1:
            return _readers.optional(readers[0])
        # What one of them has written comes back as that: an int fits a float too, a date a datetime.
        first = [AS_WRITTEN.get(option, read) for option, read in zip(wanted, readers, strict=True)]
        read = _readers.first_that_fits([*first, *readers], str(annotation))
        return _readers.optional(read) if types.NoneType in options else read

    def _alias(self, annotation: Annotation, kind: Annotation, arguments: Sequence[Annotation]) -> Read:
        if annotation not in self._begun:
            self._begun[annotation] = lambda document: read(document)
            value = substituted(kind.__value__, dict(zip(kind.__type_params__, arguments, strict=False)))
            read = self._begun[annotation] = self.reader(value)
        return self._begun[annotation]

    def _items(self, kind: type, arguments: Sequence[Annotation], *, is_bare: bool) -> Read:
        if kind is tuple and not is_bare and arguments[-1:] != (Ellipsis,):
            return _readers.positions(lambda *items: items, [*map(self.reader, arguments)], len(arguments))
        return _readers.items(_LISTS.get(kind, tuple), self.reader(arguments[0]) if arguments else as_it_is)

    def _mapping(self, kind: type, key: Annotation, item: Annotation) -> Read:
        key = unwrapped(key)
        if key in (int, float, bool, types.NoneType):
            return self._nothing(f"a dict with keys of type {key.__name__} has no JSON form, in which they are text")
        read_key = as_it_is if key is str else self.reader(key)
        return _readers.mapping(_MAPPINGS[kind], read_key, self.reader(item))

    def _class(self, annotation: Annotation, kind: Annotation) -> Read:
        if annotation in self._begun:
            return self._begun[annotation]
        if issubclass(kind, enum.Enum):
            return _scalars.enumeration(kind)
        if is_pydantic_model(kind):
            return _scalars.pydantic_model(kind)
        is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
        if is_named_tuple or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
            return self._record(annotation, kind)
        for base in (str, int, float):
            if issubclass(kind, base):
                return _scalars.subclass(kind, SCALARS[base])
        hint = "; take text, such as base64" if issubclass(kind, (bytes, bytearray)) else ""
        return self._nothing(f"{kind.__qualname__} has no JSON form{hint}")

    def _record(self, annotation: Annotation, kind: Annotation) -> Read:
        try:
            hints = field_hints(annotation, self._scope)
        except NameError as error:
            return self._nothing(f"{kind.__qualname__} has an annotation that names {error.name!r}, which is unknown")
        if issubclass(kind, tuple):
            return self._named_tuple(annotation, kind, hints)
        fields = Fields()
        read = self._begun[annotation] = _readers.record(dict if issubclass(kind, dict) else kind, fields)
        if dataclasses.is_dataclass(kind):
            self._add_fields(fields, dataclasses.fields(kind), hints)
        else:
            fields.readers.update({name: self.reader(hint) for name, hint in hints.items()})
            fields.required.extend(name for name, hint in hints.items() if is_required(kind, name, hint))
        return read

    def _add_fields(self, fields: Fields, declared: Sequence[dataclasses.Field[Value]], hints: Hints) -> None:
        for field in declared:
            if not field.init:
                fields.computed.append(field.name)
                continue
            fields.readers[field.name] = self.reader(hints[field.name])
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                fields.required.append(field.name)

    def _named_tuple(self, annotation: Annotation, kind: Annotation, hints: Hints) -> Read:
        readers: list[Read] = []
        read = _readers.positions(kind, readers, len(kind._fields) - len(kind._field_defaults))
        self._begun[annotation] = read
        readers += [self.reader(hints.get(name, Any)) for name in kind._fields]
        return read
