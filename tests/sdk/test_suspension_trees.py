"""Handlers of every shape: trees of what asyncio builds, steps, waits and races, made by chance from a seed.

The gateway keeps a record of each run and has it wait in any way there is: see `record_keeper`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from redflow_sdk import ChildFailedError, Context, RetryAfterError, RetryPolicy, workflow
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sdk.conftest import StartScripted
from tests.sdk.record_keeper import RecordKeeper, RunRecord

Tree = list[Any]  # Any: the kind of the node, its name or its branches, which are trees
TREES = 30
FORMS = ("gather", "group", "wait", "one after the other")
FUNCTIONS = ("step", "thread", "slow", "fails", "flaky")
WAITS = ("sleep", "run", "lost", "event", "late", "token")
LEAVES = (*FUNCTIONS, *WAITS, *WAITS, "emit", "start", "turns", "race", "race")

executed: Counter[tuple[str, str]] = Counter()
executing = threading.Lock()
winners: dict[tuple[str, str], set[str]] = {}


def a_tree(chance: random.Random, names: Iterator[int], depth: int = 0) -> Tree:
    if depth < 4 and chance.random() < 1 - 0.2 * depth:
        form = chance.choice(FORMS)
        return [form, *(a_tree(chance, names, depth + 1) for _ in range(chance.randint(1, 4)))]
    kind = chance.choice(LEAVES)
    if kind == "turns":
        return [kind, chance.randint(0, 20)]
    if kind == "race":
        members = [chance.choice((*FUNCTIONS, *WAITS)) for _ in range(chance.randint(2, 4))]
        return [kind, f"race{next(names)}", *(f"{member}{next(names)}" for member in members)]
    return [kind, f"{kind}{next(names)}"]


def leaves_of(tree: Tree) -> Iterator[Tree]:
    if tree[0] in FORMS:
        for branch in tree[1:]:
            yield from leaves_of(branch)
    else:
        yield tree


def output_of(tree: Tree, run: RunRecord) -> Any:  # Any: lists of lists of names
    """What the handler has to return, as the record of its run says who was first in its races."""
    if tree[0] in FORMS:
        return [output_of(branch, run) for branch in tree[1:]]
    if tree[0] == "race":
        return min((run.order(name), name) for name in tree[2:] if name in run.steps and run.order(name))[1]
    return tree[1]


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
        case ["wait", *branches]:
            tasks = [asyncio.create_task(grow(ctx, branch)) for branch in branches]
            pending = set(tasks)
            while pending:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            return [task.result() for task in tasks]
        case ["one after the other", *branches]:
            return [await grow(ctx, branch) for branch in branches]
        case ["turns", int(count)]:
            for _ in range(count):
                await asyncio.sleep(0)
            return count
        case ["race", name, *members]:
            return await race(ctx, name, members)
        case [kind, name]:
            with contextlib.suppress(LookupError, ChildFailedError):
                await leaf(ctx, kind, name)
            return name


async def race(ctx: Context, name: str, members: list[str]) -> str:
    tokens = {it: await ctx.step.token(it) for it in members if it.startswith("token")}
    works: dict[str, Coroutine[Any, Any, Any]] = {
        it: tokens[it].result() if it in tokens else leaf(ctx, it.rstrip("0123456789"), it) for it in members
    }
    try:
        winner = (await ctx.step.race(name, **works)).winner
    except ChildFailedError as error:
        winner = error.failure.message
    except LookupError as error:
        winner = str(error)
    winners.setdefault((ctx.run.id, name), set()).add(winner)
    return winner


def leaf(ctx: Context, kind: str, name: str) -> Coroutine[Any, Any, Any]:
    """A single step; what it raises says which it was."""

    def note() -> int:
        with executing:
            executed[ctx.run.id, name] += 1
            return executed[ctx.run.id, name]

    async def noted() -> None:
        note()

    async def slow() -> None:
        note()
        await asyncio.sleep(0.01)

    def fails() -> None:
        note()
        raise LookupError(name)

    async def flaky() -> None:
        if (times := note()) < 3:
            raise RetryAfterError(delay=0 if times == 1 else 5)

    step = ctx.step
    match kind:
        case "step":
            return step.run(name, noted)
        case "thread":
            return step.run(name, note)
        case "slow":
            return step.run(name, slow)
        case "fails":
            return step.run(name, fails)
        case "flaky":
            return step.run(name, flaky, retry=RetryPolicy(max_attempts=5))
        case "sleep":
            return step.sleep(name, 60)
        case "run" | "lost":
            return step.run_workflow(name, "child")
        case "event" | "late":
            return step.wait_for_event(name, "e", timeout=60)
        case "token":
            return result_of_token(ctx, name)
        case "emit":
            return step.emit_event(name, "e")
        case "start":
            return step.start_workflow(name, "child")
    raise AssertionError(kind)


async def result_of_token(ctx: Context, name: str) -> Any:
    token = await ctx.step.token(name)
    assert token == f"token of {name}"
    return await token.result()


# ---- what came of them ----


WAYS = {"parking": "park", "not parking": "suspend", "replaying": "replay"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
async def test_each_step_runs_once_and_the_run_ends_as_its_handler_and_the_record_say(
    seed: int, way: str, start_scripted: StartScripted, connect: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDFLOW_WAITING", WAYS[way])
    chance = random.Random(f"{seed} {way}")
    executed.clear()
    winners.clear()
    scripted = start_scripted(lease_ms=60_000, beat_ms=5_000, silence_ms=50_000)
    keeper = RecordKeeper(scripted, "grows", chance, parks=way == "parking")
    for number in range(TREES):
        keeper.runs[f"run-{seed}-{number}"] = RunRecord(a_tree(chance, itertools.count()))
    scripted.script.item = keeper.take
    await connect(scripted, grows, concurrency=1000, park_window=0.05)
    for run_id in keeper.runs:
        keeper.deliver(run_id)
    runs = keeper.runs.values()
    await eventually(lambda: all(run.output is not None for run in runs), within=60, saying="all runs have ended")
    assert keeper.faults == []
    for run_id, run in keeper.runs.items():
        assert run.output == output_of(run.input, run), run_id
        assert executions(run_id, run) == [], run_id
    assert all(len(those) == 1 for those in winners.values()), "every delivery decides a race the same way"
    assert sum(run.deliveries for run in runs) > (1.2 if way == "parking" else 2) * len(runs), "they were set aside"
    assert (sum(run.parkings for run in runs) > len(runs) / 2) == (way == "parking")


def executions(run_id: str, run: RunRecord) -> list[str]:
    """Functions that were not called as often as they had to be. In a race they may have been called, or not."""
    wrong = []
    for kind, name, *members in leaves_of(run.input):
        for it in members:
            most = 3 if it.startswith("flaky") else 1
            if executed[run_id, it] > most:
                wrong.append(f"{it} in {name} {executed[run_id, it]} times")
        if kind in FUNCTIONS and executed[run_id, name] != (3 if kind == "flaky" else 1):
            wrong.append(f"{name} {executed[run_id, name]} times")
    return wrong
