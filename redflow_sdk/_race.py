"""Races: of several steps the first to end wins, here, in the store, and in every replay. On the worker's loop.

Every member says which step it is before any of them begins. So a race that is decided on record is decided again the
same way without calling a function, and the waits of one that is not begin together.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from redflow_sdk._messages import StepSnapshot, StepState
from redflow_sdk._types import Value
from redflow_sdk.errors import NonRetriableError
from redflow_sdk.records import Raced

_member: Final[ContextVar[Member | None]] = ContextVar("member_of_race", default=None)


class Member:
    """One of the steps that race."""

    def __init__(self, label: str, group: str) -> None:
        loop = asyncio.get_running_loop()
        self.label = label
        self.group = group
        self.step_name = ""
        self.look: Callable[[], StepSnapshot | None] = lambda: None
        """Gives what is on record of its step."""
        self.known: StepSnapshot | None = None
        """What was when the race began here, for all members at once."""
        self.outcome: StepSnapshot | None = None
        """How its wait has ended."""
        self.rivals: tuple[Member, ...] = ()
        self.lost_to: tuple[StepSnapshot, ...] = ()
        """The members that were on record before its function, which has ended, too."""
        self.is_reporting = False
        """Whether its function has ended, and it is not known yet which others were on record before."""
        self.has_reported = False
        """Whether its function has ended: that decides the race, on record unless another member was before it."""
        self.entered: asyncio.Future[None] = loop.create_future()
        self._may_go: asyncio.Future[None] = loop.create_future()

    async def enter(self, step_name: str, look: Callable[[], StepSnapshot | None]) -> StepSnapshot | None:
        """Says which step it is. When it may begin, what is on record. Raises NonRetriableError for a second step."""
        if self.step_name:
            raise NonRetriableError(
                f"each member of race {self.group!r} is one step; {self.label!r} goes on from step {self.step_name!r} "
                f"to {step_name!r}"
            )
        self.step_name, self.look = step_name, look
        self.entered.set_result(None)
        await self._may_go
        return self.known

    def go(self) -> None:
        """It may begin, or give what is on record."""
        if not self._may_go.done():
            self._may_go.set_result(None)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Its function has ended, and that is being recorded."""
        self.is_reporting = self.has_reported = True
        try:
            yield
        finally:
            self.is_reporting = False

    def may_begin(self) -> bool:
        """Whether its wait may begin. A function that has ended withdraws what has begun before that, and no more."""
        return not any(rival.has_reported for rival in self.rivals)

    @property
    def order(self) -> int:
        """Its place among those that have ended. A function that nothing was on record before comes first."""
        found = self.outcome or self.known
        return found.resolved_seq if found is not None else 0

    @property
    def has_lost(self) -> bool:
        """Whether its wait has ended because another step was first, in this race or in one before."""
        return self.outcome is not None and self.outcome.state is StepState.WITHDRAWN


def current_member() -> Member | None:
    """The member of a race that the caller is."""
    return _member.get()


def check_no_member(step_name: str) -> None:
    """Raises NonRetriableError for a member of a race whose step is over at once, so that it could not but win."""
    member = current_member()
    if member is not None and not member.step_name:
        raise NonRetriableError(
            f"step {step_name!r} cannot be in race {member.group!r}: functions, sleeps, events, runs and results of "
            f"tokens can"
        )


async def race(name: str, members: Mapping[str, Coroutine[Value, Value, Value]]) -> Raced[Value]:
    """The first of the members to end. Raises what it raises, and NonRetriableError for a member that is no step."""
    contestants = {label: Member(label, name) for label in members}
    tasks: dict[str, asyncio.Task[Value]] = {}
    for label, work in members.items():
        context = contextvars.copy_context()
        context.run(_member.set, contestants[label])
        tasks[label] = asyncio.create_task(work, name=f"{name} {label}", context=context)
    try:
        winner = await _winner(name, contestants, tasks)
        return Raced(winner, tasks[winner].result())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _winner(name: str, contestants: Mapping[str, Member], tasks: Mapping[str, asyncio.Task[Value]]) -> str:
    for label, member in contestants.items():
        await asyncio.wait([member.entered, tasks[label]], return_when=asyncio.FIRST_COMPLETED)
        if not member.entered.done():
            tasks[label].result()
            raise NonRetriableError(f"each member of race {name!r} is one step; {label!r} is none")
    for member in contestants.values():
        member.known = member.look()
    known = [member for member in contestants.values() if member.known is not None]
    if known:
        winner = min(known, key=lambda member: member.order)
        winner.go()
        await asyncio.wait([tasks[winner.label]])
        return winner.label
    for member in contestants.values():
        member.rivals = tuple(other for other in contestants.values() if other is not member)
        member.go()
    ended = await _ended(contestants, tasks)
    before = [step for member in ended for step in member.lost_to]
    if not before:
        return min(ended, key=lambda member: member.order).label
    first = min(before, key=lambda step: step.resolved_seq)
    winner = next(member for member in contestants.values() if member.step_name == first.name)
    await asyncio.wait([tasks[winner.label]])
    return winner.label


async def _ended(contestants: Mapping[str, Member], tasks: Mapping[str, asyncio.Task[Value]]) -> list[Member]:
    """The members of which one was first. All of them when none was, because another race has withdrawn them."""
    while True:
        # One that has told of its end may have been on record before those whose end was heard of first.
        reporting = [tasks[label] for label, member in contestants.items() if member.is_reporting]
        if reporting and any(task.done() for task in tasks.values()):
            await asyncio.wait(reporting)
        ended = [member for label, member in contestants.items() if tasks[label].done() and not member.has_lost]
        under_way = [task for task in tasks.values() if not task.done()]
        if ended or not under_way:
            return ended or list(contestants.values())
        await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
