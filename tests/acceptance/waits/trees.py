"""Handlers of every shape, made by chance from a seed: trees of gather and TaskGroup, of steps and of all waits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from redflow_sdk import (
    ChildFailedError,
    Client,
    Context,
    RetryPolicy,
    TokenFailedError,
    workflow,
)

SEEDS = (1, 2, 3)
LEAVES = (
    *("step", "slow", "raises", "retries", "sleep", "event", "late event"),
    *("token", "failed token", "child", "failed child", "late child", "race", "starts"),
)
FORMS = ("gather", "group", "one after the other")
SOON = RetryPolicy(max_attempts=3, initial=0.01, maximum=0.02)


@dataclass(frozen=True)
class Tree:
    """A form with branches, or the kind of a leaf with its name."""

    kind: str
    name: str = ""
    branches: tuple[Tree, ...] = ()


def grown(chance: random.Random, names: Iterator[int], depth: int = 0) -> Tree:
    """A tree of at most four levels."""
    if depth < 3 and chance.random() < 1 - 0.25 * depth:
        branches = tuple(grown(chance, names, depth + 1) for _ in range(chance.randint(1, 3)))
        return Tree(chance.choice(FORMS), branches=branches)
    kind = chance.choice(LEAVES)
    return Tree(kind, f"{kind} {next(names)}")


def output_of(tree: Tree) -> object:
    """What the handler of a tree returns."""
    return [output_of(branch) for branch in tree.branches] if tree.branches else f"{tree.name} is done"


@dataclass
class Forest:
    """The workflows that run trees, and the account of which functions were called."""

    seed: int
    client: Client
    size: int = 8
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    tries: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        @workflow(name="tree")
        async def tree(ctx: Context, number: int) -> object:
            return await self._grow(ctx, self._tree(number))

        @workflow(name="tree-child")
        async def child(ctx: Context, length: float) -> str:
            await ctx.step.sleep("nap", length)
            return "child"

        @workflow(name="tree-failing")
        async def failing(ctx: Context) -> None:
            await ctx.step.sleep("nap", 0.02)
            raise LookupError("as it should")

        self.tree, self.child, self.failing = tree, child, failing

    def _tree(self, number: int) -> Tree:
        chance, names = random.Random(f"{self.seed} {number}"), count()
        branches = tuple(grown(chance, names) for _ in range(3))
        return Tree(chance.choice(FORMS), branches=branches)

    def expected(self, number: int) -> object:
        """What the run of this number returns."""
        return output_of(self._tree(number))

    def repeated(self) -> list[str]:
        """The functions that were called more than once although they did what they should."""
        return [f"{step} of {run_id}: {times} times" for (run_id, step), times in self.calls.items() if times > 1]

    # ---- the handler ----

    async def _grow(self, ctx: Context, tree: Tree) -> object:
        match tree.kind:
            case "gather":
                return list(await asyncio.gather(*(self._grow(ctx, branch) for branch in tree.branches)))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._grow(ctx, branch)) for branch in tree.branches]
                return [task.result() for task in tasks]
            case "one after the other":
                return [await self._grow(ctx, branch) for branch in tree.branches]
        await LEAF[tree.kind](self, ctx, tree.name)
        return f"{tree.name} is done"

    async def _call(self, ctx: Context, name: str, seconds: float = 0.0) -> None:
        self.calls[ctx.run.id, name] += 1
        await asyncio.sleep(seconds)

    async def step(self, ctx: Context, name: str) -> None:
        await ctx.step.run(name, self._call, ctx, name)

    async def slow(self, ctx: Context, name: str) -> None:
        await ctx.step.run(name, self._call, ctx, name, 0.05)

    async def raises(self, ctx: Context, name: str) -> None:
        async def function() -> None:
            await self._call(ctx, name)
            raise ArithmeticError(name)

        caught = ""
        try:
            await ctx.step.run(name, function)
        except ArithmeticError as error:
            caught = str(error)
        assert caught == name

    async def retries(self, ctx: Context, name: str) -> None:
        async def function() -> None:
            self.tries[ctx.run.id, name] += 1
            if self.tries[ctx.run.id, name] < 3:
                raise ArithmeticError(name)
            await self._call(ctx, name)

        await ctx.step.run(name, function, retry=SOON)

    async def sleep(self, ctx: Context, name: str) -> None:
        await ctx.step.sleep(name, 0.03)

    async def event(self, ctx: Context, name: str) -> None:
        key = f"{ctx.run.id} {name}"
        got, _ = await asyncio.gather(
            ctx.step.wait_for_event(name, "tree.event", key=key, payload_type=str, timeout=30),
            ctx.step.emit_event(f"{name}, emitted", "tree.event", name, key=key),
        )
        assert got is not None
        assert got.payload == name

    async def late_event(self, ctx: Context, name: str) -> None:
        assert await ctx.step.wait_for_event(name, "tree.no-event", timeout=0.05) is None

    async def token(self, ctx: Context, name: str) -> None:
        token = await ctx.step.token(name, str, timeout=30)
        await ctx.step.run(f"{name}, sent", self._complete, token, name)
        assert await token.result() == name

    async def _complete(self, token: str, value: str) -> None:
        await self.client.complete_token(token, value)

    async def failed_token(self, ctx: Context, name: str) -> None:
        token = await ctx.step.token(name, str, timeout=30)
        await ctx.step.run(f"{name}, sent", self.client.fail_token, token, name)
        caught = ""
        try:
            await token.result()
        except TokenFailedError as error:
            caught = error.failure.message
        assert caught == name

    async def child_run(self, ctx: Context, name: str) -> None:
        assert await ctx.step.run_workflow(name, self.child, 0.02) == "child"

    async def failed_child(self, ctx: Context, name: str) -> None:
        try:
            await ctx.step.run_workflow(name, self.failing)
        except ChildFailedError:
            return
        raise AssertionError(f"{name} has not failed")

    async def late_child(self, ctx: Context, name: str) -> None:
        try:
            await ctx.step.run_workflow(name, self.child, 3600.0, timeout=0.1)
        except TimeoutError:
            return
        raise AssertionError(f"{name} has not timed out")

    async def race(self, ctx: Context, name: str) -> None:
        first = await ctx.step.race(
            f"{name}, race",
            event=ctx.step.wait_for_event(f"{name}, event", "tree.no-event"),
            child=ctx.step.run_workflow(f"{name}, child", self.child, 3600.0),
            late=ctx.step.sleep(f"{name}, late", 0.05),
        )
        assert first.winner == "late"

    async def starts(self, ctx: Context, name: str) -> None:
        await ctx.step.start_workflow(name, self.child, 3600.0, parent_close="cancel")


LEAF: dict[str, Callable[[Forest, Context, str], Awaitable[None]]] = {
    "step": Forest.step,
    "slow": Forest.slow,
    "raises": Forest.raises,
    "retries": Forest.retries,
    "sleep": Forest.sleep,
    "event": Forest.event,
    "late event": Forest.late_event,
    "token": Forest.token,
    "failed token": Forest.failed_token,
    "child": Forest.child_run,
    "failed child": Forest.failed_child,
    "late child": Forest.late_child,
    "race": Forest.race,
    "starts": Forest.starts,
}
