"""What chance decides: where Redis picks members of a set at random, the model tries what it may have picked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Luck:
    """A course of choices. The first ones are given; where none is, the most likely one is taken.

    `likely` orders candidates by what is seen in Redis afterwards; the smallest is the most likely to come first.
    """

    def __init__(
        self, given: Sequence[int] = (), likely: Callable[[str, object], tuple[float, ...]] = lambda kind, one: ()
    ) -> None:
        self._given = given
        self._likely = likely
        self._course: list[tuple[int, int]] = []

    def pick(self, kind: str, candidates: Sequence[T]) -> T:
        """One of the candidates; `kind` says what is picked."""
        ordered = sorted(candidates, key=lambda one: self._likely(kind, one))
        at = len(self._course)
        choice = self._given[at] if at < len(self._given) else 0
        self._course.append((choice, len(ordered)))
        return ordered[choice]

    @property
    def next_course(self) -> list[int] | None:
        """The choices to try after these; None when all have been tried."""
        course = list(self._course)
        while course:
            choice, count = course.pop()
            if choice + 1 < count:
                return [one for one, _ in course] + [choice + 1]
        return None
