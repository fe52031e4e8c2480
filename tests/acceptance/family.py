"""Workflows that wait for one another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from redflow_sdk import Context, workflow


@dataclass
class Family:
    """A workflow that waits for another one, which goes on when it may; their handlers leave what happens."""

    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        @workflow(name="family-child", queue="q_family_child")
        async def child(ctx: Context, n: int) -> int:
            self.log.append("child begins")
            try:
                await ctx.step.run("wait", self.may_go_on.wait)
            except asyncio.CancelledError:
                self.log.append("child is stopped")
                raise
            return n * 2

        @workflow(name="family-parent", queue="q_family_parent")
        async def parent(ctx: Context, n: int) -> int:
            await ctx.step.run("before", self.log.append, "before")
            doubled = await ctx.step.run_workflow("child", child, n)
            await ctx.step.run("after", self.log.append, "after")
            return doubled + 1

        @workflow(name="family-grandparent", queue="q_family_parent")
        async def grandparent(ctx: Context, n: int) -> int:
            return await ctx.step.run_workflow("parent", parent, n)

        self.child, self.parent, self.grandparent = child, parent, grandparent
