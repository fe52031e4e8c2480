"""JSON as Python values: what each annotation takes, and what it refuses, with every field at fault named."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import pydantic
import pytest

from redflow_sdk import InputValidationError
from redflow_sdk.converter import decode


class Color(enum.Enum):
    RED = "red"
    ONE = 1


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: str
    lines: list[Line]
    note: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Node:
    value: int
    next: Optional[Node] = None  # noqa: UP045  # the old form has to work too


@dataclass
class Checked:
    age: int

    def __post_init__(self) -> None:
        if self.age < 0:
            raise ValueError("age must not be negative")


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Address(pydantic.BaseModel):
    street: str
    number: int


def faults_of(text: str, annotation: Any) -> dict[str, str]:
    with pytest.raises(InputValidationError) as refused:
        decode(text.encode(), annotation)
    assert refused.value.details
    assert all(fault["path"] in str(refused.value) for fault in refused.value.details[:5])
    return {fault["path"]: fault["problem"] for fault in refused.value.details}


# ---- what fits ----


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("null", None, None),
        ("5", Any, 5),
        ('{"a":[1]}', object, {"a": [1]}),
        ("5", int, 5),
        ("5", float, 5.0),
        ("5.5", float, 5.5),
        ("true", bool, True),
        ('"x"', str, "x"),
        ("null", int | None, None),
        ("5", Optional[int], 5),  # noqa: UP045  # the old form has to work too
        ('"x"', Union[int, str], "x"),  # noqa: UP007  # as above
        ("5", int | str, 5),
        ("5", Annotated[int, "years"], 5),
        ('"a"', Literal["a", "b"], "a"),
        ("2", Literal[1, 2], 2),
        ("[1,2]", list[int], [1, 2]),
        ("[1,2]", list, [1, 2]),
        ("[1,2]", tuple[int, ...], (1, 2)),
        ('[1,"a"]', tuple[int, str], (1, "a")),
        ("[]", tuple[()], ()),
        ('{"a":1}', dict[str, int], {"a": 1}),
        ('{"a":1}', dict, {"a": 1}),
        ('{"name":"n"}', Options, {"name": "n"}),
        ('{"name":"n","size":3}', Options, {"name": "n", "size": 3}),
        ('"red"', Color, Color.RED),
        ("1", Color, Color.ONE),
        ('"2026-03-01T12:30:00+00:00"', dt.datetime, dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC)),
        ('"2026-03-01T12:30:00Z"', dt.datetime, dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC)),
        ('"2026-03-01"', dt.date, dt.date(2026, 3, 1)),
        ('"12:30:00"', dt.time, dt.time(12, 30)),
        ("1.5", dt.timedelta, dt.timedelta(seconds=1.5)),
        ('"00000000-0000-0000-0000-000000000007"', uuid.UUID, uuid.UUID(int=7)),
        ('"1.10"', decimal.Decimal, decimal.Decimal("1.10")),
        ('{"sku":"a"}', Line, Line("a", 1)),
        ('{"id":"1","lines":[{"sku":"a","count":2}]}', Order, Order("1", [Line("a", 2)])),
        ('{"value":1,"next":{"value":2,"next":null}}', Node, Node(1, Node(2))),
        ('{"street":"s","number":2}', Address, Address(street="s", number=2)),
        ('[{"street":"s","number":2},null]', list[Address | None], [Address(street="s", number=2), None]),
        ('{"sku":"a"}', Line | Address, Line("a")),
        ('{"street":"s","number":2}', Line | Address, Address(street="s", number=2)),
    ],
    ids=lambda it: str(it)[:40],
)
def test_an_annotation_reads_what_fits_it(text: str, annotation: Any, value: object) -> None:
    found = decode(text.encode(), annotation)
    assert found == value and type(found) is type(value)


# ---- what does not fit ----


@pytest.mark.parametrize(
    ("text", "annotation", "paths"),
    [
        ('{"lines":[]}', Order, {"$.id"}),
        ('{"id":1,"lines":[{"count":"2"},{"sku":"a","colour":3}]}', Order, None),
        ('{"id":"1","lines":[],"extra":1,"more":2}', Order, {"$.extra", "$.more"}),
        ('{"value":1,"next":{"value":"x"}}', Node, {"$.next.value"}),
        ('{"age":-1}', Checked, {"$"}),
        ('[{"age":1},{"age":-1}]', list[Checked], {"$[1]"}),
        ('{"size":3}', Options, {"$.name"}),
        ('{"name":"n","colour":1}', Options, {"$.colour"}),
        ('{"street":1,"number":"x"}', Address, {"$.street", "$.number"}),
        ('{"a":[{"street":"s"}]}', dict[str, list[Address]], {"$.a[0].number"}),
        ('[1,"x",2,null]', list[int], {"$[1]", "$[3]"}),
        ("[1]", tuple[int, str], {"$"}),
        ('[1,2,"x"]', tuple[int, ...], {"$[2]"}),
        ('{"a":"x"}', dict[str, int], {"$.a"}),
        ('"green"', Color, {"$"}),
        ('"c"', Literal["a", "b"], {"$"}),
        ('"x"', int | None, {"$"}),
        ("[]", int | str, {"$"}),
        ("null", int, {"$"}),
        ("null", Order, {"$"}),
        ("[]", Order, {"$"}),
        ("5", str, {"$"}),
        ('"5"', int, {"$"}),
        ("5.0", int, {"$"}),
        ("0", None, {"$"}),
    ],
    ids=lambda it: str(sorted(it) if isinstance(it, set) else it)[:40],
)
def test_every_field_at_fault_is_named(text: str, annotation: Any, paths: set[str] | None) -> None:
    expected = paths or {"$.id", "$.lines[0].sku", "$.lines[0].count", "$.lines[1].colour"}
    assert set(faults_of(text, annotation)) == expected


def test_a_fault_says_what_is_wanted_and_what_came() -> None:
    faults = faults_of('{"id":1,"lines":[{}],"more":0}', Order)
    assert "str" in faults["$.id"] and "1" in faults["$.id"]
    assert faults["$.lines[0].sku"] == "is missing" and faults["$.more"] == "is unknown"


def test_a_fault_shows_no_more_than_a_glimpse_of_a_large_value() -> None:
    assert len(faults_of(f'"{"x" * 100_000}"', int)["$"]) < 200


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("true", int),
        ("false", float),
        ("1", bool),
        ("0", bool),
        ("true", Literal[1]),
        ("1", Literal[True]),
        ("true", Color),
        ("[true]", list[int]),
        ("true", decimal.Decimal),
        ("true", dt.timedelta),
    ],
    ids=str,
)
def test_a_bool_is_no_number_and_a_number_no_bool(text: str, annotation: Any) -> None:
    faults_of(text, annotation)


@pytest.mark.parametrize("text", ["", "{", "nul", "'a'", "[1,]", '{"a":1}x', '"\t"'])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InputValidationError, match="JSON"):
        decode(text.encode())


NO_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400")


@pytest.mark.parametrize(
    ("text", "annotation"),
    [*((text, Any) for text in (*NO_NUMBERS, "[NaN]", '{"a":-Infinity}')), *((text, float) for text in NO_NUMBERS)],
)
def test_a_number_that_json_does_not_have_is_refused(text: str, annotation: Any) -> None:
    with pytest.raises(InputValidationError):
        decode(text.encode(), annotation)


def test_bytes_that_are_no_utf_8_are_refused() -> None:
    with pytest.raises(InputValidationError):
        decode(b'"\xff"')


@pytest.mark.parametrize("depth", [2000, 100_000])
@pytest.mark.parametrize("annotation", [Any, list, dict[str, Any]], ids=str)
def test_a_document_that_is_too_deep_is_refused_or_read_and_never_anything_else(depth: int, annotation: Any) -> None:
    try:
        found = decode(b"[" * depth + b"]" * depth, annotation)
    except InputValidationError as refused:
        found = str(refused)
    assert isinstance(found, list) or "nested too deeply" in found or "must be an object" in found


DOCUMENTS = (
    "null", "true", "0", "-1", "1.5", "1" + 400 * "0", "1e300", '""', '"x"', '"\\u0000"', "[]", "[[1]]", '[{"a":1}]',
    "{}", '{"a":{"a":[1]}}', '{"sku":{}}', '{"street":[]}', '"0000-00-00"', '"-1"',
)  # fmt: skip

ANNOTATIONS = (
    None, bool, int, float, str, list, list[int], list[list[str]], tuple, tuple[int, ...], tuple[int, str], dict,
    dict[str, int], dict[int, str], set, set[int], frozenset[str], int | None, int | str | None, Literal["a", 1], Color,
    dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, decimal.Decimal, Line, Order, Node, Checked, Options,
    Address, Line | Address, Annotated[int, "x"],
)  # fmt: skip


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_whatever_comes_is_read_or_refused_by_name(annotation: Any) -> None:
    """Another exception would count as a fault of the handler, and be retried."""
    escaped = {}
    for text in DOCUMENTS:
        try:
            decode(text.encode(), annotation)
        except InputValidationError:
            continue
        except Exception as error:  # that is what this test looks for
            escaped[text[:20]] = repr(error)[:100]
    assert escaped == {}
