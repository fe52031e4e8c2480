"""A run from its start to its end, through the SDK, a gateway and Redis."""

from __future__ import annotations

from redflow_sdk import Client, Context, workflow
from tests.conftest import StartWorker


async def test_a_run_returns_its_output_and_records_its_steps_in_order(
    client: Client, start_worker: StartWorker
) -> None:
    @workflow(name="add-two", queue="q1")
    async def add_two(ctx: Context, n: int) -> dict[str, int | bool]:
        a = await ctx.step.run("a", lambda: n + 1)
        b = await ctx.step.run("b", lambda: a + 1)
        return {"ok": True, "b": b}

    await start_worker(add_two)

    assert await client.execute(add_two, 1, timeout=5) == {"ok": True, "b": 3}
    [run] = await client.list_runs(workflow="add-two").page()
    steps = await client.get_run_steps(run.id)
    assert [(step.name, step.status) for step in steps] == [("a", "succeeded"), ("b", "succeeded")]
