"""Clients in programs of many threads, loops and processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass

import uvloop

from redflow_sdk import Client, Context, workflow
from tests.sdk.scripted_runs import ScriptedRuns
from tests.sdk.worker_program import ROOT


@dataclass
class Receipt:
    total: float


@workflow(name="charge")
async def charge(ctx: Context, number: int) -> Receipt:
    return Receipt(1.0)


def test_loops_and_threads_may_use_clients_at_once_also_the_same_one(runs: ScriptedRuns) -> None:
    shared = Client(runs.target)
    outputs: list[object] = []

    async def use(number: int) -> None:
        async with Client(runs.target) as own:
            both = await asyncio.gather(*(client.execute(charge, number) for client in (own, shared) * 5))
            outputs.extend(both)

    def run(number: int) -> None:
        if number % 2:
            asyncio.run(use(number))
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(use(number))

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert outputs == [Receipt(9.5)] * 80
    asyncio.run(shared.close())


async def test_many_calls_at_once_share_a_connection(runs: ScriptedRuns) -> None:
    async with Client(runs.target) as client:
        found = await asyncio.gather(*(client.get_run(f"run-{n}") for n in range(300)))
    assert [run.id for run in found] == [f"run-{n}" for n in range(300)]
    assert len(runs.named("GetRun")) == 300


FORKS = """
import asyncio, os, sys
from redflow_sdk import Client, Context, Worker, workflow

@workflow
async def quick(ctx: Context) -> None: ...

used = Client(sys.argv[1])
asyncio.run(used.get_run("run-1"))
if os.fork() == 0:
    async def call(client): await client.get_run("run-1")
    async def work(): await Worker(sys.argv[1], workflows=[quick]).start()
    for attempt in (call(used), call(Client(sys.argv[1])), work()):
        try:
            asyncio.run(attempt)
        except RuntimeError as error:
            print("refused:", error, flush=True)
        else:
            print("not refused", flush=True)
    os._exit(0)
os.wait()
asyncio.run(used.get_run("run-2"))
print("the parent goes on", flush=True)
"""

FORKS_FIRST = """
import asyncio, os, sys
from redflow_sdk import Client
client = Client(sys.argv[1])
if os.fork() == 0:
    print(asyncio.run(client.get_run("run-1")).id, flush=True)
    os._exit(0)
os.wait()
print(asyncio.run(client.get_run("run-2")).id, flush=True)
"""


def said_by(program: str, target: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, target], cwd=ROOT, timeout=30, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_fork_of_a_process_that_used_the_sdk_is_refused_with_one_sentence(runs: ScriptedRuns) -> None:
    *refused, last = said_by(FORKS, runs.target)
    assert len(refused) == 3 and len(set(refused)) == 1
    assert refused[0].startswith("refused: ") and "fork" in refused[0]
    assert last == "the parent goes on"


def test_processes_that_fork_before_they_use_the_sdk_may_both_use_it(runs: ScriptedRuns) -> None:
    assert sorted(said_by(FORKS_FIRST, runs.target)) == ["run-1", "run-2"]
