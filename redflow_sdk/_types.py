"""What only the user's code knows the type of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Value: TypeAlias = Any  # Any: whatever a function of the user takes or returns
Function: TypeAlias = Callable[..., Any]  # Any: any function of the user
Annotation: TypeAlias = Any  # Any: whatever may stand as a type in the user's code
Json: TypeAlias = Any  # Any: a JSON document
