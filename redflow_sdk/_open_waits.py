"""The open waits of one delivery: who waits, and how many waits one message can name. On the worker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from redflow_sdk._messages import StepSnapshot, StepState, Wait

MAX_WAITS: Final = 100
"""Waits that one message names. Any open wait wakes the run, named or not."""
MAX_INPUT_BYTES: Final = 1024 * 1024
"""Input of the runs that it names, so that it fits into a message; of the first one it may be more."""
MAX_RACE_BYTES: Final = 2 * 1024 * 1024
"""Input of the runs of one race, which have to begin together."""


@dataclass(slots=True)
class OpenWait:
    """A wait, and who waits: of a token several tasks may."""

    wait: Wait
    is_registered: bool
    may_begin: Callable[[], bool]
    """Whether it may, if it has not: a race may have been decided before it was begun."""
    is_confirmed: bool = False
    """Whether the gateway has answered that it has begun, as a member of its race."""
    told: StepSnapshot | None = None
    """What a member of a race came to, told before that."""
    waiting: list[asyncio.Future[StepSnapshot]] = field(default_factory=list)

    def tell(self, step: StepSnapshot) -> None:
        """The gateway tells its outcome. Another member of its race may have been first, until it is confirmed."""
        if self.wait.group and not self.is_confirmed:
            self.told = step
        else:
            self.settle(step)

    def confirm(self) -> None:
        """The gateway has answered, and has said what it had on record of its race."""
        self.is_confirmed = True
        if self.told is not None:
            self.settle(self.told)

    def settle(self, step: StepSnapshot) -> None:
        """It has its outcome."""
        for over in self.waiting:
            if not over.done():
                over.set_result(step)

    def refuse(self, error: Exception) -> None:
        """The gateway does not take it."""
        for over in self.waiting:
            if not over.done():
                over.set_exception(error)


def always() -> bool:
    """Of a wait that is in no race."""
    return True


class OpenWaits:
    """By name."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, OpenWait] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenWait]:
        return iter(list(self._open.values()))

    def current(self) -> list[OpenWait]:
        """Those that have begun or may begin."""
        return [open_wait for open_wait in self if open_wait.is_registered or open_wait.may_begin()]

    def futures(self) -> list[asyncio.Future[StepSnapshot]]:
        """What is done when they are over."""
        return [over for open_wait in self for over in open_wait.waiting]

    def add(self, wait: Wait, is_registered: bool, may_begin: Callable[[], bool]) -> asyncio.Future[StepSnapshot]:
        """Somebody waits. One that others wait for already may be in a race now."""
        over: asyncio.Future[StepSnapshot] = self._loop.create_future()
        open_wait = self._open.get(wait.name)
        if open_wait is None or wait.group:
            others = [] if open_wait is None else open_wait.waiting
            open_wait = self._open[wait.name] = OpenWait(wait, is_registered, may_begin, waiting=others)
        open_wait.waiting.append(over)
        return over

    def remove(self, name: str, over: asyncio.Future[StepSnapshot]) -> None:
        """Somebody waits no longer."""
        open_wait = self._open[name]
        open_wait.waiting.remove(over)
        if not open_wait.waiting:
            del self._open[name]

    def settle(self, steps: Iterable[StepSnapshot]) -> list[StepSnapshot]:
        """What an answer says of waits, in the order in which they ended. The steps that nobody waits for."""
        return self._give(steps, OpenWait.settle)

    def tell(self, steps: Iterable[StepSnapshot]) -> list[StepSnapshot]:
        """What the gateway tells by itself."""
        return self._give(steps, OpenWait.tell)

    def _give(
        self, steps: Iterable[StepSnapshot], give: Callable[[OpenWait, StepSnapshot], None]
    ) -> list[StepSnapshot]:
        """Those that the store has lost are to begin again."""
        unclaimed = []
        for step in steps:
            open_wait = self._open.get(step.name)
            if open_wait is None:
                unclaimed.append(step)
            elif step.state is StepState.UNKNOWN:
                open_wait.is_registered = open_wait.is_confirmed = False
            elif step.state is not StepState.WAITING:
                give(open_wait, step)
        return unclaimed

    def close(self) -> None:
        """Nobody waits any longer."""
        for over in self.futures():
            over.cancel()


def room(waits: Sequence[OpenWait]) -> int:
    """How many of them one message can name, from the first."""
    size_bytes = 0
    for count, open_wait in enumerate(waits[:MAX_WAITS]):
        size_bytes += open_wait.wait.size_bytes
        if count and size_bytes > MAX_INPUT_BYTES:
            return count
    return min(len(waits), MAX_WAITS)


def new_with_rivals(some: Sequence[OpenWait], waits: Sequence[OpenWait]) -> list[OpenWait]:
    """Of some of the waits, those that have not begun, and with them those of the same races: they begin together."""
    new = [open_wait for open_wait in some if not open_wait.is_registered]
    names = {open_wait.wait.name for open_wait in new}
    races = {open_wait.wait.group for open_wait in new} - {""}
    rivals = [each for each in waits if each.wait.group in races and not each.is_registered]
    return new + [each for each in rivals if each.wait.name not in names]


def in_messages(waits: Iterable[OpenWait]) -> Iterator[list[OpenWait]]:
    """Parts that fit into a message each; those of one race stay together."""
    part: list[OpenWait] = []
    for some in _races(waits):
        if part and (len(part) + len(some) > MAX_WAITS or _size(part) + _size(some) > MAX_INPUT_BYTES):
            yield part
            part = []
        part = part + some
    if part:
        yield part


def too_large(waits: Iterable[OpenWait]) -> list[OpenWait]:
    """Waits of races that fit into no message."""
    races = _races(open_wait for open_wait in waits if open_wait.wait.group)
    return [open_wait for some in races if len(some) > 1 and _size(some) > MAX_RACE_BYTES for open_wait in some]


def _races(waits: Iterable[OpenWait]) -> list[list[OpenWait]]:
    """Those of one race together, each of the others alone."""
    races: dict[str, list[OpenWait]] = {}
    found: list[list[OpenWait]] = []
    for open_wait in waits:
        group = open_wait.wait.group
        if group in races:
            races[group].append(open_wait)
            continue
        found.append([open_wait])
        if group:
            races[group] = found[-1]
    return found


def _size(waits: Iterable[OpenWait]) -> int:
    return sum(open_wait.wait.size_bytes for open_wait in waits)
