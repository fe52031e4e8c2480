"""The leases of one worker: what it holds, and what is known to be on record for each. Lives on the io thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from redflow_sdk._messages import Answer, Assignment, HeldLease, Item, LeaseState, StepReport, StepSnapshot


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
    on_record: tuple[StepSnapshot, ...]
    state: LeaseState = LeaseState.NOT_STARTED
    reported: list[StepReport] = field(default_factory=list)


class Leases:
    """By token."""

    def __init__(self) -> None:
        self._held: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, token: str) -> bool:
        return token in self._held

    def add(self, assignment: Assignment) -> None:
        """A new lease."""
        self._held[assignment.lease_token] = Lease(assignment, assignment.steps)

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
        return tuple(HeldLease(token, lease.state) for token, lease in self._held.items())

    def tokens(self) -> tuple[str, ...]:
        """The tokens of all leases held."""
        return tuple(self._held)
