"""`fanout`: one event with a hundred subscribers: how long from the call that emits it until all their runs have run.

Also the calls of its client (calling.py) and the workflows of its worker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from benchmarks import counter
from benchmarks.calling import Calls
from benchmarks.calls_played import play
from benchmarks.engine import Load, our_engine
from benchmarks.figures import Figures
from redflow_sdk import Client, Context, Workflow, workflow

SUBSCRIBERS: Final = 100
EVENT: Final = "fanned-out"
LOOK_S: Final = 0.001


def measure(load: Load) -> Figures:
    """One measurement."""
    engine = our_engine("benchmarks.fanout:app", "benchmarks.fanout")
    figures = play(replace(load, engine=engine), "fanout", SUBSCRIBERS, SUBSCRIBERS)
    assert figures.per_s is not None
    return replace(figures, more={"runs_per_s": SUBSCRIBERS * figures.per_s})


def _subscriber(number: int) -> Workflow[int, None]:
    @workflow(name=f"subscriber-{number}", events=(EVENT,))
    async def subscriber(ctx: Context, payload: int) -> None:
        counter.count()

    return subscriber


app = [_subscriber(number) for number in range(SUBSCRIBERS)]


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """By kind."""
    counted = counter.map_counter(os.environ["REDFLOW_BENCH_COUNTER"])
    async with Client() as client:
        while len(await client.list_workflows()) < SUBSCRIBERS:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.05)

        async def fanout(number: int) -> None:
            before = counter.read(counted).done
            started = await client.emit_event(EVENT, number)
            assert len(started) == SUBSCRIBERS
            while counter.read(counted).done < before + SUBSCRIBERS:  # noqa: ASYNC110  # as above
                await asyncio.sleep(LOOK_S)

        yield {"fanout": fanout}
