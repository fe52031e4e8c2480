"""Every behaviour of the original engine has a test of ours."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

from tests.tidy.source_files import ROOT, syntax

TABLE = ROOT / "tests" / "seed_parity.md"
ROW = re.compile(r"\| (?P<number>\d+) \| (?P<line>\d+) \| (?P<behaviour>[^|]+) \| (?P<tests>[^|]+) \|")
TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)::(?P<name>test_\w+)`")

LINES = (
    *(44, 82, 117, 153, 194, 240, 280, 339, 381, 443, 509, 567, 640, 718, 803, 859, 907, 949, 1041, 1129, 1195),
    *(1233, 1290, 1332, 1368, 1418, 1467, 1523, 1559, 1607, 1638, 1651, 1706, 1753, 1793, 1835, 1924, 1978, 2047),
    *(2100, 2149, 2196, 2234, 2266, 2311, 2353, 2394, 2425, 2467, 2522, 2556, 2579, 2622, 2667, 2703, 2760, 2784),
    *(2822, 2888, 2951, 2981, 3045, 3108),
)
"""Where each test of the original's suite begins."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    number: int
    line: int
    tests: tuple[str, ...]


@cache
def rows() -> tuple[Row, ...]:
    found = [ROW.fullmatch(line) for line in TABLE.read_text().splitlines() if re.match(r"\| \d", line)]
    assert all(found), "every row has a number, a line, a behaviour and tests"
    return tuple(
        Row(int(row["number"]), int(row["line"]), tuple(row["tests"].split("<br>"))) for row in found if row is not None
    )


@cache
def names_in(path: str) -> frozenset[str]:
    tree = syntax(ROOT / path)
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    )


def test_every_test_of_the_original_is_listed_once_in_order() -> None:
    assert [(row.number, row.line) for row in rows()] == list(enumerate(LINES, 1))


def test_every_named_test_exists() -> None:
    missing = []
    for row in rows():
        for entry in row.tests:
            test = TEST.fullmatch(entry)
            assert test is not None, f"{row.number} has something that is no test: {entry}"
            if not (ROOT / test["path"]).is_file() or test["name"] not in names_in(test["path"]):
                missing.append(f"{row.number}: {entry}")
    assert missing == []


def test_every_seed_test_of_ours_is_listed() -> None:
    """A test under a seed's name that no row mentions is lost to whoever reads the table."""
    listed = {(test["path"], test["name"]) for row in rows() for entry in row.tests if (test := TEST.fullmatch(entry))}
    files = {path for path, _ in listed}
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "acceptance").glob("test_seed_*.py")}
    assert ours <= files
    unlisted = {(path, name) for path in ours for name in names_in(path)} - listed
    assert unlisted == set()
