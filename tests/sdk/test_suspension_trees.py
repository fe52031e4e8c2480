"""Handlers of every shape: trees of gather, TaskGroup, steps, runs and turns of the loop, made by chance from a seed.

The gateway keeps a record for each run and sets it aside whenever it asks, unless one of the runs it waits for happens
to be over; then it delivers the run again, once one of them is.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from redflow_sdk import ChildFailedError, Context, workflow
from redflow_sdk.proto.v1 import run_pb2
from redflow_sdk.proto.worker.v1 import worker_pb2 as pb
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.messages import (
    answer,
    child_failed,
    child_open,
    child_succeeded,
    emitted,
    ok,
    payload,
    resolved,
    suspended,
    value_of,
)
from tests.sdk.scripted_gateway import ScriptedGateway
from tests.sdk.wire_log import Item

Tree = list[Any]  # Any: the kind of the node, its name or its branches, which are trees
TREES = 250
LEAVES = ("step", "thread", "slow", "fails", "run", "run", "lost", "event", "turns")

executed: Counter[tuple[str, str]] = Counter()
executing = threading.Lock()


def a_tree(chance: random.Random, names: Iterator[int], depth: int = 0) -> Tree:
    if depth < 4 and chance.random() < 1 - 0.2 * depth:
        form = chance.choice(("gather", "group", "one after the other"))
        return [form, *(a_tree(chance, names, depth + 1) for _ in range(chance.randint(1, 4)))]
    kind = chance.choice(LEAVES)
    return [kind, chance.randint(0, 20) if kind == "turns" else f"{kind}{next(names)}"]


def leaves_of(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree[1], list):
        for branch in tree[1:]:
            yield from leaves_of(branch)
    else:
        yield tree


def output_of(tree: Tree) -> Any:  # Any: lists of lists of names
    return [output_of(branch) for branch in tree[1:]] if isinstance(tree[1], list) else tree[1]


# ---- the handler ----


@workflow(name="grows")
async def grows(ctx: Context, tree: Tree) -> Any:
    return await grow(ctx, tree)


async def grow(ctx: Context, tree: Tree) -> Any:
    match tree:
        case ["gather", *branches]:
            return list(await asyncio.gather(*(grow(ctx, branch) for branch in branches)))
        case ["group", *branches]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(grow(ctx, branch)) for branch in branches]
            return [task.result() for task in tasks]
        case ["one after the other", *branches]:
            return [await grow(ctx, branch) for branch in branches]
        case ["turns", int(count)]:
            for _ in range(count):
                await asyncio.sleep(0)
            return count
        case [kind, name]:
            return await leaf(ctx, kind, name)


async def leaf(ctx: Context, kind: str, name: str) -> str:
    def note() -> str:
        with executing:
            executed[ctx.run.id, name] += 1
        return name

    async def noted() -> str:
        return note()

    async def slow() -> str:
        note()
        await asyncio.sleep(0.01)
        return name

    def fails() -> None:
        raise LookupError(note())

    match kind:
        case "run" | "lost":
            try:
                return str(await ctx.step.run_workflow(name, "child"))
            except ChildFailedError:
                return name
        case "event":
            await ctx.step.emit_event(name, "e")
            return name
        case "fails":
            try:
                await ctx.step.run(name, fails)
            except LookupError as error:
                return str(error)
        case "slow":
            return await ctx.step.run(name, slow)
        case "step":
            return await ctx.step.run(name, noted)
    return await ctx.step.run(name, note)


# ---- the gateway ----


@dataclass
class RunRecord:
    """A run as its gateway knows it."""

    tree: Tree
    token: str = ""
    steps: dict[str, pb.StepSnapshot] = field(default_factory=dict)
    deliveries: int = 0
    output: Any = None  # Any: what the handler returns


class RecordKeeper:
    """Answers items as a gateway with a store does. In the one thread of a session."""

    def __init__(self, gateway: ScriptedGateway, chance: random.Random) -> None:
        self._gateway = gateway
        self._chance = chance
        self.runs: dict[str, RunRecord] = {}
        self.faults: list[str] = []

    def deliver(self, run_id: str) -> None:
        run = self.runs[run_id]
        run.deliveries += 1
        run.token = f"{run_id}.{run.deliveries}"
        steps = list(run.steps.values())
        self._gateway.assign("grows", payload(run.tree), token=run.token, run_id=run_id, steps=steps)

    def take(self, item: Item) -> pb.ItemResult:
        run_id = item.lease_token.partition(".")[0]
        run = self.runs[run_id]
        if item.lease_token != run.token:
            self.faults.append(f"{type(item).__name__} under a lease that is over: {item.lease_token}")
            return answer(item, pb.ITEM_STATUS_LEASE_LOST)
        finished = sum(step.status != run_pb2.STEP_STATUS_WAITING for step in run.steps.values())
        if item.steps_recorded > finished:
            self.faults.append(f"{item.lease_token} knows of {item.steps_recorded} steps, and there are {finished}")
        match item:
            case pb.StepReport():
                return self._report(run, item)
            case pb.StepCommand() if item.HasField("emit_event"):
                run.steps[item.step_name] = emitted(item.step_name, seq=item.step_seq)
                return answer(item, pb.ITEM_STATUS_OK, resolutions=[run.steps[item.step_name]])
            case pb.StepCommand():
                run.steps.setdefault(item.step_name, child_open(item.step_name, seq=item.step_seq))
                return ok(item)
            case pb.Suspension():
                return self._suspend(run_id, run, item)
            case pb.RunResult():
                run.output = value_of(item.output) if item.HasField("output") else str(item)
                run.token = ""
        return ok(item)

    def _report(self, run: RunRecord, item: pb.StepReport) -> pb.ItemResult:
        if item.step_name in run.steps:
            self.faults.append(f"{item.step_name} is reported twice")
        step = pb.StepSnapshot(
            step_name=item.step_name, step_seq=item.step_seq, step_kind=item.step_kind,
            status=item.status, attempt=1, final=item.final,
        )  # fmt: skip
        if item.HasField("failure"):
            step.failure.CopyFrom(item.failure)
        else:
            step.output.CopyFrom(item.output)
        run.steps[item.step_name] = step
        return ok(item)

    def _suspend(self, run_id: str, run: RunRecord, item: pb.Suspension) -> pb.ItemResult:
        for wait in item.waits:
            run.steps.setdefault(wait.step_name, child_open(wait.step_name, seq=wait.step_seq))
        named = [wait.step_name for wait in item.waits]
        if self._chance.random() < 0.3:
            self._end(run, self._chance.sample(named, self._chance.randint(1, len(named))))
        over = [run.steps[name] for name in named if run.steps[name].status != run_pb2.STEP_STATUS_WAITING]
        if over:
            return resolved(item, *over)
        run.token = ""
        still_open = [step.step_name for step in run.steps.values() if step.status == run_pb2.STEP_STATUS_WAITING]
        self._end(run, self._chance.sample(still_open, self._chance.randint(1, len(still_open))))
        self.deliver(run_id)
        return suspended(item)

    def _end(self, run: RunRecord, names: Sequence[str]) -> None:
        for name in names:
            if run.steps[name].status == run_pb2.STEP_STATUS_WAITING:
                seq = run.steps[name].step_seq
                step = child_failed(name) if name.startswith("lost") else child_succeeded(name, name)
                step.step_seq = seq
                run.steps[name] = step


@pytest.mark.parametrize("seed", range(5))
async def test_each_step_runs_once_and_the_run_ends_as_its_handler_says(
    seed: int, scripted: ScriptedGateway, connect: StartWorker
) -> None:
    chance = random.Random(seed)
    executed.clear()
    keeper = RecordKeeper(scripted, chance)
    for number in range(TREES // 5):
        keeper.runs[f"run-{seed}-{number}"] = RunRecord(a_tree(chance, itertools.count()))
    scripted.script.item = keeper.take
    await connect(scripted, grows, concurrency=1000)
    for run_id in keeper.runs:
        keeper.deliver(run_id)
    runs = keeper.runs.values()
    await eventually(lambda: all(run.output is not None for run in runs), within=60, saying="all runs have ended")
    assert keeper.faults == []
    for run_id, run in keeper.runs.items():
        assert run.output == output_of(run.tree), run_id
        names = [name for kind, name in leaves_of(run.tree) if kind in ("step", "thread", "slow", "fails")]
        assert {name: executed[run_id, name] for name in names} == dict.fromkeys(names, 1), run_id
    assert sum(run.deliveries for run in runs) > 2 * len(runs), "they were set aside"
