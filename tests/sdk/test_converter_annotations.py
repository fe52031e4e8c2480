"""Annotations of every form as types of values: generic classes, new types, abstract collections, and what has none."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NamedTuple, NewType, NotRequired, Required, TypedDict, TypeVar

import pytest

from redflow_sdk import Context, InputValidationError, JsonValue, workflow
from redflow_sdk.converter import decode, encode, result_type
from tests.conftest import StartWorker
from tests.sdk.scripted_gateway import ScriptedGateway

T = TypeVar("T")
U = TypeVar("U")

UserId = NewType("UserId", int)
Stamp = NewType("Stamp", dt.datetime)
AdminId = NewType("AdminId", UserId)


class Code(str):
    """Text of a kind of its own."""

    __slots__ = ()


class Even(int):
    """Refuses other numbers."""

    def __new__(cls, value: int) -> Even:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return super().__new__(cls, value)


@dataclass
class Box(Generic[T]):
    content: T
    spares: list[T] = field(default_factory=list)


@dataclass
class Labelled(Box[U], Generic[T, U]):
    label: T | None = None


@dataclass
class IntBox(Box[int]):
    pass


@dataclass
class Tree(Generic[T]):
    leaf: T
    branches: list[Tree[T]] = field(default_factory=list)


class Point(NamedTuple):
    x: int
    y: str = "a"


class Pair(TypedDict, Generic[T]):
    first: T
    second: NotRequired[T]


class Partial(TypedDict, total=False):
    id: Required[int]
    note: str


@dataclass
class Misspelt:
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821  # that is the case


class Opaque:
    pass


# ---- what fits ----


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (UserId(5), UserId),
        (AdminId(UserId(5)), AdminId),
        ([5], list[UserId]),
        (Code("x"), Code),
        (Even(4), Even),
        ([1, 2], Sequence[int]),
        ([1, 2], Collection[int]),
        ([1, 2], Iterable[int]),
        ([], Sequence),
        ({"a": 1}, Mapping[str, int]),
        ({"a": 1}, MutableMapping[str, int]),
        ({Code("a"): 1}, dict[Code, int]),
        (Box(5), Box[int]),
        (Box(5), Box),
        (Box(Box(dt.timedelta(1)), []), Box[Box[dt.timedelta]]),
        (Box([Box("a")], [[Box("b")]]), Box[list[Box[str]]]),
        (Labelled(5, [6], "x"), Labelled[str, int]),
        (IntBox(5, [6]), IntBox),
        (Tree(1, [Tree(2, [Tree(3)])]), Tree[int]),
        (Point(1), Point),
        (Point(1, "b"), Point),
        ({"first": dt.date(2026, 1, 1)}, Pair[dt.date]),
        ({"id": 1}, Partial),
        ({"a": [1, None]}, JsonValue),
        ({"a": [1, None]}, dict[str, JsonValue]),
        (None, JsonValue | None),
        (5, Final[int]),
        (5, float | int),
        (5.0, float | int),
    ],
    ids=str,
)
def test_a_value_reads_back_as_its_annotation_says(value: object, annotation: Any) -> None:
    again = decode(encode(value), annotation)
    assert again == value and type(again) is type(value)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [(set[int], {1, 2}), (frozenset[int], frozenset({1, 2})), (AbstractSet[int], frozenset({1, 2}))],
    ids=str,
)
def test_a_set_is_read_from_a_list(annotation: Any, expected: object) -> None:
    found = decode(b"[1,2,1]", annotation)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ('"2026-01-01"', dt.date | str, dt.date(2026, 1, 1)),
        ('"2026-01-01"', str | dt.date, "2026-01-01"),
        ('"soon"', dt.date | str, "soon"),
        ("5", float | str, 5.0),
        ("5", decimal.Decimal | str, decimal.Decimal(5)),
        ("5", dt.timedelta | None, dt.timedelta(seconds=5)),
        ('"2026-01-01"', dt.datetime | int, dt.datetime.fromisoformat("2026-01-01")),
    ],
    ids=str,
)
def test_of_a_union_the_first_type_that_fits_is_taken(text: str, annotation: Any, value: object) -> None:
    found = decode(text.encode(), annotation)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (2**53 + 1, float | int),
        (5, decimal.Decimal | int),
        (1.5, decimal.Decimal | float),
        (1.5, float | decimal.Decimal),
        (5, dt.timedelta | int),
        (dt.date(2026, 1, 1), dt.datetime | dt.date),
        (dt.date(2026, 1, 1), Stamp | dt.date | None),
    ],
    ids=str,
)
def test_of_a_union_the_type_that_has_written_the_value_comes_before_one_that_fits_it_too(
    value: object, annotation: Any
) -> None:
    found = decode(encode(value), annotation)
    assert found == value and type(found) is type(value)


# ---- what does not fit ----


@pytest.mark.parametrize(
    ("text", "annotation", "path"),
    [
        ('"5"', UserId, "$"),
        ("3", Even, "$"),
        ('{"3":1}', dict[Even, int], "$.3"),
        ('[1,"x"]', Sequence[int], "$[1]"),
        ('{"a":"x"}', Mapping[str, int], "$.a"),
        ('{"content":"x"}', Box[int], "$.content"),
        ('{"content":1,"spares":[2,"x"]}', Box[int], "$.spares[1]"),
        ('{"content":{"content":1}}', Box[Box[str]], "$.content.content"),
        ('{"content":1,"label":2}', Labelled[str, int], "$.label"),
        ('{"content":"x"}', Labelled[str, int], "$.content"),
        ('{"content":"x"}', IntBox, "$.content"),
        ('{"leaf":1,"branches":[{"leaf":2,"branches":[{"leaf":"x"}]}]}', Tree[int], "$.branches[0].branches[0].leaf"),
        ('[1,"a",2]', Point, "$"),
        ('["x"]', Point, "$[0]"),
        ("{}", Pair[int], "$.first"),
        ('{"first":1,"second":"x"}', Pair[int], "$.second"),
        ('{"note":"x"}', Partial, "$.id"),
        ("[[]]", set, "$"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_its_place(text: str, annotation: Any, path: str) -> None:
    with pytest.raises(InputValidationError) as refused:
        decode(text.encode(), annotation)
    [fault] = refused.value.details
    assert fault["path"] == path


# ---- definitions ----


@pytest.mark.parametrize(
    ("annotation", "what"),
    [
        (bytes, "bytes"),
        (Callable[[], int], "Callable"),
        (Iterator[int], "Iterator"),
        (type[int], "type"),
        (dict[int, str], "keys of type int"),
        (list[Opaque | None], "Opaque"),
        (Box[Opaque], "Opaque"),
        (Misspelt, "Nowhere"),
    ],
    ids=str,
)
def test_an_input_of_a_type_that_has_no_json_is_refused_when_its_workflow_is_defined(
    annotation: Any, what: str
) -> None:
    async def handler(ctx: Context, value: Any) -> Any: ...

    handler.__annotations__ = {"value": annotation}
    with pytest.raises(TypeError, match=rf"input of workflow 'handler'.*{what}"):
        workflow(handler)


async def test_an_output_of_a_type_that_has_no_json_fails_its_run(
    scripted: ScriptedGateway, connect: StartWorker
) -> None:
    @workflow(name="bytes")
    async def gives_bytes(ctx: Context) -> dict[str, bytes]:
        return {"raw": b"x"}

    await connect(scripted, gives_bytes)
    failure = (await scripted.log.result(scripted.assign("bytes"))).failure
    assert failure.type == "SerializationError" and "$.raw" in failure.message


# ---- what functions give ----


async def an_async_function() -> Box[int]:
    return Box(1)


def a_function_that_calls_one() -> Awaitable[Box[int]]:
    return an_async_function()


def a_function_that_gives_its_coroutine() -> Coroutine[Any, Any, Box[int]]:
    return an_async_function()


def a_function() -> Box[int]:
    return Box(1)


def name_of(thing: object) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


@functools.wraps(a_function)
def a_wrapper(*args: Any, **kwargs: Any) -> Any:
    return a_function()


class Shop:
    def method(self) -> Box[int]:
        return Box(1)

    @classmethod
    def of_the_class(cls) -> Box[int]:
        return Box(1)


@pytest.mark.parametrize(
    "function",
    [
        an_async_function,
        a_function,
        a_function_that_calls_one,
        a_function_that_gives_its_coroutine,
        a_wrapper,
        functools.partial(functools.partial(a_function)),
        Shop().method,
        Shop.of_the_class,
    ],
    ids=name_of,
)
def test_a_function_gives_what_its_annotation_says(function: Callable[..., object]) -> None:
    assert result_type(function) == Box[int]


def unannotated():  # type: ignore[no-untyped-def]  # noqa: ANN201  # that is the case
    return 1


def of_a_name_that_nobody_knows() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821  # that is the case
    return 1


@pytest.mark.parametrize("function", [unannotated, of_a_name_that_nobody_knows, lambda: 1, len, Opaque()], ids=name_of)
def test_what_no_annotation_says_is_given_as_json_has_it(function: Callable[..., object]) -> None:
    assert result_type(function) is Any


def test_a_type_that_no_json_can_be_is_refused_by_name_and_not_given_as_something_else() -> None:
    def unreadable() -> Opaque:
        return Opaque()

    with pytest.raises(InputValidationError, match="Opaque"):
        decode(b"{}", result_type(unreadable))


def test_a_function_knows_the_local_classes_it_names_and_those_that_they_name() -> None:
    @dataclass
    class Item:
        sku: Literal["a", "b"]

    @dataclass
    class Basket:
        items: list[Item]

    def fill() -> tuple[Basket, Item]:
        return Basket([Item("a")]), Item("b")

    assert decode(encode(fill()), result_type(fill)) == fill()
