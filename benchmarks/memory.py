"""`memory`: what runs cost in Redis, queued and finished, by number of steps and size of payloads; in bytes a run.

`python -m benchmarks.memory` prints them as a table; `--redis URL` measures in a Redis of yours instead of an embedded
store, under a prefix of its own that is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.engine import Load
from benchmarks.figures import Figures
from benchmarks.rig import Rig
from redflow_server.domain.ids import new_name, new_run_id, new_secret
from redflow_server.domain.leases import Claim, ClaimedRun, CompleteRun, Lane, RecordStep, Stamp, StepRecord
from redflow_server.domain.payloads import Payload
from redflow_server.domain.runs import NewRun
from redflow_server.domain.states import StepKind, StepStatus
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.admin import Admin
from redflow_server.store.keys import Keys
from redflow_server.store.pipeline import Pipeline
from redflow_server.store.scripts import load_scripts
from redflow_server.store.store import Store
from redflow_server.store.wire import Dial

RUNS = 10_000
BATCH = 500
LANE = Lane("shop", "order")
CASES = ((0, 16), (0, 1024), (3, 16), (3, 1024))
"""Steps of a run, and bytes of its input, its output and the value of each step."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes a run."""

    steps: int
    payload_bytes: int
    queued: float
    finished: float


class Scale:
    """A store on an empty prefix, and the memory of its Redis."""

    def __init__(self, url: str) -> None:
        self._dial = Dial(url)
        self._keys = Keys(f"memory-{new_name()}")
        self._pipeline = Pipeline(self._dial, load_scripts(), self._keys.prefix)
        self.store = Store(self._pipeline)

    async def __aenter__(self) -> Scale:
        await self._pipeline.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await Admin(self._dial, self._keys).reset()
        await self._pipeline.stop()
        await self._dial.close()

    async def used_bytes(self) -> int:
        """What Redis has allocated."""
        async with self._dial.client() as client:
            return int((await client.info("memory"))["used_memory"])


async def start_runs(store: Store, runs: int, payload: Payload) -> None:
    """Queues so many runs."""
    for first in range(0, runs, BATCH):
        batch = range(first, min(first + BATCH, runs))
        await asyncio.gather(
            *(store.enqueue(NewRun(new_run_id(), LANE.workflow, payload, queue=LANE.queue)) for _ in batch)
        )


async def finish_runs(store: Store, runs: int, steps: int, payload: Payload) -> None:
    """Claims so many runs, and completes each with its steps."""
    stamp = Stamp(new_name(), 1, new_name())
    finished = 0
    while finished < runs:
        claimed = await store.claim(Claim(stamp, (LANE,), min(100, runs - finished), new_secret(), 60_000))
        await asyncio.gather(*(finish(store, run, steps, payload) for run in claimed.runs))
        finished += len(claimed.runs)


async def finish(store: Store, run: ClaimedRun, steps: int, payload: Payload) -> None:
    """Reports what its worker would."""
    for seq in range(1, steps + 1):
        step = StepRecord(f"step {seq}", seq, StepKind.FUNCTION, StepStatus.SUCCEEDED, payload, None, False, 5)
        await store.record_step(RecordStep(run.run_id, run.lease_token, seq - 1, step))
    await store.complete(CompleteRun(run.run_id, run.lease_token, steps, payload))


async def _sizes(url: str, runs: int) -> list[Size]:
    """One for each case."""
    sizes = []
    for steps, size in CASES:
        async with Scale(url) as scale:
            payload = Payload(b'"' + b"x" * (size - 2) + b'"')
            before = await scale.used_bytes()
            await start_runs(scale.store, runs, payload)
            queued = await scale.used_bytes() - before
            await finish_runs(scale.store, runs, steps, payload)
            finished = await scale.used_bytes() - before
        sizes.append(Size(steps, size, queued / runs, finished / runs))
    return sizes


def measure(load: Load) -> Figures:
    """One measurement."""
    with Rig() as rig:
        rig.start_redis()
        more: dict[str, float] = {}
        for size in asyncio.run(_sizes(rig.redis_url, load.n)):
            case = f"{size.steps}_steps_of_{size.payload_bytes}_bytes"
            more |= {f"queued_{case}": size.queued, f"finished_{case}": size.finished}
        return Figures(n=load.n, store=rig.store, more=more)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="instead of an embedded store")
    url = parser.parse_args().redis
    with ExitStack() as stack:
        if url is None:
            store = EmbeddedStore()
            store.start()
            stack.callback(store.stop)
            url = store.url
        sizes = asyncio.run(_sizes(url, RUNS))
    sys.stdout.write("steps  payload bytes  queued run  finished run\n")
    for size in sizes:
        sys.stdout.write(f"{size.steps:5}  {size.payload_bytes:13}  {size.queued:10.0f}  {size.finished:12.0f}\n")


if __name__ == "__main__":
    main()
