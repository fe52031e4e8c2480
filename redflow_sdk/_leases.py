"""The leases of one worker: what it holds, and what is known to be on record for each. Lives on the io thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from redflow_sdk._messages import (
    ENDS_LEASE,
    Answer,
    Assignment,
    BeginWaits,
    HeldLease,
    Item,
    LeaseState,
    StepReport,
    StepSnapshot,
    StepState,
    Suspend,
    Verdict,
)


@dataclass(slots=True)
class Unanswered:
    """An item that the gateway has not answered; it is sent again on every new session."""

    request_id: int
    item: Item
    done: Callable[[Answer], None]
    times_told: int = 0
    """How often the steps before it were told again because the store had lost them."""


@dataclass(slots=True)
class Lease:
    """A lease, the steps that were on record when it began, and what this delivery has reported under it."""

    assignment: Assignment
    on_record: tuple[StepSnapshot, ...] = ()
    state: LeaseState = LeaseState.NOT_STARTED
    reported: list[StepReport] = field(default_factory=list)
    open_waits: dict[str, str] = field(default_factory=dict)
    """The steps whose waits the gateway has, and has told no end of, and the race of each, or nothing."""

    def know(self, steps: tuple[StepSnapshot, ...]) -> None:
        """These were on record when it began."""
        self.on_record = steps
        self.open_waits.update((step.name, "") for step in steps if step.state is StepState.WAITING)

    def submit(self, item: Item) -> None:
        """Its handler says something. One that is parked takes up no slot to ask whether its run is set aside now, or
        to say that it has ended: the gateway has given it none.
        """
        if isinstance(item, StepReport):
            self.reported.append(item)
        if self.state is LeaseState.PARKED and not isinstance(item, ENDS_LEASE):
            self.state = LeaseState.RUNNING

    def resolve(self, steps: Iterable[StepSnapshot]) -> None:
        """Its handler hears of these waits, and goes on if it was parked."""
        self._close_waits(steps)
        if self.state is LeaseState.PARKED:
            self.state = LeaseState.RUNNING

    def answered(self, item: Item, answer: Answer) -> None:
        """An item that has not ended it has been answered."""
        match item:
            case StepReport(rivals=rivals) if answer.verdict in _TAKEN and item.failure is None:
                for name in rivals:
                    self.open_waits.pop(name, None)
            case BeginWaits(waits=waits) | Suspend(waits=waits) if answer.verdict in _WAITING:
                self.open_waits.update((wait.name, wait.group) for wait in waits)
                self._close_waits(step for step in answer.resolutions if step.state is not StepState.WAITING)
        if isinstance(item, Suspend) and answer.verdict in _WAITING:
            self.state = LeaseState.PARKED if answer.verdict is Verdict.PARKED else LeaseState.RUNNING

    def _close_waits(self, steps: Iterable[StepSnapshot]) -> None:
        """The end of one ends those of the same race."""
        for step in steps:
            group = self.open_waits.pop(step.name, "")
            if group and step.is_finished:
                for rival in [name for name, race in self.open_waits.items() if race == group]:
                    del self.open_waits[rival]


_TAKEN: Final = (Verdict.OK, Verdict.DUPLICATE)
_WAITING: Final = (Verdict.OK, Verdict.PARKED, Verdict.RESOLVED)


class Leases:
    """By token."""

    def __init__(self) -> None:
        self._held: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def busy(self) -> int:
        """How many take up a slot: those that are parked do not."""
        return sum(lease.state is not LeaseState.PARKED for lease in self._held.values())

    def __contains__(self, token: str) -> bool:
        return token in self._held

    def add(self, assignment: Assignment) -> None:
        """A new lease."""
        self._held[assignment.lease_token] = lease = Lease(assignment)
        lease.know(assignment.steps)

    def get(self, token: str) -> Lease | None:
        """The lease of a token, while it is held."""
        return self._held.get(token)

    def drop(self, token: str) -> Lease | None:
        """The lease is over."""
        return self._held.pop(token, None)

    def begin(self, tokens: Iterable[str]) -> None:
        """The handlers of these leases begin."""
        for token in tokens:
            lease = self._held.get(token)
            if lease is not None and lease.state is LeaseState.NOT_STARTED:
                lease.state = LeaseState.RUNNING

    def fence(self) -> set[str]:
        """Every lease is fenced; gives the tokens of those that were not before."""
        newly = {token for token, lease in self._held.items() if lease.state is not LeaseState.FENCED}
        for token in newly:
            self._held[token].state = LeaseState.FENCED
        return newly

    def inventory(self) -> tuple[HeldLease, ...]:
        """Every lease held, as the gateway has to know it."""
        return tuple(HeldLease(token, lease.state, tuple(lease.open_waits)) for token, lease in self._held.items())

    def tokens(self) -> tuple[str, ...]:
        """The tokens of all leases held."""
        return tuple(self._held)
