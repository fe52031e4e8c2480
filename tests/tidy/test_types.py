"""What type checkers know of the SDK: everything, and nothing that users get is an Any, which would switch them off.

`make check` runs the checkers themselves over `tests/typing`.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import runpy
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import redflow_sdk
import redflow_sdk.testing
from redflow_sdk import _types
from redflow_server.testing import gateways
from tests.tidy.source_files import ROOT

PROGRAMS = sorted((ROOT / "tests" / "typing").glob("[!_]*.py"))
PUBLIC = [
    *(getattr(redflow_sdk, name) for name in redflow_sdk.__all__ if name != "VERSION"),
    *(getattr(redflow_sdk.testing, name) for name in redflow_sdk.testing.__all__),
    gateways.RunningGateway,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_users_program_can_be_imported(program: Path) -> None:
    runpy.run_path(str(program))


def test_the_types_of_everything_public_are_known() -> None:
    # The Python whose packages are looked at is the one of the PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "redflow_sdk", "--ignoreexternal"]
    judged = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Type completeness score: 100%" in judged.stdout, judged.stdout


# ---- no Any ----


def has_any(annotation: object) -> bool:
    """Whether a type is Any, or has one in it."""
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return annotation is typing.Any or any(map(has_any, parts))


def named_in(annotation: object, of: object) -> dict[str, object]:
    """The types that an annotation names. Those that only type checkers import are looked up where such stand."""
    if not isinstance(annotation, str):
        return {str(annotation): annotation}
    names = {**vars(_types), **vars(redflow_sdk), **vars(sys.modules[str(getattr(of, "__module__", ""))])}
    return {
        node.id: names[node.id]
        for node in ast.walk(ast.parse(annotation, mode="eval"))
        if isinstance(node, ast.Name) and node.id in names
    }


def given_by(function: Callable[..., object]) -> list[object]:
    """What callers of a function get, as its overloads say it, if it has some."""
    variants = typing.get_overloads(function) or [inspect.unwrap(function)]
    return [inspect.get_annotations(variant).get("return", "None") for variant in variants]


def read_of(thing: object) -> Iterator[tuple[str, object, object]]:
    """What users read of a class or function, each by its name, with its annotation and where that stands."""
    if isinstance(thing, FunctionType):
        yield from ((thing.__qualname__, annotation, thing) for annotation in given_by(thing))
    elif isinstance(thing, type):
        for kind in thing.__mro__:
            if not kind.__module__.startswith("redflow"):
                continue
            fields = {name: it for name, it in inspect.get_annotations(kind).items() if not name.startswith("_")}
            yield from ((f"{kind.__qualname__}.{name}", it, kind) for name, it in fields.items())
            for name, member in vars(kind).items():
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if isinstance(function, FunctionType) and not re.match("_[^_]", name):
                    yield from ((function.__qualname__, annotation, kind) for annotation in given_by(function))


def anys_in(public: list[object]) -> set[str]:
    """The names of what gives an Any, here or in what comes of it."""
    found, seen, waiting = set(), set(), list(public)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        for name, annotation, where in read_of(thing):
            types = named_in(annotation, where)
            found |= {f"{name}: {annotation}" for one in types.values() if has_any(one)}
            waiting += [one for one in types.values() if getattr(one, "__module__", "").startswith("redflow")]
    return found


def test_nothing_that_users_get_is_any() -> None:
    assert anys_in(PUBLIC) == set()


DEEP = """
from __future__ import annotations
from typing import overload
from redflow_sdk._types import Function, Value

class Inner:
    field: tuple[Function, ...]
    _own: Value

    @property
    def alias(self) -> Value | None: ...

    @overload
    def chosen(self, name: str) -> list[dict[str, Value]]: ...
    @overload
    def chosen(self, name: int) -> int: ...
    def chosen(self, name: Value) -> Value: ...

    def clean(self, given: Value) -> list[object]: ...

class Outer:
    def inner(self) -> Inner: ...
"""


def test_an_any_is_found_however_deep_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("redflow_deep")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(DEEP, module.__name__, "exec", dont_inherit=True), vars(module))
    found = {text.partition(":")[0] for text in anys_in([vars(module)["Outer"]])}
    assert found == {"Inner.field", "Inner.alias", "Inner.chosen"}
