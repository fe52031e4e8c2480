"""Every behaviour of the original engine has a test of ours, or says what it waits for."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

from tests.tidy.source_files import ROOT, syntax

TABLE = ROOT / "tests" / "seed_parity.md"
ROW = re.compile(r"\| (?P<number>\d+) \| (?P<line>\d+) \| (?P<behaviour>[^|]+) \| (?P<tests>[^|]+) \|")
TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)::(?P<name>test_\w+)`")
NOT_YET = re.compile(r"not yet: needs (?:cron|events|children|failure handlers)")

LINES = (
    *(44, 82, 117, 153, 194, 240, 280, 339, 381, 443, 509, 567, 640, 718, 803, 859, 907, 949, 1041, 1129, 1195),
    *(1233, 1290, 1332, 1368, 1418, 1467, 1523, 1559, 1607, 1638, 1651, 1706, 1753, 1793, 1835, 1924, 1978, 2047),
    *(2100, 2149, 2196, 2234, 2266, 2311, 2353, 2394, 2425, 2467, 2522, 2556, 2579, 2622, 2667, 2703, 2760, 2784),
    *(2822, 2888, 2951, 2981, 3045, 3108),
)
"""Where each test of the original's suite begins."""

DUE = {
    *(1, 2, 3, 4, 7, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 29, 30, 31, 32, 33, 34, 37, 39, 41, 45, 46, 47, 48),
    *(49, 50, 51, 52, 54, 55, 57, 60, 61, 62, 63),
}
"""The numbers that may no longer wait."""


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
            if test is None:
                assert NOT_YET.fullmatch(entry), f"{row.number} has neither a test nor what it waits for: {entry}"
            elif not (ROOT / test["path"]).is_file() or test["name"] not in names_in(test["path"]):
                missing.append(f"{row.number}: {entry}")
    assert missing == []


def test_no_behaviour_that_is_due_waits() -> None:
    waiting = {row.number for row in rows() if any(entry.startswith("not yet") for entry in row.tests)}
    assert waiting & DUE == set()


def test_every_seed_test_of_ours_is_listed() -> None:
    """A test under a seed's name that no row mentions is lost to whoever reads the table."""
    listed = {(test["path"], test["name"]) for row in rows() for entry in row.tests if (test := TEST.fullmatch(entry))}
    files = {path for path, _ in listed}
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "acceptance").glob("test_seed_*.py")}
    assert ours <= files
    unlisted = {(path, name) for path in ours for name in names_in(path)} - listed
    assert unlisted == set()
