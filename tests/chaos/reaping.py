"""A gateway is killed while it takes back a thousand leases that have ended, or Redis is while it does. Prints one JSON
line; exits 1 when a lease was not taken back exactly once, or anything that is stored does not agree.

    .venv/bin/python -m tests.chaos.reaping --rounds 200 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from redis.asyncio import Redis

from redflow_server.domain.ids import new_run_id, new_secret
from redflow_server.domain.leases import Claim, Lane, LeaseToRenew, ListedLease, Stamp
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import RunStatus
from redflow_server.domain.timing import Timing
from redflow_server.store.admin import Admin
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys, lane_name
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial
from tests.chaos.processes import Program, quiet_port
from tests.chaos.redis_server import RedisServer
from tests.eventually import eventually

PREFIX: Final = "chaos"
PASSWORD: Final = "reaping"
TIMING: Final = Timing(lease_ms=1000)
LANE: Final = Lane("chaos", "lost")
DEAD: Final = Stamp("session-of-a-dead-worker", 1, "gateway-of-before")
CALL_RUNS: Final = 100
RESTART_EVERY: Final = 10
DOWN_S: Final = 2.0
DRAIN_S: Final = 30.0


@dataclass(frozen=True)
class Fault:
    """When whom a round kills."""

    hits_redis: bool
    at_share: float
    """When this share of the leases has been taken back; below 0 soon after the gateway's start, whatever it does."""
    later_s: float
    """So long after that."""


def draw(seed: int, number: int) -> Fault:
    """The fault of a round."""
    drawn = Random(f"{seed} {number}")
    if number % RESTART_EVERY == RESTART_EVERY - 1:
        return Fault(True, drawn.uniform(0.0, 1.0), 0.0)
    share = drawn.uniform(-0.15, 1.15)
    longest_s = 1.0 if share < 0 else 0.005 if share <= 1 else 0.3
    return Fault(False, share, drawn.uniform(0.0, longest_s))


