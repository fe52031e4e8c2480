"""Rules about the registry, the sessions of workers, and the prefix itself."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.oracle import names
from tests.oracle.bench import Call, a_call
from tests.oracle.crowds import CROWDS, finish_crowd
from tests.oracle.definitions import a_registration, a_worker, an_assertion
from tests.oracle.requests import Requests
from tests.oracle.table import Table, move

ONE_CROWD_IN: Final = 4
"""Examples."""
TURNS_IN_A_CROWD: Final = 25
"""Each costs much more than usual."""


class RegistryRules(Table):
    """Registering workflows, announcing sessions."""

    def begin(self, random: Random) -> None:
        requests = self.requests(random)
        if not requests.now_and_then(10):
            self.act(random, lambda requests: a_call("claim_prefix"))
        if self.salt % ONE_CROWD_IN == 0:
            self.turns_left = TURNS_IN_A_CROWD
            of_all, number = divmod(self.salt // ONE_CROWD_IN, len(CROWDS))
            CROWDS[number](self.bench)
            if of_all % 2 == 0:
                finish_crowd(self.bench)
        elif not requests.now_and_then(4):
            self.register(random)

    @move()
    def register(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("register", a_registration(requests, self.bench)))

    @move()
    def assert_registry(self, random: Random) -> None:
        self.act(random, self._assert_registry)

    def _assert_registry(self, requests: Requests) -> Call:
        assertions = [an_assertion(requests, self.bench) for _ in range(requests.number(1, 3))]
        return a_call("assert_registry", assertions)

    @move()
    def look_around(self, random: Random) -> None:
        """The readings of everything, of which none tells much by itself."""
        self.bench.play(a_call("read_workflows", list(names.WORKFLOWS)))
        self.bench.play(a_call("list_workflows"))
        self.bench.play(a_call("read_stats"))
        self.bench.play(a_call("read_sessions"))
        self.bench.play(a_call("due", self.requests(random).one_of((0, *self.bench.world.lane_changes.values()))))

    @move()
    def announce_sessions(self, random: Random) -> None:
        self.act(random, self._announce_sessions)

    def _announce_sessions(self, requests: Requests) -> Call:
        workers = [a_worker(requests, self.bench) for _ in range(requests.number(0, 2))]
        return a_call("announce_sessions", workers, requests.one_of((60_000, 600_000)))

    @move()
    def forget_session(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("forget_session", requests.one_of(names.SESSIONS)))

    @move()
    def claim_prefix(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("claim_prefix"))

    @move()
    def try_write(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("try_write"))
