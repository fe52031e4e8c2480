"""What all rules share: the bench they play on, how a call is made, and what must hold when it is made again."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from redflow_server.domain.leases import LeaseEnded, Outcome, Release, StepRecorded, Suspended
from redflow_server.domain.registry import Registered
from redflow_server.domain.runs import StartedRun
from tests.oracle.bench import Bench, Call, Server, abridged, shown_alike
from tests.oracle.comparison import differences, told
from tests.oracle.counts import Counts
from tests.oracle.requests import Requests

SEEDS: Final = st.tuples(*[st.booleans()] * 24).map(lambda bits: int("".join("01"[bit] for bit in bits), 2))
"""One for each move: when Hypothesis shrinks an example, it drops moves, and does not look into them. Made of bits,
since among integers it prefers those that it finds in modules which happen to be loaded.
"""
F = TypeVar("F", bound=Callable[..., Any])  # Any: a method of any kind
GOES_ON: Final = frozenset(
    {
        *("promote", "reap", "expire", "fire_timers", "apply_outbox", "fan_out", "deliver_events", "forget_events"),
        *("purge", "sweep", "fail_unknown", "fire_schedule", "claim"),
    }
)
"""Verbs that find out by themselves what is to be done: made again they do the next, or nothing."""
MOST_TOGETHER_BYTES: Final = 200_000
"""Of calls that are to be items of one script call."""
MOVES: Final = 100
"""Of an example, at most."""
AGREEING: Final = {
    Outcome.OK: {Outcome.OK, Outcome.DUPLICATE},
    Outcome.PARKED: {Outcome.PARKED, Outcome.RESOLVED},
}


@dataclass(frozen=True)
class Move:
    """Something that can be done next: how often it is taken among others, and when it makes sense."""

    weight: int
    when: Callable[[Table], object]


def move(*, weight: int = 1, when: Callable[[Table], object] = lambda table: True) -> Callable[[F], F]:
    """Marks a method as a move. Not as a rule: of many rules each example would have only some."""

    def mark(method: F) -> F:
        method.move = Move(weight, when)  # type: ignore[attr-defined]  # as Hypothesis marks its rules
        return method

    return mark


class Table(RuleBasedStateMachine):
    """The start of an example, and its end."""

    server: ClassVar[Server]
    counts: ClassVar[Counts]
    salt: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.server, f"oracle:{secrets.token_hex(6)}", self.counts)
        self.unheard: set[str] = set()
        """Secrets of claims whose answer was lost."""
        self.claims = 0
        self.turns_left = MOVES

    def begin(self, random: Random) -> None:
        """What stands at the beginning of an example."""

    @initialize(number=SEEDS)
    def start(self, number: int) -> None:
        if number == 0:
            # All numbers are: the smallest example that there is, in which none could be dropped by itself.
            self.turns_left = 0
        else:
            self.begin(self._source(number))

    @rule(number=SEEDS)
    def turn(self, number: int) -> None:
        """One of the moves that make sense."""
        if self.turns_left == 0:
            return
        self.turns_left -= 1
        random = self._source(number)
        moves = (getattr(self, name) for name in dir(type(self)) if hasattr(getattr(type(self), name), "move"))
        possible = [one for one in moves for _ in range(one.move.weight) if one.move.when(self)]
        self.requests(random).one_of(possible)(random)

    def _source(self, number: int) -> Random:
        return Random(f"{self.salt} {number}")

    def teardown(self) -> None:
        try:
            self.bench.check_invariants()
        finally:
            self.bench.close()

    def requests(self, random: Random) -> Requests:
        return Requests(self.bench, random)

    # ---- making calls ----

    def act(self, random: Random, build: Callable[[Requests], Call]) -> object:
        """One call: once, or again with the same words, or with its answer lost on the way."""
        requests = self.requests(random)
        call = build(requests)
        if requests.now_and_then(40):
            return self.bench.play_with_lost_answer(call)
        [answer] = self.bench.play(call)
        if requests.now_and_then(5):
            self.repeat(call, answer)
        return answer

    def act_together(self, random: Random, build: Callable[[Requests], Call], *, most: int = 4) -> None:
        """One call as by `act`, or several as the items of one."""
        requests = self.requests(random)
        if not requests.now_and_then(5):
            self.act(random, build)
            return
        calls = [build(requests) for _ in range(requests.number(2, most))]
        if self.server.scripts[calls[0].verb].goes_last:
            calls = list({call.arguments[0].run_id: call for call in calls}.values())
        if len(pickle.dumps(calls)) < MOST_TOGETHER_BYTES:
            self.bench.play(*calls)

    def repeat(self, call: Call, first: object) -> None:
        """What may be repeated changes nothing the second time, and is answered the same."""
        before = self.bench.world
        [second] = self.bench.play(call)
        self.counts.repeated[call.verb] += 1
        if call.verb in GOES_ON:
            return
        changed = told(differences(before, self.bench.world, "stored"))
        if changed:
            raise self.bench.mismatch("made again it changes:", *changed)
        if not agree(call, first, second):
            raise self.bench.mismatch(f"it was answered {abridged(first)}", f"and again {abridged(second)}")


def agree(call: Call, first: object, second: object) -> bool:
    """Whether an answer says again what the first one said."""
    match first, second:
        case LeaseEnded(), LeaseEnded():
            if call.verb == "release" and isinstance(call.arguments[0], Release) and call.arguments[0].stamp:
                # Taken back by a gateway, it is lost.
                return first.outcome is not Outcome.OK or second.outcome is Outcome.LEASE_LOST
            return second.outcome in AGREEING.get(first.outcome, {first.outcome}) and first.status == second.status
        case StepRecorded(), StepRecorded():
            return second.outcome in AGREEING.get(first.outcome, {first.outcome}) and first.stored == second.stored
        case Suspended(), Suspended():
            return second.outcome in AGREEING.get(first.outcome, {first.outcome}) and first.status == second.status
        case StartedRun(), StartedRun():
            return (first.run_id, first.was_created) == (second.run_id, second.was_created)
        case Registered(), Registered():
            return replace(first, retired=()) == replace(second, retired=())
        case _:
            return shown_alike(first) == shown_alike(second)
