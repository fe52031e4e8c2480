"""What annotations say once their names are looked up, their wrappers taken off and their type variables filled in."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from redflow_sdk._types import Annotation, Function

Hints: TypeAlias = Mapping[Annotation, Annotation]
"""What fields, by their names, or type variables stand for."""

_WRAPPERS: Final = (
    typing.Annotated,
    typing.Final,
    typing.Required,
    typing.NotRequired,
    getattr(typing, "ReadOnly", typing.Annotated),  # from Python 3.13 on
)

# Looking names up takes most of the time that a reader takes to make. What a local class names is only known where it
# is defined; afterwards this is where it is found.
_known: Final[WeakKeyDictionary[type, Hints]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Scope:
    """The local names at a place of a module, which say what the annotations of things defined there mean."""

    module: str = ""
    qualname: str = ""
    names: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of_frame(cls, frame: types.FrameType) -> Scope:
        """What is local to a function that is being executed."""
        return cls(frame.f_globals.get("__name__", ""), frame.f_code.co_qualname, frame.f_locals)

    @classmethod
    def around(cls, function: Function) -> Scope:
        """What a function knows of the one it is defined in."""
        return cls(function.__module__, _home(function), _closure(function))

    def names_for(self, thing: Function | type) -> Mapping[str, object]:
        """Its names, if the thing is defined here or around here; otherwise they mean something else."""
        home = _home(thing)
        is_here = home and thing.__module__ == self.module and f"{self.qualname}.".startswith(f"{home}.")
        return self.names if is_here else {}


NOWHERE: Final = Scope()


def _home(thing: Function | type) -> str:
    """The function that something is defined in; "" when it is in none."""
    return getattr(thing, "__qualname__", "").rpartition(".<locals>.")[0]


def _closure(function: Function) -> dict[str, object]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    found = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return found


# ---- functions ----


def resolved(annotation: Annotation, function: Function, scope: Scope) -> Annotation:
    """An annotation of a function, with its names looked up. Raises NameError, or TypeError if it is no type."""

    def holder() -> None: ...

    inner = inspect.unwrap(function)
    holder.__annotations__ = {"it": annotation}
    names = {**scope.names_for(inner), **_closure(inner)}
    return typing.get_type_hints(holder, getattr(inner, "__globals__", {}), names)["it"]


# ---- any annotation ----


def parts(annotation: Annotation) -> tuple[Annotation, tuple[Annotation, ...]]:
    """The class or form of an annotation, and its arguments: `dict` and `(str, int)` of `dict[str, int]`."""
    origin: Annotation = typing.get_origin(annotation)
    return origin or annotation, typing.get_args(annotation)


def unwrapped(annotation: Annotation) -> Annotation:
    """The annotation without what makes no difference to the value: Annotated, NewType, NotRequired and the like."""
    while True:
        form, arguments = parts(annotation)
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif form in _WRAPPERS and arguments:
            annotation = arguments[0]
        else:
            return types.NoneType if annotation is None else annotation


def awaited(annotation: Annotation) -> Annotation:
    """What comes of awaiting a value of the annotation, if it is one to be awaited."""
    form, arguments = parts(annotation)
    return arguments[-1] if form in (Awaitable, Coroutine) and arguments else annotation


def substituted(annotation: Annotation, variables: Hints) -> Annotation:
    """The annotation with what its type variables stand for."""
    if isinstance(annotation, TypeVar):
        return variables.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ()) if typing.get_args(annotation) else ()
    if not parameters or not variables:
        return annotation
    return annotation[tuple(variables.get(parameter, parameter) for parameter in parameters)]


# ---- classes ----


def field_hints(annotation: Annotation, scope: Scope) -> Hints:
    """The annotation of each field of a class, or of a generic one with its arguments. Raises NameError."""
    kind, _ = parts(annotation)
    hints = _known.get(kind)
    if hints is None:
        names = scope.names_for(kind)
        local = {**names, **vars(kind)} if names else None
        hints = _known[kind] = typing.get_type_hints(kind, localns=local, include_extras=True)
    found = {}
    for base, variables in _ancestry(annotation):
        own = (name for name in getattr(base, "__annotations__", {}) if name in hints)
        found.update({name: substituted(hints[name], variables) for name in own})
    return found


def _ancestry(annotation: Annotation) -> Iterator[tuple[type, Hints]]:
    """The classes above one, then itself, each with what its type variables stand for."""
    kind, arguments = parts(annotation)
    if not isinstance(kind, type):
        return  # `TypedDict` and `NamedTuple` are functions
    variables = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
    for base in kind.__dict__.get("__orig_bases__", kind.__bases__):
        if typing.get_origin(base) not in (typing.Generic, typing.Protocol):  # which have no fields
            yield from _ancestry(substituted(base, variables))
    yield kind, variables


def is_required(kind: Annotation, name: str, hint: Annotation) -> bool:
    """Whether a key of a TypedDict has to be there."""
    # `__required_keys__` does not know of NotRequired in annotations that were text.
    form, arguments = parts(hint)
    if form is typing.Annotated:
        return is_required(kind, name, arguments[0])
    if form in (typing.Required, typing.NotRequired):
        return form is typing.Required
    return name in kind.__required_keys__


def is_pydantic_model(kind: type) -> bool:
    """Whether it is a pydantic model, without importing pydantic: if it is one, it is there already."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)
