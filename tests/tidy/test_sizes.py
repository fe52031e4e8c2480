"""Nothing grows beyond what one reads at a sitting. Exceptions are listed with their reason, and may only go."""

from __future__ import annotations

import ast

from tests.tidy.source_files import shown, syntax, tracked_files, written_python

PYTHON_LINES = 400
FUNCTION_LINES = 70
LUA_LINES = 70
INCLUDE_LINES = 30
POSITIONAL = 5

EXCEPTIONS = {"redflow_server/store/lua/lib/keys.lua": "every key in one list, a line for each"}


def _long_files() -> dict[str, int]:
    limits = {".py": PYTHON_LINES, ".lua": LUA_LINES, ".ts": 400, ".go": 400}
    found = {}
    for path in tracked_files():
        name = shown(path)
        limit = INCLUDE_LINES if "/lua/lib/" in name else limits.get(path.suffix)
        if limit is None or name.startswith("redflow_sdk/proto/"):
            continue
        lines = len(path.read_text().splitlines())
        if lines > limit:
            found[name] = lines
    return found


def _long_functions() -> dict[str, int]:
    found = {}
    for path in written_python():
        for node in ast.walk(syntax(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    found[f"{shown(path)}::{node.name}"] = lines
    return found


def test_files_and_functions_keep_their_size() -> None:
    found = {**_long_files(), **_long_functions()}
    assert {name: lines for name, lines in found.items() if name not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() - found.keys() == set(), "these are short by now: take them off the list"


def test_functions_take_value_objects_instead_of_many_positional_parameters() -> None:
    found = []
    for path in written_python("redflow_server", "redflow_sdk"):
        for node in ast.walk(syntax(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                names = names[1:] if names[:1] in (["self"], ["cls"]) else names
                if len(names) > POSITIONAL and node.name != "__init__":
                    found.append(f"{shown(path)}:{node.lineno} {node.name}")
    assert found == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    meaningless = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
    assert [shown(path) for path in tracked_files() if path.stem in meaningless] == []
