"""An event with thousands of subscribers, whose gateway is killed while it starts their runs. Prints one JSON line;
exits 1 when a subscriber did not run, or ran twice.

    .venv/bin/python -m tests.chaos.wide_event --subscribers 10000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from redis.asyncio import Redis

from redflow_sdk import Client, Context, Worker, workflow
from redflow_sdk.workflow import AnyWorkflow
from redflow_server.embedded import EmbeddedStore
from redflow_server.store.invariants import check
from redflow_server.store.keys import Keys
from redflow_server.store.wire import Dial
from tests.chaos.processes import Program, quiet_port
from tests.eventually import eventually

PREFIX = "chaos"
EVENT = "chaos.wide"
PER_WORKER = 1000


@dataclass(frozen=True)
class Report:
    """What became of the subscribers. `started_at_kill` is how many runs there were when the gateway died."""

    subscribers: int
    answered_ids: int
    emit_ms: int
    started_at_kill: int
    ran_once: int
    ran_again: int
    seconds: float
    violations: list[str]


def subscriber(number: int, ran: Counter[str]) -> AnyWorkflow:
    """One workflow of many that an event starts."""

    @workflow(name=f"subscriber-{number}", queue="chaos", events=[EVENT])
    async def handler(ctx: Context, payload: dict[str, int]) -> int:
        ran[ctx.run.workflow] += 1
        return payload["n"]

    return handler


async def play(url: str, folder: Path, subscribers: int) -> Report:
    """From the first worker to the check."""
    target, ran = f"127.0.0.1:{quiet_port()}", Counter[str]()
    port = target.rpartition(":")[2]
    gateway = Program("gateway", "server", "--redis", url, "--prefix", PREFIX, "--port", port, log=folder / "log")
    await gateway.start()
    dial = Dial(url)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(dial.client())
        client = await stack.enter_async_context(Client(target))
        for first in range(0, subscribers, PER_WORKER):
            mine = [subscriber(first + at, ran) for at in range(min(PER_WORKER, subscribers - first))]
            await stack.enter_async_context(Worker(target, workflows=mine, owner=f"owner-{first}", concurrency=100))
        began = time.monotonic()
        ids = await client.emit_event(EVENT, {"n": 1})
        emitted = time.monotonic()
        await eventually(lambda: _started(redis), within=10, saying="no run was started")
        await gateway.kill()
        started = await _started(redis)
        await gateway.start()
        await eventually(lambda: len(ran) == subscribers, within=300, saying=f"only {len(ran)} of {subscribers} ran")
        states = Counter([(await client.handle(run_id).get()).status for run_id in ids[:: max(1, len(ids) // 100)]])
        violations = [] if set(states) <= {"succeeded", "running"} else [f"subscribers ended as {states}"]
        violations += [f"{one.rule}: {one.subject} {one.detail}" for one in await check(redis, Keys(PREFIX))]
    await dial.close()
    await gateway.stop()
    once = sum(times == 1 for times in ran.values())
    again = sum(times > 1 for times in ran.values())
    took = round(time.monotonic() - began, 1)
    return Report(subscribers, len(set(ids)), round(1000 * (emitted - began)), started, once, again, took, violations)


async def _started(redis: Redis) -> int:
    """How many runs there are."""
    statuses = ("queued", "running", "succeeded")
    return sum([await redis.zcard(Keys(PREFIX).status(status)) for status in statuses])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=10_000, help="how many (%(default)d)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redflow-event-") as made, EmbeddedStore(Path(made) / "store") as store:
        report = asyncio.run(play(store.url, Path(made), options.subscribers))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    is_whole = report.ran_once == report.subscribers == report.answered_ids
    return 0 if is_whole and not report.violations else 1


if __name__ == "__main__":
    sys.exit(main())
