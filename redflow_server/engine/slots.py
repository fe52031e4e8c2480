"""The account of one session: the leases it holds, and the room it has for more."""

from __future__ import annotations

from dataclasses import dataclass, field

from redflow_server.domain.leases import ClaimedRun, Lane, ListedLease


@dataclass(slots=True)
class HeldRun:
    """A lease as the gateway knows it. `lane` is None for one that came with the worker from another session;
    `claimed_at` is in seconds of `domain.clock`.
    """

    run_id: str
    lane: Lane | None
    claimed_at: float
    is_received: bool = False
    receipt_is_stored: bool = False
    is_parked: bool = False
    """Whether its handler waits in the worker's memory, without a slot."""
    open_waits: set[str] = field(default_factory=set)
    """Steps that the handler waits for, as far as it has not been told of their ends."""
    items: int = 0
    """What the worker has said of the run; so many times."""
    unanswered_items: int = 0
    suspensions: int = 0
    """How many of these ask to set the run aside: until they are answered it is open whether it is parked."""
    missed_beats: int = 0


class Slots:
    """Leases held by token, and claims under way. Free slots follow from these, so none can leak."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held: dict[str, HeldRun] = {}
        self.claiming = 0
        self.is_kept_clear = False
        """Whether it gets nothing new because a run waits for it to be idle."""
        self._parked = 0
        self._solo: set[str] = set()
        self._questions = 0
        self._ended_meanwhile: set[str] = set()

    @property
    def free(self) -> int:
        """How many more runs the worker takes."""
        return 0 if self.is_kept_clear else self.room

    @property
    def room(self) -> int:
        """The same with handlers that wait in its memory, and are to go on."""
        return 0 if self.has_solo else max(0, self.limit - self.busy)

    @property
    def has_solo(self) -> bool:
        """Whether it has a run that nothing is to be beside, at work or on its way."""
        return bool(self._solo) and not all(map(self.is_parked, self._solo))

    @property
    def is_taken_up(self) -> bool:
        """Whether it gets nothing new, on account of such a run."""
        return self.is_kept_clear or self.has_solo

    @property
    def busy(self) -> int:
        """How many are taken."""
        return len(self.held) - self._parked + self.claiming

    @property
    def is_idle(self) -> bool:
        """Whether the worker takes runs, and none of its handlers is at work."""
        return self.limit > 0 and self.busy == 0

    @property
    def parked(self) -> int:
        """How many of the held runs take up no slot."""
        return self._parked

    def deliver(self, run: ClaimedRun, claimed_at: float) -> None:
        """A claimed run is on its way to the worker."""
        self.held[run.lease_token] = HeldRun(run.run_id, run.lane, claimed_at)
        if run.lane.is_solo:
            self.keep_alone(run.lease_token)

    def keep_alone(self, lease_token: str) -> None:
        """Nothing is to be beside this one, which the worker has or will have, until it has come further."""
        self._solo.add(lease_token)

    def allow_others(self, lease_token: str) -> None:
        """The run has come further, or does not come: others may be beside it."""
        self._solo.discard(lease_token)

    def is_solo(self, lease_token: str) -> bool:
        """Whether nothing is to be beside this one while its handler is at work."""
        return lease_token in self._solo

    def adopt(self, lease_token: str, run_id: str, at: float) -> bool:
        """The worker brought the lease along. One that has ended since it was asked about does not come back.

        Whether it is new here.
        """
        if lease_token in self.held or lease_token in self._ended_meanwhile:
            return False
        self.held[lease_token] = HeldRun(run_id, None, at, is_received=True, receipt_is_stored=True)
        return True

    def receive(self, lease_token: str) -> None:
        """The worker has shown that it has the assignment."""
        held = self.held.get(lease_token)
        if held is not None:
            held.is_received = True

    def is_parked(self, lease_token: str) -> bool:
        """Whether it is a lease whose handler waits, without a slot."""
        held = self.held.get(lease_token)
        return held is not None and held.is_parked

    def park(self, lease_token: str) -> None:
        """The handler waits, and its slot is free."""
        held = self.held.get(lease_token)
        if held is not None and not held.is_parked:
            held.is_parked = True
            self._parked += 1

    def unpark(self, lease_token: str) -> None:
        """The handler goes on, and takes a slot."""
        held = self.held.get(lease_token)
        if held is not None and held.is_parked:
            held.is_parked = False
            self._parked -= 1

    def suspect_all(self) -> None:
        """What the store knows, and says, of the leases held is to be asked anew."""
        for held in self.held.values():
            held.receipt_is_stored = False

    def drop(self, lease_token: str) -> HeldRun | None:
        """The lease is over, or no longer this session's."""
        if self._questions:
            self._ended_meanwhile.add(lease_token)
        self.unpark(lease_token)
        self._solo.discard(lease_token)
        return self.held.pop(lease_token, None)

    def asked(self) -> None:
        """The store is asked about leases. Until it has answered, they may end."""
        self._questions += 1

    def answered(self) -> None:
        """The answer has been dealt with."""
        self._questions -= 1
        if not self._questions:
            self._ended_meanwhile.clear()

    def overdue(self, before: float) -> list[str]:
        """The tokens claimed before a time that the worker has not acknowledged."""
        return [token for token, held in self.held.items() if not held.is_received and held.claimed_at < before]

    def unstored_receipts(self) -> list[ListedLease]:
        """The leases whose receipt the store does not know yet."""
        return [
            ListedLease(token, tuple(held.open_waits))
            for token, held in self.held.items()
            if held.is_received and not held.receipt_is_stored
        ]
