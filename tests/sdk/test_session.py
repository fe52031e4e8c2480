from __future__ import annotations
from redflow_sdk import Context, workflow
from tests.sdk.messages import payload, value_of

@workflow(name="add")
async def add(ctx: Context, n: int) -> int:
    a = await ctx.step.run("a", lambda: n + 1)
    return a + 1

async def test_try(scripted, connect):
    await connect(scripted, add)
    token = scripted.assign("add", payload(1))
    result = await scripted.log.result(token)
    assert value_of(result.output) == 3
    print(scripted.log.requests)
