"""Python values as JSON: what each type is written as, and what is refused with its place."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import subprocess
import sys
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pydantic
import pytest

from redflow_sdk import InputValidationError, SerializationError
from redflow_sdk.converter import decode, encode
from tests.sdk.worker_program import ROOT

UTC = dt.UTC


class Color(enum.Enum):
    RED = "red"
    ONE = 1


class Level(enum.IntEnum):
    HIGH = 3


class Name(enum.StrEnum):
    ADA = "ada"


@dataclass(frozen=True)
class Line:
    sku: str
    price: decimal.Decimal


@dataclass
class Order:
    id: uuid.UUID
    lines: list[Line]
    placed: dt.datetime
    color: Color | None = None
    tags: dict[str, Any] = field(default_factory=dict)


@dataclass
class Sum:
    parts: list[int]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


class Address(pydantic.BaseModel):
    street: str
    number: int = 1


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    addresses: list[Address] = []
    since: dt.date | None = None


@dataclass
class Mixed:
    customer: Address
    line: Line


Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  # the untyped form is the case

ORDER = Order(
    uuid.UUID(int=7), [Line("a", decimal.Decimal("1.10"))], dt.datetime(2026, 3, 1, 12, 30, tzinfo=UTC), Color.RED
)


# ---- what is written ----


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1e300, "1e+300"),
        ("", '""'),
        ("ü\U0001f600", '"ü\U0001f600"'),
        ("\0\n\u2028", '"\\u0000\\n\u2028"'),
        ([], "[]"),
        ((), "[]"),
        ({}, "{}"),
        ({"": None}, '{"":null}'),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ((1, ("x", [None])), '[1,["x",[null]]]'),
        (Point(1, 2), "[1,2]"),
        (OrderedDict(a=1), '{"a":1}'),
        (MappingProxyType({"a": [1]}), '{"a":[1]}'),
        (Color.RED, '"red"'),
        (Color.ONE, "1"),
        (Level.HIGH, "3"),
        (Name.ADA, '"ada"'),
        (dt.datetime.fromisoformat("2026-03-01T12:30:00.000005"), '"2026-03-01T12:30:00.000005"'),
        (dt.datetime(2026, 3, 1, tzinfo=UTC), '"2026-03-01T00:00:00+00:00"'),
        (dt.date(2026, 3, 1), '"2026-03-01"'),
        (dt.time(12, 30), '"12:30:00"'),
        (dt.timedelta(days=1, milliseconds=1), "86400.001"),
        (uuid.UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (Line("a", decimal.Decimal(2)), '{"sku":"a","price":"2"}'),
        (Sum([1, 2]), '{"parts":[1,2],"total":3}'),
        (Address(street="s"), '{"street":"s","number":1}'),
        (Mixed(Address(street="s"), Line("a", decimal.Decimal(2))), None),
    ],
    ids=str,
)
def test_each_supported_type_has_its_json(value: object, text: str | None) -> None:
    expected = text or '{"customer":{"street":"s","number":1},"line":{"sku":"a","price":"2"}}'
    assert encode(value).decode() == expected


@pytest.mark.parametrize(
    "number", [2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**40, -(10**400), 393087288629462191], ids=lambda n: len(str(n))
)
def test_an_integer_of_any_size_survives_with_every_digit(number: int) -> None:
    assert encode({"n": [number]}) == f'{{"n":[{number}]}}'.encode()
    assert decode(encode(number), int) == decode(encode(number)) == number


def test_an_integer_longer_than_python_prints_is_refused_by_name_on_both_ways() -> None:
    """Python limits the conversion, because it takes quadratic time."""
    with pytest.raises(SerializationError, match="4300 digits"):
        encode(10**5000)
    with pytest.raises(InputValidationError, match="4300 digits"):
        decode(b"1" + 5000 * b"0", int)


@pytest.mark.parametrize("value", [0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308, 1e22, -0.0])
def test_a_float_survives_bit_for_bit(value: float) -> None:
    assert decode(encode(value), float).hex() == value.hex()


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (ORDER, Order),
        (Sum([1, 2]), Sum),
        (Address(street="s", number=2), Address),
        (Customer(fullName="Ada", addresses=[Address(street="s")], since=dt.date(2026, 1, 1)), Customer),
        (Mixed(Address(street="s"), Line("a", decimal.Decimal(2))), Mixed),
        ([ORDER, ORDER], list[Order]),
        ({"a": Line("x", decimal.Decimal("0.1"))}, dict[str, Line]),
        ((1, "a", Color.ONE), tuple[int, str, Color]),
        (dt.timedelta(microseconds=1), dt.timedelta),
        (dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))), dt.datetime),
        (decimal.Decimal("1E+50"), decimal.Decimal),
        (Level.HIGH, Level),
        (Name.ADA, Name),
    ],
    ids=lambda it: getattr(it, "__name__", type(it).__name__),
)
def test_what_was_written_reads_back_as_it_was(value: object, annotation: Any) -> None:
    again = decode(encode(value), annotation)
    assert again == value and type(again) is type(value)


# ---- what is refused ----


class Custom:
    pass


@dataclass
class Holder:
    inner: object


class HasBytes(pydantic.BaseModel):
    raw: bytes


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$"),
        ({"rows": [{"price": 1.0}, {}, {}, {"price": float("inf")}]}, "$.rows[3].price"),
        ([[-float("inf")]], "$[0][0]"),
        (b"x", "$"),
        ({"a": bytearray(b"x")}, "$.a"),
        ({"a": memoryview(b"x")}, "$.a"),
        ({"a": {1, 2}}, "$.a"),
        ({"a": frozenset()}, "$.a"),
        ([Custom()], "$[0]"),
        ({"a": Custom}, "$.a"),
        ({"a": len}, "$.a"),
        ({"a": 1j}, "$.a"),
        ({"a": (n for n in ())}, "$.a"),
        (Holder(Holder({2})), "$.inner.inner"),
        ([Holder(float("nan"))], "$[0].inner"),
        ("lone \ud800", "$"),
        ({"a": ["\udfff"]}, "$.a[0]"),
        ({"a": {"key \ud800": 1}}, "$.a"),
        (HasBytes(raw=b"\xff"), "$"),
    ],
    ids=lambda it: it if isinstance(it, str) else type(it).__name__,
)
def test_what_json_cannot_have_is_refused_with_its_place(value: object, path: str) -> None:
    with pytest.raises(SerializationError) as refused:
        encode(value)
    assert f" {path} is " in str(refused.value)
    str(refused.value).encode("utf-8", "backslashreplace")


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1, 2), b"k", Color.RED], ids=repr)
@pytest.mark.parametrize("depth", ["top", "in a list", "in a dataclass", "in a mapping"])
def test_a_key_that_is_no_str_is_refused_and_not_changed(key: object, depth: str) -> None:
    bad: Mapping[Any, int] = {key: 1}
    value, path = {
        "top": (bad, "$"),
        "in a list": ([1, bad], "$[1]"),
        "in a dataclass": (Holder(bad), "$.inner"),
        "in a mapping": ({"a": MappingProxyType(bad)}, "$.a"),
    }[depth]
    with pytest.raises(SerializationError) as refused:
        encode(value)
    assert f" {path} is " in str(refused.value)


def nested_lists(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def nested_dicts(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def nested_dataclasses(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = Holder(value)
    return value


NESTS = [nested_lists, nested_dicts, nested_dataclasses]


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("depth", [1, 100, 300])
def test_a_value_of_a_sane_depth_is_written(nest: Any, depth: int) -> None:
    data = encode(nest(depth))
    assert data.count(b"[") + data.count(b"{") == depth


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("depth", [500, 800, 950, 2000, 100_000])
def test_a_value_that_is_too_deep_is_refused_by_name_if_at_all(nest: Any, depth: int) -> None:
    value = nest(depth)
    try:
        written = encode(value)
    except SerializationError as refused:
        written = str(refused).encode()
    assert b"nested too deeply" in written or written.count(b"[") + written.count(b"{") >= depth


def test_a_value_nested_in_itself_is_refused() -> None:
    items: list[object] = [1]
    items.append({"again": items})
    holder = Holder(None)
    holder.inner = [holder]
    for value, place in ((items, "$[1].again"), ({"held": holder}, "$.held.inner[0]")):
        with pytest.raises(SerializationError) as refused:
            encode(value)
        assert str(refused.value).endswith(f" {place} is nested in itself")


def test_one_value_in_two_places_is_not_nested_in_itself() -> None:
    shared = [1]
    assert encode({"a": shared, "b": shared}) == b'{"a":[1],"b":[1]}'


def test_the_place_in_a_large_value_is_found() -> None:
    value = {"rows": [*({"n": n} for n in range(20_000)), {"n": {1}}]}
    with pytest.raises(SerializationError) as refused:
        encode(value)
    assert " $.rows[20000].n " in str(refused.value)


# ---- pydantic ----


def test_pydantic_is_used_when_it_is_there_and_never_imported() -> None:
    program = (
        "import sys, dataclasses\n"
        "from redflow_sdk import Client, Worker, workflow\n"
        "from redflow_sdk.converter import decode, encode\n"
        "Point = dataclasses.make_dataclass('Point', [('x', int)])\n"
        "assert decode(encode(Point(1)), Point) == Point(1)\n"
        "assert decode(encode([1, {'a': None}])) == [1, {'a': None}]\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'pydantic']\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=30)


def test_what_is_written_is_json_for_everyone_else() -> None:
    assert json.loads(encode(ORDER)) == {
        "id": "00000000-0000-0000-0000-000000000007",
        "lines": [{"sku": "a", "price": "1.10"}],
        "placed": "2026-03-01T12:30:00+00:00",
        "color": "red",
        "tags": {},
    }
    assert dataclasses.asdict(ORDER)["color"] is Color.RED, "the value itself stays as it was"
