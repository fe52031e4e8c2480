"""What switches a check off says why on its line, and there is less of it with time, never more."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.tidy.source_files import shown, syntax, written_python

PRODUCT = ("redflow_server", "redflow_sdk")

COUNTS = {"Any": 15, "cast": 4, "ignore": 9, "broad except": 11}
"""How many there are in the product. Lower a number when there are fewer; never raise one without a better reason."""


def _lines(pattern: str) -> list[str]:
    return [
        f"{shown(path)}:{number} {line.strip()}"
        for path in written_python(*PRODUCT)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]


def _uses(name: str) -> list[str]:
    """Where a name stands in an annotation, an alias, or is called."""
    found = set()
    for path in written_python(*PRODUCT):
        for node in ast.walk(syntax(path)):
            for part in _typed_parts(node):
                found |= {
                    (path, inner.lineno) for inner in ast.walk(part) if isinstance(inner, ast.Name) and inner.id == name
                }
    return [
        f"{shown(path)}:{number} {path.read_text().splitlines()[number - 1].strip()}" for path, number in sorted(found)
    ]


def _typed_parts(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.AnnAssign):
        alias = [node.value] if isinstance(node.value, ast.Subscript | ast.Name) else []
        return [node.annotation, *alias]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.returns] if node.returns else []
    if isinstance(node, ast.arg):
        return [node.annotation] if node.annotation else []
    return [node.func] if isinstance(node, ast.Call) else []


def _broad_excepts() -> list[str]:
    found = []
    for path in written_python(*PRODUCT):
        lines = path.read_text().splitlines()
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = node.type.id if isinstance(node.type, ast.Name) else "" if node.type is None else "narrow"
                if caught in ("", "Exception", "BaseException"):
                    found.append(f"{shown(path)}:{node.lineno} {lines[node.lineno - 1].strip()}")
    return found


@cache
def _found() -> dict[str, list[str]]:
    return {
        "Any": _uses("Any"),
        "cast": _uses("cast"),
        "ignore": _lines(r"#\s*(type: ignore|noqa|pragma)"),
        "broad except": _broad_excepts(),
    }


def test_every_escape_carries_its_reason() -> None:
    found = _found()
    silent = [line for line in found["ignore"] if not re.search(r"#\s*(type: ignore|noqa|pragma)[^#]*#\s*\S", line)]
    silent += [line for kind in ("Any", "cast", "broad except") for line in found[kind] if "  # " not in line]
    assert silent == []


def test_escapes_only_become_fewer() -> None:
    assert {kind: len(lines) for kind, lines in _found().items()} == COUNTS
