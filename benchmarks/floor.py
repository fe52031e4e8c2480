"""`floor`: our own scripts, driven by a client that does nothing else: what Redis alone allows.

Each run is enqueued, claimed and completed: by calls of one run each, and by calls of as many as the gateway puts into
one; a window of them is on its way all the time.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import hiredis

from benchmarks.engine import SLOTS, Load
from benchmarks.figures import Cost, Figures
from benchmarks.rig import Rig
from redflow_server.domain.ids import new_name, new_run_id, new_secret
from redflow_server.domain.leases import Claim, ClaimedRun, CompleteRun, Lane, Stamp
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun
from redflow_server.store.batches import Call
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial, pack

WARM_UP: Final = 500
PAYLOAD: Final = Payload(b"1")
LANE: Final = Lane("shop", "order")
CLAIM_RUNS: Final = SLOTS // 2
"""As a gateway claims for a worker with 64 slots."""
LEASE_MS: Final = 600_000


class Recorded(Pipeline):
    """Takes the calls of a store and never sends them: they are packed as the gateway would."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(Dial(url), load_scripts(), prefix)

    def taken(self) -> list[Call]:
        """The calls since it was last asked."""
        calls = list(self._queue)
        self._queue.clear()
        return calls

    def one_by_one(self, calls: Sequence[Call]) -> list[bytes]:
        """A command for each call."""
        return [self._packed([call]) for call in calls]

    def together(self, calls: Sequence[Call]) -> list[bytes]:
        """Those of a script that takes many in few commands."""
        return [command.packed for command in self._commands(list(calls))]


class Wire:
    """One connection, with so many commands on their way while there are any."""

    def __init__(self, port: int, window: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._parser = hiredis.Reader()
        self._window = window

    def exchange(self, commands: Sequence[bytes]) -> list[Any]:  # Any: what Redis answers
        """All answers; an error among them is raised."""
        replies: list[Any] = []  # Any: as above
        chunk = max(1, self._window // 2)
        for first in range(0, len(commands), chunk):
            self._socket.sendall(b"".join(commands[first : first + chunk]))
            self._read_until(replies, first)
        self._read_until(replies, len(commands))
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
        return replies

    def _read_until(self, replies: list[Any], count: int) -> None:  # Any: as above
        while len(replies) < count:
            reply = self._parser.gets()
            if reply is False:
                self._parser.feed(self._socket.recv(256 * 1024))
            else:
                replies.append(reply)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Stage:
    """What one script took for all runs."""

    seconds: float
    redis_s: float


def measure(load: Load) -> Figures:
    """One measurement; so many at once is the window."""
    return asyncio.run(_measure(load))


async def _measure(load: Load) -> Figures:
    with Rig() as rig:
        rig.start_redis()
        wire = Wire(rig.redis_port, load.at_once)
        wire.exchange([pack("SCRIPT", "LOAD", script.source) for script in load_scripts().values()])
        more: dict[str, float] = {}
        for way in ("one_by_one", "together"):
            Floor(rig, wire, way).play(WARM_UP)
            stages = Floor(rig, wire, way).play(load.n)
            for name, stage in stages.items():
                more[f"{name}_{way}_per_s"] = load.n / stage.seconds
                more[f"{name}_{way}_us"] = 1e6 * stage.redis_s / load.n
        wire.close()
        # The last way is the gateway's.
        seconds = sum(stage.seconds for stage in stages.values())
        cost = Cost(redis_us=1e6 * sum(stage.redis_s for stage in stages.values()) / load.n)
        return Figures(load.n, rig.store, load.at_once, seconds, load.n / seconds, cost=cost, more=more)


class Floor:
    """Runs of a prefix of their own, on their way through three scripts."""

    def __init__(self, rig: Rig, wire: Wire, way: str) -> None:
        self._rig = rig
        self._wire = wire
        self._recorded = Recorded(rig.redis_url, f"floor-{new_name()}")
        self._pack = getattr(self._recorded, way)
        self._claimed_at_once = {"one_by_one": 1, "together": CLAIM_RUNS}[way]
        self._store = Store(self._recorded)
        self._stages: dict[str, Stage] = {}

    def play(self, runs: int) -> dict[str, Stage]:
        """Takes so many runs through all of them."""
        for _ in range(runs):
            self._store.enqueue(NewRun(new_run_id(), LANE.workflow, PAYLOAD, queue=LANE.queue))
        self._send("enqueue")
        claimed = self._claim(runs)
        assert len(claimed) == runs, f"{len(claimed)} of {runs} runs were claimed"
        for run in claimed:
            self._store.complete(CompleteRun(run.run_id, run.lease_token, 0, PAYLOAD))
        self._send("complete")
        return self._stages

    def _claim(self, runs: int) -> list[ClaimedRun]:
        stamp = Stamp(new_name(), 1, new_name())
        for first in range(0, runs, self._claimed_at_once):
            count = min(self._claimed_at_once, runs - first)
            self._store.claim(Claim(stamp, (LANE,), count, new_secret(), LEASE_MS))
        calls = self._recorded.taken()
        replies = self._timed("claim", self._pack(calls))
        return [run for call, reply in zip(calls, replies, strict=True) for run in call.read(reply).runs]

    def _send(self, name: str) -> None:
        calls = self._recorded.taken()
        replies = self._timed(name, self._pack(calls))
        answers = [answer for reply in replies for answer in reply]
        assert len(answers) == len(calls)
        for call, answer in zip(calls, answers, strict=True):
            call.read(answer)

    def _timed(self, name: str, commands: Sequence[bytes]) -> list[Any]:  # Any: what Redis answers
        meter, began = self._rig.meter(), time.perf_counter()
        replies = self._wire.exchange(commands)
        self._stages[name] = Stage(time.perf_counter() - began, meter.used_s()["redis"])
        return replies
