"""From one loop to another: what is given in one turn of the first arrives in one turn of the second, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Hop(Generic[T]):
    """One way, for things of one kind. `arrive` gets them on the other loop; what comes when that is closed is lost."""

    def __init__(
        self, here: asyncio.AbstractEventLoop, there: asyncio.AbstractEventLoop, arrive: Callable[[list[T]], None]
    ) -> None:
        self._here = here
        self._there = there
        self._arrive = arrive
        self._given: list[T] = []

    def give(self, one: T) -> None:
        """Sends one over. To be called on the first loop."""
        if not self._given:
            self._here.call_soon(self._leave)
        self._given.append(one)

    def _leave(self) -> None:
        given, self._given = self._given, []
        with suppress(RuntimeError):  # the other loop was closed meanwhile
            self._there.call_soon_threadsafe(self._arrive, given)
