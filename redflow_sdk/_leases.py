"""The leases of one worker: what it holds, and what is still to be answered for each. Lives on the io thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redflow_sdk._messages import Answer, Assignment, Item, LeaseState, StepReport


@dataclass(slots=True)
class Unanswered:
    """An item that the gateway has not answered; it is sent again on every new session."""

    request_id: int
    item: Item
    done: Callable[[Answer], None]


@dataclass(slots=True)
class Lease:
    """A lease and what this delivery has reported under it."""

    assignment: Assignment
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
        self._held[assignment.lease_token] = Lease(assignment)

    def get(self, token: str) -> Lease | None:
        """The lease of a token, while it is held."""
        return self._held.get(token)

    def drop(self, token: str) -> Lease | None:
        """The lease is over."""
        return self._held.pop(token, None)

    def inventory(self) -> tuple[tuple[str, LeaseState], ...]:
        """Every lease held, as the gateway has to know it."""
        return tuple((token, lease.state) for token, lease in self._held.items())

    def tokens(self) -> tuple[str, ...]:
        """The tokens of all leases held."""
        return tuple(self._held)
