"""The workflows of the example worker in compose.yaml."""

from __future__ import annotations

from redflow_sdk import Context, workflow


@workflow(name="greet")
async def greet(ctx: Context, name: str) -> str:
    """Says hello, in a step."""
    return await ctx.step.run("compose", lambda: f"hello {name}")


app = [greet]
