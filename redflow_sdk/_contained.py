"""A coroutine in which what would end the program ends only the task that drives it."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Final

from redflow_sdk._types import Function, Value

ENDS_OF_PROGRAMS: Final = (SystemExit, KeyboardInterrupt)
"""What asyncio raises out of its loop when a task raises it, besides to whoever awaits the task."""


class Contained(Coroutine[Value, Value, Value]):
    """A coroutine as it is, but RuntimeError comes out of it in place of SystemExit and KeyboardInterrupt.

    No `async def` around the other one: a task that is canceled before its first step would never begin the inner one.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Value, Value, Value]) -> None:
        self._work = work

    def __getattr__(self, name: str) -> Value:
        # Who looks at a task's coroutine, as debuggers and AnyIO do, sees the user's.
        return getattr(self._work, name)

    def __await__(self) -> Generator[Value, Value, Value]:
        return self._work.__await__()

    def send(self, value: Value) -> Value:
        """Goes on."""
        return _without_ends(self._work.send, value)

    def throw(self, *error: Value) -> Value:
        """Goes on with an exception."""
        return _without_ends(self._work.throw, *error)

    def close(self) -> None:
        """Ends."""
        self._work.close()


def _without_ends(go_on: Function, *given: Value) -> Value:
    try:
        return go_on(*given)
    except ENDS_OF_PROGRAMS as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
