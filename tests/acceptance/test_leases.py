"""Leases, seen from outside: of workers that stand still or die with many runs, and of ones that get no answers."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from redflow_sdk import Client, Context, Worker, workflow
from redflow_server.domain.timing import Timing
from redflow_server.store.keys import Keys
from tests.acceptance.processes import gil_holder
from tests.conftest import StartGateway, StartWorker
from tests.eventually import eventually
from tests.line import Line, to_port
from tests.redis_command import RedisCommand

RUNS = 20
STEPS = 5
LEASE_MS = 20_000
NEXT_STEP_S = 60
"""An assignment that was lost on its way keeps its run until its lease has ended."""


@pytest.mark.lease_ms(1000)
async def test_a_worker_whose_handler_holds_the_gil_for_five_leases_loses_the_run_and_goes_on_with_others(
    client: Client, target: str, start_worker: StartWorker, tmp_path: Path, redis: RedisCommand, keys: Keys
) -> None:
    calls, said = tmp_path / "calls", tmp_path / "said"
    calls.touch()

    @workflow(name=gil_holder.WORKFLOW, queue=gil_holder.QUEUE)
    async def hold(ctx: Context, holds: bool) -> str:
        return "by the other"

    with said.open("wb") as output:
        command = (sys.executable, "-m", gil_holder.__name__, target, str(calls))
        holder = await asyncio.create_subprocess_exec(*command, stderr=output, stdout=output)
    try:
        await eventually(lambda: redis("EXISTS", keys.workflow(gil_holder.WORKFLOW)), within=20)
        handle = await client.start(hold, True)
        await eventually(lambda: "holds" in calls.read_text(), within=20)
        other = await start_worker(hold)
        assert await handle.result(timeout=20) == "by the other"
        assert "held" not in calls.read_text(), "the run has waited for the handler that holds the GIL"
        ended = await handle.get()
        assert (ended.attempt, ended.delivery_count) == (1, 2)
        await other.stop()

        await eventually(lambda: "held" in calls.read_text(), within=20, saying="the handler has not come back")
        assert await client.execute(hold, False, timeout=20) == "by the holder"
        assert await handle.get() == ended, "the late result has changed a run that had ended"
        assert holder.returncode is None
    finally:
        holder.kill()
        await holder.wait()
    assert "WARNING no gateway answered in time: 1 runs are stopped before their leases end" in said.read_text()
    assert "Traceback" not in said.read_text()


async def test_when_answers_are_lost_again_and_again_no_step_of_a_worker_that_lives_runs_again(
    start_gateway: StartGateway, redis: RedisCommand, keys: Keys
) -> None:
    # Long enough for the worker not to stop its handlers on a machine that is slow to answer.
    gateway = await start_gateway(timing=Timing(lease_ms=LEASE_MS))
    target = f"127.0.0.1:{gateway.port}"
    effects: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    unheard = 0

    async def effect(run_id: str, step: int) -> int:
        effects[f"{run_id} {step}"] += 1
        await asyncio.sleep(0.03)
        return step

    @workflow(name="unanswered", queue="unanswered")
    async def unanswered(ctx: Context) -> int:
        total = 0
        for step in range(STEPS):
            total += await ctx.step.run(f"s{step}", effect, ctx.run.id, step)
            passed[f"{ctx.run.id} {step}"] += 1
        return total

    async def all_arrived() -> bool:
        done = [int(await redis("HGET", keys.run(handle.id), "stepsDone") or 0) for handle in handles]
        return sum(done) == effects.total()

    async with (
        Client(target) as client,
        Line(to_port(gateway.port)) as line,
        Worker(f"127.0.0.1:{line.port}", workflows=[unanswered], concurrency=RUNS),
    ):
        handles = [await client.start(unanswered) for _ in range(RUNS)]
        while effects.total() < RUNS * STEPS:
            seen = effects.total()
            await eventually(
                lambda seen=seen: effects.total() > seen, within=NEXT_STEP_S, every=0, saying="no step is called"
            )
            # What the worker reports arrives; its answers do not, and then their connection is gone.
            line.replies.passes.clear()
            await eventually(all_arrived, within=NEXT_STEP_S)
            unheard += effects.total() - passed.total()
            line.cut()
            line.let_go()
        ends = await asyncio.gather(*(handle.result(timeout=30) for handle in handles))
        runs = [await handle.get() for handle in handles]
    assert ends == [sum(range(STEPS))] * RUNS
    assert unheard > 0.3 * RUNS * STEPS, "hardly an answer was lost: this has shown nothing"
    assert effects.total() == len(effects) == RUNS * STEPS
    assert {run.losses for run in runs} == {0}
