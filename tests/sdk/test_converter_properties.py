"""Whatever value a type has, what is written of it reads back as the same value of the same type."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redflow_sdk import SerializationError
from redflow_sdk.converter import decode, encode

T = TypeVar("T")
Cents = NewType("Cents", int)


class Color(enum.Enum):
    RED = "red"
    ONE = 1
    HALF = 0.5
    PAIR = (1, "a")
    DAY = dt.date(2026, 3, 1)


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Name(enum.StrEnum):
    ADA = "ada"
    EMPTY = ""


class Patch(TypedDict):
    at: dt.datetime
    by: NotRequired[uuid.UUID | None]


class Point(NamedTuple):
    x: float
    label: str = ""


@dataclass(frozen=True)
class Line:
    sku: str
    price: decimal.Decimal = decimal.Decimal("1.10")
    tags: tuple[str, ...] = ()
    color: Color | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Generic[T]):
    first: T
    more: list[T] = field(default_factory=list)


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(alias="Street")
    moved: dt.timedelta | None = None
    parts: set[int] = set()
    rent: decimal.Decimal = decimal.Decimal(0)


Some = st.SearchStrategy[Any]  # Any: values of the annotation that they are for

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]))
INTS: Final = st.integers(-(10**60), 10**60)
FLOATS: Final = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS: Final = st.decimals()
MONEY: Final = st.decimals(allow_nan=False, allow_infinity=False)
LENGTHS: Final = st.timedeltas(dt.timedelta(days=-99_000), dt.timedelta(days=99_000))
OFFSETS: Final = st.integers(-86_399, 86_399).map(lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)))
# Without the second time of an hour that comes twice, which ISO 8601 tells by the offset alone.
MOMENTS: Final = st.datetimes(timezones=st.none() | OFFSETS).map(lambda at: at.replace(fold=0))
TIMES: Final = st.times(timezones=st.none() | OFFSETS).map(lambda at: at.replace(fold=0))
LINES: Final = st.builds(
    Line, TEXT, DECIMALS, st.lists(TEXT, max_size=2).map(tuple), st.none() | st.sampled_from(Color)
)

SCALARS: Final[list[tuple[Any, Some]]] = [  # Any: annotations of all kinds
    (None, st.none()),
    (bool, st.booleans()),
    (int, INTS),
    (Cents, INTS),
    (float, FLOATS),
    (str, TEXT),
    (Annotated[str, "a comment"], TEXT),
    (dt.datetime, MOMENTS),
    (dt.date, st.dates()),
    (dt.time, TIMES),
    (dt.timedelta, LENGTHS),
    (uuid.UUID, st.uuids()),
    (decimal.Decimal, DECIMALS),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Rights, st.sampled_from([Rights(0), Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE])),
    (Name, st.sampled_from(Name)),
    (Literal["a", 1, True, None, Name.ADA], st.sampled_from(["a", 1, True, None, Name.ADA])),
    (Line, LINES),
    (Point, st.builds(Point, FLOATS, TEXT)),
    (Patch, st.fixed_dictionaries({"at": MOMENTS}, optional={"by": st.none() | st.uuids()})),
    (Address, st.builds(Address, Street=TEXT, moved=st.none() | LENGTHS, parts=st.sets(INTS, max_size=1), rent=MONEY)),
]
# Of types of which none is written as a value of another one.
UNIONS: Final[list[tuple[Any, Some]]] = [  # Any: annotations of all kinds
    (float | int | None, FLOATS | INTS | st.none()),
    (decimal.Decimal | float | int, DECIMALS | FLOATS | INTS),
    (float | decimal.Decimal, FLOATS | DECIMALS),
    (dt.datetime | dt.date, MOMENTS | st.dates()),
    (dt.date | dt.datetime | dt.timedelta, st.dates() | MOMENTS | LENGTHS),
    (dt.time | dt.date, TIMES | st.dates()),
    (dt.timedelta | int, LENGTHS | INTS),
    (bool | int | str, st.booleans() | INTS | TEXT),
    (Line | list[int] | bool, LINES | st.lists(INTS) | st.booleans()),
    (Point | Patch | float, st.builds(Point, FLOATS) | st.fixed_dictionaries({"at": MOMENTS}) | FLOATS),
]


A_LIST: Any = list  # Any: to mypy, what is drawn is no type
A_DICT: Any = dict  # Any: as above
A_TUPLE: Any = tuple  # Any: as above
AN_OPTION: Any = Optional  # Any: as above
A_PAIR: Any = Pair  # Any: as above

bounded = settings(max_examples=150, deadline=None, database=None, derandomize=True)


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Some]:  # Any: an annotation of any kind
    """A type, and values of it."""
    if not depth or draw(st.booleans()):
        simple: tuple[Any, Some] = draw(st.sampled_from([*SCALARS, *UNIONS]))  # Any: as above
        return simple
    kind, values = draw(typed(depth - 1))
    other, other_values = draw(typed(depth - 1))
    around: list[tuple[Any, Some]] = [  # Any: as above
        (A_LIST[kind], st.lists(values, max_size=3)),
        (A_DICT[str, kind], st.dictionaries(TEXT, values, max_size=3)),
        (A_DICT[Name, kind], st.dictionaries(st.sampled_from(Name), values)),
        (A_TUPLE[kind, ...], st.lists(values, max_size=3).map(tuple)),
        (A_TUPLE[kind, other], st.tuples(values, other_values)),
        (AN_OPTION[kind], st.none() | values),
        (A_PAIR[kind], st.builds(Pair, first=values, more=st.lists(values, max_size=2))),
    ]
    return around[draw(st.integers(0, len(around) - 1))]


@given(st.data())
@bounded
def test_what_is_written_reads_back_as_the_same_value_of_the_same_type(data: st.DataObject) -> None:
    annotation, values = data.draw(typed())
    value = data.draw(values)
    again = decode(encode(value), annotation)
    assert type(again) is type(value)
    assert repr(again) == repr(value), "which tells 1 from 1.0 and True, and each part by its type"


@given(st.timedeltas())
@bounded
def test_a_length_of_time_keeps_its_microseconds_or_is_refused(length: dt.timedelta) -> None:
    if length.microseconds and abs(length) > dt.timedelta(seconds=2**33):
        with pytest.raises(SerializationError, match="too long to keep them"):
            encode(length)
    else:
        assert decode(encode(length), dt.timedelta) == length