@dataclass
class Report:
    """What happened. Of the kills of a gateway and of Redis, `midway` and `restarts_midway` hit it when some leases had
    been taken back and others not.
    """

    seed: int
    rounds: int
    leases: int
    before: int = 0
    midway: int = 0
    after: int = 0
    redis_restarts: int = 0
    restarts_midway: int = 0
    checks: int = 0
    slowest_drain_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Reaping:
    """One round: leases under a prefix of their own, and a gateway that takes them back."""

    def __init__(self, redis: RedisServer, number: int, log: Path, report: Report) -> None:
        self._redis = redis
        self._number = number
        self._keys = Keys(f"{PREFIX}-{number}")
        self._report = report
        self._dial = Dial(redis.url)
        place = ("--redis", self._dial.url, "--prefix", self._keys.prefix, "--port", str(quiet_port()))
        self._gateway = Program("gateway", "server", *place, "--lease", f"{TIMING.lease_ms / 1000:g}", log=log)

    async def play(self, fault: Fault) -> None:
        """From the leases to the check that each was taken back once."""
        async with self._store() as store, self._dial.client() as client:
            run_ids = await self._leave_leases(store)
            await self._gateway.start()
            try:
                await self._until(fault, store, client)
                began = await (self._restart_redis(client) if fault.hits_redis else self._kill_gateway(client))
                await eventually(lambda: self._is_drained(client), within=DRAIN_S, saying="leases are left")
                self._report.slowest_drain_s = max(self._report.slowest_drain_s, round(time.monotonic() - began, 1))
            finally:
                await self._gateway.kill()
            await self._check(client, "in the end")
            await self._check_runs(run_ids, store, client)
            await Admin(self._dial, self._keys).reset()
        await self._dial.close()

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[Store]:
        pipeline = Pipeline(self._dial, load_scripts(), self._keys.prefix)
        await pipeline.start()
        yield Store(pipeline)
        await pipeline.stop()

    async def _leave_leases(self, store: Store) -> list[str]:
        """Runs that a worker has begun and that nobody will hear of again: their leases ended a lease ago."""
        store.now_ms = round(time.time() * 1000) - 2 * TIMING.lease_ms
        run_ids = [new_run_id() for _ in range(self._report.leases)]
        starts = [NewRun(run_id, LANE.workflow, Payload(b"null"), queue=LANE.queue) for run_id in run_ids]
        await asyncio.gather(*map(store.enqueue, starts))
        for _ in range(0, len(run_ids), CALL_RUNS):
            claim = Claim(DEAD, (LANE,), CALL_RUNS, new_secret(), TIMING.delivery_ms)
            claimed = (await store.claim(claim)).runs
            receipts = [LeaseToRenew(run.run_id, ListedLease(run.lease_token)) for run in claimed]
            await store.renew(DEAD, receipts, TIMING.lease_ms, TIMING.cancel_grace_ms)
        store.now_ms = None
        return run_ids

    async def _until(self, fault: Fault, store: Store, client: Redis) -> None:
        """Waits for the moment of the fault. Another gateway, which takes nothing back, has looked for ended leases all
        the time until this one begins: after an outage they would all be given more time.
        """
        total = self._report.leases
        looked = 0.0
        deadline = time.monotonic() + DRAIN_S
        while fault.at_share >= 0 and (left := await self._left(client)) > total * (1 - min(fault.at_share, 1.0)):
            assert time.monotonic() < deadline, f"{left} of {total} leases were not taken back"
            if left == total and time.monotonic() - looked > TIMING.quiet_ms / 5000:
                looked = time.monotonic()
                await store.reap(TIMING.lease_ms, TIMING.quiet_ms, 0)
        await asyncio.sleep(fault.later_s)

    async def _kill_gateway(self, client: Redis) -> float:
        """kill -9, a check, and the next start; when that was."""
        await self._gateway.kill()
        left = await self._left(client)
        if left == self._report.leases:
            self._report.before += 1
        elif left:
            self._report.midway += 1
        else:
            self._report.after += 1
        await self._check(client, "after the kill")
        await self._gateway.start()
        return time.monotonic()

    async def _restart_redis(self, client: Redis) -> float:
        """Redis is killed and is away for a while; when it was back."""
        await self._redis.kill()
        await asyncio.sleep(DOWN_S)
        await self._redis.start()
        back = time.monotonic()
        self._report.redis_restarts += 1
        self._report.restarts_midway += 0 < await self._left(client) < self._report.leases
        return back

    async def _left(self, client: Redis) -> int:
        return int(await client.zcard(self._keys.leases))

    async def _is_drained(self, client: Redis) -> bool:
        return not await self._left(client)

    async def _check(self, client: Redis, when: str) -> None:
        found = await check(client, self._keys)
        self._report.checks += 1
        self._violated([f"{one.rule}: {one.subject} {one.detail}" for one in found], when)

    async def _check_runs(self, run_ids: list[str], store: Store, client: Redis) -> None:
        """Each run stands in its lane and has lost one worker."""
        wrong = []
        for run_id, run in zip(run_ids, await asyncio.gather(*map(store.read_run, run_ids)), strict=True):
            if (run.status, run.losses, run.deliveries) != (RunStatus.QUEUED, 1, 1):
                wrong.append(f"{run_id} is {run.status} after {run.losses} losses and {run.deliveries} deliveries")
        queued = await client.zcard(self._keys.lane(lane_name(LANE.queue, LANE.workflow)))
        if queued != len(run_ids):
            wrong.append(f"{queued} runs are in the lane")
        self._violated(wrong, "in the end")

    def _violated(self, found: list[str], when: str) -> None:
        self._report.violations += [f"{what} ({when} of round {self._number})" for what in found]


async def play(seed: int, faults: Sequence[Fault], leases: int, folder: Path) -> Report:
    """A round for each fault; `folder` is for the log and the data of Redis."""
    report = Report(seed, len(faults), leases)
    began = time.monotonic()
    redis = RedisServer(folder / "redis", PASSWORD, log=folder / "log", environment={})
    await redis.start()
    try:
        for number, fault in enumerate(faults):
            await Reaping(redis, number, folder / "log", report).play(fault)
    except AssertionError as error:
        report.violations.append(f"broke off: {error}")
    finally:
        await redis.kill()
    report.seconds = round(time.monotonic() - began, 1)
    return report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--leases", type=int, default=1000, help="in each round (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by chance; it is in the report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-reaping-") as made:
        faults = [draw(options.seed, number) for number in range(options.rounds)]
        report = asyncio.run(play(options.seed, faults, options.leases, Path(made)))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
