"""Types of what only the user's code knows, and of the JSON that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Value: TypeAlias = Any  # Any: whatever a function of the user takes or returns
Function: TypeAlias = Callable[..., Any]  # Any: any function of the user
Annotation: TypeAlias = Any  # Any: whatever may stand as a type in the user's code
Json: TypeAlias = Any  # Any: a JSON document that is being made or taken apart

if TYPE_CHECKING:
    JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
else:
    # Where a user annotates with it, values are read as they are. Its own name would mean nothing there.
    JsonValue = object
    """Any JSON value: what comes where no type is named."""


class TypedByWorkflow(Generic[T]):
    """Nothing is one; see Given."""


Given: TypeAlias = T | TypedByWorkflow[Callable[[T], None]]
"""The input of a workflow that stands in the same call. It is T.

A checker has to know the workflow before it looks at the input: else `{"id": 1}` is a dict to it, and no TypedDict.
mypy looks last at an argument whose type has a Callable of a type variable in it, so there is one.
"""
