"""Readers: functions that take a JSON value and give what a type promises; larger ones are made of smaller ones.

A reader raises Misfit for a value that is not as promised. Who reads the value around it adds where that stood, and
goes on, so that every fault is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from redflow_sdk._types import Json, Value

Read: TypeAlias = Callable[[Json], Value]


@dataclass(frozen=True, slots=True)
class Fault:
    """Where, below the value that was read, what is wrong there, and a glimpse of what came instead."""

    place: str
    problem: str
    glimpse: str = ""


Describe: TypeAlias = Callable[[Fault], str]
"""A fault in words."""


def with_glimpse(fault: Fault) -> str:
    """What is wrong, and what came."""
    return f"{fault.problem}; got {fault.glimpse}" if fault.glimpse else fault.problem


def without_glimpse(fault: Fault) -> str:
    """What is wrong, without anything of the value."""
    return fault.problem


# What classes raise that do not take what is given to them.
REFUSALS: Final = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError)


class Misfit(Exception):
    """A JSON value is not as its annotation says."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(faults)
        self.faults = faults

    def below(self, step: str) -> list[Fault]:
        """Its faults, as seen from the value around."""
        return [replace(fault, place=step + fault.place) for fault in self.faults]


def refused(problem: str, document: Json) -> Misfit:
    """A value is at fault as a whole."""
    return Misfit(Fault("", problem, _glimpse(document)))


def _glimpse(document: Json) -> str:
    if isinstance(document, list):
        return f"a list of {len(document)}"
    if isinstance(document, dict):
        return "an object"
    shown = repr(document[:60] if isinstance(document, str) else document)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# ---- any value ----


def as_it_is(document: Json) -> Value:
    """Reads whatever comes."""
    return document


def made(make: Callable[..., Value], document: Json, /, *args: Value, **fields: Value) -> Value:
    """What a class of the user makes of the fields, all of which fit by themselves."""
    try:
        return make(*args, **fields)
    except REFUSALS as error:
        raise refused(str(error) or type(error).__name__, document) from error


def nothing(problem: str) -> Read:
    """Takes no value at all."""

    def read(document: Json) -> Value:
        raise Misfit(Fault("", problem))

    return read


# ---- values that hold others ----


def items(make: Callable[[list[Value]], Value], read_item: Read) -> Read:
    """Reads a list of any length as what `make` makes of its items."""

    def read(document: Json) -> Value:
        if type(document) is not list:
            raise refused("must be a list", document)
        is_plain = read_item is as_it_is
        found = document if is_plain else _read_each(zip(itertools.repeat(read_item), document, strict=False))
        return found if make is list else made(make, document, found)

    return read


def positions(make: Callable[..., Value], readers: Sequence[Read], fewest: int) -> Read:
    """Reads a list with a reader for each place, to which more may be added later."""

    def read(document: Json) -> Value:
        if type(document) is not list:
            raise refused("must be a list", document)
        if not fewest <= len(document) <= len(readers):
            raise refused(f"must have {len(readers)} items", document)
        return made(make, document, *_read_each(zip(readers, document, strict=False)))

    return read


def _read_each(pairs: Iterable[tuple[Read, Json]]) -> list[Value]:
    found: list[Value] = []
    faults: list[Fault] = []
    for index, (read, item) in enumerate(pairs):
        try:
            found.append(read(item))
        except Misfit as fault:
            faults += fault.below(f"[{index}]")
    if faults:
        raise Misfit(*faults)
    return found


def mapping(make: Callable[[dict[Value, Value]], Value], read_key: Read, read_item: Read) -> Read:
    """Reads an object of any keys."""

    def read(document: Json) -> Value:
        if type(document) is not dict:
            raise refused("must be an object", document)
        found: dict[Value, Value] = {}
        faults: list[Fault] = []
        for name, item in document.items():
            try:
                found[read_key(name)] = read_item(item)
            except Misfit as fault:
                faults += fault.below(f".{name}")
        if faults:
            raise Misfit(*faults)
        return found if make is dict else made(make, document, found)

    return read


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a class. The computed ones are written but not read: the class makes them itself."""

    readers: dict[str, Read] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)


def record(make: Callable[..., Value], fields: Fields) -> Read:
    """Reads an object as what `make` makes of its fields, to which more may be added later."""

    def read(document: Json) -> Value:
        if type(document) is not dict:
            raise refused("must be an object", document)
        found: dict[str, Value] = {}
        faults = [Fault(f".{name}", "is missing") for name in fields.required if name not in document]
        for name, item in document.items():
            read_field = fields.readers.get(name)
            if read_field is not None:
                try:
                    found[name] = read_field(item)
                except Misfit as fault:
                    faults += fault.below(f".{name}")
            elif name not in fields.computed:
                faults.append(Fault(f".{name}", "is unknown"))
        if faults:
            raise Misfit(*faults)
        return found if make is dict else made(make, document, **found)

    return read


def optional(read_value: Read) -> Read:
    """Reads null, or a value."""

    def read(document: Json) -> Value:
        return None if document is None else read_value(document)

    return read


def first_that_fits(readers: Sequence[Read], shown: str) -> Read:
    """Reads a value with the first reader that takes it."""

    def read(document: Json) -> Value:
        for read_option in readers:
            try:
                return read_option(document)
            except Misfit:
                continue
        raise refused(f"fits none of {shown}", document)

    return read
