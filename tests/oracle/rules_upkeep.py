"""Rules about what is due because time has passed, and about repairs."""

from __future__ import annotations

from random import Random
from typing import Final

from redflow_server.domain.states import TERMINAL, RunStatus
from tests.oracle import names
from tests.oracle.bench import START_MS, Call, a_call
from tests.oracle.damage import Damage, possible_damages, possible_strays
from tests.oracle.model import places
from tests.oracle.requests import Requests
from tests.oracle.table import Table, move

EVERYTHING: Final = 1000
"""As a limit."""
QUIET_MS: Final = (10_000, 600_000, 10**12)


class UpkeepRules(Table):
    """Promoting, reaping, expiring, purging, repairing."""

    def wait_until_due(self, random: Random, times: dict[str, int]) -> None:
        """Mostly."""
        if not self.requests(random).now_and_then(4):
            self.bench.now = max(self.bench.now, min(times.values(), default=START_MS))

    @move(weight=3, when=lambda table: places.scheduled(table.bench.world))
    def promote(self, random: Random) -> None:
        self.wait_until_due(random, places.scheduled(self.bench.world))
        self.act(random, lambda requests: a_call("promote", requests.one_of(names.LIMITS)))

    @move(weight=3)
    def reap(self, random: Random) -> None:
        self.wait_until_due(random, places.leases(self.bench.world))
        self.act(random, self._reap)

    def _reap(self, requests: Requests) -> Call:
        lease_ms, quiet_ms = requests.one_of(names.LEASE_TIMES_MS), requests.one_of(QUIET_MS)
        return a_call("reap", lease_ms, quiet_ms, requests.one_of(names.LIMITS))

    @move(weight=4, when=lambda table: places.timers(table.bench.world))
    def fire_timers(self, random: Random) -> None:
        self.wait_until_due(random, places.timers(self.bench.world))
        self.act(random, lambda requests: a_call("fire_timers", requests.one_of(names.LIMITS)))

    @move(weight=3, when=lambda table: places.deadlines(table.bench.world))
    def expire(self, random: Random) -> None:
        self.wait_until_due(random, places.deadlines(self.bench.world))
        self.act(random, lambda requests: a_call("expire", requests.one_of(names.LIMITS)))

    @move(when=lambda table: table.bench.world.lane_changes)
    def fail_unknown(self, random: Random) -> None:
        self.act(random, self._fail_unknown)

    def _fail_unknown(self, requests: Requests) -> Call:
        unknown = [lane for lane in self.bench.world.lane_changes if lane.workflow not in self.bench.world.workflows]
        lane = requests.one_of(unknown) if unknown and not requests.now_and_then(8) else requests.lanes()[0]
        grace_ms, offset = requests.one_of((0, 0, 60_000)), requests.one_of((0, 0, 0, 1))
        return a_call("fail_unknown", lane, grace_ms, offset, requests.one_of(names.LIMITS))

    @move(weight=2, when=lambda table: any(run.has_ended for run in table.bench.world.runs.values()))
    def purge(self, random: Random) -> None:
        self.act(random, self._purge)

    def _purge(self, requests: Requests) -> Call:
        retention = {status: requests.one_of((0, 1000, 3_600_000)) for status in sorted(TERMINAL)}
        return a_call("purge", retention, requests.one_of(names.LIMITS))

    @move(weight=6, when=lambda table: table.bench.world.outbox)
    def apply_outbox(self, random: Random) -> None:
        self.act(random, lambda requests: a_call("apply_outbox", requests.one_of(names.LIMITS)))

    @move()
    def sweep(self, random: Random) -> None:
        self.act(random, self._sweep)

    def _sweep(self, requests: Requests) -> Call:
        before = requests.one_of((None, None, self.bench.world.run_seq))
        return a_call("sweep", requests.one_of(tuple(RunStatus)), before, requests.one_of(names.LIMITS))

    @move(weight=2)
    def stray(self, random: Random) -> None:
        """Something stands among what is due that is not, or not yet; the verb that finds it puts that right."""
        stray = self.requests(random).one_of(possible_strays(self.bench.world, self.bench.now))
        self.bench.do(*stray.command(self.bench.prefix), expected=None)
        self.bench.play(a_call(stray.verb, EVERYTHING))

    @move()
    def stray_listing(self, random: Random) -> None:
        """A run that is not there is listed; a sweep takes it out."""
        status = self.requests(random).one_of(tuple(RunStatus))
        damage = Damage("run_gone", "entry", f"runs:status:{status}", "run_gone")
        self.bench.do("ZADD", f"{self.bench.prefix}:{damage.key}", 0, damage.member, expected=1)
        self.bench.play(Call("sweep", (status, None, EVERYTHING), damage=(damage,)))

    @move(weight=2, when=lambda table: possible_damages(table.bench.world))
    def repair(self, random: Random) -> None:
        """Something is lost behind the store's back; a sweep finds it and puts it back."""
        damage: Damage = self.requests(random).one_of(possible_damages(self.bench.world))
        self.bench.do(*damage.command(self.bench.prefix), expected=1)
        status = self.bench.world.runs[damage.run_id].status
        self.bench.play(Call("sweep", (status, None, EVERYTHING), damage=(damage,)))
