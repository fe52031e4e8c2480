"""Waiting for what must become true, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    what: Callable[[], T | Awaitable[T]], *, within: float = 5.0, every: float = 0.02, saying: str = ""
) -> T:
    """The first truthy value of `what()`; fails when there is none within the given seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    value: object = None
    while loop.time() < deadline:
        found = what()
        value = await found if inspect.isawaitable(found) else found
        if value:
            return value  # type: ignore[return-value]  # it is what `what` gives
        await asyncio.sleep(every)
    raise AssertionError(f"not within {within} s: {saying or inspect.getsource(what).strip()}; last value {value!r}")
